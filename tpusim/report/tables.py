"""Tables without borders, and quantities in readable units: what the pages of a terminal share.

Rich draws what is printed to a terminal. It takes longer to load than a small program to run, so it loads where it
draws: what needs neither colours nor narrowing, as nearly all that goes into a pipe, is laid out here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol

from tpusim.report.columns import GAP, Column, Gives, Needs, columns_of, widths_in
from tpusim.units import ps_to_us

_COMPARABLE = 0.01
"""Times further apart than this share are no figures of one unit."""

_SHOWN_FIGURES = 4

BYTES = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
"""Units of sizes, for ``unit_of`` and ``scaled_text``."""

COUNTS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
"""Decimal prefixes of counts."""

# In microseconds: from these up, the units that profilers of TPU programs give.
_TIMES = ((1e6, "s"), (1e3, "ms"), (1.0, "us"))
_ENERGIES = ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (1e-6, "uJ"), (1e-9, "nJ"))
_POWERS = ((1e6, "MW"), (1e3, "kW"), (1.0, "W"))

_NEARLY = 1 - 1e-9
"""A thousand of one unit is one of the next, though floats that are multiplied may come out a little less."""

# Characters of one column each that Rich takes for nothing else.
_PLAIN = re.compile(r"[ -Z\]-~]*+")
# Emphasis that pages use.
_EMPHASIS = re.compile(r"\[/?(?:bold|yellow)\]")
_ANY_WIDTH = 10**9
# Loops in loops run for ages: from here on a figure's last digits say nothing, and take the room of others.
_IN_FULL = 10**15
_MOST_DOLLARS = 1e12


class Printer(Protocol):
    """What pages are printed on: a console of Rich, or a pipe."""

    @property
    def width(self) -> int:
        """Columns of a line."""

    def print(
        self,
        *objects: Any,
        markup: bool | None = None,
        highlight: bool | None = None,
        soft_wrap: bool | None = None,
    ) -> None:
        """Print a text with Rich's markup, a table, or what else Rich draws; nothing is an empty line."""


class Table:
    """Rows under titles, without borders, in the markup of Rich."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self.rows: list[tuple[Any, ...]] = []

    def add_row(self, *cells: Any) -> None:
        """Add a row; under the last titles there may be nothing."""
        self.rows.append((*cells, *[""] * (len(self._columns) - len(cells))))

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        """Yield what Rich draws: the table, as narrow as it has to be and can be."""
        from rich.measure import Measurement
        from rich.table import Table as RichTable

        def size(cell: Any) -> int:
            return int(Measurement.get(console, options.update(max_width=_ANY_WIDTH), cell).maximum)

        table = RichTable(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
        cells = [[_rendered(cell, console) for cell in column] for column in zip(*self.rows, strict=True)]
        cells = cells or [[] for _ in self._columns]
        needs = [
            Needs(size(column.title), max(map(size, column_cells), default=0))
            for column, column_cells in zip(self._columns, cells, strict=True)
        ]
        widths = widths_in(self._columns, needs, options.max_width)
        for number, width in widths.items():
            column = self._columns[number]
            table.add_column(
                column.title,
                justify="right" if column.is_figure else "left",
                width=width,
                no_wrap=column.gives.is_cut,
                overflow="ellipsis" if column.gives.is_cut else "fold",
            )
            if column.gives is Gives.BEGINNING:
                cells[number] = [_end_of(cell, width) for cell in cells[number]]
        for row in zip(*(cells[number] for number in widths), strict=True):
            table.add_row(*row)
        yield from console.render(table, options.update(width=sum(widths.values()) + GAP * (len(widths) - 1)))

    def plain(self, width: int) -> str | None:
        """Return the lines that Rich would print without colours, if they are so wide at most and need no more."""
        rows = [tuple(column.title for column in self._columns), *self.rows]
        if not all(isinstance(cell, str) and _PLAIN.fullmatch(cell) for row in rows for cell in row):
            return None
        columns = list(zip(*rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        if not all(widths) or sum(widths) + GAP * (len(widths) - 1) > width:
            return None
        laid_out = [
            [cell.rstrip().rjust(size) if column.is_figure else cell.ljust(size) for cell in cells]
            for column, size, cells in zip(self._columns, widths, columns, strict=True)
        ]
        return "".join(f"{(' ' * GAP).join(line)}\n" for line in zip(*laid_out, strict=True))


def _rendered(cell: Any, console: Any) -> Any:
    """Return a cell as the text that Rich makes of its markup."""
    return console.render_str(cell, highlight=False) if isinstance(cell, str) else cell


def _end_of(text: Any, width: int) -> Any:
    """Return a text of Rich of which so many characters are left at its end; of a path whole folders, if they fit."""
    from rich.cells import set_cell_size
    from rich.text import Text

    if text.cell_len <= width:
        return text
    end = set_cell_size(text.plain[::-1], width - 1)[::-1]
    _, slash, rest = end.partition("/")
    return Text(f"…/{rest}" if slash and rest else f"…{end}")


def plain_table(*titles: str, wraps: Collection[str] = (), cut: Collection[str] = ()) -> Table:
    """Return an empty table without borders.

    ``>`` before a title puts its column to the right. Where there is little room, texts of the columns in ``wraps``, by
    default of the first one, go over several lines. Those under a title with ``<`` before it lose their beginning, as
    paths may, and those of the columns in ``cut`` their end; with less room still these columns are left out. All else
    stays whole.
    """
    return Table(columns_of(titles, wraps, cut))


def plain_text(text: object, width: int) -> str | None:
    """Return what Rich would print of a text without colours, if its lines are so wide at most and need no more."""
    if not isinstance(text, str):
        return None
    # A backslash, which stands before what is no emphasis though it looks so, is not plain either.
    lines = _EMPHASIS.sub("", text).split("\n")
    if not all(len(line) <= width and _PLAIN.fullmatch(line) for line in lines):
        return None
    return "".join(f"{line}\n" for line in lines)


def escape(text: str) -> str:
    """Return a text whose brackets Rich does not read as a style."""
    if "[" not in text and "\\" not in text:
        return text
    from rich.markup import escape as escape_markup

    return escape_markup(text)


def time_text(ps: float) -> str:
    """Return a time in a unit that keeps it readable."""
    return us_text(ps_to_us(int(ps)))


def _fixed(value: float, digits: int) -> str:
    """Return a figure with so many digits behind the point; where it is out of all bounds, with as many that count."""
    return f"{value:.{digits}f}" if value < _IN_FULL else f"{value:.3e}"


def shares_text(amounts: Mapping[str, float]) -> str:
    """Return what amounts are of their sum, the most first, from a hundredth up: ``HBM 79%, matrix unit 13%``."""
    total = max(1, sum(amounts.values()))
    shown = sorted(amounts.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {one / total:.0%}" for name, one in shown if one / total >= 0.01) or "nothing"


def us_text(microseconds: float | None) -> str:
    """Return microseconds in a unit that keeps them readable; nothing for None."""
    if microseconds is None:
        return ""
    return scaled_text(microseconds, _TIMES, lambda value, unit: _fixed(value, 3 if unit == "s" else 2))


def times_text(*times_ps: int) -> list[str]:
    """Return times that are compared in one unit, that of the longest, unless others would be left without digits."""
    own = [time_text(ps) for ps in times_ps]
    longest, least = max(times_ps), min((ps for ps in times_ps if ps), default=0)
    unit = own[times_ps.index(longest)].rpartition(" ")[2]
    if least < _COMPARABLE * longest or all(text.endswith(f" {unit}") for text in own):
        return own
    factor = {"us": 1e-6, "ms": 1e-9, "s": 1e-12}[unit]
    return [f"{_fixed(ps * factor, 3)} {unit}" for ps in times_ps]


def changed_text(figures: Mapping[str, object]) -> str:
    """Return the figures of a chip that are not as shipped, as an option sets them; nothing where there are none."""
    texts = [f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in figures.items()]
    return f" with {some_text(texts, _SHOWN_FIGURES)}" if texts else ""


def caveats_text(*runs: tuple[int, int]) -> str:
    """Return one line that says how much ``tpusim run`` lists of some runs; nothing where that is nothing.

    Of each run it is how many times are estimated without a rule, and how many warnings there are.
    """
    told = [counts for counts in runs if any(counts)]
    if not told:
        return ""
    estimates, warnings = map(max, zip(*told, strict=True))
    texts = [f"{estimates:,} estimated"] if estimates else []
    texts += [f"{warnings:,} {'warning' if warnings == 1 else 'warnings'}"] if warnings else []
    which = f"{len(told):,} of {len(runs):,} runs with up to " if len(runs) > 1 else ""
    return f"{which}{', '.join(texts)}: `tpusim run` lists them"


def print_caveats(console: Printer, *runs: tuple[int, int]) -> None:
    """Print that line below what else is said of some runs."""
    if text := caveats_text(*runs):
        console.print(f"\n{text}", soft_wrap=True)


def some_text(names: Sequence[object], most: int) -> str:
    """Return names with commas, and how many there are beyond the first ones."""
    more = [f"and {len(names) - most:,} more"] if len(names) > most else []
    return ", ".join([*map(str, names[:most]), *more])


def unit_of(value: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """Return the first of some units, each a size and a name, that a value reaches; the last one for less."""
    return next((unit for unit in units if value >= unit[0]), units[-1])


def scaled_text(value: float, units: Sequence[tuple[float, str]], written: Callable[[float, str], str]) -> str:
    """Return a value in the first of some units, from the last one up, in which it is not written as one of the next.

    ``written`` is given the value in a unit, and the unit's name.
    """
    for place in reversed(range(len(units))):
        size, name = units[place]
        figure = written(value / size, name)
        # What is rounded decides: 999.996 us are a millisecond.
        if not place or not float(figure) * size >= units[place - 1][0] * _NEARLY:
            break
    return f"{figure} {name}"


def size_text(n_bytes: float) -> str:
    """Return bytes in a binary unit that keeps them readable."""
    return scaled_text(n_bytes, BYTES, lambda value, unit: _fixed(value, {"GiB": 2, "B": 0}.get(unit, 1)))


def whole_text(number: int) -> str:
    """Return a count in full, with commas, as long as all its digits are worth reading."""
    return f"{number:,}" if number < _IN_FULL else f"{number:.3e}"


def count_text(number: float) -> str:
    """Return a count with a decimal prefix."""
    return scaled_text(number, COUNTS, lambda value, _: f"{value:.4g}")


def energy_text(joules: float) -> str:
    """Return an energy in a unit that keeps it readable."""
    return scaled_text(joules, _ENERGIES, lambda value, _: f"{value:.3g}")


def power_text(watts: float) -> str:
    """Return a power in a unit that keeps it readable."""
    return scaled_text(watts, _POWERS, lambda value, _: f"{value:.3g}")


def dollars_text(usd: float) -> str:
    """Return US dollars: in cents from one dollar up, with three digits that count below."""
    if usd >= _MOST_DOLLARS:
        return f"${usd:.3g}"
    return f"${usd:,.2f}" if usd >= 1 else f"${Decimal(f'{usd:.3g}'):f}"
