"""The tables between the first line of a module and its computations: where instructions came from."""

from __future__ import annotations

import re
from typing import Final

from tpusim.text.attributes.checked_text import fields as fields_of
from tpusim.text.attributes.checked_text import take_int32
from tpusim.text.lexer import Lexer
from tpusim.text.strings import take_string

TABLES: Final[dict[str, tuple[str, ...]]] = {
    "FileNames": (),
    "FunctionNames": (),
    "FileLocations": ("file_name_id", "function_name_id", "line", "end_line", "column", "end_column"),
    "StackFrames": ("file_location_id", "parent_frame_id"),
}
"""Titles in their order, and the fields of a row; rows without fields are strings."""


def take_tables(lexer: Lexer) -> dict[str, tuple[str, ...]]:
    """Read the four tables, or none; return their rows as text by title."""
    if lexer.kind != "keyword" or lexer.value != "FileNames":
        return {}
    tables = {}
    for title, fields in TABLES.items():
        if lexer.kind != "keyword" or lexer.value != title:
            lexer.fail(f"expected the table {title!r}, found {lexer.shown()}; all four tables stand together")
        tables[title] = _take_rows(lexer, fields)
    return tables


def _take_rows(lexer: Lexer, fields: tuple[str, ...]) -> tuple[str, ...]:
    """Read the rows of one table, from the token of its title on."""
    rows: list[str] = []
    # Tables of large programs have thousands of rows, nearly all as XLA prints them. Nine digits are 32 bits for
    # certain; longer numbers, and strings with escapes, are read token by token.
    body = r"\{" + " ".join(rf"{field}=-?[0-9]{{1,9}}" for field in fields) + r"\}" if fields else r'"[^"\\\n]*+"'
    ordinary = re.compile(rf"\n([0-9]{{1,9}} {body})(?=\n)")
    position = lexer.end
    while True:
        match = ordinary.match(lexer.text, position)
        if match is not None:
            rows.append(match[1])
            position = match.end()
            continue
        lexer.jump(position)
        if lexer.kind != "integer":
            return tuple(rows)
        rows.append(_take_row(lexer, fields))
        position = lexer.previous_end


def _take_row(lexer: Lexer, fields: tuple[str, ...]) -> str:
    """Read a row token by token and return its text, with blanks as XLA prints them."""
    number = lexer.take_integer()
    start = lexer.start
    if not fields:
        take_string(lexer)
        return f"{number} {lexer.text[start : lexer.previous_end]}"
    # XLA reads fields in any order and prints them in its own.
    values = fields_of(dict.fromkeys(fields, take_int32), all_required=True)(lexer)
    return f"{number} {{{' '.join(f'{field}={values[field]}' for field in fields)}}}"
