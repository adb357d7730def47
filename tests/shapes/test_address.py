"""Where elements lie: every formula and example of XLA's "Shapes and layout" and "Tiled layout", by their numbers."""

from __future__ import annotations

import json
from itertools import product
from math import ceil, prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from tests.shapes.strategies import naive_buffer, tiled_arrays
from tpusim.errors import ProgramError
from tpusim.shapes.address import (
    is_separable,
    linear_index,
    logical_bytes,
    multi_index,
    padded_element_count,
    physical_bytes,
    physical_coordinates,
    physical_dimensions,
    positions,
    tile_steps,
)
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.layout import Layout
from tpusim.shapes.notation import parse_shape
from tpusim.shapes.shape import ArrayShape

CHARGED = json.loads((Path(__file__).parents[1] / "data" / "tpu_argument_bytes.json").read_text())["bytes"]


def array(text: str) -> ArrayShape:
    """Return the array that a text states."""
    shape = parse_shape(text)
    assert isinstance(shape, ArrayShape)
    return shape


def in_memory(shape: ArrayShape, letters: str) -> str:
    """Return the letters, given in row-major order of the logical array, as they lie in memory; padding is 0."""
    by_index = dict(zip(product(*map(range, shape.dimensions)), letters, strict=True))
    found = (multi_index(shape, position) for position in range(padded_element_count(shape)))
    return " ".join("0" if index is None else by_index[index] for index in found)


@pytest.mark.parametrize(("order", "memory"), [((0, 1), "a d b e c f"), ((1, 0), "a b c d e f")])
def test_minor_to_major_orders_memory(order: tuple[int, ...], memory: str) -> None:
    """XLA, "Shapes and layout": the two layouts of [2 x 3] holding a b c / d e f."""
    assert in_memory(ArrayShape(DTYPES["f32"], (2, 3), (), Layout(order)), "abcdef") == memory


def test_without_a_layout_dimension_0_is_major() -> None:
    """XLA, "Shapes and layout": new shapes lie major to minor."""
    assert in_memory(ArrayShape(DTYPES["f32"], (2, 3)), "abcdef") == "a b c d e f"


def test_padded_dimensions_widen_every_dimension() -> None:
    """XLA, "Shapes and layout": [2 x 3] padded to [3 x 5], dimension 0 minor."""
    shape = ArrayShape(DTYPES["f32"], (2, 3), (), Layout((0, 1), padded_dimensions=(3, 5)))
    assert in_memory(shape, "abcdef") == "a d 0 b e 0 c f 0 0 0 0 0 0 0"


def test_padding_below_the_size_is_refused() -> None:
    """A width has room for the dimension."""
    with pytest.raises(ProgramError, match=r"at least \(2, 3\), found \(3, 2\)"):
        physical_dimensions(ArrayShape(DTYPES["f32"], (2, 3), (), Layout((0, 1), padded_dimensions=(3, 2))))


def test_untiled_elements_lie_major_to_minor() -> None:
    """XLA, "Tiled layout": linear_index(e, d) = e3 d2 d1 + e2 d1 + e1."""
    shape = array("f32[4,3,5]{2,1,0}")
    for e3, e2, e1 in product(range(4), range(3), range(5)):
        assert linear_index(shape, (e3, e2, e1)) == e3 * 3 * 5 + e2 * 5 + e1


def test_element_2_3_of_the_first_figure_is_at_17() -> None:
    """XLA, "Tiled layout": (1*3 + 1)*2*2 + (0*2 + 1) = 17 in F32[3,5]{1,0:(2,2)}."""
    assert linear_index(array("F32[3,5]{1,0:(2,2)}"), (2, 3)) == 17


def test_element_2_3_of_the_first_figure_has_the_coordinates_1_1_0_1() -> None:
    """XLA, "Tiled layout": tile index (1,1) within (2,3), in-tile index (0,1) within (2,2)."""
    shape = array("F32[3,5]{1,0:(2,2)}")
    assert physical_coordinates(shape, (2, 3)) == (1, 1, 0, 1)
    assert physical_dimensions(shape) == (2, 3, 2, 2)


def test_the_first_figure_pads_15_elements_to_24() -> None:
    """XLA, "Tiled layout", figure 1: whole 2x2 tiles stay although the bounds are uneven."""
    memory = in_memory(array("F32[3,5]{1,0:(2,2)}"), "abcdefghijklmno")
    assert memory == "a b f g c d h i e 0 j 0 k l 0 0 m n 0 0 o 0 0 0"


@pytest.mark.parametrize("tile", [(2, 2), (1, 3), (4, 2), (3, 5), (8, 128)])
def test_a_tiled_element_lies_where_the_formula_says(tile: tuple[int, int]) -> None:
    """XLA, "Tiled layout": linear_index(e div t, ceil(d/t)) * t2 t1 + linear_index(e mod t, t)."""
    (d2, d1), (t2, t1) = (7, 10), tile
    shape = ArrayShape(DTYPES["f32"], (d2, d1), (), Layout((1, 0), (tile,)))
    for e2, e1 in product(range(d2), range(d1)):
        tile_index = e2 // t2 * ceil(d1 / t1) + e1 // t1
        assert linear_index(shape, (e2, e1)) == tile_index * t2 * t1 + e2 % t2 * t1 + e1 % t1


def test_a_shorter_tile_leaves_the_major_dimensions_alone() -> None:
    """XLA, "Tiled layout": with fewer dimensions only the most minor ones are tiled."""
    shape, plane = array("f32[3,4,5]{2,1,0:T(2,2)}"), array("f32[4,5]{1,0:T(2,2)}")
    assert linear_index(shape, (2, 3, 4)) == 2 * padded_element_count(plane) + linear_index(plane, (3, 4))


def test_tiles_apply_to_the_physical_order() -> None:
    """XLA, "Tiled layout": the tile's entries belong to dimensions in the order of minor_to_major."""
    assert linear_index(array("f32[5,3]{0,1:T(2,2)}"), (3, 2)) == 17


def test_the_second_figure_gathers_two_rows_in_each_column() -> None:
    """XLA, "Tiled layout", figure 2: 4x8 under (2,4)(2,1); the first 2x4 tile runs down each column of two."""
    shape = array("f32[4,8]{1,0:T(2,4)(2,1)}")
    first = [multi_index(shape, position) for position in range(8)]
    assert first == [(row, column) for column in range(4) for row in range(2)]
    assert [multi_index(shape, position) for position in (8, 16, 24)] == [(0, 4), (2, 0), (2, 4)]


def test_two_bf16_rows_share_a_word() -> None:
    """XLA, "Tiled layout": (2,1) after (8,128) collects two 16-bit values into one of 32 bits."""
    shape = array("bf16[16,256]{1,0:T(8,128)(2,1)}")
    words = {linear_index(shape, (row, 5)) // 2 for row in (2, 3)}
    assert len(words) == 1
    assert linear_index(shape, (3, 5)) == linear_index(shape, (2, 5)) + 1


def test_a_later_tile_may_reach_across_tiles() -> None:
    """XLA, "Tiled layout": the second tile (2,1,2,2) groups whole tiles of the first in pairs of rows."""
    shape = array("f32[4,4]{1,0:T(2,2)(2,1,2,2)}")
    corners = [linear_index(shape, (row, column)) for row, column in ((0, 0), (2, 0), (0, 2), (2, 2))]
    assert corners == [0, 4, 8, 12]


def test_a_star_combines_a_dimension_with_the_next_minor_one() -> None:
    """XLA, "Tiled layout": F32[2,7,8,11,10] under (*,*,2,*,3) is F32[112,110] under (2,3)."""
    shape, combined = array("F32[2,7,8,11,10]{4,3,2,1,0:(*,*,2,*,3)}"), array("F32[112,110]{1,0:(2,3)}")
    for index in product(range(2), range(7), range(8), (0, 1, 10), (0, 3, 9)):
        a, b, c, d, e = index
        assert linear_index(shape, index) == linear_index(combined, ((a * 7 + b) * 8 + c, d * 10 + e))


@pytest.mark.parametrize(("text", "index", "position"), [("f32[8]{0:T(2,2)}", (5,), 9), ("u32[]{:T(128)}", (), 0)])
def test_a_tile_longer_than_the_rank_meets_leading_ones(text: str, index: tuple[int, ...], position: int) -> None:
    """As in XLA's own layout tests: f32[8] is [1,8], a scalar is [1]."""
    assert linear_index(array(text), index) == position


@pytest.mark.parametrize(
    ("text", "count"),
    [
        *(("u32[]{:T(128)}", 128), ("f32[3,5]{1,0:T(2,2)}", 24), ("f32[0,3]{1,0:T(2,2)}", 0), ("f32[2,3]{1,0}", 6)),
        *(("f32[10]{0:L(8)}", 16), ("f32[3,5]{1,0:T(2,2)L(7)}", 28), ("f32[8]{0:T(3)(2,2)}", 16)),
    ],
)
def test_the_padded_count_is_the_product_of_padded_sizes(text: str, count: int) -> None:
    """Tail padding, L(n), rounds it up to a multiple of n."""
    assert padded_element_count(array(text)) == count


@given(tiled_arrays())
def test_tiles_mean_pad_reshape_transpose(shape: ArrayShape) -> None:
    """XLA, "Tiled layout": the definition, done with NumPy on the whole array, for any sequence of tiles."""
    count = prod(shape.dimensions)
    numbered = np.arange(1, count + 1).reshape(shape.dimensions)
    assert isinstance(shape.layout, Layout)
    buffer = naive_buffer(numbered, shape.layout)
    places = {int(number): position for position, number in enumerate(buffer) if number}
    assert len(buffer) == padded_element_count(shape)
    assert places == {int(numbered[e]): linear_index(shape, e) for e in np.ndindex(*shape.dimensions)}


@given(tiled_arrays())
def test_no_two_elements_share_a_position(shape: ArrayShape) -> None:
    """The linear index is injective into the padded count."""
    found = [linear_index(shape, index) for index in np.ndindex(*shape.dimensions)]
    assert len(set(found)) == len(found)
    assert all(0 <= position < padded_element_count(shape) for position in found)


@given(tiled_arrays())
def test_the_multi_index_inverts_the_linear_index(shape: ArrayShape) -> None:
    """At an element's position stands its index, at all others padding."""
    by_position = {linear_index(shape, index): index for index in np.ndindex(*shape.dimensions)}
    for position in range(padded_element_count(shape)):
        assert multi_index(shape, position) == by_position.get(position)


@given(tiled_arrays())
def test_positions_of_whole_arrays_are_those_of_their_elements(shape: ArrayShape) -> None:
    """The unchecked form takes index arrays that broadcast."""
    found = np.broadcast_to(positions(shape, np.ix_(*map(range, shape.dimensions))), shape.dimensions)
    assert all(found[index] == linear_index(shape, index) for index in np.ndindex(*shape.dimensions))


@given(tiled_arrays().filter(is_separable))
def test_a_separable_position_is_a_sum_over_dimensions(shape: ArrayShape) -> None:
    """Without a star every dimension contributes on its own."""
    for index in np.ndindex(*shape.dimensions):
        alone = [[e if n == number else 0 for n, e in enumerate(index)] for number in range(shape.rank)]
        assert linear_index(shape, index) == sum(linear_index(shape, one) for one in alone)


def test_negative_indices_count_from_the_end() -> None:
    """As negative dimension numbers do."""
    shape = array("bf16[10,300]{1,0:T(8,128)(2,1)}")
    assert linear_index(shape, (-1, -300)) == linear_index(shape, (9, 0))


@pytest.mark.parametrize("index", [(10, 0), (-11, 0), (0, 300), (0,), (0, 0, 0)])
def test_an_index_outside_the_array_is_refused(index: tuple[int, ...]) -> None:
    """Too large, too small, too few, too many."""
    with pytest.raises(ProgramError, match="expected an index"):
        linear_index(array("bf16[10,300]{1,0:T(8,128)(2,1)}"), index)


@pytest.mark.parametrize("position", [-1, 24])
def test_a_position_outside_the_buffer_is_refused(position: int) -> None:
    """The buffer of figure 1 has the positions 0 to 23."""
    with pytest.raises(ProgramError, match="from 0 to 23"):
        multi_index(array("f32[3,5]{1,0:T(2,2)}"), position)


def test_an_unbounded_dimension_has_no_place() -> None:
    """Without a bound nothing says how long the buffer is."""
    with pytest.raises(ProgramError, match="give bounds"):
        physical_bytes(parse_shape("f32[?,3]"))


@pytest.mark.parametrize(("text", "n_bytes"), CHARGED.items())
def test_the_tpu_compiler_charges_the_same_bytes(text: str, n_bytes: int) -> None:
    """What libtpu's memory analysis says of an argument of that shape, as it laid it out itself."""
    assert physical_bytes(parse_shape(text)) == n_bytes


@pytest.mark.parametrize(
    ("text", "logical", "physical"),
    [
        *(("f32[3,5]{1,0:T(2,2)}", 60, 96), ("s4[5]", 5, 5), ("s4[5]{0:E(4)}", 3, 3), ("pred[3]", 3, 3)),
        *(("f32[<=4]{0:M(16)}", 16, 32), ("token[]", 0, 0), ("b(f32[2])", 8, 8), ("()", 0, 0)),
        *(("(f32[2], (u8[3], token[]), c128[])", 27, 27), ("f32[4]{0:P((f32[3], u32[2]))}", 16, 20)),
    ],
)
def test_bytes_count_what_is_stored(text: str, logical: int, physical: int) -> None:
    """Bits are rounded up to bytes once per array; tokens take none; a tuple is the sum of its arrays."""
    assert (logical_bytes(parse_shape(text)), physical_bytes(parse_shape(text))) == (logical, physical)


def test_tile_steps_tell_the_sizes_before_and_after() -> None:
    """Each step begins with what the one before left."""
    first, second = tile_steps(array("bf16[10,300]{1,0:T(8,128)(2,1)}"))
    assert (first.before, first.after) == ((10, 300), (2, 3, 8, 128))
    assert (second.before, second.after) == (first.after, (2, 3, 4, 128, 2, 1))
