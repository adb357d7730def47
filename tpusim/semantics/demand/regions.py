"""Regions of arrays: which of their elements are meant, dimension by dimension.

A region is a union of boxes; a box is a product of spans, one per dimension, each an arithmetic progression of indices.
The start of a span may be unknown (a dynamic slice, a tile at any place); its count is always known. Regions are upper
bounds: what they leave out is certainly not meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import gcd, prod
from typing import Final

import msgspec

from tpusim.shapes.address import element_bits, physical_bytes
from tpusim.shapes.shape import ArrayShape

_MOST_BOXES = 4
"""A region of more boxes is replaced by one box around them all."""

_MOST_JOINED = 64
"""No more boxes are looked through for such that are one together."""


class Span(msgspec.Struct, frozen=True, gc=False):
    """``count`` indices of one dimension, ``step`` apart, from ``start`` on; a start of None is unknown."""

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

    @property
    def is_exact(self) -> bool:
        """Whether exactly the elements of the spans are meant, at known places."""
        return self.most == prod(s.count for s in self.spans) and all(s.start is not None for s in self.spans)

    def moved(self, spans: Iterable[Span], times: int = 1) -> Box:
        """Return a box of other spans for which at most ``times`` elements are needed for each of this one."""
        found = tuple(spans)
        return Box(found, min(self.most * times, prod(span.count for span in found)), self.pieces)


class Region(msgspec.Struct, frozen=True, gc=False):
    """A part of an array: the union of ``boxes``, or all of it."""

    boxes: tuple[Box, ...] = ()
    is_whole: bool = False

    def __bool__(self) -> bool:
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
    """Return the union of boxes of an array of this shape, in as few boxes as possible, whatever their order."""
    placed = [_placed(box, shape) for box in boxes if box.most]
    if len(placed) > 1:
        placed.sort(key=_order)
    kept: list[Box] = []
    for box in placed:
        _absorb(kept, box)
        if len(kept) > _MOST_JOINED:
            kept = placed
            break
    if len(kept) > _MOST_BOXES:
        kept = [_hull(kept, shape)]
    return WHOLE if any(box.most >= shape.element_count for box in kept) else Region(tuple(kept))


def _placed(box: Box, shape: ArrayShape) -> Box:
    """Return a box in whose place as many indices as a dimension has are all of them."""
    pairs = list(zip(box.spans, shape.dimensions, strict=True))
    if any(span.start is None and span.count >= size for span, size in pairs):
        return box.moved(Span(size) if span.count >= size else span for span, size in pairs)
    return box


def _order(box: Box) -> tuple[object, ...]:
    """Return what boxes are sorted by: neighbours in the last dimension follow each other."""
    spans = ((-1 if s.start is None else s.start, s.count, s.step) for s in box.spans)
    return *spans, box.most, box.pieces


def union(regions: Iterable[Region], shape: ArrayShape) -> Region:
    """Return what lies in any of some regions of an array of this shape."""
    found = [region for region in regions if region]
    if len(found) < 2 or any(region.is_whole for region in found):
        return next((region for region in found if region.is_whole), found[0] if found else NOTHING)
    return region_of([box for region in found for box in region.boxes], shape)


def region_bytes(region: Region, shape: ArrayShape) -> float:
    """Return the bytes of a region of a physical array: whole tiles, never more than all of it."""
    whole = float(physical_bytes(shape))
    if region.is_whole or not region:
        return whole if region else 0.0
    return min(whole, sum(_box_bytes(box, shape) for box in region.boxes))


def run_of(region: Region, shape: ArrayShape) -> int:
    """Return the bytes of the longest contiguous piece of a region; 0 for a whole array."""
    if region.is_whole:
        return 0
    # A slice has whole tiles, a row among many only its own elements.
    pieces = (
        int(_box_bytes(box, shape)) if box.pieces == 1 else max(1, box.most // box.pieces * shape.dtype.bits // 8)
        for box in region.boxes
    )
    return max(pieces, default=0)


def _box_bytes(box: Box, shape: ArrayShape) -> float:
    """Return the bytes that are fetched for a box: whole rows of tiles."""
    n_bits = float(element_bits(shape)) * box.most
    for span, size, (tile, row) in zip(box.spans, shape.dimensions, _grains(shape), strict=True):
        # All of a dimension comes with its padding.
        grain = tile if span.count >= size else row
        # An unknown start is taken to be aligned to tiles, as in a scan over layers or for a cache line.
        offset = span.start % grain if span.start is not None else 0
        n_bits *= min(-(-(offset + span.reach) // grain), span.count) * grain / span.count
    return n_bits / 8


@lru_cache(maxsize=4096)
def _grains(shape: ArrayShape) -> tuple[tuple[int, int], ...]:
    """Return by dimension the size of a tile, and how many elements of it cannot be fetched apart.

    A row of a tile can; with narrow types, as many rows as share a word. Elements of a row cannot.
    """
    layout, found = shape.actual_layout, [(1, 1)] * shape.rank
    words = layout.tiles[1] if len(layout.tiles) > 1 else ()
    tiles = reversed(layout.tiles[0] if layout.tiles else ())
    for number, (d, tile) in enumerate(zip(layout.minor_to_major, tiles, strict=False)):
        found[d] = (tile, tile if number == 0 else words[-1 - number] if number < len(words) else 1)
    return tuple(found)


def _absorb(kept: list[Box], box: Box) -> None:
    """Add a box to those that are kept, joined with those whose union with it is a box."""
    at = 0 if box.is_exact else len(kept)
    while at < len(kept):
        joined = _joined(kept[at], box) if kept[at].is_exact else None
        if joined is None:
            at += 1
            continue
        # The larger box may fit to one that the smaller did not fit to.
        box, at = joined, 0
        kept[:] = [other for other in kept if not other.is_exact or _joined(other, joined) != joined]
    kept.append(box)


def _joined(first: Box, second: Box) -> Box | None:
    """Return the box that is exactly the union of two, None if none is."""
    pairs = [(d, a, b) for d, (a, b) in enumerate(zip(first.spans, second.spans, strict=True)) if a != b]
    common = [common_span(a, b).count for _, a, b in pairs]
    if common == [b.count for _, _, b in pairs]:
        return first
    if common == [a.count for _, a, _ in pairs]:
        return second
    span = _joined_span(*pairs[0][1:]) if len(pairs) == 1 else None
    if span is None:
        return None
    d = pairs[0][0]
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
    begin += max(0, -(-(max(first.start, second.start) - begin) // step)) * step
    last = min(first.start + first.reach, second.start + second.reach) - 1
    return Span(max(0, (last - begin) // step + 1), begin, step)


def _hull(boxes: Sequence[Box], shape: ArrayShape) -> Box:
    spans = tuple(_hull_span([box.spans[d] for box in boxes], size) for d, size in enumerate(shape.dimensions))
    most = min(sum(box.most for box in boxes), prod(span.count for span in spans))
    return Box(spans, most, max(box.pieces for box in boxes))


def _hull_span(spans: Sequence[Span], size: int) -> Span:
    if all(span == spans[0] for span in spans) and spans[0].start is not None:
        return spans[0]
    starts = [span.start for span in spans if span.start is not None]
    if len(starts) < len(spans):
        count = min(size, sum(span.reach for span in spans))
        return Span(count, None if count < size else 0)
    low = min(starts)
    return Span(max(start + span.reach for start, span in zip(starts, spans, strict=True)) - low, low)
