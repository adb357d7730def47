"""Values of gather and scatter: windows of an array at places that another array gives.

Both come down to flat positions: where each window begins (``bases``) plus where its elements lie from there
(``offsets``, the same for all windows).

Source: XLA, Operation Semantics (Gather, Scatter).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpusim.compiled import njit
from tpusim.ir.module import Instruction
from tpusim.numerics.folds import take_turns
from tpusim.numerics.ops.dynamic import at_bounds, resized, sizes_of_slice
from tpusim.numerics.registry import Array, compute_type, computes
from tpusim.numerics.scalar_computation import binary_opcode, lifted_list
from tpusim.numerics.site import Site
from tpusim.numerics.values.relayout import put_at, take_at, word_type
from tpusim.semantics.combining import REPLACE
from tpusim.shapes.shape import TupleShape

Places = NDArray[np.int64]

_CODES = {"add": 0, "multiply": 1, "maximum": 2, "minimum": 3}
# On the bytes 0 and 1.
_CODES_OF_TRUTH_VALUES = {"or": 2, "and": 3}


class Windows(NamedTuple):
    """Windows of the operand: their sizes in all its dimensions, and their starts in some of them.

    ``starts`` maps a dimension of the operand to start indices, an array with one per window, of the dimensions
    ``outer``; in the other dimensions a window starts at 0.
    """

    dimensions: tuple[int, ...]
    sizes: tuple[int, ...]
    starts: dict[int, Places]
    outer: tuple[int, ...]

    @property
    def offsets(self) -> Places:
        """Flat positions of a window's elements, in row-major order, from where it begins."""
        axes = [
            np.arange(size) * stride for size, stride in zip(self.sizes, element_strides(self.dimensions), strict=True)
        ]
        return np.ravel(sum(np.ix_(*axes), np.zeros((), np.int64)))

    def bases(self, *, is_clamped: bool) -> Places:
        """Flat positions where windows begin, moved to lie inside if ``is_clamped``; else of no use if they do not."""
        strides, limits = element_strides(self.dimensions), np.subtract(self.dimensions, self.sizes)
        total = np.zeros(self.outer, np.int64)
        for d, start in self.starts.items():
            total = total + (np.clip(start, 0, limits[d]) if is_clamped else start) * strides[d]
        return np.ravel(total)

    def inside(self) -> NDArray[np.bool_]:
        """Return of each window whether all of it lies inside the operand."""
        limits = np.subtract(self.dimensions, self.sizes)
        parts = [(start >= 0) & (start <= limits[d]) for d, start in self.starts.items()]
        return np.ravel(np.logical_and.reduce([np.ones(self.outer, np.bool_), *parts]))


def _without(sizes: tuple[int, ...], dimension: int) -> tuple[int, ...]:
    """Return sizes without that of one dimension, which may lie past the last."""
    return sizes[:dimension] + sizes[dimension + 1 :]


def element_strides(dimensions: Sequence[int]) -> list[int]:
    """Return how many elements lie from one index to the next in every dimension of a row-major array."""
    return [prod(dimensions[number + 1 :]) for number in range(len(dimensions))]


def _starts(indices: Array, vector_dimension: int, indexed: Sequence[int], batching: dict[int, int]) -> dict[int, Any]:
    """Return the starts of all windows by dimension of the operand.

    ``indexed`` are the dimensions that the index vectors speak of, in order; ``batching`` maps further dimensions to
    those of ``indices`` whose own coordinate is the start.
    """
    # No index above the largest signed number can lie inside, and none may wrap to a negative one.
    wide = np.minimum(indices, np.iinfo(np.int64).max) if indices.dtype == np.uint64 else indices
    # An index vector dimension past the last one means that every element is a vector of one.
    vectors = wide[..., None] if vector_dimension == indices.ndim else np.moveaxis(wide, vector_dimension, -1)
    starts = {dimension: vectors[..., k].astype(np.int64) for k, dimension in enumerate(indexed)}
    shape = vectors.shape[:-1]
    for dimension, along in batching.items():
        # Without the dimension of the index vectors, those after it move down by one.
        axis = along - (along > vector_dimension)
        coordinate = np.arange(shape[axis]).reshape([-1 if d == axis else 1 for d in range(len(shape))])
        starts[dimension] = np.broadcast_to(coordinate, shape)
    return starts


@computes("gather")
def gather(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return a window of the operand for every index vector; a start that reaches out is moved in."""
    attributes, (found, indices) = instruction.attributes, operands
    operand = at_bounds(found, site.operand(instruction, 0).shape)
    own = attributes.get("operand_batching_dims", ())
    batching = dict(zip(own, attributes.get("start_indices_batching_dims", ()), strict=True))
    starts = _starts(indices, attributes["index_vector_dim"], attributes["start_index_map"], batching)
    sizes = attributes["slice_sizes"]
    outer = _without(indices.shape, attributes["index_vector_dim"])
    windows = Windows(operand.shape, sizes, starts, outer)
    values = take_windows(np.ravel(operand), windows.bases(is_clamped=True), windows.offsets)
    # Collapsed and batching dimensions have size 1 in a window and no dimension in the result.
    dropped = {*attributes["collapsed_slice_dims"], *own}
    kept = [dimension for dimension in range(operand.ndim) if dimension not in dropped]
    stated = (*outer, *[sizes[dimension] for dimension in kept])
    # Windows without elements that collapse leave none to take, and XLA fills the result with zeros.
    whole = values.reshape(stated) if windows.offsets.size else np.zeros(stated, operand.dtype)
    true_sizes = sizes_of_slice(sizes, operand.shape, found.shape)
    cut = resized(whole, (*outer, *[true_sizes[dimension] for dimension in kept]))
    return np.moveaxis(cut, range(len(outer), whole.ndim), attributes["offset_dims"])


def take_windows(flat: Array, bases: Places, offsets: Places) -> Array:
    """Return ``flat[bases[i] + offsets[j]]`` as a matrix."""
    width = offsets.size
    is_rows = width > 0 and flat.size % width == 0 and offsets[-1] == width - 1 and not (bases % width).any()
    # Whole rows of a table are NumPy's fastest case: twice as fast as the kernel.
    if is_rows:
        return flat.reshape(-1, width)[bases // width]
    result = np.empty((bases.size, width), flat.dtype)
    word = word_type(flat.dtype)
    take_at(flat.view(word), result.view(word), bases, offsets)
    return result


@computes("scatter")
def scatter(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the operands with updates combined into windows; a window that does not lie inside does nothing."""
    attributes, count = instruction.attributes, len(operands) // 2
    found, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    targets = [at_bounds(one, site.operand(instruction, place).shape) for place, one in enumerate(found)]
    windows = _scatter_windows(attributes, targets[0].shape, indices, updates[0].shape)
    inside, bases = windows.inside(), windows.bases(is_clamped=False)
    in_rows = [_update_rows(update, attributes["update_window_dims"]) for update in updates]
    if not inside.all():
        bases, in_rows = bases[inside], [rows[inside] for rows in in_rows]
    # flatten always copies: the operands belong to others.
    flat = [target.flatten() for target in targets]
    flat = combine_at(site, attributes["to_apply"], flat, in_rows, (bases, windows.offsets))
    whole = [one.reshape(target.shape) for one, target in zip(flat, targets, strict=True)]
    results = tuple(resized(one, own.shape) for one, own in zip(whole, found, strict=True))
    return results if isinstance(instruction.shape, TupleShape) else results[0]


def _scatter_windows(attributes: dict[str, Any], dimensions: Any, indices: Array, update: Sequence[int]) -> Windows:
    own = attributes.get("input_batching_dims", ())
    batching = dict(zip(own, attributes.get("scatter_indices_batching_dims", ()), strict=True))
    indexed = attributes["scatter_dims_to_operand_dims"]
    starts = _starts(indices, attributes["index_vector_dim"], indexed, batching)
    dropped = {*attributes["inserted_window_dims"], *own}
    given = iter(attributes["update_window_dims"])
    sizes = tuple(1 if d in dropped else update[next(given)] for d in range(len(dimensions)))
    return Windows(dimensions, sizes, starts, _without(indices.shape, attributes["index_vector_dim"]))


def _update_rows(update: Array, window_dims: Sequence[int]) -> Array:
    """Return updates as a matrix, one row per window."""
    outer = [d for d in range(update.ndim) if d not in window_dims]
    count = prod(update.shape[d] for d in outer)
    width = prod(update.shape[d] for d in window_dims)
    return update.transpose(*outer, *window_dims).reshape(count, width)


def combine_at(
    site: Site, name: str, targets: list[Array], updates: list[Array], places: tuple[Places, Places]
) -> list[Array]:
    """Return flat ``targets``, which are used up, with ``updates[i, j]`` combined in by the computation ``name``.

    ``places`` are the bases and offsets whose sums say where. Updates of one place follow one another in row-major
    order; where the computation is a plain one on narrow floats, they are rounded once, at the end.
    """
    bases, offsets = places
    opcode = binary_opcode(site.module, name) if len(targets) == 1 else None
    target, update = targets[0], updates[0]
    if opcode == REPLACE:
        # Bits move as words, so that one compiled kernel serves all types of a width.
        word = word_type(target.dtype)
        put_at(target.view(word), np.ascontiguousarray(update).view(word), bases, offsets)
        return [target]
    is_truth = target.dtype.kind == "b"
    code = (_CODES_OF_TRUTH_VALUES if is_truth else _CODES).get(opcode or "")
    if code is None or target.dtype.kind == "c":
        return _combine_in_rounds(site, name, targets, updates, places)
    wide = np.dtype(np.uint8) if is_truth else compute_type(target.dtype)
    result = target.astype(wide, copy=False)
    _combine(code, result, bases, offsets, update.astype(wide, copy=False))
    return [result.astype(target.dtype, copy=False)]


def _combine_in_rounds(
    site: Site, name: str, targets: list[Array], updates: list[Array], origins: tuple[Places, Places]
) -> list[Array]:
    """Combine by any computation: first the first update of every place, then the second ones, and so on."""
    flat, places = [np.ravel(update) for update in updates], np.ravel(origins[0][:, None] + origins[1])
    # Within one round no place occurs twice, so that one lifted call computes the whole round.
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    number = np.arange(places.size)
    is_first = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if places.size else np.zeros(0, np.bool_)
    turn = number - np.maximum.accumulate(np.where(is_first, number, 0))
    found = take_turns(site, name, targets, updates, origins, int(turn.max(initial=-1)) + 1)
    if found is not None:
        return found[0]
    by_turn = order[np.argsort(turn, kind="stable")]
    for chosen in np.split(by_turn, np.cumsum(np.bincount(turn))[:-1]):
        where = places[chosen]
        arguments = [target[where] for target in targets] + [update[chosen] for update in flat]
        for target, value in zip(targets, lifted_list(site, name, arguments), strict=True):
            target[where] = value
    return targets


@njit(cache=True)
def _combine(code: int, target: Array, bases: Places, offsets: Places, updates: Array) -> None:
    """Add, multiply by, or take the maximum or minimum with ``updates[i, j]`` at ``bases[i] + offsets[j]``."""
    for i in range(bases.size):
        for j in range(offsets.size):
            place = bases[i] + offsets[j]
            target[place] = _combined(code, target[place], updates[i, j])


@njit(cache=True)
def _combined(code: int, old: Any, new: Any) -> Any:
    """Apply the operation of a code; NaN wins over any number, and +0 is larger than -0."""
    if code == 0:
        return old + new
    if code == 1:
        return old * new
    if old == 0 and new == 0:
        # The sum of zeros is -0 only if both are.
        return old + new if code == 2 else -(-old - new)
    if code == 2:
        return old if old > new or old != old else new
    return old if old < new or old != old else new
