"""Tables that all chips share: joules of events, areas of parts, prices; every figure with its source.

They lie beside the chips' files. What a chip has of its own (its node, its power while idle) stands in its own file.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar

import msgspec

from tpusim.errors import ConfigError
from tpusim.hardware.fields import CONFIDENCE
from tpusim.hardware.load import read_config

T = TypeVar("T")


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A number with how far it can be trusted and where it is from."""

    value: float
    confidence: str
    source: str
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse a figure without a word of confidence."""
        if self.confidence not in CONFIDENCE:
            raise ValueError(f"confidence: expected one of {', '.join(CONFIDENCE)}, found {self.confidence!r}")


class Event(Figure, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Joules of an event, of a byte, or of a lane (32 bits) of a vector register, at the table's node and voltage.

    What ``scales`` goes with the node and with the square of the voltage.
    """

    scales: bool
    per: Literal["event", "lane", "byte"] = "event"


class Bank(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An access of an SRAM of ``bytes``, and the power of its capacity with which that of another one goes."""

    bytes: Figure
    exponent: Figure


class Rows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes of HBM for each row that is opened, where nothing counts rows."""

    bytes: Figure


class EnergyTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Joules of events by key; types of operands without a row and the one that they are ``like``; nodes by nm."""

    node_nm: float
    events: dict[str, Event]
    like: dict[str, str]
    bank: Bank
    rows: Rows
    nodes: dict[str, Figure]


class Part(Figure, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Square millimetres of a part of a die at the table's node, and with what they shrink."""

    scales: Literal["logic", "sram", "none"]


class AreaTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Square millimetres of parts; of the same logic and memory at other nodes, by what shrinks and by nm."""

    node_nm: float
    parts: dict[str, Part]
    nodes: dict[str, dict[str, Figure]]


class PriceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """US dollars for an hour of a chip by its name, as they were at a ``date``."""

    date: str
    chips: dict[str, Figure]


@cache
def load_energy_table() -> EnergyTable:
    """Return the joules of events."""
    return _load("energy/events.toml", EnergyTable)


@cache
def load_area_table() -> AreaTable:
    """Return the areas of parts."""
    return _load("energy/area.toml", AreaTable)


@cache
def load_price_table() -> PriceTable:
    """Return the prices of chips."""
    return _load("prices.toml", PriceTable)


def at_node(factors: Mapping[str, Figure], node_nm: float) -> float:
    """Return a factor that is known at some nodes, at another one: between two of them, and beyond, by powers."""
    known = sorted((float(node), figure.value) for node, figure in factors.items())
    # The first two also hold for smaller nodes, and the last two for larger ones.
    place = min(max(bisect(known, (node_nm,)), 1), len(known) - 1)
    (low, low_value), (high, high_value) = known[place - 1 : place + 1]
    power = math.log(high_value / low_value, high / low)
    return low_value * math.pow(node_nm / low, power)


def _load(name: str, kind: type[T]) -> T:
    """Return a table of figures as its type; raise ConfigError for a file that is no such table."""
    raw: Any = read_config(name)
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {error}") from error
