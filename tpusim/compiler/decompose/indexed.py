"""Gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from math import prod

from tpusim.compiler.decompose.build import Build, only_opcode
from tpusim.compiler.decompose.rules import decomposes
from tpusim.compiler.simplify.rules import splat_text
from tpusim.draft import Node
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape


@decomposes("gather")
def gather(build: Build, node: Node) -> Node | None:
    """Indices of one number each have no dimension for it, and are brought inside where they are made.

    Nor has what is gathered dimensions of one element. Source: programs compiled ahead of time.
    """
    if thinner := _without_units(build, node):
        return build.reshape(gather(build, thinner) or thinner, *node.array.dimensions)
    indices = _without_vector(build, node, node.operands[1])
    if indices is None or indices.array.dtype.bits < _WORD:
        return None
    operand = node.operands[0]
    (along,) = node.attributes["start_index_map"]
    most = operand.array.dimensions[along] - node.attributes["slice_sizes"][along]
    inside = build.apply("clamp", build.splat(0, indices), indices, build.splat(most, indices))
    return build.graph.clone(node, [operand, inside])


def _without_units(build: Build, node: Node) -> Node | None:
    """Return a gather without the dimensions of one element that its slices span, None if there are none."""
    operand, named = node.operands[0], node.attributes
    inside = {*named.get("collapsed_slice_dims", ()), *named.get("operand_batching_dims", ())}
    window = [d for d in range(operand.array.rank) if d not in inside]
    spanned = list(zip(window, sorted(named.get("offset_dims", ())), strict=True))
    units = [(d, at) for d, at in spanned if operand.array.dimensions[d] == 1 and d not in named["start_index_map"]]
    if not units:
        return None
    gone, gone_at = ({pair[side] for pair in units} for side in (0, 1))
    kept = [d for d in range(operand.array.rank) if d not in gone]
    kept_at = [at for at in range(node.array.rank) if at not in gone_at]
    renamed: dict[str, object] = {
        name: tuple(kept.index(d) for d in named.get(name, ()))
        for name in ("collapsed_slice_dims", "operand_batching_dims", "start_index_map")
    }
    renamed["offset_dims"] = tuple(kept_at.index(at) for _, at in spanned if at not in gone_at)
    renamed["slice_sizes"] = tuple(named["slice_sizes"][d] for d in kept)
    shape = ArrayShape(node.array.dtype, tuple(node.array.dimensions[at] for at in kept_at))
    thin = build.reshape(operand, *(operand.array.dimensions[d] for d in kept))
    return build.graph.add("gather", shape, [thin, *node.operands[1:]], named | renamed)


_WORD = 32
"""Bits of an index in which the size of any dimension has room."""


@decomposes("scatter")
def one_update(build: Build, node: Node) -> Node | None:
    """A scatter of one update in all is an update in place; one that does not lie inside puts back what was there.

    Source: XLA, ScatterExpander (simple scatters); programs compiled ahead of time.
    """
    if len(node.operands) != 3:
        return None
    target, indices, update = node.operands
    inside_window = node.attributes["update_window_dims"]
    outer = [size for d, size in enumerate(update.array.dimensions) if d not in inside_window]
    if prod(outer) != 1 or indices.array.dtype.name != "s32":
        return None
    sizes = [update.array.dimensions[d] for d in inside_window]
    for along in sorted({*node.attributes["inserted_window_dims"], *node.attributes.get("input_batching_dims", ())}):
        sizes.insert(along, 1)
    places = _places(build, indices, node)
    part = build.reshape(update, *sizes)
    found = build.dynamic_slice(target, places, sizes)
    combined = _combined(build, node.attributes["to_apply"], found, part)
    if combined is None:
        return None
    inside = _is_inside(build, target, places, sizes)
    if inside is not None:
        combined = build.apply("select", build.broadcast(inside, sizes, ()), combined, found)
    return build.update(target, combined, places)


def _places(build: Build, indices: Node, scatter: Node) -> dict[int, int | Node]:
    """Return where the only update begins, by the dimensions that it does not span from 0."""
    into = scatter.attributes["scatter_dims_to_operand_dims"]
    if number := splat_text(indices):
        return dict.fromkeys(into, int(number))
    flat = build.reshape(indices, len(into))
    return {along: build.reshape(build.slice(flat, 0, at, at + 1)) for at, along in enumerate(into)}


def _combined(build: Build, region: str, found: Node, part: Node) -> Node | None:
    """Return what a scatter's computation makes of what is there and an update."""
    draft = build.graph.draft
    if draft.graphs[region].root is draft.graphs[region].parameters[1]:
        return part
    opcode = only_opcode(draft, region)
    return build.apply(opcode, found, part) if opcode else None


def _is_inside(build: Build, target: Node, places: dict[int, int | Node], sizes: Sequence[int]) -> Node | None:
    """Return whether an update lies inside its target, or None if it does in any case."""
    tests = []
    for along, place in places.items():
        most = target.array.dimensions[along] - sizes[along]
        if isinstance(place, int) and 0 <= place <= most:
            continue
        start = build.constant(place, DTYPES["s32"]) if isinstance(place, int) else place
        tests += [
            build.compare("GE", start, build.splat(0, start)),
            build.compare("LE", start, build.splat(most, start)),
        ]
    return reduce(partial(build.apply, "and"), tests) if tests else None


@decomposes("scatter")
def one_hot(build: Build, node: Node) -> Node | None:
    """One number scattered onto another, once in every row, is selected where a row's place is the index.

    So the gradient of a cross-entropy is made in registers. Source: programs compiled ahead of time, in which such a
    scatter of numbers that are not all alike stays one.
    """
    named = node.attributes
    if len(node.operands) != 3 or named["update_window_dims"] or len(named["inserted_window_dims"]) != 1:
        return None
    target, indices, update = node.operands
    if indices.array.dtype.bits < _WORD:
        return None
    rows, numbers = named.get("input_batching_dims", ()), (splat_text(target), splat_text(update))
    if not all(numbers) or update.array.element_count != prod(target.array.dimensions[d] for d in rows):
        return None
    onto, number = (build.constant(text, node.array.dtype) for text in numbers)
    value = _combined(build, named["to_apply"], onto, number)
    if value is None:
        return None
    (along,) = named["inserted_window_dims"]
    sizes = target.array.dimensions
    by_row = [rows[at] for _, at in sorted(zip(named["scatter_indices_batching_dims"], range(len(rows)), strict=True))]
    place = build.reshape(indices, *(sizes[d] for d in by_row))
    own = build.iota(indices.array.dtype.name, sizes, along)
    is_there = build.compare("EQ", own, build.broadcast(place, sizes, by_row))
    return build.apply("select", is_there, build.broadcast(value, sizes, ()), target)


@decomposes("scatter")
def scatter(build: Build, node: Node) -> Node | None:
    """Indices of one number each have no dimension for it. Source: programs compiled ahead of time."""
    at = len(node.operands) // 2
    indices = _without_vector(build, node, node.operands[at])
    if indices is None:
        return None
    return build.graph.clone(node, [*node.operands[:at], indices, *node.operands[at + 1 :]])


def _without_vector(build: Build, node: Node, indices: Node) -> Node | None:
    """Return indices without the dimension of the numbers of one index, if it is the last and has size 1.

    ``index_vector_dim`` then points behind the last dimension, where XLA takes it to have size 1.
    """
    vector = node.attributes["index_vector_dim"]
    sizes = indices.array.dimensions
    if vector != len(sizes) - 1 or vector == 0 or sizes[vector] != 1:
        return None
    return build.reshape(indices, *sizes[:-1])


@decomposes("add", tolerance=1e-5)
def add_to_scatter(build: Build, node: Node) -> Node | None:
    """What is scattered onto zeros and then added is scattered onto what it is added to.

    Source: programs compiled ahead of time.
    """
    for made, other in (node.operands, reversed(node.operands)):
        if made.opcode != "scatter" or len(made.operands) != 3 or len(made.users) != 1:
            continue
        adds = only_opcode(build.graph.draft, made.attributes["to_apply"]) == "add"
        if adds and splat_text(made.operands[0]) in ("0", "-0") and other is not made:
            return build.graph.clone(made, [other, *made.operands[1:]])
    return None
