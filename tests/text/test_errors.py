"""Errors point at the place: line, column, and words that say what was expected and found."""

from __future__ import annotations

import pytest

from tests.text.programs import entry, source
from tpusim.errors import ProgramError
from tpusim.text import parse_module

P = "p = f32[4] parameter(0)"


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "text is empty"),
        ("HloModule m\n\nENTRY e {\n", 4, 1, "expected the name of an instruction, found the end of the text"),
        ("HloModule m, is_schedule=true", 1, 14, "did you mean 'is_scheduled'"),
        (
            "HloModule m\n\n%f (a: f32[]) -> f32[2] {\n  ROOT %a = f32[] parameter(0)\n}\n",
            3,
            18,
            "root of 'f' has the shape",
        ),
        (entry(P, "n = f32[4] negat(p)"), 5, 14, "unknown opcode 'negat' .did you mean 'negate'"),
        (entry(P, "n = f32[4] negate(q)"), 5, 21, "instruction 'q' is not defined above"),
        (entry(P, "n = f32[4] negate(p, p)"), 5, 20, "'negate' takes 1 operand, found 2"),
        (entry(P, "p = f32[4] negate(p)"), 5, 3, "instruction 'p' is already defined on line 4"),
        (entry(P, "n = f32[4 negate(p)"), 5, 13, "expected"),
        (entry(P, "n = f32[4] negate(p), dimension={0}"), 5, 25, "has no attribute 'dimension'"),
        (entry(P, "n = f32[4] reverse(p)"), 5, 23, "must have the attribute 'dimensions'"),
        (entry(P, "n = f32[4] reverse(p), dimensions={0,"), 6, 1, "expected an integer, found '}'"),
        (entry(P, "c = f32[4] call(p), to_apply=%f"), 5, 32, "computation 'f' is not defined above"),
        (entry("ROOT a = f32[] constant(1)", "ROOT b = f32[] constant(1)"), 5, 3, "only one ROOT"),
        (entry("p = f32[4] parameter(1)"), 4, 3, "numbered from 0 on"),
        (entry("c = s8[] constant(300)"), 4, 21, "outside the range of s8, -128 to 127"),
        (entry("c = f32[2] constant({1, 2, 3})"), 4, 30, "has only 2 elements"),
        (entry("c = f32[2] constant({1})"), 4, 25, "has 2 elements, found 1"),
        (entry(P, "n = f32[4] negate(p), metadata={op_nam=3}"), 5, 35, "expected each of op_type"),
        (entry(P, "s = f32[4] negate(p), sharding={device=[2]}"), 5, 42, "expected an integer"),
        (entry(P, "n = f32[4] negate(p) $"), 5, 24, "character '\\$' cannot stand here"),
        ("HloModule m\0", 1, 12, "NUL bytes"),
    ],
)
def test_an_error_has_its_place_and_words(text: str, line: int, column: int, message: str) -> None:
    """The place is the first character of what is wrong; both ways of reading find the same."""
    for careful in (False, True):
        with pytest.raises(ProgramError, match=message) as caught:
            parse_module(source(text), careful=careful)
        assert caught.value.span is not None
        assert (caught.value.span.line, caught.value.span.column) == (line, column)


def test_an_error_shows_the_line_and_a_caret() -> None:
    """File, line and column first, then the source line with the place underlined."""
    with pytest.raises(ProgramError) as caught:
        parse_module(source(entry(P, "n = f32[4] negate(q)")))
    first, shown, caret = str(caught.value).split("\n")
    assert first.startswith("test.hlo:5:21: ")
    assert shown[caret.index("^")] == "q"


def test_a_deeper_nesting_than_programs_have_is_refused() -> None:
    """Instructions inside operands and computations inside attributes; XLA's own limit is in the thousands."""
    nested = "negate(" * 60 + "p" + ")" * 60
    with pytest.raises(ProgramError, match="nested more than"):
        parse_module(source(entry(P, f"n = f32[4] {nested}")))
    shallow = "negate(" * 40 + "p" + ")" * 40
    assert len(parse_module(source(entry(P, f"n = f32[4] {shallow}"))).entry.instructions) == 41
