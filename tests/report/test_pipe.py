"""What goes into a pipe: what Rich would print, and Rich itself only where it has to be asked."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tpusim.pipeline.stages import simulate
from tpusim.report.console import make_console
from tpusim.report.pipe import Pipe, make_printer
from tpusim.report.tables import escape, plain_table
from tpusim.report.terminal.run import render_result

_PLAIN = ("", "fusion.1", " 12 us", "0 ")
_WORDS = (*_PLAIN, "a[bold]b", "[0]", "back\\slash", "\u4e2d\u6587", "a\nb", "tab\t", "x" * 90, "a b" * 30, "end\\")
_EMPHASIS = ("", "[bold]time[/bold] ", "[yellow]warning[/yellow]   ")
_TITLES = ("", "op", ">time", ">\u00b5", "category", ">share", "<source")
TRACE = Path(__file__).parents[2] / "traces/mlp_b1024.v5e.hlo.txt.gz"


def _page(seed: int) -> list[Any]:
    """Return texts and tables, some of which Rich has to lay out."""
    draw = random.Random(seed)
    words, columns = draw.choice((_PLAIN, _WORDS)), draw.randint(1, 5)
    table = plain_table(*draw.choices(_TITLES, k=columns), cut=draw.choice(((), ("op",))))
    for _ in range(draw.randint(0, 3)):
        table.add_row(*(escape(draw.choice(words)) for _ in range(draw.randint(0, columns))))
    text = draw.choice(_EMPHASIS) + escape(" ".join(draw.choices(_WORDS, k=draw.randint(0, 4))))
    return [text, table]


@pytest.mark.parametrize("seed", range(0, 300, 50))
def test_a_pipe_prints_what_rich_prints(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Texts and tables: plain, wide, with markup, brackets, other scripts and ends of lines."""
    for page in map(_page, range(seed, seed + 50)):
        shown = []
        for printer in (Pipe(), make_console(Pipe.width)):
            printer.print()
            for what in page:
                printer.print(what)
            shown.append(capsys.readouterr().out)
        assert shown[0] == shown[1], page


def test_a_run_is_printed_without_rich(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing on the page of a small program needs it."""
    printer, result = make_printer(), simulate(TRACE)
    render_result(result, "op", printer, result.cost())
    assert capsys.readouterr().out
    assert isinstance(printer, Pipe)
    assert "_console" not in vars(printer)


def test_colours_are_there_for_those_who_force_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Rich has it: https://force-color.org."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    make_printer().print("[bold]time[/bold]")
    assert "\x1b[1m" in capsys.readouterr().out
