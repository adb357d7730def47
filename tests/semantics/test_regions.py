"""Regions against sets of indices."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.semantics.regions import element_count
from tpusim.semantics.demand.regions import (
    NOTHING,
    WHOLE,
    Box,
    Region,
    Span,
    common_span,
    region_bytes,
    region_of,
    run_of,
    union,
)
from tpusim.shapes.notation import parse_shape

SHAPE = parse_shape("f32[12,10]")
TILED = parse_shape("f32[64,512]{1,0:T(8,128)}")
PACKED = parse_shape("bf16[64,512]{1,0:T(8,128)(2,1)}")


def indices(span):
    """Return the set of indices of a span."""
    return {span.start + n * span.step for n in range(span.count)}


@st.composite
def spans(draw, size):
    """Draw a span inside a dimension."""
    start, step = draw(st.integers(0, size - 1)), draw(st.integers(1, 4))
    return Span(draw(st.integers(1, (size - 1 - start) // step + 1)), start, step)


boxes = st.builds(lambda a, b: Box((a, b), a.count * b.count), spans(12), spans(10))


def elements(found):
    """Return the set of elements of some boxes."""
    return {index for box in found for index in product(*map(indices, box.spans))}


@given(spans(12), spans(12))
def test_common_indices_of_two_spans(first, second):
    """The intersection of two progressions is a progression."""
    common = common_span(first, second)
    assert (indices(common) if common.count else set()) == indices(first) & indices(second)


@given(st.lists(boxes, min_size=1, max_size=4))
def test_elements_of_a_few_boxes_are_counted_once(found):
    """Up to four boxes are counted exactly, however they overlap."""
    assert element_count(region_of(found, SHAPE), SHAPE) == len(elements(found))


@given(st.lists(boxes, min_size=5, max_size=9))
def test_more_boxes_are_counted_from_above(found):
    """Many boxes may be joined into one around them, which is never too small and never more than the array."""
    count = element_count(region_of(found, SHAPE), SHAPE)
    assert len(elements(found)) <= count <= SHAPE.element_count


def test_unplaced_boxes_add_up_to_no_more_than_the_array():
    """Of two parts at unknown places both are counted."""
    region = region_of([Box((Span(4, None), Span(10)), 40)] * 2, SHAPE)
    assert element_count(region, SHAPE) == 80
    assert element_count(union([region, region], SHAPE), SHAPE) == 120


@given(st.lists(boxes, min_size=2, max_size=9), st.randoms())
def test_the_order_of_boxes_does_not_matter(found, random):
    """What uses a value in a kernel may stand in any order."""
    assert region_of(found, SHAPE) == region_of(random.sample(found, len(found)), SHAPE)


@given(st.lists(boxes, min_size=2, max_size=7), st.integers(1, 12))
def test_boxes_with_and_without_a_place_are_counted_from_above(found, count):
    """What becomes one with others leaves a box alone of which nobody knows where it lies."""
    unplaced = Box((Span(count, None), Span(10)), 10 * count)
    region = region_of([*found, unplaced], SHAPE)
    assert max(len(elements(found)), unplaced.most) <= element_count(region, SHAPE) <= SHAPE.element_count


def test_all_rows_in_any_order_are_the_whole():
    """Also where those that came first lie apart."""
    rows = [Box((Span(1, row), Span(10)), 10) for row in (0, 6, 2, 10, 4, 8, 1, 3, 5, 7, 9, 11)]
    assert region_of(rows, SHAPE) == WHOLE


def test_a_hundred_places_are_one_box_around_them():
    """A pass over what a kernel needs takes no longer for them."""
    shape = parse_shape("f32[400,8]")
    (box,) = region_of([Box((Span(1, row), Span(8)), 8) for row in range(0, 400, 4)], shape).boxes
    assert box == Box((Span(100, 0, 4), Span(8)), 800)
    (box,) = region_of([Box((Span(1 + row % 3, row), Span(8)), 8) for row in range(0, 400, 4)], shape).boxes
    assert (box.spans[0].start, box.most) == (0, 800)


PIECES = [Box((Span(2, None), Span(1, column)), 2, pieces=column + 1) for column in range(0, 10, 2)]


def test_a_box_around_many_has_no_more_than_they_have_together():
    """Five pairs of rows at unknown places, in columns 0 to 8: of ten rows of nine columns ten elements count."""
    (box,) = region_of(PIECES, SHAPE).boxes
    assert box == Box((Span(10, None), Span(9, 0)), 10, pieces=9)


def test_a_box_around_many_has_no_more_than_room():
    """Five halves of rows 2 to 9 overlap: the box around them has 8 rows of 9 columns."""
    found = [Box((Span(8 - row % 2, 2 + row % 2), Span(5, row % 5)), 40 - 5 * (row % 2), pieces=2) for row in range(5)]
    (box,) = region_of([msgspec.structs.replace(one, most=39) for one in found], SHAPE).boxes
    assert box == Box((Span(8, 2), Span(9, 0)), 72, pieces=2)


def test_nothing_and_whole():
    """The union with nothing changes nothing, that with all is all."""
    part = Region((Box((Span(2), Span(2)), 4),))
    assert union([NOTHING, part], SHAPE) == part
    assert union([part, WHOLE], SHAPE) == WHOLE
    assert not NOTHING
    assert region_bytes(NOTHING, SHAPE) == 0


def region(rows, columns):
    """Return the region of one box."""
    return Region((Box((rows, columns), rows.count * columns.count),))


def test_rows_of_a_tile_can_be_fetched_apart_and_lanes_cannot():
    """Three rows are three; two columns cost a tile's width, or two where they lie in two tiles."""
    assert region_bytes(region(Span(3, 5), Span(512)), TILED) == 3 * 512 * 4
    assert region_bytes(region(Span(64), Span(2, 10)), TILED) == 64 * 128 * 4
    assert region_bytes(region(Span(64), Span(2, 127)), TILED) == 64 * 256 * 4
    assert region_bytes(region(Span(64), Span(2, 0, 256)), TILED) == 64 * 256 * 4


def test_packed_rows_come_in_pairs():
    """Two rows of bf16 share a word: one row costs both, and so do two that are in different pairs."""
    assert region_bytes(region(Span(1, 4), Span(512)), PACKED) == 2 * 512 * 2
    assert region_bytes(region(Span(2, 3), Span(512)), PACKED) == 4 * 512 * 2


def test_the_run_of_a_piece():
    """A slice is one run of whole tiles, a gathered row one of its own elements; a whole array has no runs."""
    assert run_of(region(Span(16, None), Span(512)), TILED) == 16 * 512 * 4
    assert run_of(Region((Box((Span(16, None), Span(512)), 16 * 512, pieces=16),)), TILED) == 512 * 4
    assert run_of(WHOLE, TILED) == 0


JOINS = {
    "one behind the other": (Span(4, 0), Span(4, 4), Span(8, 0)),
    "the later first": (Span(4, 4), Span(4, 0), Span(8, 0)),
    "overlapping": (Span(4, 0), Span(4, 2), Span(6, 0)),
    "one inside the other": (Span(6, 1), Span(2, 2), Span(6, 1)),
    "every third": (Span(3, 1, 3), Span(2, 10, 3), Span(5, 1, 3)),
    "two single ones": (Span(1, 2), Span(1, 9), Span(2, 2, 7)),
    "with a gap": (Span(4, 0), Span(4, 5), None),
    "out of step": (Span(3, 0, 2), Span(3, 7, 2), None),
    "of other steps": (Span(3, 0, 2), Span(3, 6, 3), None),
}


@pytest.mark.parametrize(("one", "other", "joined"), JOINS.values(), ids=JOINS)
def test_spans_that_go_on_from_each_other_are_one(one, other, joined):
    """In a dimension of 32, beside a dimension of which all is needed; else both are kept."""
    shape = parse_shape("f32[32,4]")
    boxes = [Box((span, Span(4)), 4 * span.count) for span in (one, other)]
    found = [box.spans[0] for box in region_of(boxes, shape).boxes]
    assert found == ([one, other] if joined is None else [joined])
