"""Part of pass 2: rules for moved elements, tuples and neutral numbers.

Source: XLA, AlgebraicSimplifier, ReshapeMover and TupleSimplifier, by idea.
"""

from __future__ import annotations

from tpusim.compiler.simplify.ones import squeezed
from tpusim.compiler.simplify.table import simplifies
from tpusim.draft import Graph, Node
from tpusim.ir.module import Literal
from tpusim.ir.ops import RESHAPES, SLICES
from tpusim.semantics.combining import sole_opcode
from tpusim.shapes.shape import ArrayShape, TupleShape


def same_type(one: Node, other: Node) -> bool:
    """Return whether two nodes are arrays of the same type and sizes, whatever their layouts."""
    first, second = one.shape, other.shape
    if not isinstance(first, ArrayShape) or not isinstance(second, ArrayShape):
        return False
    return first.dtype == second.dtype and first.dimensions == second.dimensions and first.dynamic == second.dynamic


@simplifies("reshape", "broadcast", "transpose", "convert", "copy", "pad", "concatenate", "reverse", *SLICES)
def _identity(graph: Graph, node: Node) -> Node | None:
    """What changes neither type nor place of any element is its operand."""
    if not node.operands or not same_type(node, node.operands[0]):
        return None
    rank = tuple(range(node.array.rank))
    moves = {"broadcast": rank, "transpose": rank, "reverse": ()}
    if node.opcode in moves and tuple(node.attributes.get("dimensions", ())) != moves[node.opcode]:
        return None
    if node.opcode == "slice" and any(part.stride != 1 for part in node.attributes["slice"]):
        return None
    # Padding that leaves the sizes as they were may still have moved the elements.
    if node.opcode == "pad" and any((d.low, d.high) != (0, 0) for d in node.attributes["padding"]):
        return None
    return node.operands[0]


@simplifies("reshape")
def _reshape(graph: Graph, node: Node) -> Node | None:
    (operand,) = node.operands
    if operand.opcode == "reshape":
        return graph.add("reshape", node.shape, operand.operands, like=node)
    if operand.opcode == "broadcast" and not operand.operands[0].array.rank:
        return graph.add("broadcast", node.shape, operand.operands, {"dimensions": ()}, like=node)
    return None


@simplifies("dot")
def _flattened(graph: Graph, node: Node) -> Node | None:
    """What is flattened only to be summed up lies well as it is: of ``vdot``, for one, nothing has to move."""
    one, other = node.operands
    if {one.opcode, other.opcode} != {"reshape"} or one.array.rank != 1 or node.array.rank:
        return None
    first, second = one.operands[0], other.operands[0]
    if not same_type(first, second) or any(first.array.dynamic):
        return None
    # Dimensions of size 1 are no part of a product: a row without them is flat.
    if sum(size != 1 for size in first.array.dimensions) <= 1:
        return None
    every = tuple(range(first.array.rank))
    summed = {"lhs_contracting_dims": every, "rhs_contracting_dims": every}
    return graph.add("dot", node.shape, [first, second], dict(node.attributes) | summed, like=node)


@simplifies("dot")
def _folded(graph: Graph, node: Node) -> Node | None:
    """A dot takes what is transposed as it was before, by other dimensions, where its own stay in their order.

    Source: XLA, TransposeFolding.
    """
    operands, named = list(node.operands), dict(node.attributes)
    for at, side in enumerate(("lhs", "rhs")):
        operand, keys = operands[at], [f"{side}_batch_dims", f"{side}_contracting_dims"]
        if operand.opcode != "transpose":
            continue
        order, bound = operand.attributes["dimensions"], {d for key in keys for d in named.get(key, ())}
        free = [order[d] for d in range(len(order)) if d not in bound]
        if free == sorted(free):
            named |= {key: tuple(order[d] for d in named[key]) for key in keys if key in named}
            operands[at] = operand.operands[0]
    return graph.add("dot", node.shape, operands, named, like=node) if operands != node.operands else None


@simplifies("broadcast")
def _broadcast(graph: Graph, node: Node) -> Node | None:
    """A broadcast of a broadcast is one, and dimensions of size 1 need no place in it."""
    (operand,) = node.operands
    dimensions = tuple(node.attributes.get("dimensions", ()))
    if operand.opcode == "broadcast":
        inner = tuple(dimensions[d] for d in operand.attributes.get("dimensions", ()))
        return graph.add("broadcast", node.shape, operand.operands, {"dimensions": inner}, like=node)
    if operand.array.rank and 1 in operand.array.dimensions and not any(operand.array.dynamic):
        kept = tuple(at for at, size in zip(dimensions, operand.array.dimensions, strict=True) if size != 1)
        return graph.add("broadcast", node.shape, [squeezed(graph, operand)], {"dimensions": kept}, like=node)
    return None


@simplifies("transpose")
def _transpose(graph: Graph, node: Node) -> Node | None:
    (operand,) = node.operands
    if operand.opcode != "transpose":
        return None
    inner = operand.attributes["dimensions"]
    order = tuple(inner[d] for d in node.attributes["dimensions"])
    return graph.add("transpose", node.shape, operand.operands, {"dimensions": order}, like=node)


@simplifies("convert")
def _convert(graph: Graph, node: Node) -> Node | None:
    """There and back through a wider type is where it began."""
    (operand,) = node.operands
    if operand.opcode != "convert" or not same_type(node, operand.operands[0]):
        return None
    return operand.operands[0] if (node.array.dtype.name, operand.array.dtype.name) in _WIDENS else None


@simplifies("reduce")
def _largest(graph: Graph, node: Node) -> Node | None:
    """The largest of numbers that are only made wider is found before they are.

    Source: eleven programs compiled ahead of time for v5e (libtpu 0.0.52); of a twelfth the least is found after it.
    """
    if len(node.operands) != 2 or node.operands[0].opcode != "convert" or splat_text(node.operands[1]) != "-inf":
        return None
    if node.is_dynamic:
        return None
    (narrow,), wide = node.operands[0].operands, node.array.dtype
    if (narrow.array.dtype.name, wide.name) != ("bf16", "f32"):
        return None
    if sole_opcode(graph.draft.graphs, node.attributes["to_apply"]) != "maximum":
        return None
    dtype = narrow.array.dtype
    least = graph.add("constant", ArrayShape(dtype), immediate=Literal("-inf"))
    combined = dict(node.attributes) | {"to_apply": graph.draft.region("maximum", dtype)}
    found = graph.add("reduce", ArrayShape(dtype, node.array.dimensions), [narrow, least], combined, like=node)
    return graph.add("convert", node.shape, [found], like=node)


_WIDENS = frozenset({("bf16", "f32"), ("f16", "f32"), ("s8", "s32"), ("u8", "u32"), ("s16", "s32")})
"""Types, each with one that holds all its values."""


@simplifies("convert")
def _joined_narrow(graph: Graph, node: Node) -> Node | None:
    """What becomes smaller does so before it is joined: less is written where the parts are kernels of their own.

    Source: XLA, ConvertMover; programs compiled ahead of time, of rotary embeddings.
    """
    (joined,) = node.operands
    is_smaller = node.array.dtype.bits < joined.array.dtype.bits
    if joined.opcode != "concatenate" or list(joined.users) != [node] or not is_smaller or joined is graph.root:
        return None
    parts = []
    for part in joined.operands:
        shape = ArrayShape(node.array.dtype, part.array.dimensions, part.array.dynamic)
        parts.append(graph.add("convert", shape, [part], dict(node.attributes), like=node))
    return graph.add("concatenate", node.shape, parts, dict(joined.attributes), like=node)


@simplifies("get-tuple-element")
def _element(graph: Graph, node: Node) -> Node | None:
    (operand,) = node.operands
    return operand.operands[node.attributes["index"]] if operand.opcode == "tuple" else None


@simplifies("tuple")
def _taken_apart(graph: Graph, node: Node) -> Node | None:
    """A tuple of all elements of a tuple, in their order, is that tuple."""
    first = node.operands[0].operands[0] if node.operands and node.operands[0].opcode == "get-tuple-element" else None
    if first is None or not isinstance(first.shape, TupleShape) or len(first.shape.elements) != len(node.operands):
        return None
    in_order = all(
        item.opcode == "get-tuple-element" and item.operands[0] is first and item.attributes["index"] == number
        for number, item in enumerate(node.operands)
    )
    return first if in_order else None


_NEUTRAL = {
    "multiply": ((0, "1"), (1, "1")),
    "divide": ((1, "1"),),
    "maximum": ((0, "-inf"), (1, "-inf")),
    "minimum": ((0, "inf"), (1, "inf")),
    "and": ((0, "true"), (1, "true")),
    "or": ((0, "false"), (1, "false")),
}
"""By opcode the operands that change nothing, by position, with the number that each must be everywhere."""


@simplifies(*_NEUTRAL)
def _neutral(graph: Graph, node: Node) -> Node | None:
    for at, number in _NEUTRAL[node.opcode]:
        # Where a type has no infinity, its text is NaN or the nearest number.
        if number.endswith("inf") and not node.array.dtype.has_infinity:
            continue
        if splat_text(node.operands[at]) == number and same_type(node, node.operands[1 - at]):
            return node.operands[1 - at]
    return None


def splat_text(node: Node) -> str:
    """Return the number that every element of a node is, as text; nothing if it is no broadcast of a constant."""
    while node.opcode == "broadcast" or node.opcode in RESHAPES:
        node = node.operands[0]
    is_scalar = node.opcode == "constant" and isinstance(node.shape, ArrayShape) and not node.shape.rank
    return node.immediate.text if is_scalar and isinstance(node.immediate, Literal) else ""


_STARTS = {"add": ("0", "-0"), "maximum": ("-inf",), "minimum": ("inf",)}


def starts_from_nothing(graph: Graph, node: Node) -> bool:
    """Return whether a reduction of one array begins from a number that changes no result, however often taken."""
    starts = _STARTS.get(sole_opcode(graph.draft.graphs, node.attributes["to_apply"]), ())
    return splat_text(node.operands[1]) in starts


@simplifies("select")
def _decided(graph: Graph, node: Node) -> Node | None:
    """What is selected everywhere alike is the one or the other."""
    choices = {"true": node.operands[1], "false": node.operands[2]}
    return choices.get(splat_text(node.operands[0]))
