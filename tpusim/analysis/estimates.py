"""Our times of kernels beside the compiler's own estimates: by chip and category, and the classes that are far off."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf, log
from statistics import median
from typing import Literal

import msgspec

from tpusim.timeline.records import CORE, Record, Timeline, executions, totals
from tpusim.units import ps_to_us

LEAST_US = 5.0
"""Kernels that take no more than this, by us and by the compiler, are mostly launch, which its estimates leave out."""

LEAST_MEDIAN, MOST_MEDIAN = 0.5, 2.0
"""A class of kernels whose median of ours over the compiler's lies outside is listed."""

_SENTINEL_CYCLES = 2**60
_WORST = 3


def known_cycles(record: Record) -> int:
    """Return the compiler's estimate of one execution; 0 if it made none, or wrote that it could not."""
    return record.compiler_cycles if record.compiler_cycles < _SENTINEL_CYCLES else 0


GAP = 2.0
"""Our time and the compiler's are worth an explanation where they are further apart than by this factor."""

_DOUBLED = (1.6, 2.6)
"""The compiler's estimate over ours within which it has charged a stream through HBM twice: vector kernels of v6e took
0.92 to 0.99 of our time where it said 1.65 to 2.33 of it (device times of PolyBench in the CI of EnzymeAD/Reactant.jl).
"""

GapReason = Literal["", "streams twice", "bytes left out", "not known"]
"""Why our time of a kernel and the compiler's estimate differ, empty where they hardly do."""


def gap_reason(ours_us: float, compiler_us: float, hbm_us: float) -> GapReason:
    """Return why two times of a kernel differ that takes ``hbm_us`` for its bytes of HBM alone."""
    if not (ours_us and compiler_us) or 1 / GAP <= compiler_us / ours_us <= GAP:
        return ""
    if _DOUBLED[0] <= compiler_us / ours_us <= _DOUBLED[1] and 2 * hbm_us > ours_us:
        return "streams twice"
    return "bytes left out" if GAP * compiler_us < hbm_us else "not known"


class KernelEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel as we and as the compiler have it: microseconds of one execution, of ``count``."""

    program: str
    op: str
    chip: str
    category: str
    bound_by: str
    predicted_us: float
    compiler_us: float
    count: int

    @property
    def ratio(self) -> float:
        """Ours over the compiler's."""
        return self.predicted_us / self.compiler_us


class CategoryRatios(msgspec.Struct, frozen=True, kw_only=True):
    """Ours over the compiler's, of the kernels of a chip and category, each counting once.

    ``p10`` and ``p90`` are what one and nine in ten stay below; the times are sums over all executions.
    """

    chip: str
    category: str
    kernels: int
    median: float
    p10: float
    p90: float
    predicted_us: float
    compiler_us: float


class FarClass(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of a chip, a category and what bounds them that are mostly far from the compiler's estimates."""

    chip: str
    category: str
    bound_by: str
    kernels: int
    median: float
    predicted_us: float
    compiler_us: float
    worst: tuple[KernelEstimate, ...]


class EstimateComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of some programs beside the compiler's estimates; ``left_out`` says why by program."""

    programs: int
    left_out: dict[str, str]
    categories: tuple[CategoryRatios, ...]
    far_off: tuple[FarClass, ...]
    kernels: tuple[KernelEstimate, ...]


def kernel_estimates(program: str, timeline: Timeline, clock_hz: float) -> Iterator[KernelEstimate]:
    """Yield the kernels of a run that are long enough and have an estimate, in cycles of ``clock_hz``."""
    found: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in timeline.records:
        if record.is_kernel and record.row == CORE and not record.is_wait and known_cycles(record):
            # Ops of one name in different computations differ by their line.
            found[record.name, record.line].append(record)
    for records in found.values():
        first, count = records[0], executions(records)
        bounds = totals(records, lambda record: record.bounds_ps)
        predicted_us = ps_to_us(sum(record.total_ps for record in records)) / count
        compiler_us = known_cycles(first) / clock_hz * 1e6
        if max(predicted_us, compiler_us) > LEAST_US:
            yield KernelEstimate(
                program=program,
                op=first.name,
                chip=timeline.chip,
                category=first.category,
                bound_by=max(bounds, key=lambda name: bounds[name]),
                predicted_us=predicted_us,
                compiler_us=compiler_us,
                count=count,
            )


def compare_estimates(
    kernels: Sequence[KernelEstimate], programs: int, left_out: Mapping[str, str] = {}
) -> EstimateComparison:
    """Return what kernels of so many programs come to: categories in order, far classes by the time that differs."""
    categories = _grouped(kernels, lambda kernel: (kernel.chip, kernel.category))
    classes = _grouped(kernels, lambda kernel: (kernel.chip, kernel.category, kernel.bound_by))
    found = [_far_class(key, members) for key, members in classes.items()]
    far = [one for one in found if not LEAST_MEDIAN <= one.median <= MOST_MEDIAN]
    return EstimateComparison(
        programs=programs,
        left_out=dict(left_out),
        categories=tuple(_ratios(key, members) for key, members in sorted(categories.items())),
        far_off=tuple(sorted(far, key=lambda one: -abs(one.predicted_us - one.compiler_us))),
        kernels=tuple(kernels),
    )


def percentile(values: Iterable[float], share: float) -> float:
    """Return what a share of some values stays below, on straight lines between them in their order."""
    ranked = sorted(values)
    place = share * (len(ranked) - 1)
    below = int(place)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (place - below) * (ranked[above] - ranked[below])


def _grouped(
    kernels: Sequence[KernelEstimate], key_of: Callable[[KernelEstimate], tuple[str, ...]]
) -> dict[tuple[str, ...], list[KernelEstimate]]:
    found: dict[tuple[str, ...], list[KernelEstimate]] = defaultdict(list)
    for kernel in kernels:
        found[key_of(kernel)].append(kernel)
    return found


def _sums(kernels: Sequence[KernelEstimate]) -> dict[str, float]:
    return {
        "predicted_us": sum(kernel.predicted_us * kernel.count for kernel in kernels),
        "compiler_us": sum(kernel.compiler_us * kernel.count for kernel in kernels),
    }


def _ratios(key: tuple[str, ...], kernels: Sequence[KernelEstimate]) -> CategoryRatios:
    ratios = [kernel.ratio for kernel in kernels]
    return CategoryRatios(
        chip=key[0],
        category=key[1],
        kernels=len(ratios),
        median=median(ratios),
        p10=percentile(ratios, 0.1),
        p90=percentile(ratios, 0.9),
        **_sums(kernels),
    )


def _far_class(key: tuple[str, ...], kernels: Sequence[KernelEstimate]) -> FarClass:
    chip, category, bound_by = key
    return FarClass(
        chip=chip,
        category=category,
        bound_by=bound_by,
        kernels=len(kernels),
        median=median(kernel.ratio for kernel in kernels),
        worst=tuple(_worst(kernels)),
        **_sums(kernels),
    )


def _worst(kernels: Sequence[KernelEstimate]) -> list[KernelEstimate]:
    """Return the kernels that are furthest off, one of each that a program has many times."""
    alike: dict[tuple[str, float, float], KernelEstimate] = {}
    for kernel in kernels:
        alike.setdefault((kernel.program, round(kernel.predicted_us, 2), round(kernel.compiler_us, 2)), kernel)
    return sorted(alike.values(), key=_closeness)[:_WORST]


def _closeness(kernel: KernelEstimate) -> float:
    """Return 0 for a kernel as the compiler has it, less for others: a third and three times are as far off."""
    return -abs(log(kernel.ratio)) if kernel.ratio else -inf
