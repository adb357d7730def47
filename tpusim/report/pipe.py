"""Pages in a pipe, and which printer a command takes."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from typing import Any

from tpusim.report.tables import Printer, Table, plain_text

# Without a terminal to ask, Rich takes 80 columns and cuts names that are searched for.
_WIDTH = 160
# With these Rich writes colours into a pipe.
_COLOURED = ("FORCE_COLOR", "TTY_COMPATIBLE")


def make_printer() -> Printer:
    """Return what prints on standard output; in a pipe it is wide enough for the tables, and plain."""
    if sys.stdout.isatty():
        return _rich(None)
    return _rich(_WIDTH) if any(map(os.environ.get, _COLOURED)) else Pipe()


class Pipe:
    """Prints without colours what Rich would print, and asks Rich only for what it alone can lay out."""

    width = _WIDTH

    def print(self, *objects: Any, **settings: bool | None) -> None:
        """Print what Rich's console takes."""
        what = objects[0] if objects else ""
        shown = None
        if not settings:
            shown = what.plain(_WIDTH) if isinstance(what, Table) else plain_text(what, _WIDTH)
        if shown is None:
            self._console.print(what, **settings)
        else:
            sys.stdout.write(shown)

    @cached_property
    def _console(self) -> Printer:
        return _rich(_WIDTH)


def _rich(width: int | None) -> Printer:
    # Takes longer to load than a small program to run.
    from tpusim.report.console import make_console

    return make_console(width)
