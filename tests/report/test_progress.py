"""The line on a terminal while something long runs: how much is done, and how long the rest takes."""

from __future__ import annotations

import sys
from time import sleep

from tpusim.report.terminal import progress
from tpusim.report.terminal.progress import CountLine, elapsed


def test_a_compiler_shows_how_long_it_has_been_at_work(monkeypatch, capsys):
    """On a terminal, and the line is gone afterwards."""
    monkeypatch.setattr(progress, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_EVERY_SECONDS", 0.01)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with elapsed("compiling"):
        sleep(0.1)
    shown = capsys.readouterr().err
    assert "compiling: 0 s" in shown
    assert shown.endswith("\x1b[K")


def test_what_is_left_is_at_the_pace_since_the_first_call(monkeypatch, capsys):
    """What was done before that took no time: 20 in 10 seconds, and 60 to go."""
    now = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    line = CountLine("sweeping")
    for now[0], done in ((10.0, 20), (20.0, 40)):
        line(done, 100)
    shown = capsys.readouterr().err
    assert "sweeping: 20 of 100" in shown
    assert "40 of 100, about 30 s left" in shown
