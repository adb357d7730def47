"""Gathers and scatters of windows, which kernels do not carry out: one window after the other, in a loop.

Kernels take rows: of the dimensions along which places are given they read and write one element. Longer windows they
read where these lie outside of tiles, or may be brought there; and they write none.

Source: XLA, GatherExpander and ScatterExpander; which ones stay whole, from 80 programs compiled ahead of time for v5e.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from math import prod

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.decompose.rules import decomposes
from tpusim.compiler.layouts.orders import boundary_order
from tpusim.compiler.layouts.rows import left_out, moved_dimensions, row_order, takes_rows, window_sizes
from tpusim.draft import Node
from tpusim.semantics.combining import REPLACE, sole_opcode
from tpusim.shapes.dtype import DTYPES

_MOST_BYTES = 128 * 1024
"""A window may be so large that its table is laid out anew for it: 128 rows of 1 KiB stay a gather, 129 do not."""


@decomposes("gather")
def read_windows(build: Build, node: Node) -> Node | None:
    """Windows that no kernel gathers are read one after the other."""
    table, indices = node.operands
    named, slices = node.attributes, node.attributes["slice_sizes"]
    if indices.array.dtype.name != "s32" or table.array.dtype.is_complex or not node.array.element_count:
        return None
    if _is_for_a_kernel(build, table, slices):
        return None
    batching = named.get("operand_batching_dims", ())
    by_batch = dict(zip(batching, named.get("start_indices_batching_dims", ()), strict=True))
    places, along = index_rows(build, indices, named["index_vector_dim"], named["start_index_map"], by_batch)
    window = [slices[d] for d in moved_dimensions(node)]
    count = places.array.dimensions[0]

    def trip(inner: Build, number: Node, arrays: list[Node]) -> list[Node]:
        table, places, made = arrays
        found = inner.dynamic_slice(table, _place(inner, places, number, along), slices)
        return [table, places, inner.update(made, inner.reshape(found, 1, *window), {0: number})]

    unwritten = build.broadcast(build.constant(0, table.array.dtype), (count, *window), ())
    made = build.loop(count, [table, places, unwritten], trip)[-1]
    rows = [d for d in range(node.array.rank) if d not in named["offset_dims"]]
    made = build.reshape(made, *(node.array.dimensions[d] for d in (*rows, *named["offset_dims"])))
    order = [*rows, *named["offset_dims"]]
    return build.turned(made, [order.index(d) for d in range(len(order))])


def _is_for_a_kernel(build: Build, table: Node, slices: Sequence[int]) -> bool:
    """Return whether a kernel gathers such slices: no part of a dimension, longer than one, may lie within tiles."""
    sizes, chip = table.array.dimensions, build.target.chip
    if not prod(slices) or all(size in (1, whole) for size, whole in zip(slices, sizes, strict=True)):
        return True
    given = boundary_order(table.array, chip)
    if takes_rows(sizes, slices, given):
        return True
    order = row_order(sizes, slices, given)
    padded = prod(slices) // slices[order[0]] * -(-slices[order[0]] // chip.vpu.lanes) * chip.vpu.lanes
    return takes_rows(sizes, slices, order) and padded * table.array.dtype.packed_bits <= 8 * _MOST_BYTES


@decomposes("scatter")
def write_windows(build: Build, node: Node) -> Node | None:
    """Windows that begin along a dimension, and do not only take one place of it, are written one after the other."""
    named = node.attributes
    if len(node.operands) != 3 or node.operands[1].array.dtype.name != "s32":
        return None
    target, indices, updates = node.operands
    outer = [d for d in range(updates.array.rank) if d not in named["update_window_dims"]]
    count = prod(updates.array.dimensions[d] for d in outer)
    batching = named.get("input_batching_dims", ())
    sizes = window_sizes(node)
    within = set(named["scatter_dims_to_operand_dims"]) - left_out(node)
    is_row = all(size in (1, whole) for size, whole in zip(sizes, target.array.dimensions, strict=True))
    if (
        (is_row and not within)
        or count < 2
        or not updates.array.element_count
        or not _combines(build, named["to_apply"])
    ):
        return None
    by_batch = dict(zip(batching, named.get("scatter_indices_batching_dims", ()), strict=True))
    into = named["scatter_dims_to_operand_dims"]
    places, along = index_rows(build, indices, named["index_vector_dim"], into, by_batch)
    window = [updates.array.dimensions[d] for d in named["update_window_dims"]]
    updates = build.reshape(build.turned(updates, [*outer, *named["update_window_dims"]]), count, *window)

    def trip(inner: Build, number: Node, arrays: list[Node]) -> list[Node]:
        target, places, updates = arrays
        part = inner.reshape(inner.dynamic_slice(updates, {0: number}, (1, *window)), *sizes)
        made = put(inner, target, _place(inner, places, number, along), part, named["to_apply"])
        assert made is not None
        return [made, places, updates]

    return build.loop(count, [target, places, updates], trip)[0]


def index_rows(
    build: Build, indices: Node, vector: int, into: Sequence[int], by_batch: Mapping[int, int]
) -> tuple[Node, list[int]]:
    """Return a row of places for each window, and the dimension along which each of its columns goes.

    ``by_batch`` has the batching dimensions of the indices by those of what is indexed.
    """
    rank = indices.array.rank
    outer = [d for d in range(rank) if d != vector]
    sizes = [indices.array.dimensions[d] for d in outer]
    count = prod(sizes)
    rows = indices if vector == rank else build.turned(indices, [*outer, vector])
    columns = [build.reshape(rows, count, len(into))]
    for batch in by_batch.values():
        columns.append(build.reshape(build.iota("s32", sizes, outer.index(batch)), count, 1))
    return build.concatenate(columns, 1) if len(columns) > 1 else columns[0], [*into, *by_batch]


def _place(build: Build, places: Node, number: Node, along: Sequence[int]) -> dict[int, int | Node]:
    """Return where a window begins, by dimension."""
    row = build.dynamic_slice(places, {0: number}, (1, len(along)))
    return {d: build.reshape(build.slice(row, 1, at, at + 1)) for at, d in enumerate(along)}


def put(build: Build, target: Node, places: Mapping[int, int | Node], part: Node, region: str) -> Node | None:
    """Return an array with a window put onto it by a scatter's computation; what does not lie inside is left out.

    None if the computation is not one that whole arrays are put together with.
    """
    sizes = part.array.dimensions
    found = build.dynamic_slice(target, places, sizes)
    made = combined(build, region, found, part)
    if made is None:
        return None
    inside = _is_inside(build, target, places, sizes)
    if inside is not None:
        made = build.apply("select", build.broadcast(inside, sizes, ()), made, found)
    return build.update(target, made, places)


def combined(build: Build, region: str, found: Node, part: Node) -> Node | None:
    """Return what a scatter's computation makes of what is there and an update."""
    opcode = sole_opcode(build.graph.draft.graphs, region)
    if opcode == REPLACE:
        return part
    return build.apply(opcode, found, part) if opcode else None


def _combines(build: Build, region: str) -> bool:
    return bool(sole_opcode(build.graph.draft.graphs, region))


def _is_inside(build: Build, target: Node, places: Mapping[int, int | Node], sizes: Sequence[int]) -> Node | None:
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
