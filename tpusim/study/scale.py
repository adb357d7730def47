"""A family of programs over batch sizes, chips and slices: one run of each, in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import msgspec
from msgspec import structs

from tpusim.analysis.answers.efficiency import Efficiency, efficiencies
from tpusim.analysis.answers.scaling import Largest, Refused, ScaleRow, largest_that_fit, scale_row
from tpusim.errors import ConfigError, did_you_mean
from tpusim.hardware.pod import Topology, parse_topology
from tpusim.limits import LARGEST_AMOUNT, is_number
from tpusim.lowering.module import DEFAULT_TRIPS
from tpusim.pipeline.answers.device_orders import best_order
from tpusim.pipeline.answers.exposed import exposed_communication
from tpusim.pipeline.result import Result
from tpusim.pipeline.stages import read_program, simulate
from tpusim.report.shown import Shown
from tpusim.report.tables import Printer
from tpusim.study.names import chips_apart
from tpusim.study.programs import ProgramText, Source, find_programs

_COUNTED = "batch"
"""The variable of a program that is counted where none is named."""

_LEAST_SHARE = 0.01
"""Of the time what a collective takes that another order of devices is tried for."""


class Scaling(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a family of programs, in their order, and the largest of them that fit."""

    rows: tuple[ScaleRow, ...]
    refused: tuple[Refused, ...] = ()

    @property
    def efficiencies(self) -> tuple[Efficiency | None, ...]:
        """How each row scales from the smallest slice of its chip; None where there is nothing to compare it with."""
        return efficiencies(self.rows)

    @property
    def largest(self) -> tuple[Largest, ...]:
        """The most items that fit, by chip and slice."""
        return largest_that_fit(self.rows)

    def _render(self, console: Printer) -> None:
        from tpusim.report.terminal.answers.scaling import render_scaling

        render_scaling(self.rows, self.largest, console, self.refused)


def scale(
    programs: Sequence[Source] | Mapping[str, Source] | Source,
    values: Mapping[str, Sequence[Any]] | None = None,
    *,
    items: str = "",
    chips: Sequence[str | Path] | str | Path = (),
    topologies: Sequence[str | Topology] | str | Topology = (),
    schedule: str = "",
    default_trip_count: int = DEFAULT_TRIPS,
    price: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Scaling:
    """Return what every program of a family takes on every chip and slice, with throughput, memory and costs.

    ``programs`` are files, patterns with variables (``gpt2_b{batch}t{seq}.v5p.hlo.txt.gz``), modules, or a function
    that makes a module of the ``values`` of its parameters, such as one that calls ``tpusim.jax.compile_for``.
    Sizes of which it makes none, since they do not fit, say, are ``refused`` with the reason.

    ``chips`` and ``topologies`` are one or several. ``items`` names what a run makes, a variable or a product of some
    (``batch*seq``); by default ``batch``, where there is one. ``price`` is that of an hour of a chip,
    ``default_trip_count`` as for ``simulate``. Raises ConfigError where no program or variable is found.
    """
    if not isinstance(items, str):
        raise ConfigError(f"items: expected a variable or a product of some, found {items!r:.80}")
    found, refused = _made(programs, {} if values is None else _listed(values))
    chips = _texts("chips", "names of chips or of .toml files", chips, Path)
    topologies = _texts("topologies", "slices such as 'v5e:2x4'", topologies, Topology)
    runs = [_Run(*run, schedule, default_trip_count) for run in product(found, chips or [""], topologies or [""])]
    names = chips_apart(chips)
    rows = []
    for number, run in enumerate(runs):
        if progress is not None:
            progress(number, len(runs))
        rows.append((_row(run, names.get(run.chip, ""), items, price), run))
    rows.sort(key=lambda made: _place(made[0]))
    compared = {one.base for one in efficiencies([row for row, _ in rows]) if one}
    # A base that could be faster makes all others look better than they are.
    ordered = [_with_order(*made) if number in compared else made[0] for number, made in enumerate(rows)]
    return Scaling(rows=tuple(ordered), refused=tuple(refused))


class _Run(NamedTuple):
    """A program on a chip and a slice; empty are those that it says itself."""

    program: ProgramText
    chip: str
    topology: str
    schedule: str
    default_trip_count: int

    @property
    def slice(self) -> Topology | None:
        """The slice that was asked for."""
        return parse_topology(self.topology) if self.topology else None

    def result(self) -> Result:
        """Return what it comes to."""
        loaded = read_program(self.program.path, self.program.content)
        return simulate(
            loaded,
            self.chip or None,
            topology=self.slice,
            schedule=self.schedule,
            default_trip_count=self.default_trip_count,
            allow_overflow=True,
        )


def _with_order(row: ScaleRow, run: _Run) -> ScaleRow:
    """Return a row with a faster order of its mesh's devices, if one is known."""
    names = [one.name for one in row.exposed if one.exposed_ps > _LEAST_SHARE * row.total_ps]
    return structs.replace(row, order=best_order(run.result(), run.slice, names)) if names else row


def _place(row: ScaleRow) -> tuple[Any, ...]:
    """Return what rows sort by."""
    return row.chip, row.devices, row.topology, row.items, _sizes(row)


def _sizes(row: ScaleRow) -> list[tuple[bool, float, str]]:
    """Return what variables sort by: numbers by size, before words."""
    values = row.variables.values()
    return [(False, value, "") if isinstance(value, int | float) else (True, 0, str(value)) for value in values]


def _made(
    programs: Sequence[Source] | Mapping[str, Source] | Source, values: Mapping[str, Sequence[Any]]
) -> tuple[list[ProgramText], list[Refused]]:
    """Return the programs of all combinations of values, and those for which there is none."""
    found, refused, errors = list[ProgramText](), list[Refused](), list[ConfigError]()
    for combination in product(*values.values()):
        variables = dict(zip(values, combination, strict=True))
        try:
            found += find_programs(programs, {name: [value] for name, value in variables.items()})
        except ConfigError as error:
            errors.append(error)
            refused.append(Refused(variables=variables, reason=str(error)))
    if not found:
        raise errors[0]
    return found, refused


def _texts(name: str, expected: str, given: Any, kind: type) -> list[str]:
    """Return one or several texts or things of a kind, given under a name, as texts; refuse anything else."""
    is_several = isinstance(given, Iterable) and not isinstance(given, str)
    found = list(given) if is_several else [given]
    if not all(isinstance(one, str | kind) for one in found):
        raise ConfigError(f"{name}: expected {expected}, found {given!r:.80}")
    return list(map(str, found))


def _listed(values: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return values by the name of a parameter, each list whole; refuse what is none, or has none."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"values: expected lists of values by the name of a parameter, found {values!r:.80}")
    listed = dict[str, list[Any]]()
    for name, given in values.items():
        is_list = isinstance(given, Iterable) and not isinstance(given, str | Mapping)
        if not (is_list and (found := list(given))):
            raise ConfigError(f"values: expected a list with a value of {name!r} at least, found {given!r:.80}")
        listed[name] = found
    return listed


def _row(run: _Run, chip: str, items: str, price: float | None) -> ScaleRow:
    """Return the row of a run on a chip by its name in the table, where one is stated."""
    result = run.result()
    last = result.timeline.device
    # A program spreads over a larger slice by copies of itself, each of which makes as many items.
    copies = result.pod.device_count // result.program.devices_needed
    row = scale_row(
        result.summary,
        chip or result.chip.name,
        run.topology or "x".join(map(str, result.pod.sizes)),
        result.pod.device_count,
        variables=dict(run.program.variables),
        items=_items(run.program, items) * copies,
        joules=result.all_devices_j,
        cost=result.cost(price),
        use=next(use for use in result.communication.devices if last in use.devices),
        exposed=exposed_communication(result, run.slice),
        copies=copies,
    )
    return structs.replace(row, is_order_open=result.pod.is_order_open)


def _items(program: ProgramText, items: str) -> float:
    """Return how many items a run of a program makes, 0 where nothing says it."""
    known = dict(program.variables)
    if items:
        return prod(_factors(items, known))
    value = known.get(_COUNTED)
    return float(value) if _is_count(value) else 0.0


def _is_count(value: object) -> TypeGuard[float]:
    """Return whether a variable of a program can be a number of items, or a factor of one."""
    return is_number(value, LARGEST_AMOUNT) and value != 0


def _factors(items: str, known: Mapping[str, Any]) -> Iterator[float]:
    for name in items.split("*"):
        value = known.get(name.strip())
        if not _is_count(value):
            hint = f", which is {value!r}" if value is not None else did_you_mean(name, list(known))
            raise ConfigError(f"items: expected variables of the program with numbers above 0, found {name!r}{hint}")
        yield float(value)
