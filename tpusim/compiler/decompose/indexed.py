"""Gathers and scatters that kernels carry out, and those that are something else."""

from __future__ import annotations

from functools import partial, reduce
from math import prod

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.decompose.rules import decomposes

# Its rules come before those below.
from tpusim.compiler.decompose.windows import combined, index_rows, put
from tpusim.compiler.layouts.rows import moved_dimensions, window_sizes
from tpusim.compiler.simplify.rules import splat_text
from tpusim.draft import Node
from tpusim.semantics.combining import sole_opcode
from tpusim.shapes.shape import ArrayShape


@decomposes("gather")
def gather(build: Build, node: Node) -> Node | None:
    """Indices of one number each have no dimension for it, and are brought inside where they are made.

    Nor has what is gathered dimensions of one element. Source: programs compiled ahead of time.
    """
    if simpler := _without_units(build, node) or _one_behind_the_other(build, node):
        return build.reshape(gather(build, simpler) or simpler, *node.array.dimensions)
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
    operand, named, spanned = node.operands[0], node.attributes, moved_dimensions(node)
    sizes, indexed = operand.array.dimensions, named["start_index_map"]
    # A slice may also take nothing of one element.
    spans = [size == taken == 1 for size, taken in zip(sizes, named["slice_sizes"], strict=True)]
    units = [(d, at) for d, at in spanned.items() if spans[d] and d not in indexed]
    if not units:
        return None
    gone, gone_at = ({pair[side] for pair in units} for side in (0, 1))
    kept = [d for d in range(operand.array.rank) if d not in gone]
    kept_at = [at for at in range(node.array.rank) if at not in gone_at]
    renamed: dict[str, object] = {
        name: tuple(kept.index(d) for d in named.get(name, ()))
        for name in ("collapsed_slice_dims", "operand_batching_dims", "start_index_map")
    }
    renamed["offset_dims"] = tuple(kept_at.index(at) for at in spanned.values() if at not in gone_at)
    renamed["slice_sizes"] = tuple(named["slice_sizes"][d] for d in kept)
    shape = ArrayShape(node.array.dtype, tuple(node.array.dimensions[at] for at in kept_at))
    thin = build.reshape(operand, *(operand.array.dimensions[d] for d in kept))
    return build.graph.add("gather", shape, [thin, *node.operands[1:]], named | renamed)


def _one_behind_the_other(build: Build, node: Node) -> Node | None:
    """Return a gather of the rows of all indices one behind the other, None where they lie so in any case.

    A kernel gathers rows of registers that are all in use. Rows of several dimensions are laid out as such behind it,
    which moves them where the last of these dimensions ends within a register.

    Source: 30 programs compiled ahead of time for v5e (libtpu 0.0.52).
    """
    named, (table, indices) = node.attributes, node.operands
    rank, offsets, vector = node.array.rank, named["offset_dims"], named["index_vector_dim"]
    sizes = node.array.dimensions[: rank - len(offsets)]
    is_last = offsets == tuple(range(rank - len(offsets), rank)) and indices.array.dtype.name == "s32"
    large = [size for size in sizes if size > 1]
    if not is_last or len(offsets) != 1 or len(large) < 2 or not node.array.element_count:
        return None
    if large[-1] % build.target.chip.vpu.sublanes == 0:
        return None
    batches = named.get("operand_batching_dims", ())
    by_batch = dict(zip(batches, named.get("start_indices_batching_dims", ()), strict=True))
    places, along = index_rows(build, indices, vector, named["start_index_map"], by_batch)
    # Indices are in order within a batch alone.
    gone = {"operand_batching_dims", "start_indices_batching_dims", *(["indices_are_sorted"] if batches else [])}
    flat = {name: value for name, value in named.items() if name not in gone} | {
        "offset_dims": (1,),
        "collapsed_slice_dims": tuple(sorted((*named["collapsed_slice_dims"], *batches))),
        "start_index_map": tuple(along),
        "index_vector_dim": 1,
    }
    shape = ArrayShape(node.array.dtype, (prod(sizes), node.array.dimensions[-1]))
    return build.graph.add("gather", shape, [table, places], flat)


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
    sizes = window_sizes(node)
    # However many updates have no elements.
    is_one = update.array.element_count == prod(sizes) != 0
    if not is_one or indices.array.dtype.name != "s32":
        return None
    return put(build, target, _places(build, indices, node), build.reshape(update, *sizes), node.attributes["to_apply"])


def _places(build: Build, indices: Node, scatter: Node) -> dict[int, int | Node]:
    """Return where the only update begins, by the dimensions that it does not span from 0."""
    into = scatter.attributes["scatter_dims_to_operand_dims"]
    if number := splat_text(indices):
        return dict.fromkeys(into, int(number))
    flat = build.reshape(indices, len(into))
    return {along: build.reshape(build.slice(flat, 0, at, at + 1)) for at, along in enumerate(into)}


@decomposes("scatter")
def one_hot(build: Build, node: Node) -> Node | None:
    """What is scattered once into every row is selected where a row's place is the index.

    So the gradient of a cross-entropy is made in registers. Only of a list of one index for each row, as
    ``take_along_axis`` has it: an index without a list is scattered. Source: programs compiled ahead of time (libtpu
    0.0.52), 18 of such lists, numbers that are all alike or not, added or put in their place, and nine others.
    """
    named = node.attributes
    if len(node.operands) != 3 or named["update_window_dims"] or len(named["inserted_window_dims"]) != 1:
        return None
    target, indices, update = node.operands
    # Places of a narrow type begin again.
    if indices.array.dtype.bits < _WORD or named["scatter_dims_to_operand_dims"] != named["inserted_window_dims"]:
        return None
    rows, batching = (named.get(key, ()) for key in ("input_batching_dims", "scatter_indices_batching_dims"))
    lists = set(range(indices.array.rank)) - {named["index_vector_dim"], *batching}
    if not lists or update.array.element_count != prod(target.array.dimensions[d] for d in rows):
        return None
    (along,) = named["inserted_window_dims"]
    sizes = target.array.dimensions
    by_row = [row for _, row in sorted(zip(batching, rows, strict=True))]
    place, own = (build.reshape(one, *(sizes[d] for d in by_row)) for one in (indices, update))
    value = combined(build, named["to_apply"], target, build.broadcast(own, sizes, by_row))
    if value is None:
        return None
    column = build.iota(indices.array.dtype.name, sizes, along)
    return build.apply("select", build.compare("EQ", column, build.broadcast(place, sizes, by_row)), value, target)


@decomposes("scatter")
def scatter_points(build: Build, node: Node) -> Node | None:
    """Many numbers, each with several indices, go into the array as one row, by one index each: -1 if outside.

    What is gone through side by side is an index as well. Source: programs compiled ahead of time, sixteen side by
    side of them (libtpu 0.0.52).
    """
    named = node.attributes
    if len(node.operands) != 3 or node.operands[1].array.dtype.name != "s32":
        return None
    target, indices, updates = node.operands
    sizes, count = target.array.dimensions, updates.array.element_count
    side_by_side = (named.get(key, ()) for key in ("input_batching_dims", "scatter_indices_batching_dims"))
    by_batch = dict(zip(*side_by_side, strict=True))
    into = named["scatter_dims_to_operand_dims"]
    # Places along all dimensions: no window is left.
    if not 2 <= len(sizes) == len(into) + len(by_batch) or count <= _MOST_POINTS or named["update_window_dims"]:
        return None
    if target.array.element_count > _MOST_PLACES:
        return None
    rows, along_all = index_rows(build, indices, named["index_vector_dim"], into, by_batch)
    columns = [build.reshape(build.slice(rows, 1, at, at + 1), count) for at in range(len(along_all))]
    zero = build.splat(0, columns[0])
    place, tests = zero, []
    for d, size in enumerate(sizes):
        along, bound = columns[along_all.index(d)], build.splat(size, zero)
        tests += [build.compare("GE", along, zero), build.compare("LT", along, bound)]
        place = build.apply("add", build.apply("multiply", place, bound), along)
    place = build.apply("select", reduce(partial(build.apply, "and"), tests), place, build.splat(-1, zero))
    operands = [build.reshape(target, target.array.element_count), place, build.reshape(updates, count)]
    return build.reshape(build.scatter(operands, named["to_apply"]), *sizes)


_MOST_POINTS = 1023
"""So many numbers are scattered by several indices each; more by one index each, into the array as one row."""

_MOST_PLACES = 2**31 - 1
"""Places that a number of 32 bits tells apart."""


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
        adds = sole_opcode(build.graph.draft.graphs, made.attributes["to_apply"]) == "add"
        if adds and splat_text(made.operands[0]) in ("0", "-0") and other is not made:
            return build.graph.clone(made, [other, *made.operands[1:]])
    return None
