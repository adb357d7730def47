"""The array's memory beside SCALE-Sim's own reports, and beside arithmetic."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.systolic.products import layer
from tpusim.errors import ConfigError, UnsupportedError
from tpusim.hardware.array import DATAFLOWS, Array
from tpusim.hardware.buffers import Buffers, Rates
from tpusim.program.layers import Layer, RowWise, parse_layers
from tpusim.report.scale_sim import scale_sim_reports
from tpusim.source import SourceText
from tpusim.systolic.closed_form import run_gemm
from tpusim.systolic.memory.run import run_memory

PRINTED = Path(__file__).parents[1] / "data" / "scalesim_memory.csv"
"""Reports of SCALE-Sim 3.0.0 (PyPI), a line a layer. Those of 32 x 32 arrays are from its repository, test/general; of
128 x 128, from test/sparsity. ``sparse``: how filters are stored; of row-wise sparsity, its groups and its seed."""

HEADERS = {
    "gemm": "Layer,M,N,K,",
    "conv": "Layer name,IFMAP Height,IFMAP Width,Filter Height,Filter Width,Channels,Num Filter,Strides,",
}
ROOMY = Buffers(ifmap_words=1 << 22, filter_words=1 << 22, ofmap_words=1 << 22)


class Printed(NamedTuple):
    """A layer, what it ran on, and the lines of the reports by their name."""

    layer: Layer
    array: Array
    buffers: Buffers
    sparse: str | None
    reports: dict[str, list[str]]


def printed() -> list[Printed]:
    """Return what SCALE-Sim printed."""
    with PRINTED.open() as file:
        return [_printed(row) for row in csv.DictReader(file)]


def _printed(row: dict[str, str]) -> Printed:
    (found,) = parse_layers(SourceText("layers.csv", f"{HEADERS[row['form']]}\n{row['layer']},\n"))
    sparse, *rowwise = row["sparse"].split("/")
    if rowwise:
        found = msgspec.structs.replace(found, rowwise=RowWise(group=int(rowwise[0]), seed=int(rowwise[1])))
    rows, columns = int(row["rows"]), int(row["columns"])
    words = {f"{name}_words": 1024 * int(row[f"{name}_kib"]) for name in ("ifmap", "filter", "ofmap")}
    rate = int(row["words_per_cycle"] or 0)
    rates = Rates(ifmap=rate, filter=rate, ofmap=rate) if rate else None
    names = {"COMPUTE": "compute", "BANDWIDTH": "bandwidth", "DETAILED_ACCESS": "details", "SPARSE": "storage"}
    reports = {f"{name}_REPORT.csv": row[key].split() for name, key in names.items() if row[key]}
    array = Array(rows=rows, columns=columns, dataflow=row["dataflow"], mode="scale-sim")
    return Printed(found, array, Buffers(**words, rates=rates), sparse or None, reports)


def ours(case: Printed) -> dict[str, list[str]]:
    """Return the fields of our reports, without the layer's number."""
    row = (case.layer, run_gemm(case.layer, case.array), run_memory(case.layer, case.array, case.buffers))
    texts = scale_sim_reports([row], case.array, case.sparse)
    return {name: text.splitlines()[1].replace(",", " ").split()[1:] for name, text in texts.items()}


def test_every_field_of_every_report_is_scale_sims():
    """Cycles, stalls, first and last accesses and words; shares as far as sums of floats are alike."""
    for case in printed():
        found = ours(case)
        assert found.keys() == case.reports.keys()
        for name, fields in case.reports.items():
            numbers = [field for field in fields if field != case.sparse]
            mine = [field for field in found[name] if field != case.sparse]
            assert list(map(float, mine)) == pytest.approx(list(map(float, numbers)), rel=1e-12), (case, name)


def test_the_detailed_report_has_scale_sims_digits():
    """Cycles are floats there and words whole numbers, sparse layers aside."""
    for case in printed():
        if not case.sparse:
            assert ours(case)["DETAILED_ACCESS_REPORT.csv"] == case.reports["DETAILED_ACCESS_REPORT.csv"], case


@pytest.mark.parametrize("dataflow", DATAFLOWS)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_without_stalls_the_cycles_are_those_of_the_array(dataflow, m, n, k):
    """Where all fits, memory adds nothing, and each word comes from DRAM once."""
    array = Array(rows=7, columns=5, dataflow=dataflow, mode="scale-sim")
    found = run_memory(layer(m, n, k), array, ROOMY)
    assert (found.cycles, found.stall_cycles) == (run_gemm(layer(m, n, k), array).cycles, 0)
    assert (found.ifmap.dram_words, found.filter.dram_words) == (m * k, k * n)


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_more_bandwidth_never_takes_longer(dataflow):
    """Total cycles with all fetches and drains, over twice and twice the words per cycle."""
    array = Array(rows=8, columns=8, dataflow=dataflow, mode="scale-sim")
    small = {"ifmap_words": 16384, "filter_words": 16384, "ofmap_words": 16384}
    product = layer(96, 80, 120)
    totals = [
        run_memory(product, array, Buffers(**small, rates=Rates(ifmap=rate, filter=rate, ofmap=rate)))
        for rate in (4, 8, 16, 32, 64)
    ]
    assert (np.diff([total.cycles_with_prefetch for total in totals]) <= 0).all()


def test_half_of_the_rows_take_half_of_the_folds():
    """2:4 keeps 64 of 128 rows: as many cycles as a product over 64."""
    array = Array(rows=16, columns=16, mode="scale-sim")
    sparse = Layer(name="", m=30, n=20, k=128, kept=(2, 4))
    assert run_gemm(sparse, array) == run_gemm(layer(30, 20, 64), array)


@pytest.mark.parametrize("rates", [None, Rates(ifmap=3, filter=3, ofmap=3)])
@pytest.mark.parametrize("n", [5, 12, 30])
def test_columns_that_all_keep_half_wait_as_often_for_filters_as_dense_ones_of_half_the_rows(n, rates) -> None:
    """In groups of two each column keeps one: its filter is a dense one of half as many rows."""
    array, tight = (
        Array(rows=8, columns=8, mode="scale-sim"),
        Buffers(ifmap_words=4000, filter_words=100, ofmap_words=4000),
    )
    tight = msgspec.structs.replace(tight, rates=rates)
    sparse = run_memory(Layer(name="", m=9, n=n, k=64, rowwise=RowWise(group=2, seed=1)), array, tight)
    dense = run_memory(layer(9, n, 32), array, tight)
    assert (sparse.filter.sram_words, sparse.filter.dram_words) == (dense.filter.sram_words, dense.filter.dram_words)
    assert sparse.ofmap.sram_words == dense.ofmap.sram_words


@pytest.mark.parametrize(
    "array",
    [Array(rows=8, columns=8), Array(rows=8, columns=8, mode="scale-sim", count=2)],
    ids=["overlap", "two arrays"],
)
def test_arrays_that_scale_sim_does_not_have_are_refused(array):
    """The message says which one would do."""
    with pytest.raises(UnsupportedError, match="one array whose folds run one after the other"):
        run_memory(layer(3, 3, 3), array, ROOMY)


@pytest.mark.parametrize("words", [0, 99])
def test_an_sram_of_nothing_is_refused(words):
    """Names the field."""
    with pytest.raises(ConfigError, match="ifmap_words: expected a whole number from 100"):
        Buffers(ifmap_words=words, filter_words=100, ofmap_words=100)
