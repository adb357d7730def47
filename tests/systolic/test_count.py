"""The systolic array that counts cycles: its values, and which element was busy when."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.systolic.products import LAYERS, SPARSE_LAYERS, WIDER_ARRAYS, layer
from tpusim.errors import ConfigError, ProgramError, UnsupportedError
from tpusim.hardware.array import MODES, Array
from tpusim.program.layers import RowWise
from tpusim.systolic.closed_form import run_gemm
from tpusim.systolic.count import count_layer, run_cycle_by_cycle


def operands(m: int, n: int, k: int, kind=np.int64):
    """Return random matrices of small whole numbers, (m, k) and (k, n)."""
    rng = np.random.default_rng([m, n, k])
    return rng.integers(-9, 10, (m, k)).astype(kind), rng.integers(-9, 10, (k, n)).astype(kind)


def in_tiles(lhs, rhs, rows: int):
    """Return a product whose sums run down the rows of a tile, then over tiles: the order of held weights."""
    out = np.zeros((lhs.shape[0], rhs.shape[1]), lhs.dtype)
    for first in range(0, lhs.shape[1], rows):
        tile = np.zeros_like(out)
        for k in range(first, min(first + rows, lhs.shape[1])):
            tile += np.outer(lhs[:, k], rhs[k])
        out += tile
    return out


@settings(max_examples=300)
@given(LAYERS, WIDER_ARRAYS)
def test_values_of_whole_numbers_are_exact(product, array):
    """NumPy's product, whatever is cut, overlapped, shared and repeated."""
    lhs, rhs = operands(product.m, product.n, product.k)
    assert np.array_equal(run_cycle_by_cycle(lhs, rhs, array).values, lhs @ rhs)


@settings(max_examples=100)
@given(LAYERS, WIDER_ARRAYS)
def test_every_product_is_counted_once_by_element_and_by_cycle(product, array):
    """Both views of the activity add up to m * n * k a pass."""
    run = run_cycle_by_cycle(*operands(product.m, product.n, product.k), array)
    assert run.macs.sum() == run.active.sum() == product.macs * array.passes


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_float32_sums_run_down_the_rows(mode):
    """Bit for bit: each rounding is where the hardware has it."""
    rng = np.random.default_rng(0)
    lhs, rhs = rng.standard_normal((9, 11), np.float32), rng.standard_normal((11, 7), np.float32)
    run = run_cycle_by_cycle(lhs, rhs, Array(rows=4, columns=3, mode=mode))
    assert run.values.dtype == np.float32
    assert np.array_equal(run.values, in_tiles(lhs, rhs, rows=4))


@pytest.mark.slow
def test_float64_values_are_the_product():
    """As close as another order of the same sums can be."""
    rng = np.random.default_rng(0)
    lhs, rhs = rng.standard_normal((9, 11)), rng.standard_normal((11, 7))
    run = run_cycle_by_cycle(lhs, rhs, Array(rows=4, columns=3, dataflow="is"))
    assert run.values.dtype == np.float64
    np.testing.assert_allclose(run.values, lhs @ rhs, rtol=1e-13, atol=1e-13)


@pytest.mark.slow
def test_infinite_weights_do_not_reach_the_next_tile():
    """Under a ragged tile stand the weights of the tile before, which must take part in nothing."""
    lhs, rhs = np.ones((3, 3), np.float32), np.ones((3, 4), np.float32)
    rhs[1, 1] = np.inf
    values = run_cycle_by_cycle(lhs, rhs, Array(rows=2, columns=2)).values
    assert np.array_equal(values, [[3, np.inf, 3, 3]] * 3)


@pytest.mark.parametrize(("dataflow", "first"), [("ws", 3), ("is", 3), ("os", 0)])
def test_activity_follows_the_wavefront(dataflow, first):
    """One fold, 3 x 2 elements, four steps: the diagonals come into it and leave it one by one."""
    m, n, k = {"ws": (4, 2, 3), "is": (2, 4, 3), "os": (3, 2, 4)}[dataflow]
    run = run_cycle_by_cycle(*operands(m, n, k), Array(rows=3, columns=2, dataflow=dataflow))
    assert run.active[first : first + 7].tolist() == [1, 3, 5, 6, 5, 3, 1]


def test_elements_beyond_a_ragged_edge_do_nothing():
    """The second tile along k has one row of three."""
    run = run_cycle_by_cycle(*operands(5, 2, 4), Array(rows=3, columns=2))
    assert run.macs.tolist() == [[[10, 10], [5, 5], [5, 5]]]


def test_folds_stream_back_to_back():
    """From the second cycle of the wavefront's full extent to its end, every element multiplies in every cycle."""
    run = run_cycle_by_cycle(*operands(8, 8, 8), Array(rows=4, columns=4))
    assert (run.active[4 + 6 : 4 + 32] == 16).all()


def test_scale_sim_folds_drain_one_by_one():
    """Between two folds nothing is busy while the next tile loads."""
    run = run_cycle_by_cycle(*operands(5, 4, 8), Array(rows=4, columns=4, mode="scale-sim"))
    fold_cycles = 4 + 5 + 4 + 4 - 2
    assert run.totals.cycles == 2 * fold_cycles - 1
    assert not run.active[fold_cycles : fold_cycles + 4].any()


@given(st.sampled_from([((2, 3), (4, 2)), ((2,), (2, 2)), ((0, 3), (3, 2))]))
def test_matrices_that_do_not_fit_are_refused(shapes):
    """The message names both shapes."""
    with pytest.raises(ProgramError, match="expected matrices"):
        run_cycle_by_cycle(*map(np.ones, shapes), Array(rows=2, columns=2))


@settings(max_examples=200)
@given(SPARSE_LAYERS, WIDER_ARRAYS)
def test_a_sparse_product_takes_the_rows_that_are_kept(product, array):
    """Cycles, folds and multiply-accumulates of the closed form; the values are those of the whole product."""
    assert count_layer(product, array) == run_gemm(product, array)


def test_columns_that_are_drawn_for_are_bounded():
    """A number for each is drawn before anything is counted."""
    with pytest.raises(ConfigError, match=r"layer 'l': n: expected .* drawn for one by one, at most"):
        structs.replace(layer(5, 2**31 - 1, 8), name="l", rowwise=RowWise(group=4, seed=1))


def test_columns_that_keep_rows_of_their_own_are_not_counted():
    """An element would choose among the rows that stream past; the closed form takes them."""
    product = structs.replace(layer(5, 6, 8), name="l", rowwise=RowWise(group=4, seed=1))
    with pytest.raises(UnsupportedError, match=r"layer 'l': columns keep different rows.*use --model fast"):
        count_layer(product, Array(rows=4, columns=4))
