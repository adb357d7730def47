"""What may be done to a program that must not change what it is: other names, another order, code that nobody needs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any

from msgspec import structs

from tpusim.ir.attributes import ComputationName
from tpusim.ir.module import Computation, Instruction, Literal, Module
from tpusim.ir.ops import CALLS, COPIES, HAS_EFFECTS, TRANSFERS, WRITTEN_OUT, async_phase
from tpusim.pipeline.stages import read_program
from tpusim.semantics.aliasing import behind_views, in_place_operands, stated_operands
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape

_NAME = re.compile(r"%[\w.\-]+")
_SCALAR = ArrayShape(DTYPES["f32"], ())


def read(module: Module, text: str) -> Module:
    """Return a text read as one of the same file as a module."""
    found = read_program(module.source.name if module.source else "program.hlo.txt", text.encode())
    assert isinstance(found, Module)
    return found


def other_names(module: Module) -> dict[str, str]:
    """Return for each name of an instruction or a computation that of another one, the first for the last.

    So the order of the alphabet is the opposite, and what a name suggests is wrong. Hand-written kernels keep theirs,
    which is how a user's model of them finds them.
    """
    kernels = {i.name for computation in module.computations for i in computation if i.kernel_name}
    named = {i.name for computation in module.computations for i in computation} | {*module.by_name}
    names = sorted(named - kernels)
    return dict(zip(names, reversed(names), strict=True))


def renamed(module: Module, names: Mapping[str, str]) -> Module:
    """Return a module whose instructions and computations have other names."""
    return read(module, _with_names(module.text, names))


def _with_names(text: str, names: Mapping[str, str]) -> str:
    return _NAME.sub(lambda found: "%" + names.get(found[0][1:], found[0][1:]), text)


def with_names_again(module: Module) -> Module:
    """Return a module in which each computation calls its instructions by their opcodes, and numbers those of each."""
    kept = {i.name for computation in module.computations for i in computation if i.kernel_name} | {*module.by_name}
    # Behind the last computation the text has an empty line.
    parts = module.text.split("\n\n")
    first = len(parts) - 1 - len(module.computations)
    for place, computation in enumerate(module.computations, first):
        counts = Counter[str]()
        names = {}
        for instruction in computation:
            counts[instruction.opcode] += 1
            names[instruction.name] = f"{instruction.opcode}.{counts[instruction.opcode]}"
        parts[place] = _with_names(parts[place], {old: new for old, new in names.items() if old not in kept})
    return read(module, "\n\n".join(parts))


def with_computations(module: Module, computations: Iterable[Computation]) -> Module:
    """Return a module of other computations, which stand in no text."""
    return structs.replace(module, computations=tuple(structs.replace(one, offsets=()) for one in computations))


def other_computation_order(module: Module, random: Random) -> Module:
    """Return a module whose computations stand in another order, each after those that it calls."""
    needed = {one.name: {name for i in one for name in i.called_computations} for one in module.computations}
    return with_computations(module, [module[name] for name in _any_order(needed, random)])


def with_shared_computations(module: Module) -> tuple[Module, int]:
    """Return a module in which equal computations are one, and how many there are fewer.

    What a fusion is, or is started beside the core, has one caller (XLA's verifier), and stays.
    """
    alone = (i for one in module.computations for i in one if i.opcode == "fusion" or async_phase(i.opcode))
    kept = {module.entry_name}.union(*[i.called_computations for i in alone])
    same: dict[str, str] = {}
    first: dict[str, str] = {}
    found = []
    for computation in module.computations:
        called = structs.replace(computation, instructions=tuple(_with_calls(i, same) for i in computation))
        same[called.name] = called.name if called.name in kept else first.setdefault(_form(called), called.name)
        if same[called.name] == called.name:
            found.append(called)
    return with_computations(module, found), len(module.computations) - len(found)


def _with_calls(instruction: Instruction, names: Mapping[str, str]) -> Instruction:
    """Return an instruction that calls other computations."""

    def other(value: Any) -> Any:
        if isinstance(value, ComputationName):
            return ComputationName(names.get(value, value))
        return tuple(map(other, value)) if isinstance(value, tuple) else value

    return structs.replace(instruction, attributes={key: other(value) for key, value in instruction.attributes.items()})


def _form(computation: Computation) -> str:
    """Return what a computation has in common with those that are the same but for names and places in the source."""
    places = {i.name: place for place, i in enumerate(computation)}
    rows = [
        (str(i.shape), i.opcode, [places[name] for name in i.operands], i.immediate, i.attributes | {"metadata": ""})
        for i in computation
    ]
    return repr((rows, places[computation.root_name], computation.execution_thread))


def other_text_order(module: Module, random: Random, names: Iterable[str]) -> Module:
    """Return a module in some of whose computations instructions stand in any order, each after what it needs."""
    chosen = frozenset(names)
    return with_computations(
        module, [_shuffled(one, random) if one.name in chosen else one for one in module.computations]
    )


def _shuffled(computation: Computation, random: Random) -> Computation:
    needed = {i.name: {*i.operands, *i.attributes.get("control-predecessors", ())} for i in computation}
    # What has effects keeps its order: infeeds read one queue.
    effects = [i.name for i in computation if i.opcode in HAS_EFFECTS]
    for before, after in pairwise(effects):
        needed[after].add(before)
    order = tuple(computation[name] for name in _any_order(needed, random))
    return structs.replace(computation, instructions=order)


def _any_order(needed: Mapping[str, set[str]], random: Random) -> list[str]:
    """Return names in a random order, each after those that it needs."""
    left = {name: len(wanted) for name, wanted in needed.items()}
    users: dict[str, list[str]] = {name: [] for name in needed}
    for name, wanted in needed.items():
        for one in sorted(wanted):
            users[one].append(name)
    ready = [name for name, count in left.items() if not count]
    found = []
    while ready:
        place = random.randrange(len(ready))
        ready[place], ready[-1] = ready[-1], ready[place]
        found.append(ready.pop())
        for user in users[found[-1]]:
            left[user] -= 1
            if not left[user]:
                ready.append(user)
    return found


def applied(module: Module) -> set[str]:
    """Return the computations whose text order is no order of execution: fusions' and those applied to elements."""
    running, waiting = {module.entry_name}, [module.entry_name]
    while waiting:
        for instruction in module[waiting.pop()]:
            if instruction.opcode in CALLS and instruction.opcode != "fusion":
                new = set(instruction.called_computations) - running
                running |= new
                waiting += new
    return set(module.by_name) - running


def with_dead_computation(module: Module) -> Module:
    """Return a module with a computation that nobody calls."""
    dead = Computation("nobody", (Instruction("p_of_nobody", _SCALAR, "parameter", immediate=0),), "p_of_nobody")
    return with_computations(module, (dead, *module.computations))


def with_dead_instructions(module: Module, *, work: bool) -> Module:
    """Return a module with a constant that nobody uses in its computations, and with ``work`` a sum of it.

    In what fusions call all must be used (XLA's verifier).
    """
    fused = {name for one in module.computations for i in one if i.opcode == "fusion" for name in i.called_computations}
    found = (one if one.name in fused else _with_dead(one, work) for one in module.computations)
    return with_computations(module, found)


def _with_dead(computation: Computation, work: bool) -> Computation:
    stem = f"dead_of_{computation.name}"
    constant = Instruction(stem, _SCALAR, "constant", immediate=Literal("1"))
    added = (Instruction(f"{stem}.1", _SCALAR, "add", (stem, stem)),) if work else ()
    # Not the last: of a computation without a ROOT that would be its result.
    return structs.replace(computation, instructions=(constant, *added, *computation.instructions))


def with_swaps(module: Module, *, quiet: bool = True) -> tuple[Module, int]:
    """Return a scheduled module in which independent neighbours have changed places, and how many pairs did.

    Neither has effects, starts or awaits anything, or writes over what the other reads; where it shall be ``quiet``,
    nothing runs beside the core where they stand.
    """
    chosen = set(module.by_name) - applied(module) - (_called_under_way(module) if quiet else set())
    swapped = [_swapped(module, one, quiet) if one.name in chosen else (one, 0) for one in module.computations]
    return with_computations(module, [one for one, _ in swapped]), sum(count for _, count in swapped)


def _called_under_way(module: Module) -> set[str]:
    """Return the computations that are called, or may be, while something runs beside the core."""
    return module.called_from(i for one in module.computations for i, busy in _with_busy(one) if busy)


def _with_busy(computation: Computation) -> Iterator[tuple[Instruction, bool]]:
    """Yield each instruction with whether something may run beside the core when it does."""
    begins, ends = (sum(kind(i) for i in computation) for kind in (_begins, _ends))
    under_way = 0
    for instruction in computation:
        under_way -= _ends(instruction)
        yield instruction, begins != ends or _begins(instruction) or under_way > 0
        under_way += _begins(instruction)


def _begins(instruction: Instruction) -> bool:
    return instruction.opcode in TRANSFERS or instruction.opcode.endswith("-start")


def _ends(instruction: Instruction) -> bool:
    return instruction.opcode.endswith("-done")


def _swapped(module: Module, computation: Computation, quiet: bool) -> tuple[Computation, int]:
    order, count, place = list(_with_busy(computation)), 0, 0
    while place + 1 < len(order):
        (one, busy), (other, also_busy) = order[place : place + 2]
        if not (quiet and (busy or also_busy)) and _are_independent(module, computation, one, other):
            order[place : place + 2] = [order[place + 1], order[place]]
            count += 1
            place += 1
        place += 1
    return structs.replace(computation, instructions=tuple(i for i, _ in order)), count


def _are_independent(module: Module, computation: Computation, one: Instruction, other: Instruction) -> bool:
    """Return whether two neighbours of a schedule may change places."""
    pair = (one, other)
    if any(i.opcode in HAS_EFFECTS | WRITTEN_OUT | (CALLS - {"fusion"}) or async_phase(i.opcode) for i in pair):
        return False
    if any(i.opcode in COPIES - {"copy"} for i in pair):
        return False
    if one.name in other.operands or one.name in other.attributes.get("control-predecessors", ()):
        return False
    reads = [_sources(computation, i) for i in pair]
    writes = [_overwritten(module, computation, i) for i in pair]
    return not (writes[0] & reads[1] or writes[1] & reads[0])


def _sources(computation: Computation, instruction: Instruction) -> set[str]:
    return {behind_views(computation, operand).name for operand in computation.operands_of(instruction)}


def _overwritten(module: Module, computation: Computation, instruction: Instruction) -> set[str]:
    places: Sequence[int] = [
        *in_place_operands(module, instruction).values(),
        *(operand for operand, _ in stated_operands(computation, instruction).values()),
    ]
    return {behind_views(computation, computation[instruction.operands[place]]).name for place in places}
