"""The console that reports print on."""

from __future__ import annotations

import sys

from rich.console import Console

# Without a terminal to ask, Rich takes 80 columns and cuts names that are searched for.
_PIPE_WIDTH = 160


def make_console() -> Console:
    """Return a console on standard output; in a pipe it is wide enough for the tables, and plain."""
    is_terminal = sys.stdout.isatty()
    return Console(width=None if is_terminal else _PIPE_WIDTH, highlight=False, soft_wrap=False)
