"""Tokens: what a word is depends on what follows it."""

from __future__ import annotations

import pytest

from tests.text.programs import source
from tpusim.errors import ProgramError
from tpusim.text.lexer import Lexer


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("%add.1-x", "name", "add.1-x"),
        ("key: f32", "name", "key"),
        ("key=3", "attribute", "key"),
        ("key = 3", "identifier", "key"),
        ("f32[2]", "type", "f32"),
        ("ROOT", "keyword", "ROOT"),
        ("%ROOT", "name", "ROOT"),
        ("b01f_01io->b01f", "labels", "b01f_01io->b01f"),
        ("0bf_io0->?f", "labels", "0bf_io0->?f"),
        ("2x3x4", "sizes", "2x3x4"),
        ("0_1x-2_3_4", "padding", "0_1x-2_3_4"),
        ("-12", "integer", "-12"),
        ("1.", "float", "1."),
        ("-1.5e-3", "float", "-1.5e-3"),
        ("-inf", "float", "-inf"),
        ("nan(0x7f)", "float", "nan(0x7f)"),
        ('"a \\" b"', "string", '"a \\" b"'),
        ("'x'", "string", "'x'"),
        ("/* a */ // b\n ->", "->", "->"),
        ("...", "...", "..."),
        ("<=", "<=", "<="),
        ("  ", "end", ""),
    ],
)
def test_a_token_has_its_kind_and_value(text: str, kind: str, value: str) -> None:
    """Every kind of token of the grammar, by an example."""
    lexer = Lexer(source(text))
    assert (lexer.kind, lexer.value) == (kind, value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/* open", "never closed by"),
        ('"open', "string is never closed"),
        ("$", "cannot stand here"),
        ("é", "stand here"),
    ],
)
def test_what_is_no_token_is_an_error(text: str, message: str) -> None:
    """The message says what is open, or which character is foreign."""
    with pytest.raises(ProgramError, match=message):
        Lexer(source(text))


def test_a_json_object_ends_at_its_own_brace() -> None:
    """Braces inside strings do not count."""
    lexer = Lexer(source('{"a": {"b": "}"}} x'))
    assert lexer.take_json_object() == '{"a": {"b": "}"}}'
    assert lexer.value == "x"


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "9" * 30])
def test_an_integer_beyond_64_bits_is_refused(text: str) -> None:
    """XLA keeps integers in 64 bits."""
    with pytest.raises(ProgramError, match="does not fit 64 bits"):
        Lexer(source(text)).take_integer()
