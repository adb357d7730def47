"""The argument that is in fast memory when the program begins: of many runs the one before fetches it.

Source: XLA, memory space assignment: one prefetch across programs, which finds room before all else. Of 724 programs
compiled ahead of time (v3 to v7x), 693 fetch just the one that the rule here names, or none where it names none; 25
fetch another one that is as large, and 6 one where it names none or the other way round.
"""

from __future__ import annotations

from typing import NamedTuple

from tpusim.compiler.fuse.moved import turns_rows
from tpusim.compiler.place.lives import Lives
from tpusim.compiler.place.room import Room, Stretch
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Node
from tpusim.ir.ops import IN_PLACE, INDEXED, PRODUCTS, SAME_NUMBERS
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import ArrayShape


class Fetched(NamedTuple):
    """An argument that is fetched across programs, and the room that it takes until it is read no more."""

    argument: Node
    room: Stretch


def argument_across_programs(draft: Draft, target: Target, lives: Lives) -> Fetched | None:
    """Return the largest argument for which there is room of those that kernels take whole.

    Products do, and gathers and dynamic slices of their own of what they take parts of; what kernels pass through
    element by element comes in block by block as well. Of those that are as large it is the first that is read no more.
    """
    if not target.across_programs:
        return None
    aliases = (*draft.attributes.get("input_output_alias", ()), *draft.attributes.get("buffer_donor", ()))
    given_away = {one.parameter for one in aliases}
    found = []
    for parameter in draft.entry.parameters:
        users = parameter.users
        is_array = isinstance(parameter.shape, ArrayShape) and not parameter.is_small
        if not is_array or not users or parameter.immediate in given_away:
            continue
        # Two cores have a hand-written kernel for products of rows in groups, which fetches for itself.
        if target.cores > 1 and any(user.opcode == "ragged-dot" for user in users):
            continue
        if all(_takes_whole(draft, user, parameter) for user in users):
            last = max(lives.positions[user.name] for user in users)
            stretch = lives.positions[parameter.name], last, physical_bytes(parameter.shape)
            found.append(Fetched(parameter, stretch))
    room = Room(lives.length, target.fast_bytes)
    room.hold(lives.held)
    best = sorted(found, key=lambda one: (-one.room[2], one.room[1]))
    return next((one for one in best if room.take([one.room])), None)


def _takes_whole(draft: Draft, user: Node, argument: Node) -> bool:
    """Return whether a node, or what it fuses, takes an argument only where all of it is to be at hand."""
    if user.opcode != "fusion":
        return _needs_all(user, argument)
    todo = [(user, argument)]
    while todo:
        taker, taken = todo.pop()
        arrays = [taker]
        if taker.opcode == "fusion":
            parameters = draft.graphs[taker.attributes["calls"]].parameters
            arrays = [own for own, operand in zip(parameters, taker.operands, strict=True) if operand is taken]
        elif taker.opcode not in SAME_NUMBERS:
            # A layer that a kernel cuts out of a stack comes in alone.
            if taker.opcode == "dynamic-slice" or not _needs_all(taker, taken):
                return False
            continue
        if any(array is array.graph.root or not array.users for array in arrays):
            return False
        todo += [(other, array) for array in arrays for other in array.users]
    return True


def _needs_all(user: Node, argument: Node) -> bool:
    """Return whether a node that is no kernel of several takes an argument as a whole."""
    if user.opcode == "ragged-dot":
        # Rows are those of one group after the other, and come in with them.
        return user.operands[1] is argument and user.operands[0] is not argument
    if user.opcode in PRODUCTS:
        # Products channel by channel are the vector unit's, and what a product turns comes in as it turns it.
        return bool(user.attributes.get("feature_group_count", 1) == 1) and not turns_rows(user, argument)
    return user.opcode in INDEXED - IN_PLACE and user.operands[0] is argument and argument not in user.operands[1:]
