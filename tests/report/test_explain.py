"""The page of a kernel, from figures written by hand."""

from __future__ import annotations

import io

from msgspec import structs
from rich.console import Console

from tests.report.picture_cases import product
from tpusim.analysis.explanation import Kind
from tpusim.report.terminal.explain import render_explanation


def kind(tiles: int, cycles: float) -> Kind:
    """Return tiles that only compute."""
    return Kind(tiles=tiles, cycles=cycles, moved_bytes=0, moving_cycles=0, latency_cycles=0, is_skipped=False)


def test_kinds_that_look_alike_are_one_row():
    """Kinds that differ in what no column shows, the first step of a grid say, told nothing as rows of their own."""
    console = Console(file=io.StringIO(), width=120)
    found = structs.replace(product(), kinds=(kind(2240, 1050), kind(159, 1251), kind(1, 1251)))
    render_explanation(found, console)
    rows = [line.split() for line in console.file.getvalue().splitlines() if line.endswith("computes")]
    assert [row[0] for row in rows] == ["2,240", "160"]
