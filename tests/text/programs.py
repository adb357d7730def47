"""The programs in ``tests/data/hlo``: compiled and unscheduled ones, and hand-written ones for the grammar.

``TRACES`` are larger: whole models.
"""

from __future__ import annotations

from pathlib import Path

from tpusim.source import SourceText
from tpusim.text import read_source

HLO = Path(__file__).parent.parent / "data" / "hlo"
TRACES = sorted((Path(__file__).parents[2] / "traces").glob("*.hlo.txt.gz"))
COMPILED = sorted(HLO.glob("*.hlo.txt.gz"))
GRAMMAR = sorted((HLO / "grammar").glob("*.hlo"))
ALL = [*COMPILED, *GRAMMAR]


def name_of(path: Path) -> str:
    """Return the short name that a test's id shows."""
    return path.name.partition(".hlo")[0]


def text_of(name: str) -> str:
    """Return the text of one program by its short name."""
    path = next(path for path in ALL if name_of(path) == name)
    return read_source(path).text


def source(text: str) -> SourceText:
    """Return a text as errors shall name it."""
    return SourceText("test.hlo", text)


def entry(*lines: str) -> str:
    """Return a module whose entry has these lines."""
    body = "".join(f"  {line}\n" for line in lines)
    return f"HloModule m\n\nENTRY %main {{\n{body}}}\n"
