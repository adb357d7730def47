"""How far the times of a run may be off, and what the compiler's estimates are worth: claims that need a warrant."""

from __future__ import annotations

from collections import Counter
from functools import cache

import msgspec

from tpusim.hardware.chip import Chip
from tpusim.hardware.load import load_chip, read_config
from tpusim.program.module import Program
from tpusim.program.provenance import MEGACORE, Provenance
from tpusim.program.steps import Kernel
from tpusim.timeline.records import CORE, Timeline

OTHER = "other"
"""What is no kernel of a known family: waits, collectives, scalars, transfers."""

_LEAST_SHARE = 0.005


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The mean absolute error of predictions, as a share, over so many measured rows ``of`` something."""

    error: float
    rows: int
    of: str = ""


class CompiledError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far programs that tpusim compiled are off: the mean factor, up or down, between their simulated time and
    that of the same programs as the TPU compiler leaves them, over so many pairs: those that its rules come from.
    """

    factor: float
    pairs: int


@cache
def compiled_error() -> CompiledError:
    """Return what was found of the programs that the repository has of both compilers."""
    return msgspec.convert(read_config("compiled.toml"), CompiledError)


@cache
def measured_errors() -> dict[str, dict[str, Measured]]:
    """Return by chip, as the measurements name it, and family of kernels (``Kernel.family``) what was measured."""
    return msgspec.convert(read_config("accuracy.toml"), dict[str, dict[str, Measured]])


def errors_of(chip_name: str) -> dict[str, Measured]:
    """Return by family of kernels what was measured on a chip; both ways to see a v4 are one."""
    return measured_errors().get(chip_name.removesuffix(MEGACORE), {})


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """A family of kernels: its share of a run's time, and the mean absolute error of so many measured rows ``of``
    something.

    Without measurements on this chip ``rows`` and ``error`` are 0.
    """

    kind: str
    share: float
    error: float = 0.0
    rows: int = 0
    of: str = ""


def error_bands(program: Program, timeline: Timeline, chip_name: str) -> tuple[Band, ...]:
    """Return the bands of the families of kernels that a run consists of, the largest share first."""
    families = {step.name: step.family for step in program.every_step if isinstance(step, Kernel)}
    times_ps: Counter[str] = Counter()
    for record in timeline.records:
        if record.row == CORE:
            times_ps[families.get(record.name) or OTHER] += record.total_ps
    measured, total_ps = errors_of(chip_name), max(1, timeline.total_ps)
    shares = {kind: kind_ps / total_ps for kind, kind_ps in times_ps.most_common()}
    found = {kind: msgspec.structs.asdict(measured[kind]) if kind in measured else {} for kind in shares}
    return tuple(Band(kind=kind, share=share, **found[kind]) for kind, share in shares.items() if share >= _LEAST_SHARE)


def compiler_clock_hz(provenance: Provenance | None, chip: Chip) -> float:
    """Return the clock that the compiler's estimates of cycles count in, 0 if they say nothing of this chip."""
    # Not the chip's own, which may have been replaced.
    return load_chip(chip.name).clock_hz if provenance and provenance.is_for(chip.name) else 0.0


def compiler_us(cycles: int, clock_hz: float) -> float | None:
    """Return the compiler's estimate in microseconds, or None if it made none for this chip."""
    # No cycles mean no estimate: none takes no time. No clock means that they are of another chip.
    return cycles / clock_hz * 1e6 if cycles and clock_hz else None
