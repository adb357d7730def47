"""Text with a name, places in it, and the caret that points at them."""

from __future__ import annotations

import msgspec

from tpusim.errors import printable

# A line of a compiled program may have many kilobytes, which would bury the message.
_SHOWN_COLUMNS = 120


class SourceText(msgspec.Struct, frozen=True):
    """A text and the name (usually the path) that errors quote.

    ``form`` says what the text is of a file that has another form (``as HLO text``): places are in the text.
    """

    name: str
    text: str
    form: str = ""

    def span(self, start: int, end: int | None = None) -> Span:
        """Return the place from offset ``start`` to ``end`` (default: one character)."""
        return Span(self, start, start + 1 if end is None else end)


class Span(msgspec.Struct, frozen=True):
    """A stretch of a source text, by character offsets; ``line`` and ``column`` count from 1."""

    source: SourceText
    start: int
    end: int

    @property
    def line(self) -> int:
        """Line of the first character, from 1."""
        # Counted when asked for: errors are rare, and a table of lines would cost every reading.
        return self.source.text.count("\n", 0, self.start) + 1

    @property
    def column(self) -> int:
        """Column of the first character, from 1."""
        return self.start - (self.source.text.rfind("\n", 0, self.start) + 1) + 1

    def render(self, message: str) -> str:
        """Return ``file:line:column: message``, the source line and a caret under the place."""
        column, text = self.column, self.source.text
        end = text.find("\n", self.start)
        shown, offset = _window(text[self.start - column + 1 : end if end >= 0 else len(text)], column - 1)
        # A place may run over several lines; the caret stays under the one that is shown.
        width = max(1, min(self.end - self.start, len(shown) - offset))
        caret = " " * offset + "^" * width
        name = printable(f"{self.source.name} {self.source.form}".rstrip())
        return f"{name}:{self.line}:{column}: {message}\n  {shown}\n  {caret}"


def _window(line: str, offset: int) -> tuple[str, int]:
    """Cut a long line down to what fits a terminal; return it and the offset in it, control characters made visible."""
    begin = max(0, offset - _SHOWN_COLUMNS // 2)
    shown = line[begin : begin + _SHOWN_COLUMNS]
    # A tab would move the caret.
    return printable(shown.replace("\t", "\N{REPLACEMENT CHARACTER}")), offset - begin
