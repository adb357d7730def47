"""Sorts that keep the order of equals."""

from __future__ import annotations

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.decompose.rules import decomposes
from tpusim.draft import Graph, Node
from tpusim.ir.attributes import ComputationName, sorted_along
from tpusim.semantics.scalars import integer_range
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape, TupleShape


@decomposes("sort")
def stable(build: Build, node: Node) -> Node | None:
    """What is to keep the order of equals is sorted with the places as one more array, which decide between them.

    Places that are sorted already, as for the order itself, serve. Source: XLA, StableSortExpander.
    """
    if not node.attributes.get("is_stable"):
        return None
    first = node.operands[0].array
    along = sorted_along(node.attributes, first.rank)
    places = next((at for at, operand in enumerate(node.operands) if _are_places(operand, along)), None)
    operands = list(node.operands)
    if places is None:
        places = len(operands)
        operands.append(build.iota("s32", first.dimensions, along))
    region = _breaking_ties(build, node.attributes["to_apply"], places, len(operands))
    kept = {key: value for key, value in node.attributes.items() if key != "is_stable"}
    shapes = tuple(operand.shape for operand in operands)
    shape = TupleShape(shapes) if len(shapes) > 1 else shapes[0]
    made = build.graph.add("sort", shape, operands, kept | {"to_apply": ComputationName(region)})
    if len(operands) == len(node.operands):
        return made
    parts = [build.element(made, at) for at in range(len(node.operands))]
    return parts[0] if len(parts) == 1 else build.graph.add("tuple", node.shape, parts)


def _are_places(node: Node, along: int) -> bool:
    """Return whether an array holds the numbers of its elements along a dimension."""
    # A narrow type begins again where it ends.
    if not node.array.dtype.is_integer or integer_range(node.array.dtype)[1] < node.array.dimensions[along] - 1:
        return False
    if node.opcode == "broadcast" and node.operands[0].opcode == "iota" and node.operands[0].array.rank == 1:
        return tuple(node.attributes["dimensions"]) == (along,)
    return node.opcode == "iota" and node.attributes["iota_dimension"] == along


def _breaking_ties(build: Build, region: str, places: int, count: int) -> str:
    """Return a comparison that asks which place comes first where neither of two elements comes before the other."""
    draft = build.graph.draft
    old = draft.graphs[region]
    new = Graph(draft, draft.fresh(region))
    draft.graphs[new.name] = new
    for number in range(2 * count):
        given = old.parameters[number].shape if number < len(old.parameters) else ArrayShape(DTYPES["s32"])
        new.parameters.append(new.add("parameter", given, immediate=number))
    turned = [new.parameters[number ^ 1] for number in range(2 * count)]
    # The old one knows nothing of places that were added.
    asked = len(old.parameters)
    before, behind = (new.copy_in(old, operands[:asked]) for operands in (new.parameters, turned))
    inner = Build(new, old.root, build.target)
    first = inner.compare("LT", new.parameters[2 * places], new.parameters[2 * places + 1])
    new.root = inner.apply("select", inner.compare("EQ", before, behind), first, before)
    return new.name
