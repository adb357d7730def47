"""Pass 2: what says the same in fewer instructions, by a table of rules by opcode, to a fixed point.

Source: XLA, AlgebraicSimplifier, HloCSE, HloDCE, ReshapeMover, TupleSimplifier and
WhileLoopSimplifier, by idea.
"""

from __future__ import annotations

# The modules enter their rules where they are imported.
from tpusim.compiler.simplify import choices, ones, parts, products, rules  # noqa: F401
from tpusim.compiler.simplify.fold import fold_scalars
from tpusim.compiler.simplify.loops import unroll_short_loops
from tpusim.compiler.simplify.merge import Alike, merge_equal
from tpusim.compiler.simplify.states import shrink_states
from tpusim.compiler.simplify.table import RULES
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph


def simplify(draft: Draft, target: Target) -> None:
    """Apply all rules to all nodes, and merge equal nodes, until nothing changes."""
    unroll_short_loops(draft)
    fold_scalars(draft)
    # What loops carry once is less to compute in them, and one where there were two behind them.
    while shrink_states(draft, _simplify_all(draft)):
        pass


def _simplify_all(draft: Draft) -> Alike:
    alike = Alike()
    for graph in draft.reachable():
        alike.share(graph)
        while _once(graph) | merge_equal(graph, alike):
            pass
        # What calls it comes later, and takes it for what it has become.
        alike.enter(graph)
    return alike


def _once(graph: Graph) -> bool:
    changed = False
    order = graph.order()
    known = set(order)
    for node in order:
        todo = [node]
        while todo:
            current = todo.pop()
            # A node that took the place of another may be simplified itself.
            while new := next((made for rule in RULES.get(current.opcode, ()) if (made := rule(graph, current))), None):
                graph.replace(current, new)
                current, changed = new, True
            # So may what was made for it: a part goes down a chain of products at once.
            fresh = [operand for operand in current.operands if operand not in known] if current is not node else []
            known.update(fresh)
            todo += fresh
    return changed
