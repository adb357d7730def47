"""Divisions and comparisons."""

from __future__ import annotations

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.decompose.rules import decomposes
from tpusim.compiler.simplify.rules import splat_text
from tpusim.draft import Node
from tpusim.ir.module import Literal
from tpusim.semantics.scalars import as_type, is_normal, literal_number


@decomposes("divide", tolerance=1e-6)
def by_a_constant(build: Build, node: Node) -> Node | None:
    """A division by one and the same number is a multiplication by its reciprocal, as its type rounds it.

    The TPU compiler does so too where the reciprocal is not normal, and has infinity for what is too large.

    Source: XLA, AlgebraicSimplifier (HandleDivide); programs compiled ahead of time.
    """
    numerator, denominator = node.operands
    dtype = node.array.dtype
    # A reciprocal of eight bits is too far from it, or beyond them.
    if not node.array.rank or not dtype.is_float or dtype.bits <= 8:
        return None
    written = literal_number(Literal(splat_text(denominator)))
    if written is None or not (number := as_type(written, dtype)):
        return None
    reciprocal = as_type(1 / number, dtype)
    return build.apply("multiply", numerator, build.splat(reciprocal, node)) if is_normal(reciprocal, dtype) else None


@decomposes("compare")
def in_total_order(build: Build, node: Node) -> Node | None:
    """Floats in their total order are compared as integers, those of negative numbers turned round.

    Source: XLA, ComparisonExpander.
    """
    if node.attributes.get("type") != "TOTALORDER" or node.operands[0].array.dtype.name != "f32":
        return None
    one, other = (_ordered(build, operand) for operand in node.operands)
    return build.compare(node.attributes["direction"], one, other)


def _ordered(build: Build, node: Node) -> Node:
    """Return integers in the order of floats."""
    bits = build.convert(node, "s32", opcode="bitcast-convert")
    below_zero = build.compare("LT", bits, build.splat(0, bits))
    return build.apply("select", below_zero, build.apply("xor", build.splat(_ALL_BUT_SIGN, bits), bits), bits)


_ALL_BUT_SIGN = (1 << 31) - 1
