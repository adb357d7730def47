"""Complex numbers as their two parts, since a TPU has no complex registers.

Source: programs compiled ahead of time, in which complex arrays are split where they come in and joined where they go
out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.decompose.products import outer
from tpusim.compiler.decompose.rules import decomposes
from tpusim.draft import Node
from tpusim.ir.ops import REARRANGES
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape


class Pair(NamedTuple):
    """The real and the imaginary part of an array."""

    real: Node
    imaginary: Node

    def times(self, build: Build, other: Pair) -> Pair:
        """Return the product by elements."""
        (a, b), (c, d) = self, other
        products = [build.apply("multiply", *two) for two in ((a, c), (b, d), (a, d), (b, c))]
        return Pair(build.apply("subtract", *products[:2]), build.apply("add", *products[2:]))


def parts_of(build: Build, node: Node) -> Pair:
    """Return the parts of an array, past what only joins, moves or adds them; of each array they are made once."""
    # A stack of its own: programs add up thousands of arrays one after another.
    todo = [node]
    while todo:
        one = todo.pop()
        if one in build.parts:
            continue
        missing = [operand for operand in _split_before(one) if operand not in build.parts]
        if missing:
            todo += one, *missing
        else:
            build.parts[one] = _split(build, one)
    return Pair(*build.parts[node])


def _split_before(node: Node) -> list[Node]:
    """Return the operands whose parts those of a node are made of."""
    if not node.array.dtype.is_complex or node.opcode not in REARRANGES | _SPLIT.keys() - {"complex"}:
        return []
    return [operand for operand in node.operands if operand.array.dtype.is_complex]


def _split(build: Build, node: Node) -> Pair:
    if not node.array.dtype.is_complex:
        return Pair(node, build.splat(0, node))
    if node.opcode in REARRANGES:
        return _each(build, node)
    split = _SPLIT.get(node.opcode)
    return split(build, node) if split else Pair(build.part(node, "real"), build.part(node, "imag"))


def _each(build: Build, node: Node) -> Pair:
    """Return the same of the parts; operands that are not complex, as indices, belong to both."""
    pairs = [
        parts_of(build, operand) if operand.array.dtype.is_complex else Pair(operand, operand)
        for operand in node.operands
    ]
    made = [build.graph.clone(node, operands) for operands in zip(*pairs, strict=True)]
    for part in made:
        part.shape = ArrayShape(DTYPES["f32"], node.array.dimensions)
    return Pair(*made)


def _product(build: Build, node: Node) -> Pair:
    """Return the parts of a product of matrices, of which three make them, as Gauss saw.

    Source: three products in programs compiled ahead of time for v4 and v5e.
    """
    (a, b), (c, d) = (parts_of(build, operand) for operand in node.operands)

    def dot(one: Node, other: Node) -> Node:
        made = build.graph.clone(node, [one, other])
        made.shape = ArrayShape(DTYPES["f32"], node.array.dimensions)
        return outer(build, made) or made

    both = dot(build.apply("add", a, b), c)
    real = build.apply("subtract", both, dot(b, build.apply("add", c, d)))
    return Pair(real, build.apply("add", both, dot(a, build.apply("subtract", d, c))))


_SPLIT: dict[str, Callable[[Build, Node], Pair]] = {
    "add": _each,
    "complex": lambda build, node: Pair(*node.operands),
    "dot": _product,
    "convert": lambda build, node: Pair(*(build.convert(part, "f32") for part in parts_of(build, node.operands[0]))),
    "multiply": lambda build, node: parts_of(build, node.operands[0]).times(build, parts_of(build, node.operands[1])),
    "negate": _each,
    "subtract": _each,
}
"""How parts are had, by opcode."""


@decomposes("dot", tolerance=1e-5, is_rounded=True)
def product(build: Build, node: Node) -> Node | None:
    """A product of complex matrices is made of products of their parts."""
    return build.complex(*_product(build, node)) if node.array.dtype.name == "c64" else None


@decomposes("real", tolerance=1e-6)
def real_part(build: Build, node: Node) -> Node | None:
    """The real part of what is made of parts."""
    return _part(build, node, 0)


@decomposes("imag", tolerance=1e-6)
def imaginary_part(build: Build, node: Node) -> Node | None:
    """The imaginary part of what is made of parts."""
    return _part(build, node, 1)


def _part(build: Build, node: Node, index: int) -> Node | None:
    (operand,) = node.operands
    if operand.array.dtype.name not in ("c64", "f32"):
        return None
    found = parts_of(build, operand)[index]
    return None if found.opcode == node.opcode and found.operands[0] is operand else found
