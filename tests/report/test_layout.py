"""A layout on the terminal: hand-written facts in, page out."""

from __future__ import annotations

import io
from typing import Any

import msgspec
from rich.console import Console

from tpusim.report.terminal.layout import render_layout
from tpusim.shapes.layout_facts import LayoutFacts, layout_facts
from tpusim.shapes.notation import parse_shape

SCALAR: dict[str, Any] = {
    "shape": "f32[]{:T(128)S(6)}",
    "dtype": "f32",
    "dimensions": [],
    "dynamic": [],
    "rank": 0,
    "true_rank": 0,
    "minor_to_major": [],
    "metadata_prefix_bytes": 0,
    "tail_padding_alignment": 1,
    "element_bits": 32,
    "logical_elements": 1,
    "padded_elements": 128,
    "logical_bytes": 4,
    "physical_bytes": 512,
    "wasted_share": 1 - 4 / 512,
    "memory_space": 6,
    "memory_space_name": "SMEM",
    "physical_order": [],
    "sizes_in_physical_order": [],
    "padded_dimensions": [],
    "tiles": [{"tile": "(128)", "before": [1], "combined": [1], "after": [1, 128]}],
    "physical_dimensions": [1, 128],
    "element": None,
}


def page(facts: LayoutFacts) -> str:
    """Return what a terminal of 100 columns shows, without blanks at the ends of lines."""
    console = Console(file=io.StringIO(), width=100)
    render_layout(facts, console)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def page_of(text: str, *index: int) -> str:
    """Return the page of a shape, with an element if an index is given."""
    return page(layout_facts(parse_shape(text), index or None))


def test_an_array_is_a_block_of_named_lines() -> None:
    """Every fact has its name before it; numbers carry their unit."""
    whole = {key: SCALAR[key] for key in ("shape", "logical_bytes", "physical_bytes", "wasted_share")}
    assert page(msgspec.convert({**whole, "arrays": [SCALAR]}, LayoutFacts)).splitlines() == [
        "f32[]{:T(128)S(6)}",
        "logical         scalar = 1 element",
        "rank            0, true rank 0",
        "element         f32, 32 bits in memory",
        "memory          SMEM, S(6)",
        "physical order  a scalar has none",
        "tile 1          (128): 1 -> 1 x 128",
        "padded          1 x 128 = 128 elements",
        "bytes           4 of data in 512; 99.2 % wasted",
    ]


def test_tile_steps_show_the_sizes_before_and_after() -> None:
    """One line per tile, in order."""
    lines = page_of("bf16[10,300]{1,0:T(8,128)(2,1)}").splitlines()
    assert "tile 1          (8,128): 10 x 300 -> 2 x 3 x 8 x 128" in lines
    assert "tile 2          (2,1): 2 x 3 x 8 x 128 -> 2 x 3 x 4 x 128 x 2 x 1" in lines


def test_combined_dimensions_are_shown_between() -> None:
    """XLA's example of the star: five dimensions become two before they are tiled."""
    text = page_of("f32[2,7,8,11,10]{4,3,2,1,0:T(*,*,2,*,3)}")
    assert "(*,*,2,*,3): 2 x 7 x 8 x 11 x 10 -> 112 x 110 -> 56 x 37 x 2 x 3" in text


def test_an_element_has_its_place() -> None:
    """XLA, "Tiled layout": (2,3) is inside tile (1,1) at (0,1), at 17; four bits each make that byte 8, bit 4."""
    lines = page_of("s4[3,5]{1,0:T(2,2)E(4)}", -1, -2).splitlines()
    assert lines[-4:] == [
        "at              (2,3)",
        "  in tile 1     (2,2): tile (1,1), inside it (0,1)",
        "  linear index  17",
        "  byte offset   8, bit 4",
    ]


def test_padded_dimensions_and_bounds_are_shown() -> None:
    """A bound is marked as HLO marks it."""
    assert "<=4 x 3 = 12 elements" in page_of("f32[<=4,3]")
    assert "dimension 1 (3), dimension 0 (4); the last varies fastest" in page_of("f32[<=4,3]{0,1}")


def test_a_tuple_is_a_block_per_array_and_a_sum() -> None:
    """Blocks are separated by empty lines."""
    blocks = page_of("(f32[2], token[], u8[3]{0:T(8)})").split("\n\n")
    assert [block.splitlines()[0] for block in blocks[:3]] == ["f32[2]", "token[]", "u8[3]{0:T(8)}"]
    assert blocks[3] == "all 3 arrays: 11 of data in 16; 31.2 % wasted"


def test_an_empty_tuple_is_no_arrays() -> None:
    """Nothing takes no bytes and wastes none."""
    assert page_of("()").strip() == "all 0 arrays: 0 of data in 0; 0.0 % wasted"
