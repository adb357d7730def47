"""Products of rows in groups, as the TPU compiler leaves them (JAX 0.10.2, libtpu 0.0.52): loops that skip tiles."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import tpusim
from tpusim.program.steps import Kernel
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

TEXT = Path(__file__).parents[1] / "data" / "hlo" / "ragged" / "groups_of_8.v5e.hlo.txt.gz"
"""``lax.ragged_dot`` of bf16[4096,512] with eight matrices bf16[512,1024]: tiles of 256 rows."""

GROUPS, ROWS, TILE_ROWS = 8, 4096, 256


def product():
    """Return the kernel of the product."""
    return next(step for step in tpusim.lower(TEXT).steps if isinstance(step, Kernel) and step.product_flops)


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


GIVEN = """
HloModule m

ENTRY e {
  x = bf16[4096,512] parameter(0)
  w = bf16[8,512,1024] parameter(1)
  s = s32[8] parameter(2)
  ROOT r = bf16[4096,1024] ragged-dot(x, w, s), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}
}
"""  # noqa: E501


def test_it_takes_about_as_long_as_our_compiler_has_it():
    """Which knows the product by its opcode."""
    ours = tpusim.simulate(parse_module(SourceText("given", GIVEN)), "v5e")
    assert tpusim.simulate(TEXT).timeline.total_ps < 1.6 * ours.timeline.total_ps
