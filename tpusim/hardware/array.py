"""Systolic arrays by themselves: what a study of dataflows states, without the chip around it."""

from __future__ import annotations

from numbers import Integral
from typing import Final, NamedTuple

import msgspec

from tpusim.errors import ConfigError, did_you_mean

DATAFLOWS: Final = ("ws", "os", "is")
"""What stays in the array: a tile of the right operand (``ws``), the result (``os``) or the left operand (``is``)."""

MODES: Final = ("overlap", "scale-sim")
"""``overlap``: the next tile loads under the current one; ``scale-sim``: one fold after the other, as there."""

# Beyond these a typing error is likelier than an array, and the cycle model would ask for gigabytes of registers.
_MOST: Final = {"rows": 8192, "columns": 8192, "rows_per_cycle": 64, "count": 8192, "passes": 64}


class Extent(NamedTuple):
    """A product as a dataflow sees it: (height, width) stays and is cut, ``stream`` passes."""

    height: int
    width: int
    stream: int


class Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The systolic arrays of one core, all alike, and how a product is laid over them.

    A *fold* is one tile that stays in an array while the other operand streams past it. Each array has one spare set
    of registers for it, and one shift chain a column: tiles come in, and sums go out, one row per cycle. Raises
    ConfigError if a field has no meaning.
    """

    rows: int
    columns: int
    dataflow: str = "ws"
    mode: str = "overlap"
    rows_per_cycle: int = 1
    """Steps of the stream that enter an array per cycle: 1, or 2 as in the 256-wide generations of the TPU."""
    count: int = 1
    """Arrays that share the folds of a product; each takes a run of consecutive ones."""
    passes: int = 1
    """Times that every fold is gone through, for operands that are cut into pieces (f32 as three or six bf16)."""

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        for key, word, known in (("dataflow", self.dataflow, DATAFLOWS), ("mode", self.mode, MODES)):
            if word not in known:
                hint = did_you_mean(str(word), known)
                raise ConfigError(f"array: {key}: expected one of {', '.join(known)}, found {word!r}{hint}")
        for name, most in _MOST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= most:
                raise ConfigError(f"array: {name}: expected a whole number from 1 to {most}, found {value!r:.80}")
            # One of NumPy's would overflow where it is multiplied.
            msgspec.structs.force_setattr(self, name, int(value))

    @property
    def overlaps(self) -> bool:
        """Whether the next fold is made ready while the current one computes."""
        return self.mode == "overlap"

    @property
    def mac_slots(self) -> int:
        """Multiply-accumulates that all arrays together can do in a cycle."""
        return self.rows * self.columns * self.rows_per_cycle * self.count

    def extent(self, m: int, n: int, k: int) -> Extent:
        """Return the dimensions of an (m, k) times (k, n) product by what they are to the dataflow."""
        if self.dataflow == "os":
            return Extent(m, n, k)
        # What stays lies with the dimension that is summed over along the rows.
        return Extent(k, n, m) if self.dataflow == "ws" else Extent(k, m, n)

    def stream_cycles(self, length: int) -> int:
        """Return the cycles in which ``length`` steps of a stream enter an array."""
        return -(-length // self.rows_per_cycle)
