"""Pages in a pipe and in narrow terminals: however long a text is, names and figures are there, and ends of sources."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from msgspec import structs

from tests.report.test_memory import GIB, report
from tests.report.test_run import SUMMARY
from tpusim.analysis.explained.facts import InnerOp, InsideFacts, StepExplanation
from tpusim.analysis.path.critical import CriticalPath, Slack, Stretch
from tpusim.analysis.path.hidden import Hidden
from tpusim.analysis.tuning import Candidate, Ranking
from tpusim.report.console import PageConsole
from tpusim.report.pipe import Pipe
from tpusim.report.tables import Printer
from tpusim.report.terminal.answers.explain import render_explained
from tpusim.report.terminal.answers.path import render_path
from tpusim.report.terminal.explain import render_ranking
from tpusim.report.terminal.layout import render_layout
from tpusim.report.terminal.memory import render_memory
from tpusim.report.terminal.run import render_run
from tpusim.shapes.layout_facts import layout_facts
from tpusim.shapes.notation import parse_shape
from tpusim.timeline.records import CORE

FOLDER = "/home/user/miniconda3/envs/jax/lib/python3.11/site-packages/transformers/models/llama/"
SOURCES = [f"{FOLDER}modeling_flax_llama.py:{line}" for line in (82, 91, 193)]
NAMES = ("fusion.159", "copy.29", "fusion.8")
TIMES = ("756.49 us", "393.54 us", "54.05 us")
WIDTHS = (Pipe.width, 120, 100, 80)

Rows = list[tuple[str, ...]]
"""Of each row what has to be there; the first one at its beginning."""


def _ps(time: str) -> int:
    return round(float(time.split()[0]) * 10**6)


def path_page(console: Printer) -> Rows:
    """Print three ops one after the other, which could all start 2 us later, and what ran behind each."""
    stretches, slacks, hidden = [], [], []
    for name, source, time in zip(NAMES, SOURCES, TIMES, strict=True):
        own = {"name": name, "source": source, "opcode": "fusion", "line": 1}
        of_core = {"row": CORE, "category": "convolution fusion", "device": 0, "bound_by": "HBM", "count": 1}
        stretches.append(Stretch(**own, **of_core, start_ps=0, end_ps=_ps(time)))
        slacks.append(Slack(**own, row=CORE, time_ps=_ps(time), slack_ps=2_000_000))
        hidden.append(Hidden(name=f"start.{name}", source=source, behind=name, time_ps=_ps(time)))
    path = {"stretches": tuple(stretches), "slacks": tuple(slacks), "hidden": tuple(hidden)}
    render_path(CriticalPath(program="p", chip="v6e", device=0, total_ps=sum(map(_ps, TIMES)), **path), console)
    rows: Rows = []
    for name, time, source in zip(NAMES, TIMES, SOURCES, strict=True):
        rows += [(name, time, "%", source[-10:]), (name, "2.00 us", time, source[-10:])]
        rows += [(f"start.{name}", time, name, source[-10:])]
    return rows


def inside_page(console: Printer) -> Rows:
    """Print a loop of eight trips."""
    ops = tuple(
        InnerOp(name=name, opcode="fusion", source=source, time_ps=8 * _ps(time), count=8, bound_by="vector store")
        for name, source, time in zip(NAMES, SOURCES, TIMES, strict=True)
    )
    total_ps = sum(op.time_ps for op in ops)
    found = StepExplanation(
        program="p", name="while.4", opcode="while", what="a loop", source="", op_name="", line=0, chip="v6e", count=1,
        time_ps=total_ps, beside_ps=0, run_ps=total_ps, path_ps=total_ps, slack_ps=0, bounds_ps={"HBM": total_ps},
        facts=InsideFacts(times=8, ops=ops, jumps_ps=0, trips=8),
    )  # fmt: skip
    render_explained(found, console)
    return [(name, time) for name, time in zip(NAMES, TIMES, strict=True)]


def memory_page(console: Printer) -> Rows:
    """Print a temporary, half of which is padding."""
    render_memory(report(GIB, name="fusion.159", source=SOURCES[0], shape="bf16[1024,2048]{1,0}" * 4), console)
    return [("fusion.159", "1.00 GiB", "512.0 MiB", "2.00x", "temporary"), ("fusion.159", "512.0 MiB", "2.00x", "HBM")]


def sources_page(console: Printer) -> Rows:
    """Print a run by source lines, of which the ends alone differ."""
    group = SUMMARY.ops[0]
    groups = [structs.replace(group, name=name, time_ps=_ps(time)) for name, time in zip(SOURCES, TIMES, strict=True)]
    render_run(SUMMARY, groups, "source", console)
    return [("…", source[-10:], time) for source, time in zip(SOURCES, TIMES, strict=True)]


def ranking_page(console: Printer) -> Rows:
    """Print a candidate that runs, and two that do not."""
    ran = Candidate(what="block_q=128", chip="v6e", time_us=756.49, bound_by="matrix", flops_utilisation=0.5)
    failed = [Candidate(what=f"block_q={size}", fault=f"{FOLDER * 2}nofile.hlo: no such file") for size in (256, 512)]
    render_ranking(Ranking(chip="v6e", candidates=(ran, *failed)), console)
    said = [(f"block_q={size} has no time: {FOLDER}", "nofile.hlo: no such file") for size in (256, 512)]
    return [("block_q=128", "756.49 us", "50.0%"), ("block_q=256", "-"), ("block_q=512", "-"), *said]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "page", [path_page, inside_page, memory_page, sources_page, ranking_page], ids=lambda page: page.__name__
)
def test_long_texts_take_no_room_from_names_and_figures(page: Callable[[Printer], Rows], width: int) -> None:
    """JAX writes where a line stands as an absolute path, of which the table had nothing but the beginning."""
    console = PageConsole(file=io.StringIO(), width=width, highlight=False)
    rows = page(console)
    lines = console.file.getvalue().splitlines()
    for first, *others in rows:
        assert [line for line in lines if line.startswith(first) and all(other in line for other in others)], first


def test_a_ranking_in_which_nothing_ran_names_no_chip_that_it_does_not_know() -> None:
    """Rather than a gap."""
    console = PageConsole(file=io.StringIO(), width=80)
    render_ranking(Ranking(chip="", candidates=(Candidate(what="a", fault="f"),)), console)
    assert console.file.getvalue().startswith("1 candidate (simulated)")


def test_an_index_of_many_dimensions_is_whole() -> None:
    """It has no blanks at which a line could end."""
    console = PageConsole(file=io.StringIO(), width=60, highlight=False)
    shape = parse_shape(f"f32[{','.join('2' * 30)}]")
    render_layout(layout_facts(shape, at=(1,) * 30), console)
    said = "".join(console.file.getvalue().split())
    assert f"({','.join('1' * 30)})" in said
