"""Strings of HLO text: C escapes in, C escapes out.

A string of the text is bytes; here it is Python text, in which bytes that are not UTF-8 are lone surrogates
(``surrogateescape``), so that nothing is lost on the way back.
"""

from __future__ import annotations

import re

from tpusim.text.lexer import Lexer

_ESCAPE = rb"(?s)\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]++)|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))"
_CONTROLS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_LETTERS = _CONTROLS | {mark: mark for mark in (b"\\", b"?", b"'", b'"')}
# As absl::CEscape, which XLA prints strings with, writes every byte: as itself, by name, or octal.
_ESCAPED = [chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}" for byte in range(256)]
for _name, _byte in {"n": 0x0A, "r": 0x0D, "t": 0x09, '"': 0x22, "'": 0x27, "\\": 0x5C}.items():
    _ESCAPED[_byte] = f"\\{_name}"
_PLAIN = re.compile(r"[\x20-\x7e]*+")
_SPECIAL = frozenset("\"'\\")


def take_string(lexer: Lexer, what: str = "a string") -> str:
    """Return the string at hand without quotes and escapes; raise ProgramError if an escape is not one of C's."""
    start = lexer.start
    body = lexer.take("string", what)[1:-1]
    # Nearly all strings are plain.
    if "\\" not in body:
        return body
    try:
        return re.sub(_ESCAPE, _unescaped, body.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
    except (KeyError, ValueError, OverflowError):
        return lexer.fail("this string holds an escape that C does not know", start)


def quoted(text: str) -> str:
    """Return ``text`` in double quotes, with the escapes that XLA prints."""
    if _PLAIN.fullmatch(text) and _SPECIAL.isdisjoint(text):
        return f'"{text}"'
    return '"' + "".join(_ESCAPED[byte] for byte in text.encode("utf-8", "surrogateescape")) + '"'


def _unescaped(match: re.Match[bytes]) -> bytes:
    """Return the bytes that one escape stands for."""
    octal, hexadecimal, short, long, letter = match.groups()
    if octal or hexadecimal:
        return bytes([int(octal, 8) if octal else int(hexadecimal, 16)])
    if short or long:
        return chr(int(short or long, 16)).encode("utf-8")
    return _LETTERS[letter]
