"""Shapes: rank, dimension numbers, leaves and printing (XLA, "Shapes and layout")."""

from __future__ import annotations

import pytest

from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.layout import Layout
from tpusim.shapes.shape import (
    ArrayShape,
    BufferShape,
    TupleShape,
    leaves,
    shape_text,
    with_default_layouts,
)

F32 = DTYPES["f32"]


@pytest.mark.parametrize(
    ("dimensions", "rank", "true_rank"),
    [((), 0, 0), ((1,), 1, 0), ((2, 3), 2, 2), ((1, 5, 1, 2), 4, 2)],
)
def test_true_rank_counts_dimensions_larger_than_one(dimensions: tuple[int, ...], rank: int, true_rank: int) -> None:
    """The rank is the number of dimensions; the true rank leaves out those of size 1."""
    shape = ArrayShape(F32, dimensions)
    assert (shape.rank, shape.true_rank) == (rank, true_rank)


def test_dimensions_stand_in_increasing_order_of_their_numbers() -> None:
    """In ``[A x B x C]`` dimension 0 has size A, 1 has B and 2 has C, whatever the layout."""
    shape = ArrayShape(F32, (7, 8, 9), (), Layout((1, 0, 2)))
    assert [shape.dimensions[number] for number in range(3)] == [7, 8, 9]


@pytest.mark.parametrize(("dimensions", "count"), [((), 1), ((2, 3), 6), ((4, 0), 0)])
def test_the_element_count_is_the_product_of_the_sizes(dimensions: tuple[int, ...], count: int) -> None:
    """A scalar is one element."""
    assert ArrayShape(F32, dimensions).element_count == count


def test_leaves_come_depth_first_from_left_to_right() -> None:
    """The order of XLA's shape indices."""
    a, b, c, d = (ArrayShape(F32, (size,)) for size in (1, 2, 3, 4))
    assert list(leaves(TupleShape((a, TupleShape((b, TupleShape(), BufferShape(c))), d)))) == [a, b, c, d]


def test_every_fifth_element_of_a_tuple_is_numbered() -> None:
    """XLA prints ``/*index=5*/`` before the elements 5, 10, ..."""
    text = str(TupleShape((ArrayShape(F32),) * 11))
    five = ", ".join(["f32[]"] * 5)
    assert text == f"({five}, /*index=5*/{five}, /*index=10*/f32[])"


def test_a_shape_prints_without_layouts() -> None:
    """Computation signatures leave layouts out."""
    array = ArrayShape(F32, (2, -1, 3), (True, True, False), Layout((2, 1, 0)))
    shape = TupleShape((array, BufferShape(array)))
    assert shape_text(shape, layout=False) == "(f32[<=2,?,3], b(f32[<=2,?,3]))"


def test_equal_shapes_are_one_key() -> None:
    """Equality and hash are by value, layout included."""
    first = ArrayShape(F32, (2, 3), (), Layout((1, 0), ((8, 128),)))
    second = ArrayShape(DTYPES["f32"], (2, 3), (), Layout((1, 0), ((8, 128),)))
    assert {first: 1}[second] == 1
    assert first != second.with_layout(None)


def test_default_layouts_fill_only_what_was_left_open() -> None:
    """A written layout stays; tokens have none."""
    open_array, closed = ArrayShape(F32, (2, 3)), ArrayShape(F32, (2, 3), (), Layout((0, 1)))
    token = ArrayShape(DTYPES["token"])
    filled = with_default_layouts(TupleShape((open_array, BufferShape(open_array), closed, token)))
    default = open_array.with_layout(Layout((1, 0)))
    assert filled == TupleShape((default, BufferShape(default), closed, token))
