"""The relations, by name: what is done to a program, and what must be as it was."""

from __future__ import annotations

import gzip
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from msgspec import structs

from tests.robust.metamorphic import transforms
from tests.robust.metamorphic.case import Case, Figures, Skip, arrays_of, differences, figures
from tpusim.analysis.compare import load_result, run_figures
from tpusim.errors import TpusimError
from tpusim.hardware.load import chip_facts, load_chip
from tpusim.ir.module import Module
from tpusim.pipeline.result import Result
from tpusim.pipeline.stages import check, execute, load, lower, simulate
from tpusim.program.steps import AnyStep, Copy, Kernel
from tpusim.program.stored import decode_program, encode_program
from tpusim.report.json.run import save_result
from tpusim.source import SourceText
from tpusim.text.parser import parse_module
from tpusim.text.printer import Style, print_module

ROUNDING_PS = 10
"""Each of the five parts of a kernel is rounded by itself, at either rate."""

_RATES = ("B/s", "Hz")

Relation = Callable[[Case], Iterator[str]]
RELATIONS: dict[str, Relation] = {}
"""By name, a function that yields what a program breaks; raises Skip where there is nothing to hold."""


def relation(function: Relation) -> Relation:
    """Enter a relation under its name."""
    RELATIONS[function.__name__] = function
    return function


def violations(case: Case, name: str) -> list[str]:
    """Return what a program breaks of a relation; raise Skip where there is nothing to hold."""
    try:
        return list(RELATIONS[name](case))
    except TpusimError as error:
        return [f"{type(error).__name__}: {error}"]


@relation
def renamed(case: Case) -> Iterator[str]:
    """Names of instructions and computations, exchanged: the same run, memory and verdict, in other names."""
    names = transforms.other_names(case.module)
    other = transforms.renamed(case.module, names)
    if case.module.is_scheduled:
        result, back = case.run(other), {new: old for old, new in names.items()}
        yield from differences(case.figures(), figures(result, back))
        if _path(case.result, {}) != _path(result, back):
            yield "another critical path"
    else:
        # Our compiler numbers what it makes of one name.
        yield from _differences_but_names(case, other)
    yield from _checked(case, other)


@relation
def renamed_compiled(case: Case) -> Iterator[str]:
    """A schedule, or tiles, that tpusim makes anew depend on no names."""
    case.need_schedule()
    other = transforms.renamed(case.module, transforms.other_names(case.module))
    for schedule in ("retiled", "compiled"):
        yield from _differences_but_names(case, other, schedule)


@relation
def names_used_again(case: Case) -> Iterator[str]:
    """A name means something in its own computation only: all computations number their instructions alike."""
    yield from _differences_but_names(case, transforms.with_names_again(case.module))


@relation
def printed(case: Case) -> Iterator[str]:
    """A program is what it prints, in full or short, however carefully it is read."""
    text = case.module.text
    again = transforms.read(case.module, text)
    if again != case.module or again.text != text:
        yield "another module is read from its text"
    if transforms.read(case.module, print_module(case.module, Style.SHORT)) != case.module:
        yield "another module is read from its text without signs before names"
    if parse_module(SourceText("a.hlo", text), careful=True) != case.module:
        yield "another module is read token by token"
    yield from differences(case.figures(), figures(case.run(again)))
    yield from _checked(case, again)


@relation
def stored(case: Case) -> Iterator[str]:
    """A lowered program is what its JSON says, and takes as long; so is a saved result."""
    program = case.result.program
    again = decode_program(encode_program(program).encode(), "again.json")
    if again != program:
        yield "another program is read from what was written"
    yield from differences(case.figures(), figures(simulate(again, case.chip, allow_overflow=True)))
    with tempfile.TemporaryDirectory() as folder:
        save_result(case.result.summary, Path(folder, "result.json"))
        if load_result(Path(folder, "result.json")) != run_figures(case.result.summary):
            yield "another result is read from what was saved"


@relation
def filed(case: Case) -> Iterator[str]:
    """Compressed or plain, under any name, or through standard input: one program."""
    content = case.path.read_bytes()
    plain = gzip.decompress(content) if case.path.suffix == ".gz" else content
    with tempfile.TemporaryDirectory() as folder:
        for name, kept in (("a.hlo", plain), ("b c.txt.gz", gzip.compress(plain)), ("d.gz", plain), ("e", content)):
            path = Path(folder, name)
            path.write_bytes(kept)
            if load(path) != case.module:
                yield f"another module is read from {name!r}"
        for name in ("saved.hlo.txt", "saved.hlo.txt.gz"):
            case.module.save(Path(folder, name))
            if load(Path(folder, name)) != case.module:
                yield f"another module is read from {name!r}"
    with patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(content))):
        if load("-") != case.module:
            yield "another module is read from standard input"


@relation
def dead_computation(case: Case) -> Iterator[str]:
    """A computation that nobody calls takes no time and no memory."""
    yield from differences(case.figures(), figures(case.run(transforms.with_dead_computation(case.module))))


@relation
def dead_constant(case: Case) -> Iterator[str]:
    """A constant that nobody uses takes no time, which XLA would leave in no program."""
    yield from _time_differences(case, transforms.with_dead_instructions(case.module, work=False))


@relation
def dead_work(case: Case) -> Iterator[str]:
    """What nobody uses is not compiled. A schedule runs as it stands, what is dead in it too."""
    if case.module.is_scheduled:
        raise Skip("has a schedule of its own")
    yield from _time_differences(case, transforms.with_dead_instructions(case.module, work=True))


@relation
def computations_reordered(case: Case) -> Iterator[str]:
    """Computations may stand in any order."""
    other = transforms.other_computation_order(case.module, case.random)
    yield from differences(case.figures(), figures(case.run(other)))


@relation
def computations_shared(case: Case) -> Iterator[str]:
    """Computations that are equal may be one, which several call."""
    other, fewer = transforms.with_shared_computations(case.module)
    if not fewer:
        raise Skip("has no equal computations")
    yield from _time_differences(case, other)
    yield from _checked(case, other)


@relation
def text_reordered(case: Case) -> Iterator[str]:
    """Where text order is no schedule it does not matter: in programs to be compiled, fusions, reducers."""
    names = transforms.applied(case.module) if case.module.is_scheduled else case.module.by_name
    if not names:
        raise Skip("has only computations that are scheduled")
    other = transforms.other_text_order(case.module, case.random, names)
    yield from _differences_but_names(case, other)
    yield from _checked(case, other)


@relation
def neighbours_swapped(case: Case) -> Iterator[str]:
    """Independent neighbours of a schedule with nothing beside them: another order takes the same time."""
    case.need_schedule()
    other, count = transforms.with_swaps(case.module)
    if not count:
        raise Skip("has no such neighbours")
    yield from _time_differences(case, other)
    yield from _checked(case, other)


@relation
def steps_swapped(case: Case) -> Iterator[str]:
    """What neighbours take does not depend on which comes first, whatever runs beside them."""
    case.need_schedule()
    other, count = transforms.with_swaps(case.module, quiet=False)
    if not count:
        raise Skip("has no such neighbours")
    before, after = (Counter(map(_unplaced, lower(each, case.chip).every_step)) for each in (case.module, other))
    for step in before - after:
        yield f"no step is any longer {step}"


@relation
def neighbours_swapped_compiled(case: Case) -> Iterator[str]:
    """The order of the schedule that was does not matter to one that tpusim makes anew."""
    case.need_schedule()
    other, count = transforms.with_swaps(case.module)
    if not count:
        raise Skip("has no such neighbours")
    yield from _differences_but_names(case, other, "compiled")


@relation
def half_as_fast(case: Case) -> Iterator[str]:
    """Nothing depends on the length of a second: rates by half and durations twice make all twice as long."""
    scaled = {}
    for fact in chip_facts(case.chip.name):
        if fact.unit in _RATES and fact.value:
            scaled[fact.key] = fact.value / 2
        elif fact.unit == "s":
            scaled[fact.key] = fact.value * 2
    before, after = case.figures(), figures(case.run(chip=load_chip(case.chip.name, scaled)))
    for one, other, records in zip(before.totals_ps, after.totals_ps, before.records, strict=True):
        if abs(other - 2 * one) > ROUNDING_PS * sum(record.count for record in records):
            yield f"{one} ps, and {other} at half of all rates"


@relation
def faster_parts(case: Case) -> Iterator[str]:
    """Twice the bandwidth of HBM makes no schedule slower, nor does twice a rate or half a time that chance chooses."""
    case.need_schedule()
    facts = {fact.key: fact for fact in chip_facts(case.chip.name) if fact.unit in (*_RATES, "s") and fact.value}
    before = max(case.figures().totals_ps)
    for key in ("hbm.bandwidth_bytes_per_second", case.random.choice(list(facts))):
        better = {key: facts[key].value * (2 if facts[key].unit in _RATES else 0.5)}
        after = max(figures(case.run(chip=load_chip(case.chip.name, better))).totals_ps)
        if after > before + ROUNDING_PS * sum(record.count for record in case.figures().records[0]):
            yield f"{before} ps, and {after} with {better}"


@relation
def many_devices(case: Case) -> Iterator[str]:
    """Devices that do not talk take the time of one."""
    if case.module.device_count > 1:
        raise Skip("is for several devices")
    program = case.result.program
    if program.uses_host or program.collectives or program.channel_ends:
        raise Skip("meets other devices or the host")
    other = structs.replace(case.module, attributes=case.module.attributes | {"replica_count": 4})
    after = figures(case.run(other))
    if set(after.totals_ps) != set(case.figures().totals_ps):
        yield f"{case.figures().totals_ps} ps, and {after.totals_ps} on 4"


@relation
def values(case: Case) -> Iterator[str]:
    """Other names, another order, dead code: the same bits."""
    module, random = case.module, case.random
    others = {
        "with names used again": transforms.with_names_again(module),
        "renamed": transforms.renamed(module, transforms.other_names(module)),
        "reordered": transforms.other_text_order(module, random, module.by_name),
        "with dead work": transforms.with_dead_instructions(module, work=True),
        "with computations reordered": transforms.other_computation_order(module, random),
    }
    before = case.values
    for how, other in others.items():
        for place, (one, another) in enumerate(zip(before, arrays_of(execute(other, case.inputs)), strict=True)):
            if one.dtype != another.dtype or one.tobytes() != another.tobytes():
                yield f"{how}: result {place} differs"


def _differences_but_names(case: Case, other: Module, schedule: str = "") -> Iterator[str]:
    """Yield what differs between runs but for the names of what ran."""
    before, after = (_nameless(each) for each in (case.figures(schedule), figures(case.run(other, schedule))))
    yield from differences(before, after)


def _path(result: Result, names: dict[str, str]) -> list[tuple[object, ...]]:
    """Return the critical path of a run, and how much later ops might start, in the names that theirs stand for."""
    path = result.critical_path
    stretches = [(names.get(s.name, s.name), s.device, s.start_ps, s.end_ps, s.count) for s in path.stretches]
    return [*stretches, *sorted((names.get(s.name, s.name), s.time_ps, s.slack_ps) for s in path.slacks)]


def _nameless(found: Figures) -> Figures:
    records = [[structs.replace(record, name="", call="") for record in line] for line in found.records]
    return found._replace(records=records, buffers=[structs.replace(b, name="", within="") for b in found.buffers])


def _time_differences(case: Case, other: Module) -> Iterator[str]:
    before, after = case.figures().totals_ps, figures(case.run(other)).totals_ps
    if before != after:
        yield f"{before[:4]} ps was, {after[:4]} is"


def _unplaced(step: AnyStep) -> str:
    """Return a step by itself as text, without where its arrays lie, and where it may come from in the user's code."""
    fields: dict[str, Any] = {name: () for name in ("body", "condition", "branches") if hasattr(step, name)}
    if isinstance(step, Kernel):
        fields["streams"] = tuple(structs.replace(stream, address=None) for stream in step.streams)
    if isinstance(step, Copy):
        fields |= {"source_address": None, "target_address": None}
    return repr(structs.replace(step, line=0, source="", **fields))


def _checked(case: Case, other: Module) -> Iterator[str]:
    if bool(check(case.module)) != bool(check(other)):
        yield f"check: {check(case.module)[:1]} was, {check(other)[:1]} is"
