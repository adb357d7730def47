"""What a run costs to rent: chips, hours, and the price of a chip-hour."""

from __future__ import annotations

import msgspec

from tpusim.errors import ConfigError
from tpusim.hardware.chip import Chip
from tpusim.hardware.figures import load_price_table
from tpusim.limits import LARGEST_AMOUNT, is_number
from tpusim.units import PS_PER_SECOND, SECONDS_PER_HOUR

_MILLION = 10**6


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars of one run on all its ``chips``, at a price that was listed on ``price_date`` (empty: the caller's).

    ``chips`` is no whole number where a device is a part of one. ``tokens`` is what a run makes or reads, 0 if unknown.
    """

    usd_per_chip_hour: float
    price_date: str
    chips: float
    usd: float
    tokens: float

    @property
    def usd_per_million_tokens(self) -> float | None:
        """US dollars for a million tokens, None where a run's tokens are not known."""
        return self.usd / self.tokens * _MILLION if self.tokens else None


def run_cost(chip: Chip, total_ps: int, devices: int, price: float | None = None, tokens: float = 0.0) -> Cost | None:
    """Return what a run of some devices costs, at a price for an hour of a chip or the listed one; None without one."""
    for name, found in (("price", price), ("tokens", tokens)):
        if found is not None and not is_number(found, LARGEST_AMOUNT):
            raise ConfigError(f"{name}: expected a number from 0 to {LARGEST_AMOUNT:g}, found {found!r:.80}")
    date = load_price_table().date if price is None else ""
    price = listed_price(chip) if price is None else price
    if price is None:
        return None
    # Of NumPy's numbers the narrow ones have fewer digits than what is made of them.
    price, tokens = float(price), float(tokens)
    chips = devices / chip.devices_per_chip
    hours = total_ps / PS_PER_SECOND / SECONDS_PER_HOUR
    return Cost(usd_per_chip_hour=price, price_date=date, chips=chips, usd=price * chips * hours, tokens=tokens)


def listed_price(chip: Chip) -> float | None:
    """Return the listed price of an hour of a chip in US dollars, None for a chip without one."""
    listed = load_price_table().chips.get(chip.name)
    return listed.value if listed else None
