"""The tokens of HLO text, one at a time, with their places.

What a word is depends on what follows it: ``name:`` and ``%name`` are names, ``key=`` is an attribute, any other word
an identifier, a keyword or an element type. All patterns use possessive repeats, so that no text makes them backtrack.

Source: XLA, the HLO text format.
"""

from __future__ import annotations

import re
from functools import reduce
from typing import Final, NoReturn

from tpusim.errors import ProgramError
from tpusim.ir.module import KEYWORDS
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.notation import parse_shape_prefix
from tpusim.shapes.shape import Shape
from tpusim.source import SourceText

SKIPPED: Final = r"(?:[ \t\r\n]++|/\*(?:[^*]++|\*(?!/))*+\*/|//[^\r\n]*+)*+"
"""Pattern of what stands between tokens: white space and comments."""

# A minus sign belongs to names, so ``a-b`` is one word and ``f32[]->`` is not.
WORD: Final = "[A-Za-z_][A-Za-z0-9_.-]*+"
"""Pattern of a name without ``%``."""
# The order decides: labels such as bf_io->bf begin like a word, 2x3 and 0_1 like a number.
_TOKENS = {
    # Half of all tokens, and none of the others begins like one of these.
    "mark": r"[=,:*#+~\[\]{}()]",
    "name": rf"%{WORD}|{WORD}:",
    "attribute": rf"{WORD}=",
    # A payload such as (0x7f) belongs to the token. The neighbour nan.1 is a name; only the bare word is a number.
    "nan": r"nan(?![A-Za-z0-9_.-])(?:\(0x[0-9a-fA-F]++\))?+",
    "labels": r"[0-9bf?]{2,}+_[0-9io?]{2,}+->[0-9bf?]{2,}+",
    "word": WORD,
    "string": r'"(?:[^"\\]++|\\.)*+"|' + r"'(?:[^'\\]++|\\.)*+'",
    "float": r"-?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)[eE][+-]?[0-9]++|-?(?:[0-9]++\.[0-9]*+)"
    r"|-nan(?:\(0x[0-9a-fA-F]++\))?+|-inf",
    "sizes": r"[0-9]++(?:x[0-9]++)++",
    "padding": r"-?[0-9]++_-?[0-9]++(?:_[0-9]++)?+(?:x-?[0-9]++_-?[0-9]++(?:_[0-9]++)?+)*+",
    "integer": r"-?[0-9]++",
    "other_mark": r"->|<=|\.\.\.|\?",
    "end": r"\Z",
}
_TOKEN = re.compile(SKIPPED + "(?:" + "|".join(f"(?P<{kind}>{text})" for kind, text in _TOKENS.items()) + ")")
_UP_TO_BRACE = re.compile(r'(?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+([{}])')
_FLAT = r'[^"{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}]*+)*+'
SHALLOW_JSON: Final = re.compile(
    reduce(lambda inner, _: rf"\{{{_FLAT}(?:{inner}{_FLAT})*+\}}", range(7), rf"\{{{_FLAT}\}}")
)
"""The pattern of what ``take_json_object`` takes, where braces are nested no deeper than compilers nest them."""
# Python refuses to convert thousands of digits, and takes long over hundreds; 64 bits have 20 with the sign.
_MOST_DIGITS = 20
# XLA sets no limit; JSON of compilers is some five deep.
_DEEPEST_JSON = 1000


class Lexer:
    """Reads tokens from a place on; ``kind``, ``value``, ``start`` and ``end`` tell of the token at hand.

    ``kind`` is ``name``, ``attribute``, ``identifier``, ``keyword``, ``type``, ``labels``, ``string``, ``float``,
    ``sizes`` (``2x3``), ``padding`` (``0_1x2_3``), ``integer``, ``end``, or the mark itself (``{``, ``->``, ...).
    ``value`` is the text of the token, of names and attributes without ``%``, ``:`` and ``=``. ``previous_end`` is
    where the token before it ended.
    """

    __slots__ = ("end", "kind", "previous_end", "source", "start", "text", "value")

    def __init__(self, source: SourceText, offset: int = 0) -> None:
        self.source = source
        self.text = source.text
        self.kind = "end"
        self.value = ""
        self.start = self.end = self.previous_end = offset
        self.advance()

    def advance(self) -> None:
        """Read the next token; raise ProgramError where none begins."""
        match = _TOKEN.match(self.text, self.end)
        if match is None:
            self._fail_at_no_token()
        group = match.lastgroup
        assert group is not None
        # Places of values end here, before blanks and comments that follow them.
        self.previous_end = self.end
        self.start, self.end = match.span(group)
        if group == "mark":
            # Half of all tokens; the way around the call below is worth a fifth of the time.
            self.kind = self.value = match[group]
            return
        self.kind, self.value = _classify(group, match[group])

    def jump(self, offset: int) -> None:
        """Go on reading at ``offset``."""
        self.end = offset
        self.advance()

    def take(self, kind: str, what: str) -> str:
        """Return the value of the token at hand and read the next; raise ProgramError if it is of another kind."""
        if self.kind != kind:
            self.fail(f"expected {what}, found {self.shown()}")
        value = self.value
        self.advance()
        return value

    def accept(self, kind: str) -> bool:
        """Pass over the token at hand if it is of this kind; return whether it was."""
        if self.kind != kind:
            return False
        self.advance()
        return True

    def take_word(self, what: str) -> str:
        """Return the name or identifier at hand and read the next token."""
        if self.kind not in ("identifier", "name"):
            self.fail(f"expected {what}, found {self.shown()}")
        return self.take(self.kind, what)

    def take_integer(self, what: str = "an integer") -> int:
        """Return the integer at hand, which must fit 64 bits, and read the next token."""
        start = self.start
        text = self.take("integer", what)
        # XLA would take 2^63 and more as negative numbers; no attribute means that.
        if len(text) > _MOST_DIGITS or not -(1 << 63) <= int(text) < 1 << 63:
            self.fail(f"integer {text[:_MOST_DIGITS]}... does not fit 64 bits", start)
        return int(text)

    def take_shape(self) -> Shape:
        """Return the shape at hand and read the token after it."""
        shape, end = parse_shape_prefix(self.text, self.start, self.source)
        self.jump(end)
        return shape

    def take_json_object(self) -> str:
        """Return the text of the ``{...}`` that begins at the token at hand, braces inside strings not counted.

        The text is not checked to be JSON: XLA does not either, and some programs hold MLIR there.
        """
        start = position = self.start
        depth = 0
        while depth <= _DEEPEST_JSON:
            match = _UP_TO_BRACE.match(self.text, position)
            if match is None:
                self.fail("this '{' is never closed", start)
            position = match.end()
            depth += 1 if match[1] == "{" else -1
            if depth == 0:
                self.jump(position)
                return self.text[start:position]
        self.fail(f"braces are nested more than {_DEEPEST_JSON} deep here", start)

    def peek(self) -> str:
        """Return the kind of the token after the one at hand, ``error`` if there is none."""
        match = _TOKEN.match(self.text, self.end)
        if match is None:
            return "error"
        group = match.lastgroup
        assert group is not None
        return _classify(group, match.group(group))[0]

    def shown(self) -> str:
        """Return the token at hand as error messages show it."""
        return "the end of the text" if self.kind == "end" else repr(self.text[self.start : self.end][:60])

    def fail(self, message: str, start: int | None = None) -> NoReturn:
        """Raise a ProgramError at ``start``, or at the token at hand."""
        begin = self.start if start is None else start
        raise ProgramError(message, self.source.span(begin, max(begin + 1, self.end if start is None else begin + 1)))

    def _fail_at_no_token(self) -> NoReturn:
        """Say what is wrong where no token begins."""
        blank = re.compile(SKIPPED).match(self.text, self.end)
        place = blank.end() if blank else self.end
        character = self.text[place]
        if self.text.startswith("/*", place):
            self.fail("this comment is never closed by '*/'", place)
        if character in "\"'":
            self.fail("this string is never closed", place)
        self.fail(f"character {character!r} cannot stand here in HLO text", place)


def _classify(group: str, value: str) -> tuple[str, str]:
    """Return the kind and the value of a token from the pattern that matched and its text."""
    if group in ("mark", "other_mark"):
        return value, value
    if group == "word":
        return _WORD_KINDS.get(value, "identifier"), value
    # A parameter of a signature is written name:, everything else %name.
    if group == "name":
        return "name", value[1:] if value[0] == "%" else value[:-1]
    if group == "attribute":
        return "attribute", value[:-1]
    return "float" if group == "nan" else group, value


_WORD_KINDS = dict.fromkeys(DTYPES, "type") | dict.fromkeys(KEYWORDS, "keyword") | {"inf": "float"}
