"""Part of pass 2: scalars that are known before the program runs become constants.

Source: XLA, HloConstantFolding, for scalars; the values are those of ``semantics.scalars``.
"""

from __future__ import annotations

from tpusim.draft import Draft, Graph
from tpusim.ir.module import Literal
from tpusim.ir.ops import ELEMENTWISE, RESHAPES
from tpusim.semantics.scalars import Budget, Number, Scalars
from tpusim.shapes.shape import ArrayShape

_FOLDED = ELEMENTWISE | RESHAPES
"""What may make a scalar of constants; an array of one element is as good as one."""


def fold_scalars(draft: Draft) -> None:
    """Replace every scalar that depends on constants alone."""
    module, budget = draft.write(), Budget()
    for graph in draft.reachable():
        _fold(graph, Scalars(module, module[graph.name], {}, budget))


def _fold(graph: Graph, scalars: Scalars) -> None:
    for node in graph.order():
        if node.opcode not in _FOLDED or not isinstance(node.shape, ArrayShape) or node.shape.rank:
            continue
        value = scalars.get(node.name)
        if value is not None:
            constant = graph.add("constant", node.shape, like=node, immediate=Literal(_text(value)))
            graph.replace(node, constant)


def _text(value: Number) -> str:
    """Return a number as HLO text has it; the shortest that is read back as the same."""
    return str(value).lower()
