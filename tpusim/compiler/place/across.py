"""The argument that is in fast memory when the program begins: of many runs the one before fetches it.

Source: XLA, memory space assignment: one prefetch across programs, which finds room before all else. Of 724 programs
compiled ahead of time (v3 to v7x), 693 fetch just the one that the rule here names, or none where it names none; 25
fetch another one that is as large.
"""

from __future__ import annotations

from tpusim.compiler.place.lives import Lives
from tpusim.compiler.place.room import Stretch
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Node
from tpusim.ir.ops import IN_PLACE, INDEXED, PRODUCTS, SAME_NUMBERS
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import ArrayShape


def argument_across_programs(draft: Draft, target: Target, lives: Lives) -> tuple[Node, Stretch] | None:
    """Return the argument that is fetched across programs, and the room that it takes until it is read no more.

    It is the largest of those that products multiply whole, or of which gathers and slices take parts: what kernels
    pass through element by element comes in block by block as well.
    """
    if not target.across_programs:
        return None
    given_away = {alias.parameter for alias in draft.attributes.get("input_output_alias", ())}
    found = []
    for parameter in draft.entry.parameters:
        if not isinstance(parameter.shape, ArrayShape) or parameter.shape.memory_space:
            continue
        if parameter.is_small or parameter.immediate in given_away:
            continue
        size, users = physical_bytes(parameter.shape), parameter.users
        if users and size <= target.fast_bytes and all(_profits(draft, user, parameter) for user in users):
            last = max(lives.positions[user.name] for user in users)
            found.append((size, last, parameter))
    if not found:
        return None
    # The first of those that are as large and read no more from the same kernel on.
    size, last, parameter = min(found, key=lambda one: (-one[0], one[1]))
    return parameter, (lives.positions[parameter.name], last, size)


def _profits(draft: Draft, user: Node, argument: Node) -> bool:
    """Return whether a node, or what it fuses, takes an argument only where all of it is to be at hand."""
    if user.opcode in PRODUCTS:
        # Products channel by channel are the vector unit's.
        return bool(user.attributes.get("feature_group_count", 1) == 1)
    if user.opcode in INDEXED - IN_PLACE:
        return user.operands[0] is argument and argument not in user.operands[1:]
    if user.opcode != "fusion":
        return False
    inner = draft.graphs[user.attributes["calls"]]
    todo = [own for own, operand in zip(inner.parameters, user.operands, strict=True) if operand is argument]
    while todo:
        node = todo.pop()
        if node is inner.root:
            return False
        for taker in node.users:
            if taker.opcode in SAME_NUMBERS:
                todo.append(taker)
            elif taker.opcode == "dynamic-slice" or not _profits(draft, taker, node):
                return False
    return True
