"""What a study says: which axes moved nothing, what each does to a figure, and which points no other one beats."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean
from typing import Any, NamedTuple

from tpusim.analysis.compare import pareto_front
from tpusim.errors import ConfigError, did_you_mean
from tpusim.study.axes import Axis
from tpusim.study.spec import BASES, Spec

Rows = Sequence[Mapping[str, Any]]


class Effect(NamedTuple):
    """What an axis does to a figure: its change, as a share, at the axis's least and at its greatest value."""

    axis: str
    low: float
    high: float


EFFECT_COLUMNS = ("figure", "program", "parameter", "low", "high")
"""Of the table of effects."""


def effects(rows: Rows, spec: Spec, figure: str) -> list[Effect]:
    """Return what each axis that takes several values does to a figure, by points that differ in nothing else.

    A change is against the geometric mean of such points. Where no two points differ in one axis alone (samples),
    the half of the points with the lower values is taken beside the half with the higher ones. Raises ConfigError for
    what is no column of numbers.
    """
    _check_columns(rows, figures=(figure,))
    # Of others, such as those that take no time, no mean can be told.
    timed = [row for row in rows if (row.get(figure) or 0.0) > 0]
    found = []
    for axis in spec.axes:
        low, high = _ends(timed, axis, spec, figure)
        if low:
            found.append(Effect(", ".join(axis.keys), geometric_mean(low) - 1, geometric_mean(high) - 1))
    return found


def effect_table(rows: Rows, spec: Spec, figures: Iterable[str]) -> list[dict[str, Any]]:
    """Return the effects of all axes on some figures, in percent: on each program's, and on all programs' together."""
    programs = list(dict.fromkeys(row["program"] for row in rows))
    parts = {"": rows} | {name: [row for row in rows if row["program"] == name] for name in programs}
    return [
        dict(zip(EFFECT_COLUMNS, (figure, name, one.axis, 100 * one.low, 100 * one.high), strict=True))
        for figure in figures
        for name, part in parts.items()
        for one in effects(part, spec, figure)
    ]


def _ends(rows: Rows, axis: Axis, spec: Spec, figure: str) -> tuple[list[float], list[float]]:
    """Return the figure at both ends of an axis, each as a multiple of the mean of its group."""
    low, high = list[float](), list[float]()
    for group in _alike(rows, axis, spec):
        if len({_place(row, axis) for row in group}) > 1:
            ordered = sorted(group, key=lambda row: _order(row, axis))
            mean = geometric_mean(row[figure] for row in group)
            low.append(ordered[0][figure] / mean)
            high.append(ordered[-1][figure] / mean)
    return (low, high) if low else _halves(rows, axis, spec, figure)


def _halves(rows: Rows, axis: Axis, spec: Spec, figure: str) -> tuple[list[float], list[float]]:
    groups = defaultdict(list)
    for row in rows:
        groups[_program(row, axis, spec)].append(row)
    low, high = list[float](), list[float]()
    for group in groups.values():
        mean, half = geometric_mean(row[figure] for row in group), len(group) // 2
        ordered = [row[figure] / mean for row in sorted(group, key=lambda row: _order(row, axis))]
        if half and len({_place(row, axis) for row in group}) > 1:
            low += ordered[:half]
            high += ordered[-half:]
    return low, high


def unmoved(rows: Rows, spec: Spec, figures: Mapping[str, str]) -> list[str]:
    """Return a sentence for each axis and schedule under which no figure and no status changed along the axis.

    Points of which none ran say nothing of it. ``figures`` says by column what a sentence calls it.
    """
    found = []
    for axis in spec.axes:
        moved: dict[str, bool] = {}
        for group in _alike(rows, axis, spec):
            has_run = any(row["status"] == "ok" for row in group)
            if has_run and len({_place(row, axis) for row in group}) > 1:
                schedule = "" if axis.name == "schedule" else str(group[0]["schedule"])
                changed = len({(row["status"], *(row.get(figure) for figure in figures)) for row in group}) > 1
                moved[schedule] = moved.get(schedule, False) or changed
        what = " or ".join(figures.values())
        for schedule in (schedule for schedule, changed in moved.items() if not changed):
            found.append(
                f"{', '.join(axis.keys)}: no {what} changed" + (f" under schedule={schedule}" if schedule else "")
            )
    return found


def pareto(rows: Rows, x: str, y: str, per: str | None = None) -> list[Mapping[str, Any]]:
    """Return the rows that no other one beats in both figures, by themselves for each value of ``per``.

    Raises ConfigError for what is no column.
    """
    _check_columns(rows, figures=(x, y), others=(per,) if per else ())
    groups: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if row.get(x) is not None and row.get(y) is not None:
            groups[row[per] if per else ""].append(row)
    fronts = ((group, pareto_front([(row[x], row[y]) for row in group])) for group in groups.values())
    return [group[number] for group, front in fronts for number in front]


def _check_columns(rows: Rows, figures: Sequence[str], others: Sequence[str] = ()) -> None:
    """Refuse what is no column, with the nearest one, and figures that are none."""
    known = list(dict.fromkeys(key for row in rows for key in row))
    for name in (*figures, *others):
        if name not in known:
            hint = did_you_mean(str(name), known) or f" (known: {', '.join(known)})"
            raise ConfigError(f"study: unknown column {name!r}{hint}")
        if name in figures and any(isinstance(row.get(name), str) for row in rows):
            raise ConfigError(f"study: expected a column of numbers, found {name!r}")


def _alike(rows: Rows, axis: Axis, spec: Spec) -> Iterable[list[Mapping[str, Any]]]:
    """Return groups of rows that differ in one axis alone, and in what follows from it."""
    keys = dict.fromkeys((*BASES, *(key for one in spec.axes for key in one.keys)))
    fixed = [key for key in keys if key not in axis.keys]
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[_program(row, axis, spec), *(row[key] for key in fixed)].append(row)
    return groups.values()


def _program(row: Mapping[str, Any], axis: Axis, spec: Spec) -> tuple[Any, ...]:
    """Return what a row's program stays along an axis: itself, or where the axis has its variants their family."""
    name = row["program"]
    if not spec.variables.keys().isdisjoint(axis.keys):
        # Variants of a program have names of their own.
        name = spec.families[name]
    # Under a name that the caller gave they have one, and what tells them may be no axis.
    return name, *(row[key] for key in spec.variables if key not in axis.keys)


def _place(row: Mapping[str, Any], axis: Axis) -> tuple[Any, ...]:
    return tuple(row[key] for key in axis.keys)


def _order(row: Mapping[str, Any], axis: Axis) -> tuple[Any, ...]:
    """Return what sorts a row along an axis: the base first, numbers by size, texts in the order of the alphabet."""
    # Where some values of an axis set keys that others leave as they are, there is no value.
    return tuple((0, 0) if value is None else (1 + isinstance(value, str), value) for value in _place(row, axis))
