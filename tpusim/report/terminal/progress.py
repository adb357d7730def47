"""One line on the terminal's error stream while a long simulation runs; silence in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from tpusim.timeline.records import Record
from tpusim.units import ps_to_us

# Most runs are over before anybody wonders.
_FIRST_SECONDS = 1.0
_EVERY_SECONDS = 0.2
_CLEAR_LINE = "\r\x1b[K"


class CountLine:
    """Called with how many of how many are done; shows it if the error stream is a terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._next_seconds = monotonic() + _FIRST_SECONDS
        self._shown = False
        self._begun: tuple[float, int] | None = None

    def __call__(self, done: int, total: int) -> None:
        """Write the line anew now and then, with what is left at the pace so far."""
        # What was done at the first call was done before.
        self._begun = self._begun or (monotonic(), done)
        seconds, since = monotonic() - self._begun[0], done - self._begun[1]
        left = f", about {_duration(seconds / since * (total - done))} left" if since else ""
        self._show(f"{done:,} of {total:,}{left}")

    def _show(self, text: str) -> None:
        if monotonic() < self._next_seconds or not sys.stderr.isatty():
            return
        self._next_seconds = monotonic() + _EVERY_SECONDS
        self._shown = True
        sys.stderr.write(f"{_CLEAR_LINE}{self._what}: {text}")
        sys.stderr.flush()

    def close(self) -> None:
        """Remove the line."""
        if self._shown:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()


@contextmanager
def elapsed(what: str) -> Iterator[None]:
    """Show how long something has been going on that does not say how far it is."""
    # Most runs say how far they are.
    from threading import Event, Thread

    line, done, begun = CountLine(what), Event(), monotonic()

    def show() -> None:
        while not done.wait(_EVERY_SECONDS):
            line._show(_duration(monotonic() - begun))

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        line.close()


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class RunLine(CountLine):
    """Called with each record of a run; shows how far the simulated clock is, if the error stream is a terminal."""

    _records = 0

    def __init__(self) -> None:
        super().__init__("simulating")

    def record(self, record: Record) -> None:
        """Count a record."""
        self._records += 1
        # Asking the time costs more than counting, and a run has hundreds of thousands of records.
        if self._records % 256 == 0:
            self._show(f"{self._records:,} steps, {ps_to_us(record.end_ps):,.0f} us on the chip's clock")
