"""Time as an integer number of picoseconds, energy as one of femtojoules, and the conversions into and out of them."""

from __future__ import annotations

# A cycle of 1.75 GHz is 571 ps: a clock of whole nanoseconds could not even tell cycles apart.
PS_PER_US = 1_000_000
PS_PER_SECOND = 1_000_000_000_000
# A multiply-accumulate takes a few hundred of them; a time line of them can be added up exactly in any order.
FJ_PER_JOULE = 1_000_000_000_000_000
_FJ_PER_WATT_PS = 1_000
SECONDS_PER_HOUR = 3_600


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


def watts_to_fj(watts: float, ps: int) -> int:
    """Return the femtojoules, to the nearest, that a power makes in some picoseconds."""
    return round(watts * ps * _FJ_PER_WATT_PS)


def fj_to_watts(fj: float, ps: float) -> float:
    """Return the power that makes some femtojoules in some picoseconds; 0 in none."""
    return fj / ps / _FJ_PER_WATT_PS if ps else 0.0
