"""What the arrays that ship take is what an array by itself counts, and what they load is arithmetic."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.closed_form.test_every_key import product_text
from tests.cost.test_mxu import ideal_unit
from tpusim.cost.models.arrays import array_of
from tpusim.cost.models.protocols import TileProduct
from tpusim.hardware.array import Array
from tpusim.hardware.load import load_chip, override_chip
from tpusim.pipeline.stages import simulate
from tpusim.program.layers import Layer
from tpusim.source import SourceText
from tpusim.systolic.closed_form import run_gemm
from tpusim.text.parser import parse_module

V5E = load_chip("v5e")


def ideal_chip(model, size):
    """Return a chip of one bare array, fed element by element."""
    vpu = structs.replace(V5E.vpu, sublanes=1, lanes=1)
    return structs.replace(V5E, mxu=structs.replace(ideal_unit(size), model=model), vpu=vpu)


def cycles_of(chip, rows, columns, depth, passes=1):
    """Return what a product takes on the arrays of a chip."""
    tile = TileProduct(rows, columns, 1, depth, 1, "bf16", passes)
    return array_of(chip).cycles(array_of(chip).work(tile, chip, is_stated=True).matmul, chip)


@given(st.integers(2, 5), st.integers(1, 3), st.integers(1, 3), st.integers(0, 12))
def test_stationary_outputs_cost_what_the_array_counts(size, high, wide, further):
    """Sums at least as deep as the array is high: the wavefront, and the last sums' way out, are between."""
    depth = size + further
    layer = Layer(name="l", m=high * size, n=wide * size, k=depth)
    own = cycles_of(ideal_chip("output-stationary", size), layer.m, layer.n, depth)
    assert own + 3 * size - 2 == run_gemm(layer, Array(rows=size, columns=size, dataflow="os")).cycles


@given(st.integers(2, 5), st.integers(1, 3), st.integers(1, 3), st.integers(0, 12))
def test_stationary_inputs_cost_what_the_array_counts(size, deep, high, further):
    """At least as many columns as the array has rows: the first tile's way in and the wavefront are between."""
    columns = size + further
    layer = Layer(name="l", m=high * size, n=columns, k=deep * size)
    own = cycles_of(ideal_chip("input-stationary", size), layer.m, layer.n, layer.k)
    assert own + 3 * size - 2 == run_gemm(layer, Array(rows=size, columns=size, dataflow="is")).cycles


def test_outputs_that_stay_come_out_once_for_all_passes():
    """64 rows of sums shift out where one pass streams 8: six passes hide most of that."""
    chip = ideal_chip("output-stationary", 64)
    assert cycles_of(chip, 64, 64, 8) == 64
    assert cycles_of(chip, 64, 64, 8, passes=6) == 64
    assert cycles_of(chip, 64, 64, 8, passes=9) == 72


def test_few_rows_are_dear_where_outputs_stay():
    """8 rows by 4096 columns: 32 folds of 4096 steps, on one operand held 1024 of 128 rows to load."""
    mxu = V5E.mxu
    outputs = cycles_of(override_chip(V5E, {"mxu.model": "output-stationary"}), 8, 4096, 4096)
    weights = cycles_of(V5E, 8, 4096, 4096)
    assert outputs == pytest.approx(32 * 4096 / mxu.efficiency / mxu.count)
    assert weights == pytest.approx(1024 * 128 / mxu.weight_load_rows_per_cycle / mxu.efficiency / mxu.count)


def work_of(model, depth):
    """Return the work of a product of 1024 rows by 1024 columns in VMEM on v5e with another array."""
    chip = override_chip(V5E, {"mxu.model": model})
    module = parse_module(SourceText("m.hlo", product_text("bf16", "f32", depth)))
    return simulate(module, chip).program.steps[0]


def test_stationary_outputs_load_both_operands_and_add_what_tiles_cut():
    """A fold streams 128 rows and 128 columns over all of the depth, two to a word of a register of 1024 words."""
    step = work_of("output-stationary", 4096)
    cuts = math.prod(loop.trips for loop in step.loops if loop.over == "depth")
    assert step.work.ops["load"] * step.tiles == pytest.approx(64 * 4096 * (128 + 128) / 2 / 1024)
    # Only what the tiles cut meets again.
    assert step.work.ops["vector"] * step.tiles == pytest.approx((cuts - 1) * 1024)


def test_a_stationary_operand_streams_the_other_and_adds_its_parts():
    """8 tiles of 128 columns stream 1024 rows 4096 deep; 32 parts of every sum are added 31 times."""
    step = work_of("weight-stationary", 4096)
    assert step.work.ops["load"] * step.tiles == pytest.approx(8 * 1024 * 4096 / 2 / 1024)
    assert step.work.ops["vector"] * step.tiles == pytest.approx(31 * 1024)
