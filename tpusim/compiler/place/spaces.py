"""In which memory arrays lie, said everywhere: of instructions, of what loops carry, of what fusions take and give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from msgspec.structs import replace

from tpusim.draft import Draft, Node
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape

Value = tuple[int, ...]
"""The value of one part of a shape: none for a flag."""


def set_spaces(
    draft: Draft, parts: Mapping[str, Sequence[Value]], is_moved: Callable[[Value], bool], space: int
) -> None:
    """Let all values that move be in a memory space; ``parts`` has by name the values of every instruction."""
    graphs = draft.running()
    orders = [graph.order() for graph in graphs]
    for node in (node for nodes in orders for node in nodes):
        moved = [is_moved(part) for part in parts.get(node.name, ())]
        if any(moved):
            node.shape = _moved(node.shape, iter(moved), space)
    for node in (node for nodes in orders for node in nodes):
        if node.opcode == "fusion":
            match_fusion(node, draft)


def _moved(shape: Shape, moved: Iterator[bool], space: int) -> Shape:
    is_moved = next(moved)
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(_moved(element, moved, space) for element in shape.elements))
    return in_space(shape, space) if is_moved and isinstance(shape, ArrayShape) else shape


@lru_cache(maxsize=1 << 12)
def in_space(shape: ArrayShape, space: int) -> ArrayShape:
    """Return an array in a memory space."""
    return shape.with_layout(replace(shape.actual_layout, memory_space=space))


def match_fusion(fusion: Node, draft: Draft) -> None:
    """Let what a fusion runs take and give arrays where the fusion does, fusions in it included."""
    todo = [fusion]
    while todo:
        outer = todo.pop()
        inner = draft.graphs[outer.attributes["calls"]]
        for parameter, operand in zip(inner.parameters, outer.operands, strict=True):
            parameter.shape = operand.shape
        if isinstance(outer.shape, TupleShape) and inner.root.opcode == "tuple":
            for result, shape in zip(inner.root.operands, outer.shape.elements, strict=True):
                result.shape = shape
        inner.root.shape = outer.shape
        todo += [node for node in inner.order() if node.opcode == "fusion"]
