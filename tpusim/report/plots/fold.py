"""A time axis on which the trips that a loop repeats take little room, so that one trip can be seen in full."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from tpusim.analysis.busy import Values
from tpusim.timeline.records import Repeat

_FOLDED_SHARE = 0.06
"""What a fold takes at most, of what is drawn in full."""
_TICKS = 9


class Fold(NamedTuple):
    """Times in picoseconds, and where they are drawn: outside of folds a picosecond is as long as any other."""

    at_ps: Values
    drawn: Values

    @property
    def length(self) -> float:
        """How long the axis is, in picoseconds of what is drawn in full."""
        return float(self.drawn[-1] - self.drawn[0])

    def edges(self, stretches: int) -> Values:
        """Return the times between stretches that are equally long on the axis."""
        found: Values = np.interp(np.linspace(self.drawn[0], self.drawn[-1], stretches + 1), self.drawn, self.at_ps)
        return found

    def apply(self, ax: Axes, per_unit: float) -> None:
        """Give axes, whose times are in units of so many picoseconds, this scale, with ticks outside of folds."""
        at, drawn = self.at_ps / per_unit, self.drawn / per_unit
        if np.array_equal(at, drawn):
            return
        ax.set_xscale("function", functions=(lambda t: np.interp(t, at, drawn), lambda x: np.interp(x, drawn, at)))
        ax.xaxis.set_major_locator(FixedLocator(self._ticks(per_unit)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))

    def _ticks(self, per_unit: float) -> list[float]:
        """Return round times in each stretch that is drawn in full, as many as it has room for."""
        ticks: list[float] = []
        for (first, last), (begin, end) in zip(pairwise(self.at_ps), pairwise(self.drawn), strict=True):
            count = round(_TICKS * (end - begin) / self.length)
            # A fold is shorter than its time; its ends are told by the ticks on both sides.
            if count and end - begin > 0.99 * (last - first):
                values = MaxNLocator(count).tick_values(first / per_unit, last / per_unit)
                ticks += [value for value in values if first <= value * per_unit <= last]
        return ticks


def fold_of(repeats: Iterable[Repeat], first_ps: int, last_ps: int) -> Fold:
    """Return the axis from one time to another, with what loops repeat folded."""
    folds: list[tuple[int, int]] = []
    # Inner loops lie before what outer ones repeat, or in it.
    for repeat in sorted(repeats, key=lambda repeat: repeat.start_ps):
        start_ps = max(repeat.start_ps, first_ps, folds[-1][1] if folds else first_ps)
        if start_ps < min(repeat.end_ps, last_ps):
            folds.append((start_ps, min(repeat.end_ps, last_ps)))
    room = _FOLDED_SHARE * (last_ps - first_ps - sum(end - start for start, end in folds))
    at, drawn = [first_ps], [float(first_ps)]
    for start, end in folds if room else ():
        # What lies between is told from ages by whole numbers only.
        drawn.append(drawn[-1] + (start - at[-1]))
        drawn.append(drawn[-1] + min(room, end - start))
        at += [start, end]
    return Fold(np.array([*at, last_ps], float), np.array([*drawn, drawn[-1] + (last_ps - at[-1])]))
