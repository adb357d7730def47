"""A kernel as one straight line of values: fusions inside it are opened, and operands are numbers, not names."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from functools import cached_property, partial

import msgspec
from msgspec import structs

from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import VIEWS
from tpusim.nesting import walk_nested

_NAMES = VIEWS | {"parameter"}


class Inner(msgspec.Struct, frozen=True, gc=False):
    """An instruction inside a kernel, and the computation it stands in.

    ``operands`` are positions in the kernel's list of values; a negative one, ``-1 - n``, is operand ``n`` of the
    kernel itself. For a parameter stands what is passed for it; only one that the kernel returns is a value, of what is
    passed. ``in_place`` marks a copy whose fusion is stated to lie where its operand does: it gives the operand another
    layout in name only.
    """

    computation: Computation
    instruction: Instruction
    operands: tuple[int, ...] = ()
    in_place: bool = False

    @property
    def is_view(self) -> bool:
        """Whether this is its operand under another name."""
        return self.in_place or self.instruction.opcode in _NAMES


class Body(msgspec.Struct, frozen=True, dict=True):
    """What a kernel runs: ``values``, each after those it is made of, and the position of the one that it returns.

    ``operands`` are the instructions outside that make what it takes.
    """

    values: tuple[Inner, ...]
    root: int
    operands: tuple[Instruction, ...]

    @cached_property
    def opcodes(self) -> frozenset[str]:
        """The opcodes of its values."""
        return frozenset([item.instruction.opcode for item in self.values])


def inline(module: Module, computation: Computation, instruction: Instruction) -> Body:
    """Return what a kernel runs: the instructions of a fusion, fusions in it opened, else the one itself."""
    item = Inner(computation, instruction, tuple(range(-1, -1 - len(instruction.operands), -1)))
    operands = computation.operands_of(instruction)
    if instruction.opcode != "fusion":
        return Body((item,), 0, operands)
    found: list[Inner] = []
    root = walk_nested(partial(_open, module, found), item)
    if root < 0:
        # It returns an operand: of that alone the parameter is a value, so that there is one to return.
        called = module[instruction.attributes["calls"]]
        found.append(Inner(called, called.parameters[-1 - root], (root,)))
        root = len(found) - 1
    return Body(tuple(found), root, operands)


def _open(module: Module, found: list[Inner], fusion: Inner) -> Generator[Inner, int, int]:
    """Append what a fusion runs to ``found``; return where its value is."""
    called = module[fusion.instruction.attributes["calls"]]
    at: dict[str, int] = {}
    place = at.__getitem__
    for inner in called.instructions:
        if inner.opcode == "parameter":
            at[inner.name] = fusion.operands[inner.immediate]  # type: ignore[index]
            continue
        item = Inner(called, inner, tuple(map(place, inner.operands)))
        if inner.opcode == "fusion":
            at[inner.name] = yield item
        else:
            at[inner.name] = len(found)
            found.append(item)
    root = at[called.root_name]
    if called.root.opcode == "copy" and fusion.instruction.attributes.get("output_to_operand_aliasing"):
        found[root] = structs.replace(found[root], in_place=True)
    return root


def behind_views(values: Sequence[Inner], at: int) -> int:
    """Return the position of what the value at a position is a view of, which may be an operand of the kernel."""
    while at >= 0 and values[at].is_view:
        at = values[at].operands[0]
    return at


def sources_of(body: Body) -> list[int]:
    """Return ``behind_views`` of every position; at negative ones, as lists count them, stand the kernel's operands."""
    found = [*range(len(body.values)), *range(-len(body.operands), 0)]
    for at, item in enumerate(body.values):
        # As ``is_view`` says, without a call for each of thousands of values.
        if item.in_place or item.instruction.opcode in _NAMES:
            found[at] = found[item.operands[0]]
    return found


def made_from(made_of: Sequence[Sequence[int]], starts: Iterable[int]) -> set[int]:
    """Return the positions of ``starts`` and of all that they are made of, operands of the kernel included.

    ``made_of`` are the operands of each value, as in ``Inner``.
    """
    found = set(starts)
    # One pass backwards, since every value stands after those it is made of.
    for at in range(max(found, default=-1), -1, -1):
        if at in found:
            found.update(made_of[at])
    return found
