"""Running a command inside a test: one that must succeed, and one that must be refused."""

from __future__ import annotations

from tpusim.cli.main import main


def output_of(capsys, *arguments: str) -> str:
    """Run a command that must succeed and return what it printed."""
    assert main(arguments) == 0
    return capsys.readouterr().out


def refusal_of(capsys, *arguments: str) -> str:
    """Run a command that must be refused and return what it said."""
    assert main(arguments) == 1
    return capsys.readouterr().err
