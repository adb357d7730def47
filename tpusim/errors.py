"""The errors of tpusim, by what has to change: the program, tpusim, a configuration, the run.

Every error says what was expected, what was found and what to do. The text of one that knows its place in a program
opens with ``file:line:column`` and ends with the source line and a caret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpusim.source import Span


_LONGEST_WORD = 200
_LONGEST_LINE = 2000


class TpusimError(Exception):
    """Base of all errors that tpusim raises on purpose.

    ``span`` is the place in the source, when known; ``message`` is the text without that place.
    """

    def __init__(self, message: str, span: Span | None = None) -> None:
        # Names come from files of others, and messages end up on terminals.
        self.message = "\n".join(map(_cut, printable(message).split("\n")))
        self.span = span
        super().__init__(span.render(self.message) if span is not None else self.message)

    def __reduce__(self) -> tuple[type[TpusimError], tuple[str, Span | None]]:
        """Keep message and place when an error travels between processes."""
        return type(self), (self.message, self.span)


class ProgramError(TpusimError):
    """The program is wrong: HLO text, a shape string, or the meaning of an instruction."""


class UnsupportedError(TpusimError):
    """The program is right but tpusim cannot treat it: says what, where, and what would be needed."""


class ConfigError(TpusimError):
    """A chip or pod file, or an override of one, is wrong: says file, key and the nearest known key."""


class CapacityError(ConfigError):
    """A program does not fit the memories of the chip: names its largest buffers.

    A configuration that is wrong for the program: another chip, another schedule, or leave to run all the same.
    """


class SimulationError(TpusimError):
    """The simulated machine cannot go on: says which device waits for which."""


class FaultError(Exception):
    """A fault of tpusim itself that an answer has told of already, such as the table of a study of other points."""


REPORT_IT = "Please report this with the program and the command: no input should do it."


def fault_text(error: Exception, then: str = "\n  ") -> str:
    """Return what to say of an error that nobody expected: its stage and kind, and behind ``then`` its places."""
    from pathlib import Path
    from traceback import extract_tb

    places = [f"{Path(frame.filename).as_posix()}:{frame.lineno}" for frame in extract_tb(error.__traceback__)]
    own = [place.rpartition("/tpusim/")[2] for place in places if "/tpusim/" in place]
    stage = own[-1].partition("/")[0].removesuffix(".py") if own else "start"
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"a fault of tpusim itself in the stage {stage!r}: {what:.500}{then}at {' < '.join(reversed(own[-6:]))}"


def _cut(line: str) -> str:
    """Return a line without its middle, if it is longer than anybody reads."""
    half = _LONGEST_LINE // 2
    return line if len(line) <= _LONGEST_LINE else f"{line[:half]} ... {line[-half:]}"


def printable(text: str, kept: str = "\n\t") -> str:
    """Return a text with characters that would drive a terminal made visible, but for those that are ``kept``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else "\N{REPLACEMENT CHARACTER}" for c in text)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the known word nearest to ``word``, or an empty string."""
    # What is so long is no slip of a known word, and to compare it takes the square of its length.
    if len(word) > _LONGEST_WORD:
        return ""
    # Few runs go wrong, and all of them load this file.
    from difflib import get_close_matches

    # difflib's own bar (0.6 alike) stays: a far-fetched hint misleads more than none.
    near = get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
