"""Opens calls of element-wise computations, so that a chain goes on through them: JAX calls its ``relu`` and the like.

The instructions of what is called take the place of the call; its root takes the call's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from weakref import finalize

from msgspec import structs

from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import REARRANGES, WRITTEN_OUT
from tpusim.numerics.chains import is_chained
from tpusim.shapes.shape import ArrayShape

_MOST_OPENED = 8
"""Instructions of a computation that is opened, parameters and constants among them: longer ones are chains worth a
call, and opening them at each of many calls would multiply the instructions."""

_OPENED: dict[tuple[int, int], tuple[Computation, Computation]] = {}


def with_calls_opened(module: Module, computation: Computation) -> Computation:
    """Return a computation in which calls of element-wise computations are what these do; others stay calls."""
    if "call" not in computation.opcodes:
        return computation
    key = (id(module), id(computation))
    if key not in _OPENED:
        # With the one that it was made of, whose number would else be free for another.
        _OPENED[key] = computation, _opened(module, computation)
        finalize(module, _OPENED.pop, key)
    return _OPENED[key][1]


def _opened(module: Module, computation: Computation) -> Computation:
    called = {one.name: module[names[0]] for one, names in computation.calls if one.opcode == "call"}
    bodies = {name: body for name, body in called.items() if _is_elementwise(body)}
    if not bodies:
        return computation
    taken = set(computation.by_name)
    found: list[tuple[Instruction, int | None]] = []
    for instruction, place in _placed(computation):
        body = bodies.get(instruction.name)
        found += [(instruction, place)] if body is None else _body(instruction, body, taken)
    instructions, places = zip(*found, strict=True)
    return structs.replace(computation, instructions=instructions, offsets=() if None in places else places)


def _placed(computation: Computation) -> Iterator[tuple[Instruction, int | None]]:
    """Yield instructions with their places in the text, which errors show, if there is one."""
    return zip(computation.instructions, computation.offsets or repeat(None), strict=False)


def _is_elementwise(called: Computation) -> bool:
    """Return whether a computation ends in element-wise arithmetic on floats, and does little else."""
    if len(called.instructions) > _MOST_OPENED or not is_chained(called, called.root):
        return False
    return all(is_chained(called, one) or _is_beside(one) for one in called)


def _is_beside(instruction: Instruction) -> bool:
    """Return whether an instruction gives a chain its operands: a parameter, a constant, elements of these."""
    is_array = isinstance(instruction.shape, ArrayShape)
    return is_array and (instruction.opcode in WRITTEN_OUT or instruction.opcode in REARRANGES)


def _body(call: Instruction, called: Computation, taken: set[str]) -> Iterator[tuple[Instruction, int | None]]:
    """Yield what a call does with the places of that, under names that are not ``taken``, which grows."""
    names: dict[str, str] = {}
    for inner, place in _placed(called):
        if inner.opcode == "parameter":
            names[inner.name] = call.operands[inner.immediate]  # type: ignore[index]
            continue
        name = call.name if inner.name == called.root_name else inner.name
        while name in taken and inner.name != called.root_name:
            name += f".{call.name}"
        taken.add(name)
        names[inner.name] = name
        made = structs.replace(inner, name=name, operands=tuple(names[operand] for operand in inner.operands))
        yield made, place
