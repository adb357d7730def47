"""Programs that tpusim compiled beside the same programs as the TPU compiler leaves them, both simulated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import geometric_mean, median

import msgspec

from tpusim.analysis.summary import Summary
from tpusim.hardware.units import MATRIX
from tpusim.units import ps_to_us

NEAR, FAR = 0.15, 0.30
"""How far off a time may be to count as near, and as not far."""


class RunSize(msgspec.Struct, frozen=True, kw_only=True):
    """What a run takes: microseconds, kernels, bytes of HBM traffic, busy time of the matrix unit, peak of HBM."""

    time_us: float
    kernels: int
    hbm_bytes: float
    mxu_us: float
    peak_hbm_bytes: int
    argument_bytes: int


class CompiledPair(msgspec.Struct, frozen=True, kw_only=True):
    """One program on one chip, as tpusim compiled it (``ours``) and as the TPU compiler did (``theirs``)."""

    program: str
    chip: str
    ours: RunSize
    theirs: RunSize

    @property
    def ratio(self) -> float:
        """Our time over theirs."""
        return self.ours.time_us / self.theirs.time_us


class CompiledAccuracy(msgspec.Struct, frozen=True, kw_only=True):
    """How far off programs of ours are, over all pairs.

    ``factor`` is the geometric mean of the larger time over the smaller, ``by_chip`` the same for each chip;
    ``near`` and ``not_far`` are the shares of pairs within ``NEAR`` and ``FAR``. ``medians`` are those of the larger
    over the smaller figure, by the name of the figure.
    """

    factor: float
    near: float
    not_far: float
    by_chip: dict[str, float]
    medians: dict[str, float]
    pairs: tuple[CompiledPair, ...]


def run_size(summary: Summary) -> RunSize:
    """Return what a run takes."""
    return RunSize(
        time_us=ps_to_us(summary.total_ps),
        kernels=summary.utilisation.kernels,
        hbm_bytes=summary.utilisation.hbm_bytes,
        mxu_us=ps_to_us(summary.total_ps) * summary.utilisation.busy.get(MATRIX, 0.0),
        peak_hbm_bytes=summary.memory.peak_hbm_bytes,
        argument_bytes=summary.memory.argument_bytes,
    )


def compiled_accuracy(pairs: Sequence[CompiledPair]) -> CompiledAccuracy:
    """Return how far off the pairs are together; there must be one."""
    by_chip: defaultdict[str, list[float]] = defaultdict(list)
    for pair in pairs:
        by_chip[pair.chip].append(pair.ratio)
    ratios = [pair.ratio for pair in pairs]
    return CompiledAccuracy(
        factor=mean_factor(ratios),
        near=sum(abs(ratio - 1) <= NEAR for ratio in ratios) / len(ratios),
        not_far=sum(abs(ratio - 1) <= FAR for ratio in ratios) / len(ratios),
        by_chip={chip: mean_factor(found) for chip, found in sorted(by_chip.items())},
        medians={name: _median(pairs, figure) for name, figure in _FIGURES.items()},
        pairs=tuple(pairs),
    )


def mean_factor(ratios: Iterable[float]) -> float:
    """Return the geometric mean of ratios, each turned so that it is at least 1."""
    return geometric_mean(max(ratio, 1 / ratio) for ratio in ratios)


def _median(pairs: Sequence[CompiledPair], figure: Callable[[RunSize], float]) -> float:
    """Return the median factor of a figure, over the pairs of which both have it; 1 if none has."""
    both = [(figure(pair.ours), figure(pair.theirs)) for pair in pairs]
    return median([max(a / b, b / a) for a, b in both if a and b] or [1.0])


_FIGURES: dict[str, Callable[[RunSize], float]] = {
    "time": lambda run: run.time_us,
    "kernels": lambda run: run.kernels,
    "HBM traffic": lambda run: run.hbm_bytes,
    "MXU busy": lambda run: run.mxu_us,
    "peak HBM": lambda run: run.peak_hbm_bytes,
    "arguments": lambda run: run.argument_bytes,
}
