"""The report of a run, and its trace, from hand-written time lines."""

from __future__ import annotations

import io

import pytest
from msgspec import structs
from rich.console import Console

from tests.analysis.test_analysis import CHIP, TIMELINE
from tpusim.analysis.summary import summarise
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import simulate
from tpusim.program.module import Estimate, Program
from tpusim.program.steps import Kernel
from tpusim.program.work import Floor
from tpusim.report.json.page import plain
from tpusim.report.json.run import run_page
from tpusim.report.terminal.run import render_run
from tpusim.report.viewers.perfetto import pod_trace_json
from tpusim.timeline.records import PodRun, Record, Repeat, Timeline

PROGRAM = Program(
    name="p", chip="v5e", steps=(), unsupported=(Estimate("x", "custom-call", "bytes only"),), warnings=("careful",)
)
SUMMARY = summarise(PROGRAM, CHIP, TIMELINE)


def rendered(by: str = "op") -> str:
    """Return the report as plain text."""
    console = Console(file=io.StringIO(), width=160)
    render_run(SUMMARY, SUMMARY.ops, by, console)
    return console.file.getvalue()


def test_report_names_time_bound_and_ops():
    """36 us in all, 31 of them in op a, bound by HBM."""
    text = rendered()
    assert "36.00 us" in text
    assert "31.00 us" in text
    assert "HBM 86%" in text


def test_the_compilers_estimate_stands_beside_the_same_kernels():
    """It makes none of a hand-written kernel, which the whole time has: of 36 us only the 5 of b may be compared."""
    cycles = int(CHIP.clock_hz * 4e-6)
    ops = tuple(structs.replace(op, compiler_cycles=cycles if op.name == "b" else 0) for op in SUMMARY.ops)
    console = Console(file=io.StringIO(), width=160)
    render_run(
        structs.replace(SUMMARY, ops=ops, compiler_cycles=cycles, compiler_clock_hz=CHIP.clock_hz), ops, "op", console
    )
    assert "36.00 us; 5.00 us of it in kernels that the compiler puts at 4.00 us" in console.file.getvalue()


PREFETCHED = """HloModule m, is_scheduled=true

ENTRY e {
  p = f32[1024,1024]{1,0:T(8,128)} parameter(0)
  s = (f32[1024,1024]{1,0:T(8,128)S(1)}, f32[1024,1024]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(p), ATTRIBUTE
  d = f32[1024,1024]{1,0:T(8,128)S(1)} copy-done(s)
  ROOT n = f32[1024,1024]{1,0:T(8,128)} negate(d)
}
"""


@pytest.mark.parametrize(("attribute", "is_said"), [("cross_program_prefetch_index=0", True), ("", False)])
def test_a_first_run_says_what_a_run_of_many_would_not_wait_for(tmp_path, attribute, is_said):
    """What it waits for is the difference between the two."""
    path = tmp_path / "p.hlo.txt"
    path.write_text(PREFETCHED.replace(", ATTRIBUTE", f", {attribute}" if attribute else ""))
    first, warm = (simulate(path, "v5e", warm=is_warm) for is_warm in (False, True))
    assert first.summary.prefetch_wait_ps == first.summary.total_ps - warm.summary.total_ps
    assert (first.summary.prefetch_wait_ps > 0) == is_said
    console = Console(file=io.StringIO(), width=160)
    render_run(first.summary, first.summary.ops, "op", console)
    assert ("--warm" in console.file.getvalue()) == is_said
    assert warm.summary.prefetch_wait_ps == 0


def test_the_head_line_says_the_operating_point():
    """As a chip of several has them; v5e has none."""
    console = Console(file=io.StringIO(), width=160)
    boosted = load_chip("v7x-boosted")
    render_run(summarise(PROGRAM, boosted, TIMELINE), (), "op", console)
    assert boosted.operating_point in console.file.getvalue().splitlines()[0]
    assert "operating point" not in rendered()


@pytest.mark.parametrize(("stated", "is_noted"), [(0.0, True), (1e9, False)])
def test_masked_work_is_told_of_where_it_counts(stated, is_noted):
    """As it does in a kernel by hand, unless that states what it is for."""
    kernel = Kernel(name="k", opcode="custom-call", basis="body", product_flops=1e9, floor=Floor(flops=stated))
    summary = summarise(structs.replace(PROGRAM, steps=(kernel,)), CHIP, TIMELINE)
    console = Console(file=io.StringIO(), width=160)
    render_run(summary, (), "op", console)
    assert ("kernels by hand that state no cost: 1" in console.file.getvalue()) == is_noted


def test_report_lists_estimates_and_warnings():
    """Nothing is skipped in silence."""
    assert "x (custom-call): bytes only" in rendered()
    assert "careful" in rendered()


def test_narrow_terminals_cut_names_and_no_figures():
    """80 characters hold every figure of an op whose name is longer than that; no line is longer."""
    long = Record(
        name="f" * 90, opcode="fusion", category="loop fusion", row="core", start_ps=0, end_ps=10**9, bound_by="latency"
    )
    timeline = Timeline(program="p", chip="v5e", total_ps=10**9, records=(long,))
    summary = summarise(Program(name="p", chip="v5e", steps=()), CHIP, timeline)
    console = Console(file=io.StringIO(), width=80)
    render_run(summary, summary.ops, "op", console)
    lines = console.file.getvalue().splitlines()
    row = next(line for line in lines if line.startswith("ffff"))
    assert max(map(len, lines)) <= 80
    assert row.split()[1:] == ["1.00", "ms", "100.0%", "1", "latency", "0", "0", "B"]


def test_a_program_without_kernels_is_bound_by_nothing():
    """Its line says so, where a blank would look like a fault."""
    summary = summarise(
        Program(name="p", chip="v5e", steps=()), CHIP, Timeline(program="p", chip="v5e", total_ps=0, records=())
    )
    console = Console(file=io.StringIO(), width=160)
    render_run(summary, summary.ops, "op", console)
    assert "bound by  nothing" in console.file.getvalue()


def test_names_are_not_markup():
    """A name with brackets prints as it is."""
    odd = Record(name="op[red]", opcode="fusion", category="[x]", row="core", start_ps=0, end_ps=10**6, bound_by="HBM")
    timeline = Timeline(program="[bold]", chip="v5e", total_ps=10**6, records=(odd,))
    summary = summarise(Program(name="[bold]", chip="v5e", steps=()), CHIP, timeline)
    console = Console(file=io.StringIO(), width=160)
    render_run(summary, summary.ops, "op", console)
    assert "op[red]" in console.file.getvalue()
    assert "[bold] on v5e" in console.file.getvalue()


def test_json_times_are_microseconds():
    """Picoseconds stay inside."""
    found = plain(run_page(SUMMARY))
    assert found["time_us"] == 36.0
    assert [op["time_us"] for op in found["ops"]] == [31.0, 5.0, 0.0]
    assert found["unsupported"] == [{"name": "x", "opcode": "custom-call", "estimate": "bytes only"}]


def _trace_events(timeline):
    run = PodRun(sizes=(1,), slices=1, device_count=1, timelines=(timeline,))
    return pod_trace_json(run)["traceEvents"]


def test_trace_puts_overlapping_transfers_on_lanes():
    """Two copies at once need two rows; one after them reuses the first."""
    copies = tuple(
        Record(name=str(i), opcode="copy-start", category="async copy", row="dma", start_ps=start, end_ps=end)
        for i, (start, end) in enumerate([(0, 10), (5, 15), (10, 20)])
    )
    events = _trace_events(Timeline(program="p", chip="v5e", total_ps=20, records=copies))
    rows = {event["name"]: event["tid"] for event in events if event["ph"] == "X"}
    assert rows["0"] == rows["2"] != rows["1"]


def test_trace_shows_what_repeats():
    """Every trip of a loop has its slice, so that the time line has no hole."""
    trip = Record(name="x", opcode="add", category="", row="core", start_ps=0, end_ps=10, count=5)
    timeline = Timeline(program="p", chip="v5e", total_ps=50, records=(trip,), repeats=(Repeat("w", 10, 50, 4),))
    starts = [event["ts"] for event in _trace_events(timeline) if event["ph"] == "X"]
    assert starts == pytest.approx([0, 10e-6, 20e-6, 30e-6, 40e-6])
