"""Boxes seen through a change of shape: the part of a reshape's or bitcast's operand that a box of its result is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import msgspec

from tpusim.semantics.demand.regions import Box, Span
from tpusim.shapes.address import positions
from tpusim.shapes.shape import ArrayShape


class Group(msgspec.Struct, frozen=True, gc=False):
    """Dimensions of the operand that hold, in row-major order, the same elements as ``result`` dimensions do."""

    operand: tuple[int, ...]
    result: tuple[int, ...]


def box_behind(box: Box, groups: Sequence[Group] | None, operand: ArrayShape, result: ArrayShape) -> Box:
    """Return the part of ``operand`` that a box of its reshaped or bitcast ``result`` is; None groups nothing."""
    spans = list(map(Span, operand.dimensions))
    for group in groups or ():
        sizes = [operand.dimensions[d] for d in group.operand]
        inner = _spans_behind([box.spans[d] for d in group.result], [result.dimensions[d] for d in group.result], sizes)
        for d, span in zip(group.operand, inner, strict=True):
            spans[d] = span
    # Each element of the result is one of the operand: their number is kept even where their places are lost.
    return box.moved(spans)


@lru_cache(maxsize=4096)
def reshape_groups(operand: ArrayShape, result: ArrayShape) -> tuple[Group, ...]:
    """Return the groups of a reshape, whose elements follow each other in row-major order."""
    return _groups(operand, tuple(range(operand.rank)), result, tuple(range(result.rank))) or ()


@lru_cache(maxsize=4096)
def bitcast_groups(operand: ArrayShape, result: ArrayShape) -> tuple[Group, ...] | None:
    """Return the groups of a bitcast, whose elements keep their places in memory; None if no groups explain it."""
    orders = [tuple(reversed(shape.actual_layout.minor_to_major)) for shape in (operand, result)]
    candidates = (reshape_groups(operand, result), _groups(operand, orders[0], result, orders[1]))
    return next((groups for groups in candidates if groups and _keeps_places(groups, operand, result)), None)


def _groups(
    operand: ArrayShape, operand_order: Sequence[int], result: ArrayShape, result_order: Sequence[int]
) -> tuple[Group, ...] | None:
    """Pair the smallest runs of dimensions, taken in these orders, that have equally many elements."""
    if operand.element_count != result.element_count or not operand.element_count:
        return None
    left = [d for d in operand_order if operand.dimensions[d] > 1]
    right = [d for d in result_order if result.dimensions[d] > 1]
    groups: list[Group] = []
    while left:
        taken, given = [left.pop(0)], [right.pop(0)]
        sizes = operand.dimensions[taken[0]], result.dimensions[given[0]]
        while sizes[0] != sizes[1]:
            if sizes[0] < sizes[1]:
                taken.append(left.pop(0))
            else:
                given.append(right.pop(0))
            sizes = prod(operand.dimensions[d] for d in taken), prod(result.dimensions[d] for d in given)
        groups.append(Group(tuple(taken), tuple(given)))
    return tuple(groups)


def _keeps_places(groups: Sequence[Group], operand: ArrayShape, result: ArrayShape) -> bool:
    """Return whether elements that correspond by ``groups`` lie at the same place in memory, by some of each group."""
    for group in groups:
        sizes = [result.dimensions[d] for d in group.result]
        count = prod(sizes)
        # The first of each tile, the last of all and those beside them: a tile that differs moves one of these.
        for linear in {min(count - 1, n) for n in (1, 2, 4, 7, 8, 16, 32, 127, 128, 256, 1024, count // 2, count - 1)}:
            index = _at(group.result, sizes, linear, result.rank)
            other = _at(group.operand, [operand.dimensions[d] for d in group.operand], linear, operand.rank)
            if positions(result, index) != positions(operand, other):
                return False
    return True


def _at(dimensions: Sequence[int], sizes: Sequence[int], linear: int, rank: int) -> tuple[int, ...]:
    """Return the index of the ``linear``-th element of some dimensions in row-major order, 0 in all others."""
    index = [0] * rank
    for d, size in zip(reversed(dimensions), reversed(sizes), strict=True):
        linear, index[d] = divmod(linear, size)
    return tuple(index)


def _spans_behind(spans: Sequence[Span], sizes: Sequence[int], wanted: Sequence[int]) -> list[Span]:
    """Return the spans of dimensions of ``wanted`` sizes that hold what ``spans`` of ``sizes`` do, row-major."""
    if list(sizes) == list(wanted):
        return list(spans)
    run = _run(spans, sizes)
    if run is None:
        return list(map(Span, wanted))
    found: list[Span] = []
    rest = prod(wanted)
    for size in wanted:
        rest //= size
        span, run = _first_dimension(run, rest)
        found.append(span if span.count < size else Span(size))
    return found


def _run(spans: Sequence[Span], sizes: Sequence[int]) -> Span | None:
    """Return the elements of a box as one run of its row-major order, None if they are not one."""
    run = Span(1)
    for number, (span, size) in enumerate(zip(spans, sizes, strict=True)):
        # Below single indices comes one part of a dimension, then whole ones only.
        if run.count > 1 and span.count < size:
            return None
        if span.step > 1 and span.count > 1 and number < len(spans) - 1:
            return None
        start = None if run.start is None or span.start is None else run.start * size + span.start
        run = Span(run.count * span.count, start, span.step if span.count > 1 and number == len(spans) - 1 else 1)
    return run


def _first_dimension(run: Span, rest: int) -> tuple[Span, Span]:
    """Return the indices of a dimension that a run touches, ``rest`` elements each, and the run within each."""
    whole = Span(rest)
    if rest == 1:
        return run, whole
    if run.start is not None:
        first, last = run.start // rest, (run.start + run.reach - 1) // rest
        return Span(last - first + 1, first), Span(run.count, run.start % rest, run.step) if first == last else whole
    if run.reach % rest == 0:
        return Span(run.reach // rest, None), whole
    if rest % run.reach == 0:
        # A run at an unknown place is taken to begin at a multiple of its length.
        return Span(1, None), run
    return Span(run.reach // rest + 2, None), whole
