"""One line on the terminal's error stream while a long simulation runs; silence in a pipe."""

from __future__ import annotations

import sys
from time import monotonic
from typing import TYPE_CHECKING

from tpusim.units import ps_to_us

if TYPE_CHECKING:
    from tpusim.timeline.records import Record

# Most runs are over before anybody wonders.
_FIRST_SECONDS = 1.0
_EVERY_SECONDS = 0.2
_CLEAR_LINE = "\r\x1b[K"


class ProgressLine:
    """Called with each record of a run; shows how far the simulated clock is, if the error stream is a terminal."""

    def __init__(self) -> None:
        self._next_seconds = monotonic() + _FIRST_SECONDS
        self._records = 0
        self._shown = False

    def __call__(self, record: Record) -> None:
        """Count a record and now and then write the line anew."""
        self._records += 1
        # Asking the time costs more than counting, and a run has hundreds of thousands of records.
        if self._records % 256 or monotonic() < self._next_seconds or not sys.stderr.isatty():
            return
        self._next_seconds = monotonic() + _EVERY_SECONDS
        self._shown = True
        simulated_us = ps_to_us(record.end_ps)
        sys.stderr.write(
            f"{_CLEAR_LINE}simulating: {self._records:,} steps, {simulated_us:,.0f} us on the chip's clock"
        )
        sys.stderr.flush()

    def close(self) -> None:
        """Remove the line."""
        if self._shown:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()


class CountLine:
    """Called with how many of how many are done; shows it if the error stream is a terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._next_seconds = monotonic() + _FIRST_SECONDS
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        """Write the line anew now and then."""
        if monotonic() < self._next_seconds or not sys.stderr.isatty():
            return
        self._next_seconds = monotonic() + _EVERY_SECONDS
        self._shown = True
        sys.stderr.write(f"{_CLEAR_LINE}{self._what}: {done:,} of {total:,}")
        sys.stderr.flush()

    def close(self) -> None:
        """Remove the line."""
        if self._shown:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()
