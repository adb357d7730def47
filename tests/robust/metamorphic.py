"""What must not matter does not: relations between runs of a program and of the same one in another dress.

``python -m tests.robust.metamorphic FOLDER`` tries them on every program below a folder.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch
from zlib import crc32

import numpy as np
from msgspec import structs

from tests.robust import transforms
from tpusim.analysis.memory import MemoryUse, memory_use
from tpusim.errors import ConfigError, TpusimError
from tpusim.hardware.chip import Chip
from tpusim.hardware.load import chip_facts, chip_names, load_chip
from tpusim.ir.module import Module
from tpusim.numerics.files import flat_values, numbered, random_inputs, read_arrays
from tpusim.numerics.registry import TOKEN
from tpusim.pipeline.chip_choice import choose_chip, provenance_of
from tpusim.pipeline.result import Result
from tpusim.pipeline.stages import check, execute, load, lower, simulate
from tpusim.program.buffers import Buffer
from tpusim.program.module import Program
from tpusim.program.steps import AnyStep, Copy, Kernel
from tpusim.program.stored import decode_program, encode_program
from tpusim.shapes.shape import leaves
from tpusim.source import SourceText
from tpusim.text.parser import parse_module
from tpusim.text.printer import Style, print_module
from tpusim.timeline.records import Record

ROUNDING_PS = 10
"""Each of the five parts of a kernel is rounded by itself, at either rate."""

T = TypeVar("T", Record, Buffer)

_MOST_FLOPS = 2e8
_MOST_ELEMENTS = 1 << 20
_RATES = ("B/s", "Hz")
_TOLD = 50


class Skip(Exception):
    """A relation that says nothing about a program, with the reason."""


class Figures(NamedTuple):
    """What a run comes to, but for where things stand in a text."""

    totals_ps: list[int]
    records: list[list[Record]]
    memory: MemoryUse
    buffers: list[Buffer]


def figures(result: Result, names: dict[str, str] | None = None) -> Figures:
    """Return the figures of a run, in the names that those of its program stand for."""
    lines = result.pod.timelines
    return Figures(
        [line.total_ps for line in lines],
        [[_plain(record, names or {}) for record in line.records] for line in lines],
        memory_use(result.program),
        [_named(buffer, names or {}, "name", "within") for buffer in result.program.buffers],
    )


def _named(one: T, names: dict[str, str], *fields: str) -> T:
    found = {field: getattr(one, field) for field in fields}
    return structs.replace(one, **{field: names.get(name, name) for field, name in found.items()})


def _plain(record: Record, names: dict[str, str]) -> Record:
    """Return a record without its place in the text; sums of fractions depend on their order in the last digit."""
    activity = {unit: float(f"{amount:.9e}") for unit, amount in record.activity.items()}
    record = structs.replace(record, line=0, step=-1, activity=activity, flops=float(f"{record.flops:.9e}"))
    return _named(record, names, "name", "call")


def differences(before: Figures, after: Figures) -> Iterator[str]:
    """Yield the first thing in which two runs differ."""
    for field in Figures._fields:
        one, other = getattr(before, field), getattr(after, field)
        if one != other:
            yield f"{field}: {_first_difference(one, other)}"
            return


def _first_difference(one: Any, other: Any) -> str:
    """Return where two values differ, going down into lists of one length."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        place = next(place for place, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])
        return f"[{place}] {_first_difference(one[place], other[place])}"
    if isinstance(one, Record | Buffer | MemoryUse) and type(one) is type(other):
        field = next(name for name in one.__struct_fields__ if getattr(one, name) != getattr(other, name))
        name = getattr(one, "name", "")
        return f"{name}.{field}: {getattr(one, field)!r:.200} was, {getattr(other, field)!r:.200} is"
    shown = [len(each) if isinstance(each, list) else each for each in (one, other)]
    return f"{shown[0]} was, {shown[1]} is"


class Case:
    """A program, with what relations ask of it computed once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.module = load(path)
        self._figures: dict[str, Figures] = {}

    @property
    def random(self) -> Random:
        """Chance that is the same for each relation, whichever others are tried."""
        return Random(crc32(self.path.name.encode()))

    @cached_property
    def chip(self) -> Chip:
        """The chip that it is for; of a program for any, one that its name decides."""
        try:
            return choose_chip(self.module, provenance_of(self.module))
        except ConfigError:
            return load_chip(self.random.choice(chip_names()))

    def run(self, module: Module | None = None, schedule: str = "", chip: Chip | None = None) -> Result:
        """Return a run of the program, or of what it was made to."""
        return simulate(module or self.module, chip or self.chip, schedule=schedule, allow_overflow=True)

    def lower(self, module: Module) -> Program:
        """Return the steps of the program, or of what it was made to."""
        return lower(module, self.chip)

    def figures(self, schedule: str = "") -> Figures:
        """Return the figures of the program as it stands."""
        if schedule not in self._figures:
            try:
                self._figures[schedule] = figures(self.run(schedule=schedule))
            except TpusimError as error:
                raise Skip(f"{type(error).__name__} as it stands: {error}") from error
        return self._figures[schedule]

    def need_schedule(self) -> None:
        """Skip a program that nobody has scheduled."""
        if not self.module.is_scheduled:
            raise Skip("has no schedule of its own")

    @cached_property
    def inputs(self) -> Sequence[Any]:
        """Arguments: those that lie beside the program, else random ones."""
        beside = self.path.with_name(self.path.name.partition(".")[0] + ".npz")
        if beside.exists():
            return numbered({name: array for name, array in read_arrays(beside).items() if name.startswith("in")})
        return random_inputs([parameter.shape for parameter in self.module.entry.parameters], 1)

    @cached_property
    def values(self) -> list[Any]:
        """What the program computes, if that is little work."""
        opcodes = {opcode for computation in self.module.computations for opcode in computation.opcodes}
        if self.module.device_count > 1 or opcodes & {"infeed", "rng", "recv"}:
            raise Skip("computes with other devices, the host or chance")
        elements = sum(leaf.element_count for p in self.module.entry.parameters for leaf in leaves(p.shape))
        work = sum(r.flops * r.count for records in self.figures().records for r in records)
        if elements > _MOST_ELEMENTS or work > _MOST_FLOPS:
            raise Skip("computes too much")
        try:
            return _arrays(execute(self.module, self.inputs))
        except TpusimError as error:
            raise Skip(f"{type(error).__name__} as it stands: {error}") from error


def _arrays(values: Any) -> list[Any]:
    return [np.asarray(value) for value in flat_values(values) if value is not TOKEN]


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
        yield from differences(case.figures(), figures(case.run(other), {new: old for old, new in names.items()}))
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
    """A lowered program is what its JSON says, and takes as long."""
    program = case.lower(case.module)
    again = decode_program(encode_program(program).encode(), "again.json")
    if again != program:
        yield "another program is read from what was written"
    yield from differences(case.figures(), figures(simulate(again, case.chip, allow_overflow=True)))


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
    before, after = (Counter(map(_unplaced, case.lower(each).every_step)) for each in (case.module, other))
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
    result = case.run()
    if result.program.uses_host or result.program.collectives or result.program.channel_ends:
        raise Skip("meets other devices or the host")
    other = replace(case.module, attributes=case.module.attributes | {"replica_count": 4})
    after = figures(case.run(other))
    if set(after.totals_ps) != set(case.figures().totals_ps):
        yield f"{case.figures().totals_ps} ps, and {after.totals_ps} on 4"


@relation
def values(case: Case) -> Iterator[str]:
    """Other names, another order, dead code, compiled anew: the same bits."""
    module, random = case.module, case.random
    others = {
        "renamed": transforms.renamed(module, transforms.other_names(module)),
        "reordered": transforms.other_text_order(module, random, module.by_name),
        "with dead work": transforms.with_dead_instructions(module, work=True),
        "with computations reordered": transforms.other_computation_order(module, random),
    }
    before = case.values
    for how, other in others.items():
        for place, (one, another) in enumerate(zip(before, _arrays(execute(other, case.inputs)), strict=True)):
            if one.dtype != another.dtype or one.tobytes() != another.tobytes():
                yield f"{how}: result {place} differs"


def _differences_but_names(case: Case, other: Module, schedule: str = "") -> Iterator[str]:
    """Yield what differs between runs but for the names of what ran."""
    before, after = (_nameless(each) for each in (case.figures(schedule), figures(case.run(other, schedule))))
    yield from differences(before, after)


def _nameless(found: Figures) -> Figures:
    records = [[structs.replace(record, name="", call="") for record in line] for line in found.records]
    return found._replace(records=records, buffers=[structs.replace(b, name="", within="") for b in found.buffers])


def _time_differences(case: Case, other: Module) -> Iterator[str]:
    before, after = case.figures().totals_ps, figures(case.run(other)).totals_ps
    if before != after:
        yield f"{before[:4]} ps was, {after[:4]} is"


def _unplaced(step: AnyStep) -> str:
    """Return a step by itself as text, without where its arrays lie."""
    fields = {name: () for name in ("body", "condition", "branches") if hasattr(step, name)}
    if isinstance(step, Kernel):
        fields["streams"] = tuple(structs.replace(stream, address=None) for stream in step.streams)
    if isinstance(step, Copy):
        fields |= {"source_address": None, "target_address": None}
    return repr(structs.replace(step, line=0, **fields))


def _checked(case: Case, other: Module) -> Iterator[str]:
    if bool(check(case.module)) != bool(check(other)):
        yield f"check: {check(case.module)[:1]} was, {check(other)[:1]} is"


class Outcome(NamedTuple):
    """What one program came to under one relation: what it broke, or why it was left out."""

    relation: str
    program: str
    broken: tuple[str, ...] = ()
    skipped: str = ""


def tried(path: Path, names: Sequence[str]) -> list[Outcome]:
    """Return what a program comes to under some relations."""
    try:
        case = Case(path)
    except TpusimError as error:
        return [Outcome(name, str(path), skipped=f"cannot be read: {error}") for name in names]
    found = []
    for name in names:
        try:
            found.append(Outcome(name, str(path), tuple(violations(case, name))))
        except Skip as reason:
            found.append(Outcome(name, str(path), skipped=str(reason)))
        except Exception as error:
            found.append(Outcome(name, str(path), (f"{type(error).__name__}: {error}",)))
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.robust.metamorphic", description=__doc__)
    parser.add_argument("folder", type=Path, help="where programs are, or one program")
    parser.add_argument("--relation", action="append", choices=sorted(RELATIONS), help="only this one")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time (default: 1)")
    return parser


def main() -> int:
    """Try relations on programs; return 1 if one broke any."""
    options = _parser().parse_args()
    os.environ["TPUSIM_CACHE"] = ""
    names = options.relation or list(RELATIONS)
    paths = sorted(options.folder.rglob("*.hlo.txt.gz")) if options.folder.is_dir() else [options.folder]
    # The smallest first: they say soonest what is wrong.
    paths.sort(key=lambda path: path.stat().st_size)
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for number, found in enumerate(pool.map(tried, paths, [names] * len(paths)), 1):
            outcomes += found
            lines = [f"{one.relation}: {one.program}: {broken}\n" for one in found for broken in one.broken]
            sys.stdout.write("".join(lines))
            sys.stdout.flush()
            if number % _TOLD == 0:
                sys.stderr.write(f"{number} of {len(paths)}\n")
    _print_summary(names, outcomes)
    return 1 if any(one.broken for one in outcomes) else 0


def _print_summary(names: Sequence[str], outcomes: Sequence[Outcome]) -> None:
    sys.stdout.write(f"{'relation':30}{'programs':>10}{'violations':>12}  skipped\n")
    for name in names:
        found = [one for one in outcomes if one.relation == name]
        skipped = Counter(one.skipped.partition(":")[0] for one in found if one.skipped)
        reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.most_common())
        broken = sum(bool(one.broken) for one in found)
        sys.stdout.write(f"{name:30}{len(found) - skipped.total():10}{broken:12}  {reasons}\n")


if __name__ == "__main__":
    sys.exit(main())
