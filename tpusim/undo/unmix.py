"""One type of float to an instruction: a scheduled program may mix them, what a front end makes may not.

The TPU's registers hold f32, so that a compiled program may say of any instruction that its result is kept in bf16, or
that an operand is. Here the instruction computes in the widest of its types, and converts stand before and after it.
"""

from __future__ import annotations

from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import APPLIES_TO_ELEMENTS, KEEPS_FLOATS
from tpusim.shapes.dtype import DType
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape


def unmix(draft: Draft) -> None:
    """Put converts where instructions mix types of float."""
    for graph in draft.reachable():
        for node in graph.order():
            if node.opcode in APPLIES_TO_ELEMENTS:
                _unmix_applied(graph, node)
            elif node.opcode not in KEEPS_FLOATS and isinstance(node.shape, ArrayShape):
                _unmix(graph, node)


def _unmix(graph: Graph, node: Node) -> None:
    """Compute one array in the widest type of it and its operands."""
    floats = [operand.array.dtype for operand in node.operands if _is_float(operand.shape)]
    if not floats or not _is_float(node.shape):
        # A comparison's operands may differ as well.
        wide = max(floats, key=lambda dtype: dtype.bits, default=None)
    else:
        wide = max(*floats, node.array.dtype, key=lambda dtype: dtype.bits)
    if wide is None:
        return
    _convert_operands(graph, node, [wide if _is_float(operand.shape) else None for operand in node.operands])
    if _is_float(node.shape):
        _convert_result(graph, node, TupleShape((_typed(node.array, wide),)))


def _unmix_applied(graph: Graph, node: Node) -> None:
    """Take operands and give results in the types of what is applied to them."""
    applied = graph.draft.graphs[node.attributes["to_apply"]]
    taken: list[DType | None] = [parameter.array.dtype for parameter in applied.parameters]
    count = len(node.operands)
    if node.opcode != "map":
        # Of results so far and elements, as many as there are arrays and initial values.
        taken = taken[count // 2 :] + taken[: count // 2]
    _convert_operands(graph, node, taken)
    root = applied.root.shape
    made = root.elements if isinstance(root, TupleShape) else (root,)
    shapes = node.shape.elements if isinstance(node.shape, TupleShape) else (node.shape,)
    wide = (
        _typed(shape, element.dtype)
        for shape, element in zip(shapes, made, strict=True)
        if isinstance(shape, ArrayShape) and isinstance(element, ArrayShape)
    )
    _convert_result(graph, node, TupleShape(tuple(wide)))


def _convert_operands(graph: Graph, node: Node, wanted: list[DType | None]) -> None:
    node.take(
        operand if dtype is None else _converted(graph, operand, dtype)
        for operand, dtype in zip(node.operands, wanted, strict=True)
    )


def _convert_result(graph: Graph, node: Node, wide: TupleShape) -> None:
    """Let a node make arrays of other types, and those that use it have them in the types that it had."""
    had = node.shape
    if not isinstance(had, TupleShape):
        if wide.elements == (had,):
            return
        users = [user for user in node.users if user is not node]
        node.shape = wide.elements[0]
        narrow = _converted(graph, node, _dtype(had))
        _hand_on(graph, node, narrow, users)
    elif wide != had:
        users = list(node.users)
        node.shape = wide
        parts = [
            _converted(
                graph, graph.add("get-tuple-element", shape, [node], {"index": number}), _dtype(had.elements[number])
            )
            for number, shape in enumerate(wide.elements)
        ]
        _hand_on(graph, node, graph.add("tuple", had, parts), users)


def _hand_on(graph: Graph, node: Node, given: Node, users: list[Node]) -> None:
    for user in users:
        user.replace_operand(node, given)
    if graph.root is node:
        graph.root = given


def _converted(graph: Graph, node: Node, dtype: DType) -> Node:
    if not isinstance(node.shape, ArrayShape) or node.array.dtype == dtype:
        return node
    return graph.add("convert", _typed(node.array, dtype), [node], like=node)


def _typed(shape: ArrayShape, dtype: DType) -> ArrayShape:
    return ArrayShape(dtype, shape.dimensions, shape.dynamic)


def _dtype(shape: Shape) -> DType:
    assert isinstance(shape, ArrayShape)
    return shape.dtype


def _is_float(shape: Shape) -> bool:
    return isinstance(shape, ArrayShape) and shape.dtype.is_float
