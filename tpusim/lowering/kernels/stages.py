"""What a tile has to do one after another, and so cannot overlap.

The units of a core work at the same time (VLIW), on what is there: a product that takes in what another product makes
begins when that has come out of the arrays, and what goes once more through a block that a reduction has gone through
(the exponentials of a softmax, behind the maxima of their rows) begins when the reduction is complete. All else is
done beside the product that it is made for, or that it comes from.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tpusim.ir.ops import REDUCTIONS, TUPLES
from tpusim.semantics.demand.inlining import Body, Inner, made_from


def stages_of(body: Body, products: Collection[int]) -> list[int]:
    """Return, for each value of a kernel, the stage of a tile in which it is computed, counted from 0.

    ``products`` are the positions of those values that the arrays compute.
    """
    values = body.values
    waited_for = _waited_for(values, products)
    if not waited_for:
        return [0] * len(values)
    first = [0] * len(values)
    for at, item in enumerate(values):
        first[at] = max((first[o] + (at in waited_for.get(o, ())) for o in item.operands if o >= 0), default=0)
    # What is made for a later stage is made in it; a tuple only names what it is made of.
    last: dict[int, int] = {}
    for at in reversed(range(len(values))):
        stage = last.setdefault(at, first[at])
        for operand in values[at].operands if values[at].instruction.opcode not in TUPLES else ():
            last[operand] = min(last.get(operand, stage), stage - (at in waited_for.get(operand, ())))
    return [last[at] for at in range(len(values))]


def _waited_for(values: Sequence[Inner], products: Collection[int]) -> dict[int, set[int]]:
    """Return the values that others wait for until all of a tile's are there, and which others."""
    reductions = [at for at, item in enumerate(values) if item.instruction.opcode in REDUCTIONS]
    if len(products) < 2 and not reductions:
        return {}
    from_product: set[int] = set()
    for at, item in enumerate(values):
        if at in products or not from_product.isdisjoint(item.operands):
            from_product.add(at)
    found = {
        at: _users(values, at)
        for at in reductions
        if at in from_product and _is_gone_through_again(values, at, from_product)
    }
    if len(products) > 1:
        into_products = made_from(values, products)
        found |= {at: _users(values, at) & into_products for at in products}
    return {at: users for at, users in found.items() if users}


def _users(values: Sequence[Inner], at: int) -> set[int]:
    return {user for user, item in enumerate(values) if at in item.operands}


def _is_gone_through_again(values: Sequence[Inner], reduction: int, from_product: set[int]) -> bool:
    """Return whether a value that needs a reduction also needs what a product makes."""
    behind = {reduction}
    for at, item in enumerate(values):
        if not behind.isdisjoint(item.operands):
            behind.add(at)
            if item.instruction.opcode not in TUPLES and any(o in from_product - behind for o in item.operands):
                return True
    return False
