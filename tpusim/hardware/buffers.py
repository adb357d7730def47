"""The memory beside a systolic array: three double-buffered SRAMs, and how fast DRAM fills and drains them."""

from __future__ import annotations

from typing import Final

import msgspec

from tpusim.errors import ConfigError

# Beyond these a typing error is likelier than a memory.
_MOST_WORDS: Final = 1 << 40
_MOST_WORDS_PER_CYCLE: Final = 1 << 20


class Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What DRAM moves for each SRAM, in words per cycle."""

    ifmap: int
    filter: int
    ofmap: int


class Buffers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """SRAMs of an array: one half of each serves the array while the other one is filled, or drained.

    Without ``rates`` DRAM is as fast as it has to be, and what that is gets reported (SCALE-Sim's CALC mode); with them
    the array waits (its USER mode). Raises ConfigError for what cannot be built.
    """

    ifmap_words: int
    filter_words: int
    ofmap_words: int
    rates: Rates | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        sizes = {name: getattr(self, name) for name in ("ifmap_words", "filter_words", "ofmap_words")}
        for name, size in sizes.items():
            # SCALE-Sim fills its buffers in hundredths.
            if not 100 <= size <= _MOST_WORDS:
                raise ConfigError(f"buffers: {name}: expected a whole number from 100 to {_MOST_WORDS}, found {size}")
        for name, rate in msgspec.structs.asdict(self.rates).items() if self.rates else ():
            if not 1 <= rate <= _MOST_WORDS_PER_CYCLE:
                expected = f"a whole number of words per cycle from 1 to {_MOST_WORDS_PER_CYCLE}"
                raise ConfigError(f"buffers: rate of {name}: expected {expected}, found {rate}")
