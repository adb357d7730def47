"""The console, tables without borders, and quantities in readable units: what the pages of a terminal share."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal

from rich.console import Console, ConsoleOptions, ConsoleRenderable, JustifyMethod, RenderHook, RenderResult
from rich.segment import Segment
from rich.table import Table

from tpusim.errors import printable
from tpusim.units import ps_to_us

# Without a terminal to ask, Rich takes 80 columns and cuts names that are searched for.
_PIPE_WIDTH = 160

_SHOWN_FIGURES = 4

_COMPARABLE = 0.01
"""Times further apart than this share are no figures of one unit."""

BYTES = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
"""Units of sizes, for ``unit_of``."""


class _Pipe(Console):
    """A console whose reader may go, which Rich would end with exit code 1."""

    def on_broken_pipe(self) -> None:
        """Leave it to the command line, as for what is written without a console."""
        raise BrokenPipeError


def make_console() -> Console:
    """Return a console on standard output; in a pipe it is wide enough for the tables, and plain."""
    is_terminal = sys.stdout.isatty()
    return visible(_Pipe(width=None if is_terminal else _PIPE_WIDTH, highlight=False, emoji=False, soft_wrap=False))


def visible(console: Console) -> Console:
    """Return a console that makes visible what would drive a terminal."""
    console.push_render_hook(_Printable())
    return console


class _Printable(RenderHook):
    """Changes what is printed: names come from files of others."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Return what is to be printed, without escape sequences but for those of Rich."""
        return list(map(_Visible, renderables))


class _Visible:
    """What another renderable prints, made visible."""

    def __init__(self, inner: ConsoleRenderable) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._inner, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def plain_table(*titles: str, wraps: str = "", cut: Collection[str] = ()) -> Table:
    """Return an empty table without borders; ``>`` before a title puts its column to the right.

    Only the column that ``wraps``, by default the first one, and those that may be ``cut`` may be narrower than their
    longest cell; the widest of them is narrowed first.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in titles:
        justify: JustifyMethod = "right" if title.startswith(">") else "left"
        name = title.removeprefix(">")
        # Rich takes the room that is missing from what may wrap before all else: figures stay whole.
        table.add_column(
            name,
            justify=justify,
            no_wrap=name not in {wraps or titles[0], *cut},
            overflow="fold" if name == wraps else "ellipsis",
        )
    return table


def time_text(ps: float) -> str:
    """Return a time in a unit that keeps it readable."""
    return us_text(ps_to_us(int(ps)))


def us_text(microseconds: float | None) -> str:
    """Return microseconds in a unit that keeps them readable; nothing for None."""
    if microseconds is None:
        return ""
    # From microseconds up, the unit that profilers of TPU programs give.
    for limit, factor, unit in ((1e3, 1.0, "us"), (1e6, 1e-3, "ms")):
        if microseconds < limit:
            return f"{microseconds * factor:.2f} {unit}"
    return f"{microseconds * 1e-6:.3f} s"


def times_text(*times_ps: int) -> list[str]:
    """Return times that are compared in one unit, that of the longest, unless others would be left without digits."""
    own = [time_text(ps) for ps in times_ps]
    longest, least = max(times_ps), min((ps for ps in times_ps if ps), default=0)
    unit = own[times_ps.index(longest)].rpartition(" ")[2]
    if least < _COMPARABLE * longest or all(text.endswith(f" {unit}") for text in own):
        return own
    factor = {"us": 1e-6, "ms": 1e-9, "s": 1e-12}[unit]
    return [f"{ps * factor:.3f} {unit}" for ps in times_ps]


def changed_text(figures: Mapping[str, object]) -> str:
    """Return the figures of a chip that are not as shipped, as an option sets them; nothing where there are none."""
    texts = [f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in figures.items()]
    return f" with {some_text(texts, _SHOWN_FIGURES)}" if texts else ""


def some_text(names: Sequence[object], most: int) -> str:
    """Return names with commas, and how many there are beyond the first ones."""
    more = [f"and {len(names) - most:,} more"] if len(names) > most else []
    return ", ".join([*map(str, names[:most]), *more])


def unit_of(value: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """Return the first of some units, each a size and a name, that a value reaches; the last one for less."""
    return next((unit for unit in units if value >= unit[0]), units[-1])


def size_text(n_bytes: float) -> str:
    """Return bytes in a binary unit that keeps them readable."""
    size, name = unit_of(n_bytes, BYTES)
    digits = {"GiB": 2, "B": 0}.get(name, 1)
    return f"{n_bytes / size:.{digits}f} {name}"


def count_text(number: float) -> str:
    """Return a count with a decimal prefix."""
    size, prefix = unit_of(number, ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")))
    return f"{number / size:.4g} {prefix}"


def energy_text(joules: float) -> str:
    """Return an energy in a unit that keeps it readable."""
    size, name = unit_of(joules, ((1.0, "J"), (1e-3, "mJ"), (1e-6, "uJ"), (1e-9, "nJ")))
    return f"{joules / size:.3g} {name}"


def dollars_text(usd: float) -> str:
    """Return US dollars: in cents from one dollar up, with three digits that count below."""
    return f"${usd:,.2f}" if usd >= 1 else f"${Decimal(f'{usd:.3g}'):f}"
