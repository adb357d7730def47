"""What the models that ship take under ``[SECTION.settings]``: whole numbers, amounts and switches, each in bounds."""

from __future__ import annotations

from typing import Any

from tpusim.errors import ConfigError
from tpusim.limits import Limit, shown

MOST_PARTS = 1024
"""Channels of a memory, and banks of a channel: each has an open row."""
MOST_QUEUED = 4096
MOST_BYTES = 2**30
MOST_REQUESTS = 2**20
MOST_SECONDS = 0.1
"""None of a memory is as long."""
LEAST_INTERVAL_SECONDS = 1e-9
LEAST_LEFT = 0.01
"""Of its time beside refreshes; a memory that does nothing else gives no bytes."""
MOST_JOINED = 2**20
"""Chips, switches or routers that hang on one switch, or are one group."""
LEAST_RATE, MOST_RATE = 1e-6, 1e6
"""Of a way between switches, in rates of a chip's link."""
WAYS = Limit("ways between switches", 2**18, least=0)


def whole(section: str, most: int, **settings: Any) -> tuple[int, ...]:
    """Return settings that are whole numbers from 1 to ``most``, however they are written; 4.0 is one."""
    for name, value in settings.items():
        if not _is_number(value) or value % 1 or not 1 <= value <= most:
            raise _refused(section, name, f"a whole number from 1 to {shown(most)}", value)
    return tuple(map(int, settings.values()))


def amounts(section: str, least: float, most: float, **settings: Any) -> tuple[float, ...]:
    """Return settings that are numbers from ``least`` to ``most``."""
    for name, value in settings.items():
        if not _is_number(value) or not least <= value <= most:
            raise _refused(section, name, f"a number from {least:g} to {most:g}", value)
    return tuple(map(float, settings.values()))


def switch(section: str, name: str, value: Any) -> bool:
    """Return a setting that is true or false."""
    if not isinstance(value, bool):
        raise _refused(section, name, "true or false", value)
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refused(section: str, name: str, wanted: str, found: Any) -> ConfigError:
    value = shown(found) if _is_number(found) else repr(found)
    return ConfigError(f"{section}.settings.{name}: expected {wanted}, found {value:.80}")
