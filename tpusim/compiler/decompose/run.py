"""The pass: all rules on all instructions. Source: stated by each rule."""

from __future__ import annotations

# The modules enter their rules where they are imported.
from tpusim.compiler.decompose import (  # noqa: F401
    arithmetic,
    complex_numbers,
    cumulative,
    fourier,
    indexed,
    linear_algebra,
    normalisation,
    products,
    sorting,
    sums,
)
from tpusim.compiler.decompose.build import Build
from tpusim.compiler.decompose.rules import RULES
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Node


def decompose(draft: Draft, target: Target) -> None:
    """Take instructions apart; what comes of one is not taken apart again.

    What has sizes that are known at run time only stays whole: the rules count with the bounds.
    """
    for graph in draft.reachable():
        parts: dict[Node, tuple[Node, Node]] = {}
        for node in graph.order():
            if node.is_dynamic:
                continue
            for rule in RULES.get(node.opcode, ()):
                if (made := rule(Build(graph, node, target, parts), node)) is not None:
                    graph.replace(node, made)
                    break
