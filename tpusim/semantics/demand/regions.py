"""Regions of arrays: which of their elements are meant, dimension by dimension.

A region is a union of boxes; a box is a product of spans, one a dimension, each an arithmetic progression of indices.
Where a span begins need not be known (the start of a dynamic slice, a tile at any place): its count still is. Regions
are upper bounds: what they leave out is certainly not meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations
from math import gcd, prod
from typing import Final

import msgspec

from tpusim.shapes.address import element_bits, physical_bytes
from tpusim.shapes.shape import ArrayShape

_MOST_BOXES = 4
"""More boxes than this are joined into one: all pairs, triples and so on of them are looked at to count elements."""


class Span(msgspec.Struct, frozen=True, gc=False):
    """``count`` indices of one dimension, ``step`` apart, from ``start`` on; a start of None is not known."""

    count: int
    start: int | None = 0
    step: int = 1

    @property
    def reach(self) -> int:
        """Indices from the first to the last, both included."""
        return (self.count - 1) * self.step + 1 if self.count else 0


class Box(msgspec.Struct, frozen=True, gc=False):
    """A product of spans, of which no more than ``most`` elements are meant, in ``pieces`` that lie apart."""

    spans: tuple[Span, ...]
    most: int
    pieces: int = 1

    def moved(self, spans: Iterable[Span], times: int = 1) -> Box:
        """Return a box of other spans for which at most ``times`` elements are needed for each of this one."""
        found = tuple(spans)
        return Box(found, min(self.most * times, prod(span.count for span in found)), self.pieces)


class Region(msgspec.Struct, frozen=True, gc=False):
    """A part of an array: the union of ``boxes``, or all of it."""

    boxes: tuple[Box, ...] = ()
    is_whole: bool = False

    def __bool__(self) -> bool:
        """Whether anything is meant at all."""
        return self.is_whole or bool(self.boxes)


NOTHING: Final = Region()
WHOLE: Final = Region((), is_whole=True)


def whole_box(shape: ArrayShape) -> Box:
    """Return the box of all elements of an array."""
    return Box(tuple(map(Span, shape.dimensions)), shape.element_count)


def boxes_of(region: Region, shape: ArrayShape) -> tuple[Box, ...]:
    """Return the boxes of a region of an array of this shape."""
    return (whole_box(shape),) if region.is_whole else region.boxes


def region_of(boxes: Iterable[Box], shape: ArrayShape) -> Region:
    """Return the union of boxes of an array of this shape, in as few boxes as it takes."""
    kept: list[Box] = []
    for box in boxes:
        if box.most:
            _absorb(kept, _settled(box, shape))
    if any(_is_whole(box, shape) for box in kept):
        return WHOLE
    return Region(tuple(kept) if len(kept) <= _MOST_BOXES else (_hull(kept, shape),))


def union(first: Region, second: Region, shape: ArrayShape) -> Region:
    """Return what lies in either of two regions of an array of this shape."""
    if first.is_whole or not second:
        return first
    if second.is_whole or not first:
        return second
    return region_of((*first.boxes, *second.boxes), shape)


def element_count(region: Region, shape: ArrayShape) -> int:
    """Return the elements of a region: exactly if all its places are known, else at most so many."""
    if region.is_whole:
        return shape.element_count
    known = [box for box in region.boxes if _is_exact(box)]
    counted = sum(box.most for box in region.boxes if not _is_exact(box))
    # Inclusion and exclusion: pairs are counted twice, triples then taken off too often, and so on.
    for size in range(1, len(known) + 1):
        sign = 1 if size % 2 else -1
        counted += sign * sum(_common_count(chosen) for chosen in combinations(known, size))
    return min(counted, shape.element_count)


def region_bytes(region: Region, shape: ArrayShape) -> float:
    """Return the bytes of a region of a physical array: whole tiles, never more than all of it."""
    whole = float(physical_bytes(shape))
    if region.is_whole or not region:
        return whole if region else 0.0
    n_bytes = sum(_box_bytes(box, shape) for box in region.boxes)
    return min(whole, n_bytes)


def run_of(region: Region, shape: ArrayShape) -> int:
    """Return the bytes of the longest piece of a region that lies together; 0 for a whole array."""
    if region.is_whole:
        return 0
    return max((_piece_bytes(box, shape) for box in region.boxes), default=0)


def _piece_bytes(box: Box, shape: ArrayShape) -> int:
    """Return the bytes of one piece of a box: a slice has whole tiles, a row of many only its own elements."""
    if box.pieces == 1:
        return int(_box_bytes(box, shape))
    return max(1, box.most // box.pieces * shape.dtype.bits // 8)


def _box_bytes(box: Box, shape: ArrayShape) -> float:
    """Return the bytes that are fetched for a box: whole rows of tiles."""
    n_bits = float(element_bits(shape)) * box.most
    for span, size, (tile, grain) in zip(box.spans, shape.dimensions, _grains(shape), strict=True):
        # All of a dimension comes with its padding.
        n_bits *= _extent(span, tile if span.count >= size else grain) / span.count
    return n_bits / 8


@lru_cache(maxsize=4096)
def _grains(shape: ArrayShape) -> tuple[tuple[int, int], ...]:
    """Return by dimension the size of a tile, and how many elements of it cannot be fetched apart.

    A row of a tile is: with narrow types, as many rows as share a word. Elements of a row are not.
    """
    layout, found = shape.actual_layout, [(1, 1)] * shape.rank
    words = layout.tiles[1] if len(layout.tiles) > 1 else ()
    for number, (d, tile) in enumerate(
        zip(layout.minor_to_major, reversed(layout.tiles[0] if layout.tiles else ()), strict=False)
    ):
        packed = words[-1 - number] if number < len(words) else 1
        found[d] = (tile, tile if number == 0 else packed)
    return tuple(found)


def _extent(span: Span, grain: int) -> int:
    """Return how many elements have to be fetched along a dimension for those of a span."""
    # A start that nobody knows is taken to be a tile's, as those of a scan over layers or of a cache line are.
    offset = span.start % grain if span.start is not None else 0
    return min(-(-(offset + span.reach) // grain), span.count) * grain


def _settled(box: Box, shape: ArrayShape) -> Box:
    """Return a box with the places that follow from its counts alone."""
    if all(span.start is not None or span.count < size for span, size in zip(box.spans, shape.dimensions, strict=True)):
        return box
    spans = (Span(size) if span.count >= size else span for span, size in zip(box.spans, shape.dimensions, strict=True))
    return box.moved(spans)


def _is_whole(box: Box, shape: ArrayShape) -> bool:
    """Tell whether a box is all of an array."""
    return box.most >= shape.element_count


def _is_exact(box: Box) -> bool:
    """Tell whether exactly the elements of a box's spans are meant, and it is known where they are."""
    return box.most == prod(s.count for s in box.spans) and all(s.start is not None for s in box.spans)


def _absorb(kept: list[Box], box: Box) -> None:
    """Add a box to those that are kept, joined with those that it fits to."""
    if not _is_exact(box):
        kept.append(box)
        return
    at = 0
    while at < len(kept):
        joined = _joined(kept[at], box) if _is_exact(kept[at]) else None
        if joined is None:
            at += 1
            continue
        # What has grown may fit to one that it did not fit to before.
        box, at = joined, 0
        kept[:] = [other for other in kept if _joined(other, joined) != joined]
    kept.append(box)


def _joined(first: Box, second: Box) -> Box | None:
    """Return the box that is exactly the union of two, None if none is."""
    differing = [d for d, pair in enumerate(zip(first.spans, second.spans, strict=True)) if pair[0] != pair[1]]
    if not differing:
        return first
    if all(_within(second.spans[d], first.spans[d]) for d in differing):
        return first
    if all(_within(first.spans[d], second.spans[d]) for d in differing):
        return second
    if len(differing) > 1:
        return None
    (d,) = differing
    span = _joined_span(first.spans[d], second.spans[d])
    if span is None:
        return None
    spans = (*first.spans[:d], span, *first.spans[d + 1 :])
    return Box(spans, prod(s.count for s in spans), max(first.pieces, second.pieces))


def _joined_span(first: Span, second: Span) -> Span | None:
    """Return the span that is exactly the union of two whose starts are known, None if none is."""
    assert first.start is not None
    assert second.start is not None
    if first.start > second.start:
        return _joined_span(second, first)
    step = first.step if first.count > 1 else second.step if second.count > 1 else second.start - first.start
    if (first.count > 1 and second.count > 1 and first.step != second.step) or (second.start - first.start) % step:
        return None
    if second.start > first.start + first.count * step:
        return None
    last = max(first.start + (first.count - 1) * step, second.start + (second.count - 1) * step)
    return Span((last - first.start) // step + 1, first.start, step)


def _within(inner: Span, outer: Span) -> bool:
    """Tell whether all of ``inner`` lies in ``outer``, both at known places."""
    return common_span(inner, outer).count == inner.count


def common_span(first: Span, second: Span) -> Span:
    """Return the indices in both of two spans whose starts are known."""
    assert first.start is not None
    assert second.start is not None
    common = gcd(first.step, second.step)
    if (second.start - first.start) % common:
        return Span(0)
    # first.start + k * first.step = second.start (modulo second.step): k from the modular inverse.
    period = second.step // common
    k = (second.start - first.start) // common * pow(first.step // common, -1, period) % period if period > 1 else 0
    step, begin = first.step * period, first.start + k * first.step
    low = max(first.start, second.start)
    begin += max(0, -(-(low - begin) // step)) * step
    last = min(first.start + first.reach, second.start + second.reach) - 1
    return Span(max(0, (last - begin) // step + 1), begin, step)


def _common_count(boxes: Sequence[Box]) -> int:
    """Return the elements in all of some boxes at known places."""
    spans = boxes[0].spans
    for box in boxes[1:]:
        spans = tuple(common_span(*pair) for pair in zip(spans, box.spans, strict=True))
    return prod(span.count for span in spans)


def _hull(boxes: Sequence[Box], shape: ArrayShape) -> Box:
    """Return one box around all of some."""
    spans = tuple(_hull_span([box.spans[d] for box in boxes], size) for d, size in enumerate(shape.dimensions))
    most = min(sum(box.most for box in boxes), prod(span.count for span in spans))
    return Box(spans, most, max(box.pieces for box in boxes))


def _hull_span(spans: Sequence[Span], size: int) -> Span:
    """Return a span around some."""
    if all(span == spans[0] for span in spans) and spans[0].start is not None:
        return spans[0]
    starts = [span.start for span in spans if span.start is not None]
    if len(starts) < len(spans):
        count = min(size, sum(span.reach for span in spans))
        return Span(count, None if count < size else 0)
    low = min(starts)
    return Span(max(start + span.reach for start, span in zip(starts, spans, strict=True)) - low, low)
