"""What a study is: programs, machines and schedules, as a file or a caller says it, checked before anything runs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from tpusim.errors import ConfigError, did_you_mean
from tpusim.files import read_toml
from tpusim.hardware.chip import Chip
from tpusim.hardware.fields import FIELDS, TEXT_KEYS, check_key, worked_out
from tpusim.hardware.load import known_field
from tpusim.limits import COUNT, check_count, check_truth
from tpusim.lowering.module import DEFAULT_TRIPS
from tpusim.pipeline.schedules import check_schedule
from tpusim.study.axes import Axis, read_axis
from tpusim.study.expressions import Expression
from tpusim.study.names import chips_apart
from tpusim.study.programs import ProgramText, find_programs

BASES = {"chip": "base", "topology": "topology", "schedule": "schedule"}
"""Axes beside the chip's keys and the programs' variables, and the keys that state one value of each."""

COLUMNS = (
    *("program", "status", "time_us", "devices", "energy_j", "all_devices_energy_j", "average_power_w", "area_mm2"),
    *("cost_usd", "bound", "warnings", "estimates", "message", "program_hash", "chip_hash", "version"),
)
"""What tables say of a point beside what it is."""

_OF_ALL = worked_out() | {"area_mm2"}


class RunSettings(NamedTuple):
    """How all points of a study run, as ``simulate`` takes it."""

    warm: bool = False
    allow_overflow: bool = False
    default_trip_count: int = DEFAULT_TRIPS


DEFAULTS = RunSettings()

_KEYS = ("programs", "base", "schedule", "topology", "axes", "derive", "constraints", *RunSettings._fields)


@dataclass(frozen=True)
class Spec:
    """A study. ``bases`` are the axes ``chip``, ``topology`` and ``schedule``; "" leaves them to each program."""

    programs: tuple[ProgramText, ...]
    axes: tuple[Axis, ...]
    derive: Mapping[str, Expression] = field(default_factory=dict)
    constraints: tuple[Expression, ...] = ()
    settings: RunSettings = DEFAULTS

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The columns that say what a point is, beside its program."""
        axes = (key for axis in self.axes for key in axis.keys)
        return tuple(dict.fromkeys((*BASES, *self.variables, *axes, *self.derive)))

    @cached_property
    def derive_order(self) -> tuple[str, ...]:
        """The keys of ``derive``, each behind those that it reads; of itself a line reads what the base has.

        Raises ConfigError for lines that read each other.
        """
        keys = self.derive.keys()
        # What is worked out of the machine follows from all of it.
        reads = {
            key: (keys if expression.names & _OF_ALL else keys & expression.names) - {key}
            for key, expression in self.derive.items()
        }
        try:
            return tuple(TopologicalSorter(reads).static_order())
        except CycleError as error:
            circle = error.args[1][::-1]
            whole = sorted(_OF_ALL & {name for key in circle for name in self.derive[key].names})
            why = f" ({whole[0]} follows from all keys)" if whole else ""
            found = " > ".join(circle) + why
            raise ConfigError(f"study: derive: expected lines that do not read each other, found {found}") from error

    @cached_property
    def variables(self) -> dict[str, None]:
        """What patterns tell of programs, and functions are given."""
        return {key: None for program in self.programs for key, _ in program.variables}

    @cached_property
    def chip_names(self) -> dict[str, str]:
        """By how the axes state them what tables call the chips."""
        stated = (str(one["chip"]) for axis in self.axes for one in axis.settings if one.get("chip"))
        return chips_apart(dict.fromkeys(stated))

    @cached_property
    def families(self) -> dict[str, str]:
        """By the names of programs what each has in common with its variants."""
        return {program.name: program.family or program.name for program in self.programs}


def read_spec(path: str | Path) -> Spec:
    """Return the study that a TOML file describes; patterns of programs and files of chips start from its folder."""
    return spec_of_file(read_table(path), path)


def spec_of_file(table: Mapping[str, Any], path: str | Path) -> Spec:
    """Return the study of what a file says; errors have its name."""
    try:
        return make_spec(table, Path(path).parent, str(path))
    except ConfigError as error:
        if str(error).startswith(str(path)):
            raise
        raise ConfigError(f"{path}: {error}") from error


def read_table(path: str | Path) -> dict[str, Any]:
    """Return what the TOML file of a study says, unchecked."""
    return read_toml(path, "cannot read this study")


def make_spec(table: Mapping[str, Any], folder: Path = Path(), where: str = "study") -> Spec:
    """Return a study from a table with the keys of a study's file.

    Raises ConfigError, with the nearest known key, for what is no part of a study.
    """
    for key in table:
        if key not in _KEYS:
            raise ConfigError(f"{where}: unknown key {key!r}{did_you_mean(str(key), _KEYS)}")
    for key in (*table_of(table, "axes", where), *table_of(table, "derive", where)):
        check_key(key, where)
    axes = [
        _from_folder(read_axis(name, values), folder, where) for name, values in _written_axes(table, where).items()
    ]
    programs = _programs(table.get("programs", ()), axes, folder)
    variables = {key for program in programs for key, _ in program.variables}
    for axis in axes:
        for key in axis.keys:
            _check_key(key, variables, where)
        for setting in axis.settings if axis.name == "schedule" else ():
            check_schedule(str(setting.get("schedule", "")))
    _check_variables(variables, where)
    derive = {
        key: Expression(str(text), f"{where}: derive {key}") for key, text in table_of(table, "derive", where).items()
    }
    for key in derive:
        known_field(key, where)
    stated = Counter(key for one in (*(axis.keys for axis in axes), derive) for key in one)
    if twice := next((key for key, count in stated.items() if count > 1), ""):
        raise ConfigError(f"{where}: expected one axis, or one line of derive, for {twice!r}, found {stated[twice]}")
    limits = table.get("constraints", {})
    if isinstance(limits, list):
        limits = {str(text): text for text in limits}
    named = table_of({"constraints": limits}, "constraints", where)
    constraints = tuple(_constraint(name, text, where) for name, text in named.items())
    return Spec(tuple(programs), tuple(axes), derive, constraints, _settings(table, where))


def table_of(table: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    """Return the table under a key of a study's table, empty if there is none. Raises ConfigError for anything else."""
    found = table.get(key, {})
    if not isinstance(found, Mapping):
        raise ConfigError(f"{where}: {key}: expected a table, found {found!r}")
    return found


def _written_axes(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the axes as they are written, by name, with what stands beside them as axes of one value."""
    written = dict(table_of(table, "axes", where))
    for name, key in BASES.items():
        if key in table and name in written:
            raise ConfigError(f"{where}: expected {key!r} or the axis {name!r}, found both")
        if key in table:
            written[name] = table[key]
    return written


def _from_folder(axis: Axis, folder: Path, where: str) -> Axis:
    """Return an axis whose files of chips are those of a folder, where it has them."""
    if "chip" not in axis.keys:
        return axis
    for one in axis.settings:
        _check_chip(one.get("chip", ""), where)
    settings = tuple(
        one | {"chip": _beside(str(one["chip"]), folder)} if "chip" in one else one for one in axis.settings
    )
    return replace(axis, settings=settings)


def _beside(chip: str, folder: Path) -> str:
    """Return the file of a chip in a folder, or the chip as it is stated where that has none."""
    path = os.path.join(folder, chip)
    return path if chip.endswith(".toml") and os.path.isfile(path) else chip


def _settings(table: Mapping[str, Any], where: str) -> RunSettings:
    """Return what a study's table says of all points."""
    warm, overflow = (check_truth(f"{where}: {key}", table.get(key, False)) for key in ("warm", "allow_overflow"))
    trips = table.get("default_trip_count", DEFAULT_TRIPS)
    return RunSettings(warm, overflow, check_count(f"{where}: default_trip_count", trips, COUNT))


def _programs(sources: Any, axes: Sequence[Axis], folder: Path) -> list[ProgramText]:
    """Return the programs of which the axes want some variant, where they name variants."""
    values = {axis.name: [setting.get(axis.name) for setting in axis.settings] for axis in axes}
    return find_programs(sources, values, folder)


def _check_variables(variables: Iterable[str], where: str) -> None:
    """Refuse a name in braces under which tables have something else."""
    for name in sorted(variables):
        # What a chip is called or described by is no figure that a row would seem to have.
        is_figure = name in FIELDS and not (name in TEXT_KEYS or FIELDS[name].is_report_only)
        if name in COLUMNS or is_figure or name == "schedule":
            what = "a key of the chip" if is_figure else "a column of the table"
            raise ConfigError(f"{where}: programs: expected another name than {{{name}}}, which is {what}")


def _check_chip(chip: Any, where: str) -> None:
    """Refuse a chip that is none by name; a pattern may tell a number of it."""
    if not isinstance(chip, str | PathLike | int | float):
        what = "a chip itself" if isinstance(chip, Chip) else f"{chip!r:.80}"
        raise ConfigError(f"{where}: chip: expected the name of a chip or of a .toml file, found {what}")


def _check_key(key: str, variables: set[str], where: str) -> None:
    if key in BASES or key in variables:
        return
    if "." in key or key in FIELDS:
        known_field(key, where)
        return
    known = (*BASES, *variables, *FIELDS)
    hint = did_you_mean(key, known) or f" (known: {', '.join((*BASES, *sorted(variables)))} and the keys of a chip)"
    raise ConfigError(f"{where}: axes: unknown key {key!r}{hint}")


def _constraint(name: str, text: Any, where: str) -> Expression:
    """Return a constraint: ``area_mm2 = "<= 700"``, or under any name, as in a list, a whole comparison."""
    written = str(text).strip()
    found = Expression(f"{name} {written}" if written[:1] in "<>=!" else written, f"{where}: constraint {name}")
    if not found.is_comparison:
        raise ConfigError(f"{where}: constraint {name}: expected a comparison such as '<= 700', found {text!r}")
    return found
