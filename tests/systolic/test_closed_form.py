"""The closed forms of systolic arrays, against arithmetic, SCALE-Sim's own output and the model that counts cycles."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.systolic.products import ARRAYS, LAYERS, WIDER_ARRAYS, layer
from tpusim.errors import ConfigError
from tpusim.hardware.array import DATAFLOWS, Array
from tpusim.program.layers import Layer
from tpusim.systolic.closed_form import run_gemm, share_folds
from tpusim.systolic.count import run_cycle_by_cycle

SCALESIM = Path(__file__).parents[1] / "data" / "scalesim_cycles.csv"
"""Printed by SCALE-Sim 2.0.2 and 3.0.0; the percentages cut after eight characters."""


def counted(product: Layer, array: Array):
    """Return what the model that counts cycles says of a product of ones."""
    lhs, rhs = np.ones((product.m, product.k), np.int64), np.ones((product.k, product.n), np.int64)
    return run_cycle_by_cycle(lhs, rhs, array).totals


def scalesim_rows() -> list[tuple[dict[str, str], Layer, Array]]:
    """Return what SCALE-Sim printed, with the product and the array that it was for."""
    with SCALESIM.open() as file:
        rows = list(csv.DictReader(file))
    return [
        (
            row,
            layer(int(row["m"]), int(row["n"]), int(row["k"])),
            Array(rows=int(row["rows"]), columns=int(row["columns"]), dataflow=row["dataflow"], mode="scale-sim"),
        )
        for row in rows
    ]


def same_digits(printed: str, share: float) -> bool:
    """Say whether a share is the percentage that was printed, as far as its digits go."""
    return float(printed) == pytest.approx(100 * share, rel=2e-5, abs=1.1e-5 if "e" not in printed else 0)


@settings(max_examples=300)
@given(LAYERS, ARRAYS)
@example(layer(1, 2, 2), Array(rows=1, columns=6))
@example(layer(20, 7, 13), Array(rows=6, columns=6, dataflow="os"))
def test_closed_form_equals_counted_cycles(product, array):
    """Cycles, multiply-accumulates and all shares, for every dataflow, both modes and ragged edges."""
    assert run_gemm(product, array) == counted(product, array)


@settings(max_examples=200)
@given(LAYERS, WIDER_ARRAYS)
def test_closed_form_equals_counted_cycles_with_every_option(product, array):
    """The same with several rows per cycle, arrays and passes."""
    assert run_gemm(product, array) == counted(product, array)


def test_scale_sim_mode_gives_the_cycles_that_scale_sim_prints():
    """Every row of the file: total cycles without those that it waited for memory."""
    for row, product, array in scalesim_rows():
        assert run_gemm(product, array).cycles == int(row["total_cycles"]) - int(row["stall_cycles"]), row


def test_scale_sim_mode_gives_the_shares_that_scale_sim_prints():
    """Every row of the file: mapping efficiency and compute utilisation; overall, where no stall is in it."""
    for row, product, array in scalesim_rows():
        run = run_gemm(product, array)
        assert same_digits(row["mapping_eff_pct"], run.mapping_efficiency), row
        assert same_digits(row["compute_util_pct"], run.compute_utilisation), row
        if row["stall_cycles"] == "0":
            assert same_digits(row["overall_util_pct"], run.utilisation), row


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_large_product_runs_at_peak(dataflow):
    """4096 cubed on one 128 x 128 array: every element multiplies in every cycle but for the first and last few."""
    ideal = 4096**3 // 128**2
    cycles = run_gemm(layer(4096, 4096, 4096), Array(rows=128, columns=128, dataflow=dataflow)).cycles
    assert ideal < cycles < 1.005 * ideal


def test_one_fold_of_held_weights():
    """Load 3 rows, stream 10 rows, reach the last row and column: 3 + 10 + 3 + 2 - 2 cycles."""
    assert run_gemm(layer(10, 2, 3), Array(rows=3, columns=2)).cycles == 16


def test_one_fold_of_held_results():
    """Stream 10 steps, reach the last row and column, and shift 3 rows out: 10 + 3 + 2 - 2 + 3 cycles."""
    assert run_gemm(layer(3, 2, 10), Array(rows=3, columns=2, dataflow="os")).cycles == 16


@pytest.mark.parametrize(("stream", "between"), [(5, 5), (4, 4), (3, 4), (1, 4)])
def test_a_fold_costs_its_stream_or_its_load(stream, between):
    """Three more folds of 4 rows: each costs the longer of stream and load."""
    array = Array(rows=4, columns=4)
    few, many = (run_gemm(layer(stream, 4 * n, 4), array).cycles for n in (3, 6))
    assert many - few == 3 * between


def test_two_rows_per_cycle_halve_the_stream():
    """The 256-wide generations take two rows in per cycle."""
    slow, fast = (
        run_gemm(layer(65536, 256, 256), Array(rows=256, columns=256, rows_per_cycle=p)).cycles for p in (1, 2)
    )
    assert slow - fast == 32768


def test_four_arrays_take_a_quarter_of_the_folds():
    """What is left is the load before and the way out after."""
    array = Array(rows=128, columns=128, count=4)
    assert run_gemm(layer(512, 2048, 512), array).cycles == 16 * 512 + 128 + 254


def test_passes_repeat_every_fold():
    """Three passes of one fold stream three times and load behind the streams."""
    assert run_gemm(layer(512, 128, 128), Array(rows=128, columns=128, passes=3)).cycles == 3 * 512 + 128 + 254


@given(st.integers(1, 60), st.integers(1, 9))
def test_arrays_share_folds_evenly(total, count):
    """Every fold goes to one array, and no array has two more than another."""
    runs = share_folds(total, count)
    assert [fold for run in runs for fold in run] == list(range(total))
    assert max(map(len, runs)) - min(map(len, runs)) <= 1


def test_what_stays_lies_along_rows_and_columns():
    """The three dataflows: (rows, columns, stream) of an m, n, k product."""
    extents = {name: tuple(Array(rows=1, columns=1, dataflow=name).extent(2, 3, 5)) for name in DATAFLOWS}
    assert extents == {"ws": (5, 3, 2), "is": (5, 2, 3), "os": (2, 3, 5)}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("dataflow", "w", "ws, os, is"),
        ("mode", "scalesim", "did you mean 'scale-sim'"),
        ("rows", 0, "from 1 to 8192, found 0"),
        ("count", 1.5, "whole number"),
    ],
)
def test_an_array_that_cannot_be_is_refused(field, value, words):
    """The message says what was expected and what was found."""
    with pytest.raises(ConfigError, match=words):
        Array(**{"rows": 4, "columns": 4, field: value})
