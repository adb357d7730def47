"""Opens calls of element-wise computations, so that a chain goes on through them: JAX calls its ``relu`` and the like.

The instructions of what is called take the place of the call; its root takes the call's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import finalize

from msgspec import structs

from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import REARRANGES, WRITTEN_OUT
from tpusim.numerics.chains import is_chained
from tpusim.shapes.shape import ArrayShape

_MOST_OPENED = 24
"""Instructions of a computation that is opened: no more than one chain has, so that calls do not multiply."""

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
    taken = {instruction.name for instruction in computation}
    found = []
    # A text's places go along: errors show them.
    places = computation.offsets or (None,) * len(computation.instructions)
    for instruction, place in zip(computation.instructions, places, strict=True):
        called = module[instruction.called_computations[0]] if instruction.opcode == "call" else None
        if called is None or not _is_elementwise(called):
            found.append((instruction, place))
        else:
            found += [(inner, place) for inner in _body(instruction, called, taken)]
    offsets = tuple(place for _, place in found if place is not None)
    return structs.replace(computation, instructions=tuple(instruction for instruction, _ in found), offsets=offsets)


def _is_elementwise(called: Computation) -> bool:
    """Return whether a computation ends in element-wise arithmetic on floats, and does little else."""
    if len(called.instructions) > _MOST_OPENED or not is_chained(called, called.root):
        return False
    return all(is_chained(called, one) or _is_beside(one) for one in called)


def _is_beside(instruction: Instruction) -> bool:
    """Return whether an instruction gives a chain its operands: a parameter, a constant, elements of these."""
    is_array = isinstance(instruction.shape, ArrayShape)
    return is_array and (instruction.opcode in WRITTEN_OUT or instruction.opcode in REARRANGES)


def _body(call: Instruction, called: Computation, taken: set[str]) -> Iterator[Instruction]:
    """Yield what a call does, under names that are not ``taken``, which grows."""
    names: dict[str, str] = {}
    for inner in called:
        if inner.opcode == "parameter":
            names[inner.name] = call.operands[inner.immediate]  # type: ignore[index]
            continue
        name = call.name if inner.name == called.root_name else inner.name
        while name in taken and name != call.name:
            name += f".{call.name}"
        taken.add(name)
        names[inner.name] = name
        yield structs.replace(inner, name=name, operands=tuple(names[operand] for operand in inner.operands))
