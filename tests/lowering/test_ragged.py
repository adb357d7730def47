"""Products of rows in groups, as the TPU compiler leaves them (JAX 0.10.2, libtpu 0.0.52): loops that skip tiles."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import tpusim
from tpusim.program.steps import Kernel
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

TEXTS = Path(__file__).parents[1] / "data" / "hlo" / "ragged"

TEXT = TEXTS / "groups_of_8.v5e.hlo.txt.gz"
"""``lax.ragged_dot`` of bf16[4096,512] with eight matrices bf16[512,1024]: tiles of 256 rows."""

CUT_COLUMNS = TEXTS / "cut_columns.v5e.hlo.txt.gz"
"""That of bf16[4096,4096] with eight matrices bf16[4096,1024]: tiles of 128 rows and 256 columns."""

SUMMED = TEXTS / "summed.v5e.hlo.txt.gz"
"""The products of eight groups of rows of bf16[4096,512] and of bf16[4096,1024]: tiles of 256 rows."""

GROUPS, ROWS, TILE_ROWS = 8, 4096, 256


def product(program=TEXT, chip="v5e"):
    """Return the kernel of the product."""
    return next(step for step in tpusim.lower(program, chip).steps if isinstance(step, Kernel) and step.product_flops)


def moved_bytes(kernel):
    """Return what a kernel moves, by whether it is written."""
    return {(stream.is_output, round(stream.block_bytes * stream.fetches)) for stream in kernel.streams}


def tiles_with_rows(ends):
    """Return how many pairs of a group and a tile have a row in common, by looking at each row."""
    group_of = [sum(end <= row for end in ends) for row in range(ROWS)]
    return len({(group_of[row], row // TILE_ROWS) for row in range(ROWS)})


@pytest.mark.parametrize("seed", range(5))
def test_as_many_tiles_run_as_groups_of_any_sizes_have(seed):
    """Few groups end exactly between two tiles."""
    ends = sorted(Random(seed).sample(range(1, ROWS), GROUPS - 1))
    assert product().tiles - 1 <= tiles_with_rows(ends) <= product().tiles


def test_operations_are_those_of_the_tiles_that_run():
    """Two for each row, column and depth of a tile."""
    kernel = product()
    assert kernel.product_flops == pytest.approx(2 * kernel.tiles * TILE_ROWS * 512 * 1024)


def test_what_is_fetched_and_written_is_what_the_tiles_need():
    """Every matrix once, the rows of each tile, and every row of the result once."""
    kernel = product()
    moved = [(stream.is_output, stream.block_bytes * stream.fetches) for stream in kernel.streams]
    assert (False, 8 * 512 * 1024 * 2) in moved
    assert (False, kernel.tiles * TILE_ROWS * 512 * 2) in moved
    assert [n_bytes for is_output, n_bytes in moved if is_output] == [pytest.approx(ROWS * 1024 * 2)]


def test_the_report_says_that_it_is_an_estimate():
    """The sizes of the groups are values."""
    assert "depends on values" in str(tpusim.simulate(TEXT))


def test_rows_come_in_anew_for_every_part_of_the_columns():
    """Groups are gone through inside columns: each matrix comes in once, the rows of a tile with it."""
    kernel = product(CUT_COLUMNS)
    assert kernel.tiles == 4 * (32 + GROUPS - 1)
    assert {(False, GROUPS * 4096 * 1024 * 2), (False, kernel.tiles * 128 * 4096 * 2)} <= moved_bytes(kernel)


def test_what_is_summed_comes_in_with_its_rows_and_every_sum_leaves_once():
    """Both sides have rows of all groups."""
    kernel = product(SUMMED)
    sides = {(False, kernel.tiles * TILE_ROWS * columns * 2) for columns in (512, 1024)}
    assert {*sides, (True, GROUPS * 512 * 1024 * 2)} <= moved_bytes(kernel)


FORWARD = (
    "[{rows},{depth}]",
    "[{groups},{depth},{columns}]",
    "[{rows},{columns}]",
    "{{1}}",
    "{{1}}, rhs_group_dims={{0}}",
)
TURNED = (
    "[{rows},{depth}]",
    "[{groups},{columns},{depth}]",
    "[{rows},{columns}]",
    "{{1}}",
    "{{2}}, rhs_group_dims={{0}}",
)
SUM = ("[{rows},{depth}]", "[{rows},{columns}]", "[{groups},{depth},{columns}]", "{{0}}", "{{0}}")
"""``lax.ragged_dot`` and its derivatives: the shapes of both sides and of the result, and what is summed over."""


def given(mode, rows, depth, columns, groups, dtype="bf16"):
    """Return a program of one product as a front end writes it."""
    left, right, out = (dtype + shape for shape in mode[:3])
    named = "lhs_contracting_dims={}, rhs_contracting_dims={}".format(*mode[3:])
    text = f"""HloModule m

ENTRY e {{{{
  x = {left} parameter(0)
  w = {right} parameter(1)
  s = s32[{{groups}}] parameter(2)
  ROOT r = {out} ragged-dot(x, w, s), lhs_ragged_dims={{{{0}}}}, {named}
}}}}
"""
    text = text.format(rows=rows, depth=depth, columns=columns, groups=groups)
    return parse_module(SourceText("given", text))


@pytest.mark.parametrize(
    ("chip", "mode", "sizes", "tiles"),
    [
        pytest.param("v5e", FORWARD, (4096, 1024, 1024, 8), 16 + 7, id="half a group of rows"),
        pytest.param("v5e", FORWARD, (4096, 1024, 1024, 64), 32 + 63, id="128 rows at least"),
        pytest.param("v5e", FORWARD, (16384, 4096, 14336, 8), 56 * (128 + 7), id="as many rows as there is room for"),
        pytest.param("v6e", FORWARD, (16384, 4096, 14336, 8), 28 * (64 + 7), id="twice the room"),
        pytest.param("v5e", FORWARD, (8192, 2048, 2048, 32), 4 * (64 + 31), id="an eighth of VMEM for a matrix"),
        pytest.param("v5e", TURNED, (4096, 2048, 1024, 8), 8 * (32 + 7) * 16, id="turned and longer than wide"),
        pytest.param("v6e", TURNED, (4096, 1152, 1024, 8), 8 * (32 + 7) * 9, id="the same on v6e"),
        pytest.param("v5e", TURNED, (4096, 512, 1024, 8), 16 + 7, id="turned and short"),
        pytest.param("v6e", TURNED, (4096, 2048, 4096, 8), 2 * (16 + 7) * 2, id="turned and cut"),
        pytest.param("v5e", SUM, (4096, 512, 1024, 8), 16 + 7, id="summed rows"),
        pytest.param("v5e", SUM, (4096, 1024, 1024, 64), 32 + 63, id="as many rows as an array has at least"),
        pytest.param("v6e", SUM, (4096, 1024, 1024, 64), 16 + 63, id="of which it has more"),
        pytest.param("v6e", SUM, (4096, 4096, 1024, 8), 2 * (16 + 7), id="summed in two parts"),
        pytest.param("v5p", FORWARD, (4096, 1024, 4096, 8), 4 * (32 + 7), id="two cores"),
        pytest.param("v5p", SUM, (4096, 1024, 1024, 8), 2 * (32 + 7), id="rows summed on two cores"),
    ],
)
def test_tiles_are_those_that_the_compiler_leaves(chip, mode, sizes, tiles):
    """As its texts of these sizes state them, or the kernels that it writes for two cores; rows a few more or less."""
    assert product(given(mode, *sizes), chip).tiles == pytest.approx(tiles, rel=0.07)


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (TEXT, given(FORWARD, 4096, 512, 1024, 8)),
        (CUT_COLUMNS, given(FORWARD, 4096, 4096, 1024, 8)),
        (SUMMED, given(SUM, 4096, 512, 1024, 8)),
    ],
    ids=["rows", "cut columns", "summed"],
)
def test_it_takes_as_long_as_our_compiler_has_it(text, program):
    """Which knows the product by its opcode."""
    ours = tpusim.simulate(program, "v5e").timeline.total_ps
    assert tpusim.simulate(text).timeline.total_ps == pytest.approx(ours, rel=0.05)


def test_operations_are_those_that_are_asked_for():
    """Rows of other groups are no work of a program that names the product."""
    assert product(given(FORWARD, 4096, 1024, 1024, 64)).product_flops == 2 * 4096 * 1024 * 1024


@pytest.mark.parametrize(
    "product_of",
    [
        "f32[3,4] ragged-dot(x, y, s), lhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_batch_dims={0},"
        " rhs_contracting_dims={1}, lhs_ragged_dims={0}",
        "f32[3,4] ragged-dot(z, y, s), lhs_contracting_dims={0,1}, rhs_contracting_dims={1,0}, lhs_ragged_dims={0}",
    ],
    ids=["batches", "two dimensions summed"],
)
def test_others_are_cut_as_any_product_is(product_of):
    """Nobody has seen what the compiler makes of them."""
    text = f"""HloModule m

ENTRY e {{
  x = f32[3,5] parameter(0)
  y = f32[3,5,4] parameter(1)
  z = f32[5,3] parameter(2)
  s = s32[3] parameter(3)
  ROOT r = {product_of}
}}
"""
    assert tpusim.simulate(parse_module(SourceText("given", text)), "v5e").timeline.total_ps > 0
