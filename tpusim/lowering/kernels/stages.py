"""What a tile has to do one after another, and so cannot overlap.

The units of a core work at the same time (VLIW), on what is there: a product that takes in what another product makes
begins when that has come out of the arrays, and what goes once more through a block that a reduction has gone through
(the exponentials of a softmax, behind the maxima of their rows) begins when the reduction is complete. All else is
done beside the product that it is made for, or that it comes from.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tpusim.ir.ops import REDUCTIONS, TUPLES
from tpusim.semantics.demand.inlining import Body, made_from


def stages_of(body: Body, products: Collection[int]) -> list[int]:
    """Return, for each value of a kernel, the stage of a tile in which it is computed, counted from 0.

    ``products`` are the positions of those values that the arrays compute.
    """
    opcodes = [item.instruction.opcode for item in body.values]
    reductions = [at for at, opcode in enumerate(opcodes) if opcode in REDUCTIONS]
    names = {at for at, opcode in enumerate(opcodes) if opcode in TUPLES}
    return stage_numbers([item.operands for item in body.values], products, reductions, names)


def stage_numbers(
    made_of: Sequence[Sequence[int]],
    products: Collection[int],
    reductions: Sequence[int],
    names: Collection[int] = frozenset(),
) -> list[int]:
    """Return the stage of each of some values, which are ``made_of`` those before them at these positions.

    Negative positions are of what comes from elsewhere. ``names`` are values that only name what they are made of.
    """
    waited_for = _waited_for(made_of, products, reductions, names)
    if not waited_for:
        return [0] * len(made_of)
    first = [0] * len(made_of)
    for at, operands in enumerate(made_of):
        first[at] = max((first[o] + (at in waited_for.get(o, ())) for o in operands if o >= 0), default=0)
    # What is made for a later stage is made in it; a tuple only names what it is made of.
    last: dict[int, int] = {}
    for at in reversed(range(len(made_of))):
        stage = last.setdefault(at, first[at])
        for operand in made_of[at] if at not in names else ():
            last[operand] = min(last.get(operand, stage), stage - (at in waited_for.get(operand, ())))
    return [last[at] for at in range(len(made_of))]


def _waited_for(
    made_of: Sequence[Sequence[int]], products: Collection[int], reductions: Sequence[int], names: Collection[int]
) -> dict[int, set[int]]:
    """Return the values that others wait for until all of a tile's are there, and which others."""
    if len(products) < 2 and not reductions:
        return {}
    from_product: set[int] = set()
    for at, operands in enumerate(made_of):
        if at in products or not from_product.isdisjoint(operands):
            from_product.add(at)
    again = [at for at in reductions if at in from_product and _is_gone_through_again(made_of, at, from_product, names)]
    if len(products) < 2 and not again:
        return {}
    users: dict[int, set[int]] = {}
    for at, operands in enumerate(made_of):
        for operand in operands:
            users.setdefault(operand, set()).add(at)
    found = {at: users.get(at, set()) for at in again}
    if len(products) > 1:
        into_products = made_from(made_of, products)
        found |= {at: users.get(at, set()) & into_products for at in products}
    return {at: waiting for at, waiting in found.items() if waiting}


def _is_gone_through_again(
    made_of: Sequence[Sequence[int]], reduction: int, from_product: set[int], names: Collection[int]
) -> bool:
    """Return whether a value that needs a reduction also needs what a product makes."""
    behind = {reduction}
    for at, operands in enumerate(made_of[reduction + 1 :], reduction + 1):
        if not behind.isdisjoint(operands):
            behind.add(at)
            if at not in names and any(o in from_product - behind for o in operands):
                return True
    return False
