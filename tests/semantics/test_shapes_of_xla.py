"""Shapes and refusals of changed instructions, one size, type, operand or attribute each, against XLA's parser.

``data/shape_mutations.txt`` has changes of the kept cases of ``infer_cases``, one a line, of each opcode some for every
verdict. Left out is what XLA's process does not survive, and where we refuse what XLA only refuses later.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from tests.semantics.hlo import inferred
from tests.semantics.test_infer import xla_shape
from tpusim.errors import ProgramError

LINES = (Path(__file__).parent.parent / "data" / "shape_mutations.txt").read_text().splitlines()
BY_OPCODE = {opcode: list(lines) for opcode, lines in groupby(LINES, key=lambda line: line.partition("(")[0])}
# A few at a time: what fails names its lines.
PARTS = {
    f"{opcode} {start}": lines[start : start + 40]
    for opcode, lines in BY_OPCODE.items()
    for start in range(0, len(lines), 40)
}


def ours(text: str) -> str:
    """Return the shape that we infer, empty if we refuse."""
    try:
        return inferred(text)
    except ProgramError:
        return ""


def theirs(text: str) -> str:
    """Return the shape that XLA infers, empty if it refuses."""
    try:
        return xla_shape(text)
    except Exception:
        return ""


@pytest.mark.parametrize("lines", PARTS.values(), ids=PARTS)
def test_a_changed_instruction_has_the_shape_that_xla_gives_it(lines: list[str]) -> None:
    """Or none from either."""
    assert [(line, ours(line)) for line in lines] == [(line, theirs(line)) for line in lines]
