"""The process of the command line: its standard streams, its signals, and the code that it ends with.

Nothing of the package is loaded before an interrupt is quiet.
"""

from __future__ import annotations

import os
import signal
import sys


def run_process() -> int:
    """Run the command line as all that this process does, and return its exit code."""
    # While modules load there is nothing to put away: the signal ends the process, as it ends others.
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    _open_streams()
    from tpusim.cli.main import run_alone

    if handler is not None:
        signal.signal(signal.SIGINT, handler)
    try:
        return run_alone()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _open_streams() -> None:
    """Open what is closed of the standard streams, so that no file takes its number."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        # Readers say that standard input is closed; what is written has to go somewhere.
        if number and getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
