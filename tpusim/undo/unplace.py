"""Another compiler's placement, undone: what it kept in fast memories lies in HBM.

What it brought there and back by asynchronous copies and slices is used where it was. What lies in host memory, and
what comes from there or goes there, stays as it is: the program says so.
"""

from __future__ import annotations

from msgspec import structs

from tpusim.draft import Draft, Graph, Node
from tpusim.hardware.units import CMEM, HBM, VMEM
from tpusim.ir.module import Module
from tpusim.semantics.memory_spaces import space_of
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape
from tpusim.undo.pairs import sliced
from tpusim.undo.slices import put_together

_FAST = (VMEM, CMEM)


def unplace(module: Module) -> Module:
    """Return a scheduled module with every array in HBM but those in host memory; the order of kernels stays."""
    draft = Draft(module)
    for graph in draft.running():
        # All slices of one array before each by itself.
        for rule in (put_together, _unmoved):
            for node in graph.order():
                found = rule(graph, node)
                if found is not None:
                    graph.replace(node, found)
    for graph in draft.reachable():
        for node in graph.order():
            node.shape = _in_hbm(node.shape)
    # Some name copies that are gone, and the order holds without.
    draft.drop("control-predecessors")
    return draft.write()


def _unmoved(graph: Graph, node: Node) -> Node | None:
    """Return what stands for the end of a copy or slice between memories of the chip; None for anything else."""
    if node.opcode == "copy-done":
        source = node.operands[0].operands[0]
        return source if _in_hbm(source.shape) == _in_hbm(node.shape) and _is_on_chip(source) else None
    part = sliced(graph, node)
    if part is not None and _is_on_chip(node):
        return graph.add("slice", node.shape, [part.source], {"slice": part.bounds}, like=node)
    return None


def _is_on_chip(node: Node) -> bool:
    return space_of(node.shape) in (HBM, *_FAST)


def _in_hbm(shape: Shape) -> Shape:
    """Return a shape with what lies in fast memories in HBM."""
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(_in_hbm(element) for element in shape.elements))
    if isinstance(shape, ArrayShape) and shape.layout is not None and space_of(shape) in _FAST:
        return shape.with_layout(structs.replace(shape.layout, memory_space=0))
    return shape
