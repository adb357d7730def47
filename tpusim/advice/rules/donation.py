"""Arguments whose memory results could take over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from msgspec import structs

from tpusim.advice.trials import SHOWN, Case, Trial, advises, made_of
from tpusim.errors import TpusimError
from tpusim.hardware.units import HBM
from tpusim.ir.attributes import ParameterAlias
from tpusim.ir.module import Instruction, Module
from tpusim.ir.ops import COPIES, VIEWS, async_parts
from tpusim.pipeline.stages import memory
from tpusim.program.edit import with_steps
from tpusim.program.module import Program
from tpusim.program.steps import AnyStep, Kernel, Steps
from tpusim.semantics.aliasing import in_place_operands, joins_operands
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import ArrayShape, TupleShape


class _Pair(NamedTuple):
    """A result that could lie in an argument, and the way that this takes to it: every instruction, and its copies."""

    alias: ParameterAlias
    name: str
    way: frozenset[str]
    copies: frozenset[str]


@advises("donation")
def donation(case: Case) -> Iterator[Trial]:
    """Propose to donate arguments of the shape of results, where the peak of HBM or the time is then lower.

    What is updated in place lies where the argument does, and is neither copied before nor behind.
    """
    module = case.module
    if module is None or not module.is_scheduled:
        return
    pairs = _pairs(module)
    if not pairs:
        return
    aliases = (*module.attributes.get("input_output_alias", ()), *(pair.alias for pair in pairs))
    donated = structs.replace(module, attributes=module.attributes | {"input_output_alias": aliases})
    try:
        after = memory(donated, case.chip, topology=case.topology).use.peak_hbm_bytes
    except TpusimError:
        return
    copied = sorted((pair for pair in pairs if pair.copies), key=lambda pair: pair.name)
    saved = case.peak_hbm_bytes - after
    if saved > 0 or copied:
        names = [pair.name for pair in (copied or pairs)]
        updates = [step for step in case.program.steps if isinstance(step, Kernel) and step.source]
        at = f"; to update them {len(copied)} of these are copied" if copied else ""
        yield Trial(
            what=f"{len(pairs)} results have the shape of arguments that are not donated{at}",
            change=f"donate them: jax.jit(..., donate_argnums=...) of {', '.join(names[:SHOWN])}",
            ops=tuple(names[:SHOWN]),
            source=next((step.source for pair in copied for step in updates if step.name in pair.way), ""),
            alternative=_in_place(case.program, copied) if copied else None,
            saved_bytes=max(0, saved),
        )


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
    found = []
    for index, part in sorted(parts, key=lambda item: -_size(item[1])):
        fits = [p for p in module.entry.parameters if p.shape == part.shape and p.immediate not in given]
        if index in results or not fits or not _size(part):
            continue
        way = _way(module, part)
        # What is made of an argument by updating it is the one that it can be.
        parameter = next((p for p in fits if p.name in way), fits[0])
        assert isinstance(parameter.immediate, int)
        given.add(parameter.immediate)
        on_way = frozenset(way) if parameter.name in way and not _is_read_after(module, parameter, way) else frozenset()
        copies = frozenset(name for name in on_way if _is_copy(module.entry[name]))
        found.append(_Pair(ParameterAlias(index, parameter.immediate), parameter.name, on_way, copies))
    return found


def _is_read_after(module: Module, parameter: Instruction, way: list[str]) -> bool:
    """Return whether something reads an argument that waits for its update: it then has to stay as it was."""
    behind = made_of(module.entry, set(way) - {parameter.name}) - set(way)
    return any(user.name in behind for user, _ in module.entry.users.get(parameter.name, ()))


def _way(module: Module, result: Instruction) -> list[str]:
    """Return the instructions from a result back through copies, views, joins and updates in place."""
    way, open_ = dict[str, None](), [result]
    while open_:
        here = open_.pop()
        way[here.name] = None
        behind = module.entry.operands_of(here)
        if _is_copy(here):
            open_ += behind if joins_operands(here) else behind[:1]
        elif here.opcode in VIEWS:
            open_ += behind[:1]
        elif (operand := in_place_operands(module, here).get(0)) is not None:
            open_.append(behind[operand])
    return list(way)


def _is_copy(instruction: Instruction) -> bool:
    """Return whether an instruction copies an array, or brings or joins parts of it."""
    # An array may be brought in as slices that lie side by side.
    is_part = (async_parts(instruction.opcode) or ("", ""))[0] == "slice"
    return instruction.opcode in COPIES or is_part or joins_operands(instruction)


def _size(instruction: Instruction) -> int:
    return physical_bytes(instruction.shape) if isinstance(instruction.shape, ArrayShape) else 0
