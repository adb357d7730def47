"""Sums: what every term has in common is taken out of them."""

from __future__ import annotations

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.decompose.rules import decomposes
from tpusim.compiler.simplify.rules import splat_text
from tpusim.draft import Node
from tpusim.semantics.combining import sole_opcode


@decomposes("reduce", tolerance=1e-5)
def common_factors(build: Build, node: Node) -> Node | None:
    """A factor that does not change along the sum is multiplied with the sum, and a sign goes before it.

    The sums of a batch norm's gradient do not wait for each other then, and one kernel makes them all. Terms near the
    ends of what f32 holds may overflow, or lose digits, without their factor.

    Source: XLA, AlgebraicSimplifier (HandleReduce); programs compiled ahead of time.
    """
    if not _is_sum(build, node):
        return None
    gone = set(node.attributes["dimensions"])
    term, start = node.operands
    factors, is_negated = [], False
    while found := _taken_out(term, gone):
        term, factor = found
        is_negated ^= factor is None
        factors += [factor] if factor else []
    if term is node.operands[0]:
        return None
    total = build.graph.clone(node, [term, start])
    kept = [d for d in range(term.array.rank) if d not in gone]
    for factor in factors:
        dimensions = [kept.index(d) for d in factor.attributes["dimensions"]]
        total = build.apply("multiply", total, build.broadcast(factor.operands[0], node.array.dimensions, dimensions))
    return build.apply("negate", total) if is_negated else total


def _is_sum(build: Build, node: Node) -> bool:
    """Return whether a reduction adds floats up, from nothing on."""
    if len(node.operands) != 2 or not node.array.dtype.is_float:
        return False
    adds = sole_opcode(build.graph.draft.graphs, node.attributes["to_apply"]) == "add"
    return adds and splat_text(node.operands[1]) in ("0", "-0")


def _taken_out(term: Node, gone: set[int]) -> tuple[Node, Node | None] | None:
    """Return a term without a factor, and the factor; None for a sign. Or None if it has neither."""
    if term.opcode == "negate":
        return term.operands[0], None
    if term.opcode != "multiply" or term.array.dtype.name not in _FAR_REACHING:
        return None
    for factor, rest in (term.operands, reversed(term.operands)):
        if factor.opcode == "broadcast" and not gone & set(factor.attributes["dimensions"]):
            return rest, factor
    return None


_FAR_REACHING = frozenset({"bf16", "f32", "f64"})
"""Floats whose sums do not overflow for want of a factor, but at the ends of f32."""


@decomposes("reduce")
def of_one_element(build: Build, node: Node) -> Node | None:
    """A sum of one term, from nothing on, is that term.

    Source: XLA, AlgebraicSimplifier (HandleReduce).
    """
    if not _is_sum(build, node) or node.operands[0].array.element_count != node.array.element_count:
        return None
    return build.reshape(node.operands[0], *node.array.dimensions)
