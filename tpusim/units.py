"""Time as an integer number of picoseconds, and the few conversions into and out of it."""

from __future__ import annotations

# A cycle of 1.75 GHz is 571 ps: a clock of whole nanoseconds could not even tell cycles apart.
PS_PER_US = 1_000_000
PS_PER_SECOND = 1_000_000_000_000


def cycles_to_ps(cycles: float, clock_hz: float) -> int:
    """Return the picoseconds, rounded up, that ``cycles`` take at ``clock_hz``."""
    # Negating twice makes // round up: nothing may end before its work is done.
    return -int(-cycles * PS_PER_SECOND // clock_hz)


def bytes_to_ps(n_bytes: float, bytes_per_second: float) -> int:
    """Return the picoseconds, rounded up, in which ``n_bytes`` pass at ``bytes_per_second``."""
    return -int(-n_bytes * PS_PER_SECOND // bytes_per_second)


def ps_to_us(ps: int) -> float:
    """Return picoseconds as microseconds."""
    return ps / PS_PER_US


def seconds_to_ps(seconds: float) -> int:
    """Return seconds as whole picoseconds, to the nearest."""
    return round(seconds * PS_PER_SECOND)
