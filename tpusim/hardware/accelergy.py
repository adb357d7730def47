"""Accelergy's tables, which a user made of a chip's parts, as figures of it: the energy of events, the area of units.

Components are named as in what ``report.accelergy`` writes, with or without what they are part of: ``tpu.hbm`` and
``hbm[0..3]`` are both the unit ``hbm``. Energies are in picojoules, areas in square micrometres, as Accelergy has them.

Accelergy, https://github.com/Accelergy-Project/accelergy: energy and area reference tables (ERT, ART) of version 0.4.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from tpusim.errors import ConfigError, did_you_mean
from tpusim.files import read_bytes
from tpusim.hardware.fields import AREA_UNITS, energy_activities
from tpusim.hardware.units import HBM_ROWS, MATRIX, UNITS, event_key, unit_of
from tpusim.limits import Limit

DEVICE = "device"
"""The component for what a device draws while nothing runs, which counts cycles of its clock."""

CYCLE = "cycle"
_RANGE = re.compile(r"\[[^\]]*\]")
_EACH = "op"
_BYTE = "byte"
_ROW = "row"
_PJ = 1e-12
_MM2_PER_UM2 = 1e-6
_DEPTH = Limit("values in each other", 64, least=0)
_ALIASES = Limit("aliases", 1000, least=0)
_VALUES = Limit("values", 100_000, least=0)
"""Begins and ends of lists and tables counted as well; each takes some hundred bytes."""


class _Action(msgspec.Struct):
    """An action of a component, and its picojoules."""

    name: str
    energy: float
    arguments: dict[str, Any] | None = None


class _Energies(msgspec.Struct):
    """The actions of a component."""

    name: str
    actions: list[_Action]


class _Area(msgspec.Struct):
    """The square micrometres of a component."""

    name: str
    area: float


class _Ert(msgspec.Struct):
    """The table of energies."""

    tables: list[_Energies]


class _Art(msgspec.Struct):
    """The table of areas."""

    tables: list[_Area]


class _File(msgspec.Struct):
    """A file with either table, or both; other keys are Accelergy's and not ours."""

    ert: _Ert = msgspec.field(name="ERT", default_factory=lambda: _Ert([]))
    art: _Art = msgspec.field(name="ART", default_factory=lambda: _Art([]))


def action_of(activity: str) -> str:
    """Return what an event that an activity counts is called as an action of its unit: ``bf16``, ``op``, ``byte``."""
    if activity == HBM_ROWS:
        return _ROW
    unit = UNITS[unit_of(activity)]
    return activity.removeprefix(f"{MATRIX}.") if unit.key == MATRIX else _EACH if unit.counts_operations else _BYTE


def read_tables(path: str | Path) -> dict[str, float]:
    """Return the figures of a file of Accelergy's tables as overrides of a chip: ``energy.hbm``, ``area.matrix``.

    What a device draws while nothing runs stays that of the chip. Raises ConfigError for a file that has neither table,
    and for a component or an action that no chip has.
    """
    content = read_bytes(path, "cannot read Accelergy's tables")
    try:
        import yaml
    except ImportError as error:
        raise ConfigError("Accelergy's tables need PyYAML: pip install 'tpusim[accelergy]'") from error
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        _check_size(yaml.parse(content, Loader=loader), path)
        _check_keys(yaml.compose(content, Loader=loader), path)
        found = msgspec.yaml.decode(content, type=_File)
    except yaml.MarkedYAMLError as error:
        place = f"{path}:{error.problem_mark.line + 1}"
        raise ConfigError(f"{place}: expected tables of Accelergy (ERT, ART) in YAML: {error.problem}") from error
    except (msgspec.ValidationError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: expected tables of Accelergy (ERT, ART): {error}") from error
    # Of numbers of thousands of digits, and of what is not of the type that its tag says, Python says so in words of
    # its own; some of it comes with a line.
    except (msgspec.DecodeError, ValueError, TypeError, AttributeError, LookupError) as error:
        line = re.search(r"line (\d+)", str(error))
        place = f"{path}:{line[1]}" if line else f"{path}"
        what = "a value that is not what its tag says, or a number of thousands of digits"
        raise ConfigError(f"{place}: expected tables of Accelergy (ERT, ART) in YAML, found {what}") from error
    if not found.ert.tables and not found.art.tables:
        raise ConfigError(f"{path}: expected tables of Accelergy under the key ERT or ART, found neither")
    figures = [*_energies(found.ert, path), *_areas(found.art, path)]
    if twice := [key for key, count in Counter(key for key, _ in figures).items() if count > 1]:
        raise ConfigError(f"{path}: {twice[0]}: expected one component that states it, found several")
    return dict(figures)


def _check_size(events: Iterator[Any], path: str | Path) -> None:
    """Refuse YAML that its reader, which goes as deep as its stack, would not come back from.

    Aliases may name lists of aliases, which multiply.
    """
    from yaml import AliasEvent, CollectionEndEvent, CollectionStartEvent

    depth = aliases = 0
    for number, event in enumerate(events):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        aliases += isinstance(event, AliasEvent)
        for limit, found in ((_DEPTH, depth), (_ALIASES, aliases), (_VALUES, number)):
            if found > limit.most:
                raise ConfigError(f"{path}:{event.start_mark.line + 1}: {limit.fault(found)}")


def _check_keys(top: Any, path: str | Path) -> None:
    """Refuse a key that stands twice in one table, of which YAML's reader takes the last."""
    from yaml import MappingNode, ScalarNode, SequenceNode

    nodes, seen = [top], set[int]()
    while nodes:
        node = nodes.pop()
        # A node that has a name may stand in many places, and in itself.
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, SequenceNode):
            nodes += node.value
        elif isinstance(node, MappingNode):
            # Tables may be merged into one in several steps.
            keys = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
            if stray := next((key for key in keys if not isinstance(key, ScalarNode)), None):
                line = stray.start_mark.line + 1
                raise ConfigError(f"{path}:{line}: expected a text as a key, found a list or a table")
            for key, count in Counter(key.value for key in keys).items():
                if count > 1:
                    line = next(one.start_mark.line for one in reversed(keys) if one.value == key) + 1
                    raise ConfigError(f"{path}:{line}: expected each key once in a table, found {key!r} {count} times")
            nodes += chain.from_iterable(node.value)


def _energies(table: _Ert, path: str | Path) -> Iterator[tuple[str, float]]:
    events = {f"{unit_of(activity)}: {action_of(activity)}": event_key(activity) for activity in energy_activities()}
    for component in table.tables:
        unit = _component(component.name)
        for action in component.actions if unit != DEVICE else ():
            name = f"{unit}: {action.name}"
            if name not in events:
                expected = ", ".join(events)
                raise ConfigError(f"{path}: ERT: expected one of {expected}, found {name}{did_you_mean(name, events)}")
            if [other.name for other in component.actions].count(action.name) > 1:
                raise ConfigError(f"{path}: ERT: {name}: expected one energy, found several, for other arguments")
            yield f"energy.{events[name]}", action.energy * _PJ


def _areas(table: _Art, path: str | Path) -> Iterator[tuple[str, float]]:
    for component in table.tables:
        unit = _component(component.name)
        if unit not in AREA_UNITS:
            hint = did_you_mean(unit, AREA_UNITS)
            raise ConfigError(f"{path}: ART: expected one of {', '.join(AREA_UNITS)}, found {component.name}{hint}")
        yield f"area.{unit}", component.area * _MM2_PER_UM2


def _component(name: str) -> str:
    """Return the last word of a component's name, without ranges of arrays of them."""
    return _RANGE.sub("", name).rpartition(".")[2]
