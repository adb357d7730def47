"""The recurrence that prices a chip's matrix units is the systolic array's, but for filling it and draining it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpusim.cost.models.arrays import array_of
from tpusim.cost.models.protocols import TileProduct
from tpusim.cost.mxu import matmul_cycles
from tpusim.hardware.array import Array
from tpusim.hardware.chip import Mxu
from tpusim.hardware.load import load_chip, override_chip
from tpusim.program.layers import Layer
from tpusim.program.work import Matmul
from tpusim.systolic.closed_form import run_gemm
from tpusim.systolic.count import count_layer


def ideal_unit(size, rows_per_cycle=1):
    """Return one array of a size with the figures that a chip file fits set to what a bare array has."""
    fitted = {"efficiency": 1.0, "tile_switch_cycles": 0.0, "result_latency_cycles": 0.0, "parked_register_cycles": 0.0}
    return Mxu(
        count=1,
        rows=size,
        columns=size,
        lhs_rows_per_cycle=float(rows_per_cycle),
        rate_by_type={"bf16": 1.0},
        weight_load_rows_per_cycle=1.0,
        result_registers_per_cycle=1e9,
        accumulates_in_array=True,
        **fitted,
    )


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(0, 12))
def test_a_stream_of_tiles_costs_what_the_array_counts(size, deep, wide, further):
    """Whole tiles under at least as many rows as they have: loading the first and draining the last are all between."""
    rows, tiles = size + further, deep * wide
    layer = Layer(name="l", m=rows, n=wide * size, k=deep * size)
    own = matmul_cycles(Matmul(tiles * size, tiles * rows, tiles), ideal_unit(size))
    fill_and_drain = size + 2 * size - 2
    assert own + fill_and_drain == run_gemm(layer, Array(rows=size, columns=size)).cycles


@given(st.integers(2, 5), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
def test_short_streams_cost_the_loading_of_their_tiles(size, deep, wide, rows):
    """Fewer rows than a tile has: the array waits for its weights, and the first stream and the drain are left over."""
    rows, tiles = min(rows, size), deep * wide
    layer = Layer(name="l", m=rows, n=wide * size, k=deep * size)
    own = matmul_cycles(Matmul(tiles * size, tiles * rows, tiles), ideal_unit(size))
    assert own + rows + 2 * size - 2 == run_gemm(layer, Array(rows=size, columns=size)).cycles


def test_the_array_that_computes_counts_the_same():
    """Cycle by cycle, with values: five tiles deep and three wide of a 4 x 4 array under nine rows."""
    layer, array = Layer(name="l", m=9, n=12, k=20), Array(rows=4, columns=4)
    own = matmul_cycles(Matmul(15 * 4, 15 * 9, 15), ideal_unit(4))
    assert own + 4 + 2 * 4 - 2 == count_layer(layer, array).cycles


def test_passes_and_arrays_multiply_and_divide():
    """Three passes on four arrays take three quarters of one pass on one array."""
    mxu = load_chip("v5e").mxu
    one = Matmul(1280, 10_000, 10)
    three = Matmul(1280, 10_000, 10, passes=3)
    assert matmul_cycles(three, mxu) == 3 * matmul_cycles(one, mxu)


@pytest.mark.parametrize("passes", [1, 3])
def test_parked_registers_come_on_top(passes):
    """A hundred registers at three cycles each behind the product; passes add up before their sum is parked."""
    mxu = override_chip(load_chip("v5e"), {"mxu.parked_register_cycles": 3}).mxu
    plain = Matmul(1280, 10_000, 10, results=50.0, passes=passes)
    parked = Matmul(1280, 10_000, 10, results=50.0, parked=100.0, passes=passes)
    assert matmul_cycles(parked, mxu) - matmul_cycles(plain, mxu) == pytest.approx(300)


@pytest.mark.parametrize(
    ("chip_name", "depth", "taps", "rows_loaded"),
    [
        ("v5e", 128, 1, 128),
        ("v5e", 40, 1, 128),
        ("v5e", 129, 1, 256),
        ("v5e", 3, 49, 512),
        ("v6e", 256, 1, 128),
        ("v6e", 40, 1, 128),
        ("v6e", 300, 1, 256),
    ],
)
def test_weights_fill_whole_arrays(chip_name, depth, taps, rows_loaded):
    """What 128 columns lack in depth is loaded as well; half of the width of an array loads twice as fast.

    49 taps of 3 features, 8 when padded, are 392 rows: four arrays of 128.
    """
    tile = TileProduct(rows=128, columns=128, taps=taps, depth=depth, separate=1, operand_type="bf16", passes=1)
    chip = load_chip(chip_name)
    assert array_of(chip).work(tile, chip, is_stated=True).matmul.weight_rows == rows_loaded
