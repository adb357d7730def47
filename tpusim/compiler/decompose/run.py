"""The pass: all rules on all instructions. Source: stated by each rule."""

from __future__ import annotations

from collections.abc import Iterable

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
    words,
)
from tpusim.compiler.decompose.build import Build
from tpusim.compiler.decompose.rules import FIRST_RULES, RULES, Rule
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Node


def decompose(draft: Draft, target: Target) -> None:
    """Take instructions apart; what comes of one is not taken apart again.

    What has sizes that are known at run time only stays whole: the rules count with the bounds.
    """
    for graph in draft.reachable():
        parts: dict[Node, tuple[Node, Node]] = {}
        for rules in (FIRST_RULES, RULES):
            for node in graph.order():
                if not node.is_dynamic:
                    _apply(rules.get(node.opcode, ()), Build(graph, node, target, parts))


def _apply(rules: Iterable[Rule], build: Build) -> None:
    """Put what the first of some rules makes in the place of an instruction, if one of them makes something of it."""
    made = next((made for rule in rules if (made := rule(build, build.like)) is not None), None)
    if made is not None:
        build.graph.replace(build.like, made)
