"""What order a comparator states: read from its instructions, so that sorting can go by keys.

Most comparators say "key of the left element < key of the right one", where both keys are the same expression, or
chain several of these for ties. JAX's canonicalise floats and compare in total order; the TPU compiler's turn floats
into integers and break ties by position. All of these are found here; any other comparator is called as it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tpusim.ir.module import Computation, Instruction
from tpusim.ir.ops import COMMON_ATTRIBUTES

# LE and GE are no strict orders; where elements are alike XLA leaves the result open.
_ASCENDING = {"LT": True, "LE": True, "GT": False, "GE": False}

_MOST_COMPARED = 2**12
"""Pairs of instructions; those of expressions that share their parts crosswise would be quadratically many."""


class Key(NamedTuple):
    """One key of an order: the instruction that computes it from the left elements, its direction, and how it compares.

    ``is_total`` means that floats compare by their bits.
    """

    name: str
    is_ascending: bool
    is_total: bool


Orders = Mapping[str, "list[Key] | None"]
"""By the names of instructions the keys that they order by; None of one that does not."""


def order_of(computation: Computation) -> list[Key] | None:
    """Return the keys by which a comparator orders elements, the first one counting most; None if it is another one."""
    orders: dict[str, list[Key] | None] = {}
    # Operands first: an expression may share its parts, or nest deeper than Python recurses.
    for instruction in computation.instructions:
        if instruction.opcode in _FORMS:
            orders[instruction.name] = _FORMS[instruction.opcode](computation, instruction, orders)
    return orders.get(computation.root_name)


def _single_key(computation: Computation, root: Instruction, _orders: Orders) -> list[Key] | None:
    """Return the key of ``key(left) < key(right)``, or of any of its mirror images."""
    direction = root.attributes["direction"]
    if direction not in _ASCENDING:
        return None
    first, second = computation.operands_of(root)
    is_total = root.attributes.get("type") == "TOTALORDER"
    if _corresponds(computation, first, second, (0, 1)):
        return [Key(first.name, _ASCENDING[direction], is_total)]
    if _corresponds(computation, first, second, (1, 0)):
        return [Key(second.name, not _ASCENDING[direction], is_total)]
    return None


def _order_with_ties(computation: Computation, root: Instruction, orders: Orders) -> list[Key] | None:
    """Return the keys of ``before(a, b) == before(b, a) ? tie : before(a, b)``."""
    test, tie, before = computation.operands_of(root)
    if test.opcode != "compare" or test.attributes["direction"] != "EQ":
        return None
    order, rest = orders.get(before.name), orders.get(tie.name)
    if order is None or rest is None:
        return None
    # The test may compare the two directions either way round.
    opposite = [key._replace(is_ascending=not key.is_ascending) for key in order]
    tested = [orders.get(name) for name in test.operands]
    return _joined(order, rest) if tested in ([order, opposite], [opposite, order]) else None


def _lexicographic(computation: Computation, root: Instruction, orders: Orders) -> list[Key] | None:
    """Return the keys of ``x(a) < x(b) or (x(a) == x(b) and tie)``, in any order of the operands."""
    for before, both in _either_way(computation, root):
        # Only a single key can be compared for equality by one instruction.
        order = orders.get(before.name)
        if order is None or len(order) != 1 or both.opcode != "and":
            continue
        for same, tie in _either_way(computation, both):
            rest = orders.get(tie.name)
            if rest is not None and _is_tie_of(computation, same, order[0]):
                return _joined(order, rest)
    return None


_FORMS: dict[str, Callable[[Computation, Instruction, Orders], list[Key] | None]] = {
    "compare": _single_key,
    "select": _order_with_ties,
    "or": _lexicographic,
}


def _joined(order: list[Key], rest: list[Key]) -> list[Key]:
    """Return the keys of both, without what was compared before: there elements are alike."""
    compared = {(key.name, key.is_total) for key in order}
    return order + [key for key in rest if (key.name, key.is_total) not in compared]


def _either_way(computation: Computation, root: Instruction) -> tuple[tuple[Instruction, Instruction], ...]:
    """Return the two operands of a commutative instruction in both orders."""
    first, second = computation.operands_of(root)
    return (first, second), (second, first)


def _is_tie_of(computation: Computation, same: Instruction, key: Key) -> bool:
    """Return whether an expression says that both elements have the same key."""
    if same.opcode != "compare" or same.attributes["direction"] != "EQ":
        return False
    if key.is_total != (same.attributes.get("type") == "TOTALORDER"):
        return False
    wanted = computation[key.name]
    return any(
        _corresponds(computation, one, wanted, (0, 0)) and _corresponds(computation, one, two, (0, 1))
        for one, two in _either_way(computation, same)
    )


def _corresponds(computation: Computation, first: Instruction, second: Instruction, sides: tuple[int, int]) -> bool:
    """Return whether two expressions differ only in which element of every pair they take: ``sides``, 0 for left.

    Expressions of more parts than anybody writes are taken to differ.
    """
    compared: dict[tuple[str, str], None] = {}
    waiting = [(first, second)]
    while waiting:
        one, other = waiting.pop()
        if (one.name, other.name) in compared:
            continue
        compared[one.name, other.name] = None
        if len(compared) > _MOST_COMPARED or not _are_alike(computation, one, other, sides):
            return False
        waiting += zip(computation.operands_of(one), computation.operands_of(other), strict=True)
    return True


def _are_alike(computation: Computation, first: Instruction, second: Instruction, sides: tuple[int, int]) -> bool:
    """Return whether two instructions do the same, whatever with."""
    # Parameters 2k and 2k + 1 are the left and the right element of operand k.
    if first.opcode == second.opcode == "parameter":
        numbers = (first.immediate, second.immediate)
        return any(numbers == (pair + sides[0], pair + sides[1]) for pair in range(0, len(computation.parameters), 2))
    if (first.opcode, first.immediate, first.shape) != (second.opcode, second.immediate, second.shape):
        return False
    return len(first.operands) == len(second.operands) and _meaning(first) == _meaning(second)


def _meaning(instruction: Instruction) -> dict[str, object]:
    """Return the attributes that an instruction's value depends on."""
    # Two instructions that compute the same may come from different lines of a user's program.
    return {name: value for name, value in instruction.attributes.items() if name not in COMMON_ATTRIBUTES}
