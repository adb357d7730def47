"""The points of a study: every program on every machine that its axes and constraints allow, in one order."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import product
from math import prod
from typing import Any

import msgspec

from tpusim.cost.area import area_mm2
from tpusim.errors import ConfigError, TpusimError
from tpusim.hardware.chip import Chip
from tpusim.hardware.fields import read_value
from tpusim.hardware.load import changed_chip, check_chip, load_chip
from tpusim.hardware.pod import parse_topology
from tpusim.hardware.units import stated_value
from tpusim.ir.module import Module
from tpusim.limits import POINTS
from tpusim.pipeline.chip_choice import choose_chip, provenance_of
from tpusim.pipeline.schedules import resolved_schedule
from tpusim.pipeline.stages import read_program
from tpusim.program.module import Program
from tpusim.study.axes import Setting
from tpusim.study.programs import ProgramText, digest
from tpusim.study.spec import BASES, DEFAULTS, RunSettings, Spec


@dataclass(frozen=True)
class Point:
    """One run: a program on a chip and a slice under a schedule. ``columns`` say by key what it is.

    Without a chip there is nothing to run, and ``fault`` says why.
    """

    program: ProgramText
    chip: Chip | None
    columns: Mapping[str, Any]
    settings: RunSettings = DEFAULTS
    fault: str = ""

    @property
    def topology(self) -> str | None:
        """The slice, if one is stated."""
        # A variable of a pattern may be a number.
        return str(self.columns["topology"] or "") or None

    @property
    def schedule(self) -> str:
        """Whose schedule is to run; empty leaves it to the program."""
        found: str = self.columns["schedule"]
        return found

    @cached_property
    def chip_digest(self) -> str:
        """What tells its chip from others: all figures of it, and not what it is called."""
        return _figures_digest(self.chip) if self.chip else ""


def _figures_digest(chip: Chip) -> str:
    figures = msgspec.structs.replace(chip, aliases=(), description="", operating_point="")
    return digest(msgspec.json.encode(figures, order="sorted"))


def points_of(spec: Spec) -> tuple[list[Point], int]:
    """Return the points of a study, program by program, the last axis fastest, and how many its constraints exclude.

    Raises ConfigError if none is left.
    """
    for axis in spec.axes:
        if not axis.settings:
            raise ConfigError(f"axis {axis.name}: expected [low, high, n]: a range without a number is for --optimise")
    count = prod(len(axis.settings) for axis in spec.axes)
    if fault := POINTS.fault(count):
        raise ConfigError(f"study: its axes together: {fault}")
    settings = [merged(row) for row in product(*(axis.settings for axis in spec.axes))]
    stated = [point for program in spec.programs for point in points_at(spec, program, settings)]
    found = [point for point in stated if is_allowed(spec, point)]
    if not found:
        raise ConfigError("study: expected at least one point, found none that the axes and constraints allow")
    return found, len(stated) - len(found)


def merged(settings: Iterable[Setting]) -> Setting:
    """Return several settings as one."""
    return {key: value for setting in settings for key, value in setting.items()}


def points_at(spec: Spec, program: ProgramText, settings: Iterable[Setting]) -> Iterator[Point]:
    """Yield a program's points at some settings, but for those of other variants."""
    variables = dict(program.variables)
    module = _module(program)
    named: dict[tuple[str, str | None], Chip | TpusimError] = {}
    for setting in settings:
        if lacks := next((key for key in setting if key in spec.variables and key not in variables), ""):
            raise ConfigError(f"study: {program.name} has no variable {lacks!r}: its pattern names none, as others' do")
        if any(setting.get(key, value) != value for key, value in variables.items()):
            continue
        # A slice of one chip is written as a number.
        bases = {key: str(setting.get(key, "")) for key in BASES}
        name = bases["chip"], bases["topology"] or None
        base = named.get(name) or named.setdefault(name, _base(module, *name))
        if isinstance(base, TpusimError) or isinstance(module, TpusimError):
            # Without a chip nothing says of which type they are: tables tell points apart by them.
            stated = {key: value if isinstance(value, Hashable) else str(value) for key, value in setting.items()}
            yield Point(program, None, dict.fromkeys(spec.keys, "") | stated | bases | variables, fault=str(base))
            continue
        columns, chip = _machine(spec, base, {k: v for k, v in setting.items() if k not in bases | variables})
        chip_name = spec.chip_names.get(bases["chip"], base.name)
        bases |= {"chip": chip_name, "schedule": resolved_schedule(module, bases["schedule"])}
        # A column for what only other programs have, too.
        columns = dict.fromkeys(spec.keys) | bases | variables | columns
        yield Point(program, chip, columns, spec.settings)


def base_digests(spec: Spec) -> list[str]:
    """Return what tells the chips that the machines of a study are variants of from others, program by program.

    Of one that is not known it is what keeps it from being known.
    """
    stated = [axis.settings for axis in spec.axes if {"chip", "topology"} & set(axis.keys)]
    settings = [merged(row) for row in product(*stated)]
    names = dict.fromkeys((str(one.get("chip", "")), str(one.get("topology", "")) or None) for one in settings)
    bases = [_base(_module(program), *name) for program in spec.programs for name in names]
    return [str(base) if isinstance(base, TpusimError) else _figures_digest(base) for base in bases]


def is_allowed(spec: Spec, point: Point) -> bool:
    """Return whether a point is within all constraints. One without a chip is, so that its row says why."""
    if point.chip is None:
        return True
    return all(one.value(partial(value_of, point.columns, point.chip)) for one in spec.constraints)


@lru_cache(maxsize=1)
def _module(program: ProgramText) -> Module | Program | TpusimError:
    """Return a program, or what is wrong with it."""
    try:
        return read_program(program.path, program.content)
    except TpusimError as error:
        return error


def _base(module: Module | Program | TpusimError, chip: str, topology: str | None) -> Chip | TpusimError:
    """Return the chip that a program's machines are variants of, or what keeps it from being known."""
    if isinstance(module, TpusimError):
        return module
    if chip:
        return load_chip(chip)
    try:
        made_by = provenance_of(module) if isinstance(module, Module) else module.provenance
        return choose_chip(module, made_by, topology=parse_topology(topology) if topology else None)
    except TpusimError as error:
        return error


def _machine(spec: Spec, base: Chip, setting: Setting) -> tuple[dict[str, Any], Chip]:
    """Return a machine's figures by key, in the types of the keys, and the machine."""
    found = {key: read_value(key, value, stated_value(base, key), "study") for key, value in setting.items()}
    chip = changed_chip(base, found)
    for key in spec.derive_order:
        value = spec.derive[key].value(partial(value_of, found, chip))
        found[key] = read_value(key, value, stated_value(base, key), "study")
        chip = changed_chip(chip, {key: found[key]})
    # Not before: what is worked out may be what a figure of an axis needs beside it.
    if chip is not base:
        check_chip(chip)
    return found, chip


def value_of(columns: Mapping[str, Any], chip: Chip, key: str) -> Any:
    """Return the value that an expression means: a column of the point, a figure of its chip or one worked out of it.

    Raises ConfigError for what is neither.
    """
    if key in columns:
        return columns[key]
    if key == "area_mm2":
        return area_mm2(chip)
    value = stated_value(chip, key)
    if not isinstance(value, int | float | str | tuple):
        raise ConfigError(f"study: expected a key of the chip or of the study in an expression, found {key!r}")
    return value
