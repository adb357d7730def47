"""Hand-written kernels step by step, as pictures show them."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np
import pytest

from tests.lowering.pallas.bodies import PROGRAMS
from tpusim.errors import ConfigError
from tpusim.pipeline.answers.grid import kernel_grid

pytest.importorskip("jaxlib")


def grid_of(name, op):
    """Return the steps of a kernel of a stored program."""
    return kernel_grid(PROGRAMS / f"{name}.hlo.txt.gz", op)


@pytest.mark.parametrize(
    ("name", "op"),
    [("flash_2048_b512.v5e", "flash_attention.1"), ("matmul_1024_b128.v5e", "matmul.1"), ("fused.v5e", "fused.2")],
)
def test_the_last_block_is_written_when_the_kernel_ends(name, op):
    """The pipeline of steps is the time of the kernel, told step by step."""
    found = grid_of(name, op)
    assert max(span.end for span in found.excerpts[-1]) * 1e12 == pytest.approx(found.alone_ps, rel=1e-6)


def test_blocks_are_new_where_a_walk_over_the_grid_finds_them_new():
    """The left operand's block is (i, k), the right one's (k, j), the result's (i, j): 8 x 8 x 8 steps."""
    found = grid_of("matmul_1024_b128.v5e", "matmul.1")
    i, j, k = np.indices((8, 8, 8)).reshape(3, -1)
    for window, blocks in zip(found.windows, ((i, k), (k, j), (i, j)), strict=True):
        number = blocks[0] * 8 + blocks[1]
        assert window.new.tolist() == [True, *(number[1:] != number[:-1]).tolist()]


def test_steps_above_the_diagonal_are_skipped():
    """Of a causal mask, in each of 8 heads of 4 x 4 blocks; the others compute."""
    found = grid_of("flash_2048_b512.v5e", "flash_attention.1")
    skipped = np.array(found.skipped)[found.order].reshape(8, 4, 4)
    assert (skipped == np.triu(np.ones((4, 4), bool), 1)).all()
    assert len(found.order) == prod(found.bounds)


def test_a_core_goes_through_its_half_of_the_steps():
    """Where two share a grid; the picture shows one of them."""
    found = grid_of("splash_2048.v5p", "splash_mha_fwd_residuals.1")
    assert found.cores == 2
    assert found.excerpts[-1][0].step < len(found.order) // 2


def test_nothing_is_fetched_before_the_step_that_asks_for_it():
    """What comes in for a step does so before that computes, and no two blocks at once."""
    found = grid_of("matmul_1024_b128.v5e", "matmul.1")
    for spans in found.excerpts:
        starts = {span.step: span.begin for span in spans if span.lane == "compute"}
        coming = sorted((s for s in spans if s.lane == "in"), key=lambda span: span.begin)
        assert all(span.end <= starts.get(span.step, span.end) + 1e-15 for span in coming)
        assert all(a.end <= b.begin + 1e-15 for a, b in pairwise(coming))


def test_a_kernel_of_the_compiler_has_no_grid():
    """The message says what was expected."""
    with pytest.raises(ConfigError, match="timed by its body"):
        kernel_grid("traces/mlp_b1024.v5e.hlo.txt.gz", "fusion.7")
