"""The process of the command line: its standard streams, its signals, and the code that it ends with.

Nothing but what Python has loaded already is loaded before an interrupt is quiet.
"""

from __future__ import annotations

# `signal` would load modules for the names of signals: an interrupt there would not be quiet yet.
import _signal as signal  # type: ignore[import-not-found]
import atexit
import gc
import os
import sys

# As typing's.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import TextIO


def run_process() -> int:
    """Run the command line as all that this process does, and end it; return its exit code if others wait for that."""
    # While modules load there is nothing to put away: the signal ends the process, as it ends others.
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    _open_streams()
    from tpusim.limits import COLLECTED_OBJECTS

    # What a command makes lives as long as it does, and has hardly any cycles: to look for them again and again, and
    # once more when Python ends, would take a sixth of the time of a large program, and of loading the package.
    gc.set_threshold(COLLECTED_OBJECTS)
    from tpusim.cli.main import main

    if handler is not None:
        signal.signal(signal.SIGINT, _interrupt if handler is signal.default_int_handler else handler)
    try:
        code = main()
    finally:
        gc.freeze()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) is _interrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)
    _leave(code)
    return code


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt the package's own code, and wait while it is in others': not all of that survives an exception.

    Where msgspec asks for what a class is made of it ends the process with a fault of memory.
    """
    is_own = frame is None or frame.f_globals.get("__name__", "").startswith("tpusim")
    if is_own or not hasattr(signal, "setitimer"):
        raise KeyboardInterrupt
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, _SOON_SECONDS)


_SOON_SECONDS = 1e-3


def _leave(code: int) -> None:
    """End the process, unless there is more to do at its end: for pools, or for what measures it."""
    for stream in (sys.stdout, sys.stderr):
        _flush(stream)
    threading = sys.modules.get("threading")
    others = threading.active_count() - 1 if threading else 0
    if others or atexit._ncallbacks() or sys.gettrace() or sys.getprofile():
        return
    # Python would take apart a hundred thousand objects whose memory goes back all the same; mypy leaves likewise.
    os._exit(code)


def _flush(stream: TextIO) -> None:
    """Write what is left, or forget it: that it cannot be written has been told, and Python would end with 120."""
    try:
        stream.flush()
    except (OSError, ValueError):
        _forget(stream)


def _forget(stream: TextIO) -> None:
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):
        return


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
    # Names have letters that a terminal may lack.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
