"""What colours, hatches and markers say in all pictures.

Colours are those of Okabe and Ito (Color Universal Design, 2008), which people with any common colour blindness tell
apart; beside colour a hatch, a marker or a word says the same, so that a grey print can be read. Heat maps use cividis,
whose lightness rises evenly (Nuñez et al., PLOS ONE 2018).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from matplotlib.patches import Patch

from tpusim.hardware.units import HOST, ICI, UNITS
from tpusim.timeline.records import DEPENDENT, ICI_LATENCY

ORANGE, BLUE, VERMILION = "#E69F00", "#0072B2", "#D55E00"
GREY, PALE, INK = "#9A9A9A", "#E4E4E4", "#303030"
LINES: Final = (
    (BLUE, "o", "-"),
    (ORANGE, "s", "--"),
    ("#009E73", "^", "-."),
    (VERMILION, "D", ":"),
    ("#CC79A7", "v", "-"),
    ("#56B4E9", "P", "--"),
    (INK, "X", "-."),
    (GREY, "*", ":"),
)
"""Colour, marker and dashes of lines that a legend tells apart."""

HEAT: Final = "cividis"
PADDING_HATCH: Final = "////"

# Tints on which black figures can be read; lines between them show their borders in a grey print.
TILE_TINTS: Final = ("#9FD3F2", "#F7D08A", "#A8DDC9", "#F0EBA0", "#EBC3DA", "#D9D9D9")


class Look(NamedTuple):
    """How a kind of time is drawn: it can be told from the others without colours, too."""

    colour: str
    hatch: str
    marker: str


# Beside what units and memories bound, which look as their table says.
_OTHER_KINDS: Final[dict[str, Look]] = {
    "latency": Look(PALE, "", "."),
    "waiting": Look("#FFFFFF", "....", "."),
    "other": Look(GREY, "xxx", "h"),
}
_ALIASES: Final = {
    ICI_LATENCY: UNITS[ICI].bound,
    DEPENDENT: "latency",
    "infeed starved": UNITS[HOST].bound,
    "outfeed full": UNITS[HOST].bound,
}


def kind_of(bound_by: str) -> str:
    """Return the kind of time, as a picture tells kinds apart, of what bounds a record."""
    if bound_by.startswith("waiting"):
        return "waiting"
    name = _ALIASES.get(bound_by, bound_by)
    return name if name in kinds() else "other"


def kinds() -> dict[str, Look]:
    """Return the kinds of time in the one order of all legends and stacks, so that all pictures agree."""
    bounds = {unit.bound: Look(unit.colour, unit.hatch, unit.marker) for unit in UNITS.values() if unit.bound}
    return bounds | _OTHER_KINDS


def look_of(kind: str) -> Look:
    """Return how a kind of time is drawn."""
    return kinds()[kind]


def kind_order(some: Iterable[str]) -> list[str]:
    """Return kinds of time in their order."""
    found = set(some)
    return [kind for kind in kinds() if kind in found]


def kind_patch(kind: str) -> Patch:
    """Return a kind's entry in a legend."""
    look = look_of(kind)
    return Patch(facecolor=look.colour, hatch=look.hatch, edgecolor=INK, linewidth=0.4, label=kind)


def ink_on(colour: str) -> str:
    """Return black or white, whichever can be read on a colour."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    # ITU-R BT.601: how light a colour looks.
    return "#FFFFFF" if 0.299 * red + 0.587 * green + 0.114 * blue < 128 else "#000000"
