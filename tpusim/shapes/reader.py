"""A place in a text that moves on as tokens are read, and says what it expected when it cannot."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from tpusim.errors import ProgramError
from tpusim.source import SourceText, Span

Item = TypeVar("Item")

LARGEST = (1 << 63) - 1
"""The largest size or index: XLA keeps them in 64 bits."""

MOST_ITEMS = 4096
"""Sizes or tile entries that one shape may list: far above any program's rank, low enough to refuse garbage at once."""

# A comment that never ends matches nothing, and is then found where a token should be.
_BLANKS = re.compile(r"(?:\s++|/\*.*?\*/|//[^\r\n]*+)*+", re.DOTALL)
_DIGITS = re.compile(r"\d+")
_SHOWN_CHARACTERS = 20


def skip_blanks(text: str, position: int) -> int:
    """Return the first offset, not before ``position``, that is neither blank nor in a comment."""
    match = _BLANKS.match(text, position)
    return match.end() if match else position


class Reader:
    """Reads tokens of ``text`` from ``position`` on; blanks and comments before a token are passed over.

    ``source`` is the text that errors show, if not ``text`` itself; offsets in both agree.
    """

    def __init__(self, text: str, position: int, source: SourceText | None = None) -> None:
        self.text = text
        self.position = position
        self.source = source
        # A physical shape may not have another one in its layout; only this keeps that from recursing.
        self.is_in_physical_shape = False

    def skip_blanks(self) -> None:
        """Move over blanks and comments."""
        self.position = skip_blanks(self.text, self.position)

    def span(self, start: int) -> Span:
        """Return the place from ``start`` to here."""
        return (self.source or SourceText("<shape>", self.text)).span(start, self.position)

    def fail(self, expected: str) -> NoReturn:
        """Raise ``ProgramError``: ``expected`` should come here, something else does."""
        self.skip_blanks()
        # The fault is the next token, not the blanks before it.
        found = self.text[self.position : self.position + _SHOWN_CHARACTERS]
        raise self.error(f"expected {expected}, found {found!r}" if found else f"expected {expected}, found the end")

    def error(self, message: str, start: int | None = None) -> ProgramError:
        """Return an error about the text from ``start`` to here (default: about the character here)."""
        return ProgramError(message, self.span(self.position if start is None else start))

    def peek(self, token: str) -> bool:
        """Return whether ``token`` comes next; moves over blanks only."""
        self.skip_blanks()
        return self.text.startswith(token, self.position)

    def accept(self, token: str) -> bool:
        """Move over ``token`` if it comes next, and say whether it did."""
        found = self.peek(token)
        if found:
            self.position += len(token)
        return found

    def expect(self, token: str) -> None:
        """Move over ``token``, or raise ``ProgramError`` if it does not come next."""
        if not self.accept(token):
            self.fail(repr(token))

    def find(self, pattern: re.Pattern[str]) -> str | None:
        """Move over and return what ``pattern`` matches here, or return ``None``."""
        self.skip_blanks()
        match = pattern.match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        return match[0]

    def number(self) -> int:
        """Read an integer from 0 to ``LARGEST``."""
        digits = self.find(_DIGITS)
        if digits is None:
            self.fail("a number")
        # Digits are counted first: Python refuses to convert thousands of them.
        if len(digits) > 30 or int(digits) > LARGEST:
            raise self.error("expected a number below 2^63, found a larger one", self.position - len(digits))
        return int(digits)

    def items(self, read: Callable[[Reader], Item]) -> tuple[Item, ...]:
        """Read one or more items with commas between them."""
        found = [read(self)]
        while self.accept(","):
            if len(found) == MOST_ITEMS:
                raise self.error(f"expected at most {MOST_ITEMS:,} entries in one list, found more")
            found.append(read(self))
        return tuple(found)
