"""Arguments whose memory results could take over."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from msgspec import structs

from tpusim.advice.trials import SHOWN, Case, Trial, advises, are_made_of
from tpusim.errors import TpusimError
from tpusim.hardware.units import HBM
from tpusim.ir.attributes import ParameterAlias
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import COPIES, ELEMENTWISE, VIEWS, async_parts
from tpusim.pipeline.stages import memory
from tpusim.program.edit import with_steps
from tpusim.program.module import Program
from tpusim.program.steps import AnyStep, Kernel, Steps
from tpusim.semantics.aliasing import behind_views, in_place_operands, joins_operands
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape

_IN_STEP: Final = ELEMENTWISE | VIEWS | {"tuple"}


class _Pair(NamedTuple):
    """A result that could lie in an argument, and the way that this takes to it: every instruction, and its copies."""

    alias: ParameterAlias
    name: str
    way: frozenset[str]
    copies: frozenset[str]


@advises("donation")
def donation(case: Case) -> Iterator[Trial]:
    """Propose to donate arguments of the shape of results, where the peak of HBM or the time is then lower.

    What is updated in place lies where the argument does, and is neither copied before nor behind. What tpusim has
    compiled it compiles once more: an array that is donated stays in HBM, so that a run may take longer.
    """
    module = case.module
    if module is None or not module.is_scheduled:
        return
    pairs = _pairs(module)
    if not pairs:
        return
    try:
        after = memory(_donated(module, pairs), case.chip, topology=case.topology).use.peak_hbm_bytes
    except TpusimError:
        return
    copied = sorted((pair for pair in pairs if pair.copies), key=lambda pair: pair.name)
    saved = case.peak_hbm_bytes - after
    if saved > 0 or copied:
        names = [pair.name for pair in (*copied, *(pair for pair in pairs if not pair.copies))]
        at = f"; to update them {len(copied)} of these are copied" if copied else ""
        yield Trial(
            what=f"{len(pairs)} results have the shape of arguments that are not donated{at}",
            change=f"donate them: jax.jit(..., donate_argnums=...) of {', '.join(names[:SHOWN])}",
            ops=tuple(names[:SHOWN]),
            source=_source(case.program, copied),
            alternative=_alternative(case, pairs, copied),
            saved_bytes=max(0, saved),
        )


def _alternative(case: Case, pairs: Sequence[_Pair], copied: list[_Pair]) -> Program | Module | None:
    """Return the program with its arguments donated; None where only its memory is known then."""
    if case.result.schedule == "compiled" and case.front_end is not None:
        return _donated(case.front_end, pairs)
    return _in_place(case.program, copied) if copied else None


def _donated(module: Module, pairs: Sequence[_Pair]) -> Module:
    """Return a module of which results lie in arguments, beside those that do already."""
    aliases = (*module.attributes.get("input_output_alias", ()), *(pair.alias for pair in pairs))
    return structs.replace(module, attributes=module.attributes | {"input_output_alias": aliases})


def copies_to_donate(module: Module) -> frozenset[str]:
    """Return the names of copies that are not made if arguments of the shape of results are donated."""
    return frozenset().union(*(pair.copies for pair in _pairs(module))) if module.is_scheduled else frozenset()


def _source(program: Program, pairs: list[_Pair]) -> str:
    """Return the line of the first kernel on the way of a result, of the first that has one."""
    lines = {s.name: (place, s.source) for place, s in enumerate(program.steps) if isinstance(s, Kernel) and s.source}
    ways = ([lines[name] for name in pair.way if name in lines] for pair in pairs)
    return next((min(way)[1] for way in ways if way), "")


def _in_place(program: Program, pairs: list[_Pair]) -> Program:
    """Return a program that updates arguments where they lie."""
    copies = frozenset().union(*(pair.copies for pair in pairs))
    arguments = {name: pair.name for pair in pairs for name in pair.way}
    return with_steps(program, partial(_without, copies=copies, arguments=arguments))


def _without(steps: Steps, copies: frozenset[str], arguments: Mapping[str, str]) -> Steps:
    """Return steps without some copies; what worked on a copy works on the argument, in HBM."""

    def of(step: AnyStep) -> AnyStep:
        needs = tuple(need for need in step.needs if need not in copies)
        if not isinstance(step, Kernel):
            return structs.replace(step, needs=needs)
        streams = tuple(structs.replace(s, space=HBM) if s.operand in arguments else s for s in step.streams)
        return structs.replace(step, needs=needs, streams=streams)

    return tuple(of(step) for step in steps if step.name not in copies)


def _pairs(module: Module) -> list[_Pair]:
    """Return which results could lie in which arguments, the largest first; each is taken once."""
    known = module.attributes.get("input_output_alias", ())
    results, given = {alias.output_index for alias in known}, {alias.parameter for alias in known}
    root = module.entry.root
    is_tuple = isinstance(root.shape, TupleShape) and root.opcode == "tuple"
    parts = [((n,), one) for n, one in enumerate(module.entry.operands_of(root))] if is_tuple else [((), root)]
    # Of thousands taken from its front a plain dictionary is gone through again and again.
    free: dict[Shape, OrderedDict[str, int]] = defaultdict(OrderedDict)
    for place, parameter in enumerate(module.entry.parameters):
        if parameter.immediate not in given:
            free[parameter.shape][parameter.name] = place
    places = {instruction.name: place for place, instruction in enumerate(module.entry.instructions)}
    found = []
    for index, part in sorted(parts, key=lambda item: -_size(item[1])):
        fits = free[part.shape]
        if index in results or not fits or not _size(part):
            continue
        way = _way(module, part)
        # What is made of an argument by updating it is the one that it can be.
        name = min(fits.keys() & way, key=fits.__getitem__, default=next(iter(fits)))
        del fits[name]
        if name in way or _may_be_written(module, name, part, places):
            found.append((index, name, way if name in way else frozenset[str]()))
    return [_pair(module.entry, *one) for one in _updated(module.entry, found)]


def _may_be_written(module: Module, name: str, result: Instruction, places: Mapping[str, int]) -> bool:
    """Return whether nothing reads an argument any more while a result is written, but for the elements at hand."""
    entry = module.entry
    maker = behind_views(entry, result)
    waiting = [name]
    while waiting:
        read = waiting.pop()
        for user, _ in entry.users.get(read, ()):
            if user.opcode in VIEWS:
                waiting.append(user.name)
            elif places[user.name] > places[maker.name] or (user is maker and not _is_in_step(module, user, read)):
                return False
    return True


def _is_in_step(module: Module, user: Instruction, operand: str) -> bool:
    """Return whether an instruction reads, of an operand, for each element of its result no other than that one."""
    if user.opcode != "fusion":
        return user.opcode in ELEMENTWISE
    # Fusions nest as deep as they like.
    waiting, seen = _inside(module, user, operand), set[tuple[str, str]]()
    while waiting:
        computation, name = waiting.pop()
        if (computation.name, name) in seen:
            continue
        seen.add((computation.name, name))
        for inner, _ in computation.users.get(name, ()):
            if inner.opcode == "fusion":
                waiting += _inside(module, inner, name)
            elif inner.opcode not in _IN_STEP:
                return False
            waiting.append((computation, inner.name))
    return True


def _inside(module: Module, fusion: Instruction, operand: str) -> list[tuple[Computation, str]]:
    """Return what an operand is called within a fusion, each name with the computation that has it."""
    called = module[fusion.attributes["calls"]]
    return [(called, called.parameters[at].name) for at, name in enumerate(fusion.operands) if name == operand]


_Found = tuple[tuple[int, ...], str, frozenset[str]]
"""A result's index, the argument that it could lie in, and the way between them, if there is one."""


def _updated(entry: Computation, found: list[_Found]) -> Iterator[_Found]:
    """Yield results with their way, but for those whose argument is read by what waits for its update.

    It then has to stay as it was.
    """
    readers = [{user.name for user, _ in entry.users.get(name, ())} - way if way else () for _, name, way in found]
    read_after = are_made_of(entry, [(users, one[2] - {one[1]}) for users, one in zip(readers, found, strict=True)])
    for (index, name, way), is_read in zip(found, read_after, strict=True):
        yield index, name, frozenset() if is_read else way


def _pair(entry: Computation, index: tuple[int, ...], name: str, way: frozenset[str]) -> _Pair:
    number = entry[name].immediate
    assert isinstance(number, int)
    copies = frozenset(one for one in way if _is_copy(entry[one]))
    return _Pair(ParameterAlias(index, number), name, way, copies)


def _way(module: Module, result: Instruction) -> frozenset[str]:
    """Return the instructions from a result back through copies, views, joins and updates in place."""
    way, open_ = set[str](), [result]
    while open_:
        here = open_.pop()
        way.add(here.name)
        behind = module.entry.operands_of(here)
        if _is_copy(here):
            open_ += behind if joins_operands(here) else behind[:1]
        elif here.opcode in VIEWS:
            open_ += behind[:1]
        elif (operand := in_place_operands(module, here).get(0)) is not None:
            open_.append(behind[operand])
    return frozenset(way)


def _is_copy(instruction: Instruction) -> bool:
    """Return whether an instruction copies an array, or brings or joins parts of it."""
    # An array may be brought in as slices that lie side by side.
    is_part = (async_parts(instruction.opcode) or ("", ""))[0] == "slice"
    return instruction.opcode in COPIES or is_part or joins_operands(instruction)


def _size(instruction: Instruction) -> int:
    return physical_bytes(instruction.shape) if isinstance(instruction.shape, ArrayShape) else 0
