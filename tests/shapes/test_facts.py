"""The facts about a layout: right numbers under stable keys, writable as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tpusim.errors import ProgramError
from tpusim.report.json.page import plain
from tpusim.shapes.layout_facts import layout_facts as found_facts
from tpusim.shapes.notation import parse_shape
from tpusim.shapes.shape import Shape


def layout_facts(shape: Shape, at: tuple[int, ...] | None = None) -> dict[str, Any]:
    """Return the facts of a shape as they are written to JSON."""
    facts: dict[str, Any] = plain(found_facts(shape, at))
    return facts


def element_facts(text: str, *index: int) -> dict[str, Any]:
    """Return what is said of one element of an array."""
    (array,) = layout_facts(parse_shape(text), index)["arrays"]
    element: dict[str, Any] = array["element"]
    return element


def test_the_facts_of_an_array_are_its_sizes_and_bytes() -> None:
    """10 x 300 pads to 16 x 384 under (8,128): 12 288 bytes of which 6 000 are data."""
    facts = layout_facts(parse_shape("bf16[10,300]{1,0:T(8,128)(2,1)S(1)}"))
    assert (facts["logical_bytes"], facts["physical_bytes"], facts["wasted_share"]) == (6000, 12288, 1 - 6000 / 12288)
    (array,) = facts["arrays"]
    assert (array["padded_elements"], array["memory_space_name"], array["physical_order"]) == (16 * 384, "VMEM", [0, 1])
    assert array["tiles"][1] == {
        "tile": "(2,1)",
        "before": [2, 3, 8, 128],
        "combined": [2, 3, 8, 128],
        "after": [2, 3, 4, 128, 2, 1],
    }


def test_an_element_is_placed_in_its_tile() -> None:
    """XLA, "Tiled layout": (2,3) is in tile (1,1) at (0,1), position 17."""
    facts = element_facts("f32[3,5]{1,0:T(2,2)}", 2, 3)
    assert facts["tiles"] == [{"tile": "(2,2)", "tile_index": [1, 1], "in_tile_index": [0, 1]}]
    assert (facts["linear_index"], facts["byte_offset"], facts["bit_offset"]) == (17, 68, 0)


def test_an_element_is_placed_in_every_tile() -> None:
    """Row 3 of bf16 is the upper half of the second pair of rows: ((0*3+1)*4+1)*256 + 1*2 + 1 = 1283."""
    facts = element_facts("bf16[10,300]{1,0:T(8,128)(2,1)}", 3, 129)
    assert [place["in_tile_index"] for place in facts["tiles"]] == [[3, 1], [1, 0]]
    assert [place["tile_index"] for place in facts["tiles"]] == [[0, 1], [0, 1, 1, 1]]
    assert (facts["linear_index"], facts["byte_offset"]) == (1283, 2566)


def test_a_packed_element_has_a_bit_offset() -> None:
    """Element 3 of four bits lies in the upper half of byte 1, behind 16 bytes of metadata."""
    facts = element_facts("s4[5]{0:E(4)M(16)}", -2)
    assert (facts["index"], facts["byte_offset"], facts["bit_offset"]) == ([3], 17, 4)


def test_a_pointer_wastes_nothing() -> None:
    """4 bytes stand for 96 of data: no share of them is padding."""
    facts = layout_facts(parse_shape("f32[4,6]{1,0:T(8,128)P(f32[])}"))
    assert (facts["logical_bytes"], facts["physical_bytes"], facts["wasted_share"]) == (96, 4, 0.0)


def test_a_tuple_has_the_facts_of_each_array() -> None:
    """The sums stand beside them."""
    facts = layout_facts(parse_shape("(f32[2], (token[], b(u8[3])))"))
    assert [array["shape"] for array in facts["arrays"]] == ["f32[2]", "token[]", "u8[3]"]
    assert (facts["physical_bytes"], facts["wasted_share"]) == (11, 0)


def test_an_index_into_a_tuple_is_refused() -> None:
    """It would not say which array is meant."""
    with pytest.raises(ProgramError, match="give one of its arrays"):
        layout_facts(parse_shape("(f32[2], f32[3])"), (1,))


def test_facts_are_json() -> None:
    """They read back equal: no tuples, no NumPy numbers, no keys but texts."""
    facts = layout_facts(parse_shape("bf16[<=10,300]{1,0:T(8,128)(2,1)}"), (-1, 129))
    assert json.loads(json.dumps(facts)) == facts
