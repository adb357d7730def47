"""A figure that two commands print is the same one."""

from __future__ import annotations

import json
import re

import pytest

import tpusim
from tests.cli.commands import output_of
from tests.house.source_tree import ROOT
from tpusim.analysis.memory import memory_capacities
from tpusim.hardware.units import HBM, VMEM
from tpusim.pipeline.modules import Builder
from tpusim.report.tables import size_text

PROGRAMS = [
    str(ROOT / f"traces/{name}.hlo.txt.gz")
    for name in ("mlp_b1024.v5e", "gpt2_fwd_b8t1024.v5p", "llama8b_decode_tp.v5e_2x4", "bert_base_b32t128.v3")
]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.rpartition("/")[2].partition(".")[0])
def test_run_and_memory_agree(capsys, path):
    """Arguments, outputs, temporaries, peaks and capacities, as texts and as JSON."""
    run, memory = (output_of(capsys, command, path) for command in ("run", "memory"))
    for label in ("arguments", "outputs", "temporaries"):
        figure = rf"{label} ([\d.,]+ \w+)"
        assert re.search(figure, run)[1] == re.search(figure, memory)[1]
    assert re.search(r"peak HBM (.*?),", run)[1] == re.search(r"HBM +(.*?),", memory)[1]
    assert re.search(r"peak VMEM (.*)", run)[1].strip() == re.search(r"VMEM +(.*?),", memory)[1]
    run, memory = (json.loads(output_of(capsys, command, path, "--json")) for command in ("run", "memory"))
    assert run["memory"] == memory["memory"]


def test_a_printed_result_is_what_run_prints(capsys):
    """Devices, collectives and links included, line by line."""
    printed = str(tpusim.simulate(PROGRAMS[2])).splitlines()
    lines = [line.rstrip() for line in output_of(capsys, "run", PROGRAMS[2]).splitlines()]
    assert "links" in "".join(printed)
    assert printed == lines


def test_run_scale_and_path_agree(capsys):
    """Of a family of one the time, the MFU and what is left are those of the run."""
    run = json.loads(output_of(capsys, "run", PROGRAMS[0], "--json"))
    (row,) = json.loads(output_of(capsys, "scale", PROGRAMS[0], "--json"))["rows"]
    path = json.loads(output_of(capsys, "path", PROGRAMS[0], "--json"))
    assert run["time_us"] == row["time_us"] == path["time_us"]
    assert run["model_flops_utilization"] == row["mfu"]
    assert run["memory"]["peak_hbm_bytes"] == row["peak_hbm_bytes"]


def test_reports_name_the_peak_that_a_product_is_measured_against():
    """Of int8, which runs at twice the rate of bf16."""
    builder = Builder("narrow.v5e.hlo.txt")
    rows = builder.parameter(0, "s8[4096,4096]")
    dimensions = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    result = tpusim.simulate(builder.build(builder.dot_general(rows, rows, dimensions)))
    assert 0.5 < result.summary.model_flops_utilisation < 1
    assert f"{result.summary.model_flops_utilisation:.1%} of the s8 peak" in str(result)
    assert result.summary.peak_types == ("s8",)


def test_a_capacity_is_what_a_program_may_have():
    """Of v5e's HBM the runtime keeps a quarter of a GiB."""
    summary = tpusim.simulate(PROGRAMS[0]).summary
    capacities = memory_capacities(tpusim.load_chip("v5e"))
    assert (summary.hbm_capacity_bytes, summary.vmem_capacity_bytes) == (capacities[HBM], capacities[VMEM])
    assert size_text(summary.hbm_capacity_bytes) == "15.75 GiB"
