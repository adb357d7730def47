"""A slice of a pod: how many chips along each axis of the torus."""

from __future__ import annotations

import re
from math import prod

import msgspec

from tpusim.errors import ConfigError

# JAX names a topology v5e:2x4; file names use an underscore, as not all file systems take a colon.
_NOTATION = re.compile(r"(?:(?P<chip>[A-Za-z][\w-]*)[:_])?(?P<sizes>\d+(?:x\d+)*)")


class Topology(msgspec.Struct, frozen=True):
    """Chips along each axis of a slice, as in ``v5e:2x4``; ``chip`` may be left out."""

    sizes: tuple[int, ...]
    chip: str = ""

    @property
    def chip_count(self) -> int:
        """Chips in the slice."""
        return prod(self.sizes)

    @property
    def extended_axes(self) -> int:
        """Axes along which there is more than one chip."""
        # Along an axis of one chip there is no link to a neighbour.
        return sum(size > 1 for size in self.sizes)


def parse_topology(text: str) -> Topology:
    """Return the slice that ``v5e:2x4``, ``v5e_2x4`` or ``2x4`` names. Raises ConfigError for anything else."""
    match = _NOTATION.fullmatch(text.strip())
    sizes = tuple(int(size) for size in match["sizes"].split("x")) if match else ()
    if match is None or not all(sizes):
        raise ConfigError(f"topology: expected chips along each axis such as v5e:2x4 or 4x4x4, found {text!r}")
    return Topology(sizes, match["chip"] or "")
