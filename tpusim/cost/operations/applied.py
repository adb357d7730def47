"""What scalar computations take that are applied to elements: of a reduction, a sort, a scatter."""

from __future__ import annotations

from collections.abc import Generator
from math import ceil, log2

from tpusim.cost.operations.table import operation_cost
from tpusim.hardware.chip import Chip
from tpusim.ir.module import Module
from tpusim.ir.ops import CALLS
from tpusim.nesting import walk_nested
from tpusim.program.work import Work, sum_work


def computation_cost(module: Module, name: str, chip: Chip) -> Work:
    """Return the work of a scalar computation, and of those that it calls, applied to one register of elements.

    Of long ones that is as many as a register has places, with all words of each.
    """
    known: dict[str, Work] = {}

    def cost(name: str) -> Generator[str, Work, Work]:
        # A computation that several call, at every level twice say, is gone through once.
        if name not in known:
            instructions, shapes = module[name].instructions, module[name].shapes
            costs = [
                operation_cost(chip, i.opcode, i.attributes, i.shape, [shapes[operand] for operand in i.operands])
                for i in instructions
            ]
            parts = [Work(ops=each) for each in costs if each is not None]
            for inner in (one for i in instructions if i.opcode in CALLS for one in i.called_computations):
                parts.append((yield inner))
            known[name] = sum_work(parts)
        return known[name]

    return walk_nested(cost, name)


def by_doubling(size: int) -> int:
    """Return with how many others an element is combined at most for windows of a size that begin at each.

    As in a scan: windows of twice the length are two of those before, and the size is a sum of such lengths.
    """
    return 2 * ceil(log2(size))
