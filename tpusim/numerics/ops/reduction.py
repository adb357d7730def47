"""Values of reductions: reduce, reduce-window, select-and-scatter; and of scan.

The usual computations are one call of NumPy, in f32 for narrower floats and rounded once at the end; any other
computation is lifted and, where it may take neighbours first, folds an array in halves: n elements take log n calls.
Where it may not, compiled code takes one element after the other, or else n calls do, which count as work of loops.

Source: XLA, Operation Semantics (Reduce, ReduceWindow, SelectAndScatter).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpusim.errors import UnsupportedError
from tpusim.ir.attributes import Window, WindowDimension
from tpusim.ir.module import Instruction
from tpusim.ir.ops import IDEMPOTENT
from tpusim.limits import WINDOW_STEPS
from tpusim.numerics.folds import take_turns
from tpusim.numerics.grouping import may_group
from tpusim.numerics.ops.convert import convert_values
from tpusim.numerics.ops.dynamic import resized
from tpusim.numerics.ops.indexed import combine_at, element_strides
from tpusim.numerics.ops.movement import inside, padded
from tpusim.numerics.registry import Array, compute_type, computes, zeros
from tpusim.numerics.scalar_computation import apply_lifted, binary_opcode, lifted_list, select_values
from tpusim.numerics.site import Run, Settings, Site
from tpusim.numerics.values import floats
from tpusim.semantics.infer.types import parts
from tpusim.semantics.windows import output_size
from tpusim.shapes.shape import TupleShape

Pieces = list[Array]
Combine = Callable[[Pieces, Pieces], Pieces]

UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
"""NumPy's functions for the usual computations of two scalars, by opcode."""

# Which zero NumPy's own functions give for +0 and -0 depends on their order.
_OF_ZEROS: dict[np.ufunc, Callable[..., Any]] = {np.maximum: floats.maximum, np.minimum: floats.minimum}


@computes("reduce")
def reduce(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return operands reduced over some dimensions by a computation, each beginning with its initial value."""
    axes, name = tuple(instruction.attributes["dimensions"]), instruction.attributes["to_apply"]
    arrays, inits = operands[: len(operands) // 2], operands[len(operands) // 2 :]
    opcode = binary_opcode(site.module, name) if len(arrays) == 1 else None
    if opcode in UFUNCS:
        results = [reduced(UFUNCS[opcode], arrays[0], inits[0], axes, site.settings)]
    else:
        # Beside others what a dynamic size leaves out counts as an initial value.
        most = np.max([array.shape for array in arrays], 0).tolist()
        filled = [resized(array, most, init) for array, init in zip(arrays, inits, strict=True)]
        whole = _reduced_by_any(site, name, filled, inits, axes)
        results = [resized(one, _kept(array.shape, axes)) for one, array in zip(whole, arrays, strict=True)]
    return tuple(results) if isinstance(instruction.shape, TupleShape) else results[0]


def _kept(sizes: Sequence[int], axes: Collection[int]) -> list[int]:
    """Return the sizes of the dimensions that are not reduced."""
    return [size for axis, size in enumerate(sizes) if axis not in axes]


def _reduced_by_any(site: Site, name: str, arrays: Pieces, inits: Pieces, axes: tuple[int, ...]) -> Pieces:
    # With the reduced dimensions first, rows are what the computation combines, and the rest goes along.
    rest = _kept(arrays[0].shape, axes)
    count = prod(arrays[0].shape[axis] for axis in axes)
    rows = [np.moveaxis(array, sorted(axes), range(len(axes))).reshape(count, *rest) for array in arrays]

    def combine(left: Pieces, right: Pieces) -> Pieces:
        return [np.broadcast_to(v, left[0].shape) for v in lifted_list(site, name, [*left, *right])]

    # XLA may use the initial value any number of times; once, on the left, is what the definition shows.
    starts = [np.broadcast_to(init, rest) for init in inits]
    # Such as x + y * y, which takes what has been reduced so far on its left and one element on its right.
    if not may_group(site, name, [*arrays, *inits]):
        places = np.zeros(count, np.int64), np.arange(prod(rest))
        flat, elements = [np.ravel(start) for start in starts], [row.reshape(count, prod(rest)) for row in rows]
        if (found := take_turns(site, name, flat, elements, places, count)) is not None:
            return [start.reshape(rest) for start in found[0]]
        for number in range(count):
            starts = combine(starts, [row[number] for row in rows])
        return starts
    return combine(starts, [row[0] for row in _folded(rows, combine)]) if count else starts


def reduced(ufunc: np.ufunc, array: Array, init: Array, axes: tuple[int, ...], settings: Settings) -> Array:
    """Reduce by one of NumPy's functions, in a type wide enough to round only once, to that of the initial value."""
    wide = compute_type(init.dtype)
    # NumPy adds the rows of a matrix one after the other; in f32 a long column would lose five digits.
    if ufunc is np.add and wide == np.float32 == init.dtype and settings.precision == "exact":
        wide = np.dtype(np.float64)
    start = init.astype(wide)[()]
    result = _reduced_by(ufunc, convert_values(array, wide), axes, start)
    return np.asarray(result).astype(init.dtype, copy=False)


def _reduced_by(ufunc: np.ufunc, array: Array, axes: int | tuple[int, ...], start: Any, keep: bool = False) -> Array:
    """Reduce by one of NumPy's functions, which takes the first of two zeros where XLA tells them apart."""
    if array.dtype.kind in "fc" and ufunc not in _OF_ZEROS:
        # NumPy adds in the order in which elements lie, on which values should not depend.
        array = np.asarray(array, order="C")
    result = np.asarray(ufunc.reduce(array, axis=axes, dtype=array.dtype, initial=start, keepdims=keep))
    if array.dtype.kind != "f" or ufunc not in _OF_ZEROS or (result != 0).all():
        return result
    # Of zeros alone +0 is the largest, -0 the smallest: one of that kind is enough.
    wanted_sign = ufunc is np.minimum
    is_there = np.any((array == 0) & (np.signbit(array) == wanted_sign), axes, keepdims=keep)
    is_there = is_there | bool(start == 0 and np.signbit(start) == wanted_sign)
    chosen = np.where(is_there == wanted_sign, array.dtype.type(-0.0), array.dtype.type(0))
    return np.asarray(np.where(result == 0, chosen, result))


def _folded(rows: Pieces, combine: Combine) -> Pieces:
    """Combine neighbours along the first axis until one row is left; no row changes its place in the order."""
    while (count := len(rows[0])) > 1:
        # Neighbours, not halves: a computation need not commute.
        even = count - count % 2
        pairs = combine([row[0:even:2] for row in rows], [row[1:even:2] for row in rows])
        rows = [np.concatenate([p, row[even:]]) for p, row in zip(pairs, rows, strict=True)] if count % 2 else pairs
    return rows


@computes("reduce-window")
def reduce_window(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return operands reduced over every position of a window; padding and holes of dilation count for nothing."""
    count, name = len(operands) // 2, instruction.attributes["to_apply"]
    arrays, inits = operands[:count], operands[count:]
    # A scalar has no dimensions over which a window could go, and the text then no window.
    window = instruction.attributes.get("window", Window()).dimensions
    opcode = binary_opcode(site.module, name) if count == 1 else None
    # Complex numbers have an order, but no first and no last one.
    if opcode in UFUNCS and not (opcode in IDEMPOTENT and arrays[0].dtype.kind == "c"):
        results = [_usual_windows(UFUNCS[opcode], arrays[0], inits[0], window)]
    else:
        results = _any_windows(site, name, arrays, inits, window)
    return tuple(results) if isinstance(instruction.shape, TupleShape) else results[0]


def _usual_windows(ufunc: np.ufunc, array: Array, init: Array, window: Sequence[WindowDimension]) -> Array:
    """Reduce windows by one of NumPy's functions; padding is what that function leaves alone."""
    wide = compute_type(init.dtype)
    kernel = kernel_of(ufunc, wide)

    def combine(left: Pieces, right: Pieces) -> Pieces:
        return [np.asarray(kernel(left[0], right[0]), wide)]

    pieces, neutral = [convert_values(array, wide)], neutral_of(ufunc, wide)
    # The minor dimension first keeps the elements of a window in row-major order.
    for axis in reversed(range(array.ndim)):
        # Compiled softmaxes write "the maximum of the row, everywhere" as such a window.
        if _sees_everything(pieces[0].shape[axis], window[axis]):
            whole = _reduced_by(ufunc, pieces[0], axis, neutral, keep=True)
            pieces = [np.repeat(whole, output_size(window[axis], array.shape[axis]), axis)]
        else:
            pieces = _slide(pieces, [neutral], axis, window[axis], combine)
    # The kernels take arrays of one dimension or more.
    result = np.asarray(kernel(init.astype(wide), np.atleast_1d(pieces[0])), wide).reshape(pieces[0].shape)
    return result.astype(init.dtype, copy=False)


def kernel_of(ufunc: np.ufunc, dtype: np.dtype[Any]) -> Callable[..., Any]:
    """Return the function that computes one of ``UFUNCS`` by XLA's rules on two arrays of a type."""
    return _OF_ZEROS.get(ufunc, ufunc) if dtype.kind == "f" else ufunc


def neutral_of(ufunc: np.ufunc, dtype: np.dtype[Any]) -> Any:
    """Return the value that one of ``UFUNCS`` leaves every other value alone with."""
    if ufunc in (np.maximum, np.minimum):
        ends = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return dtype.type(ends[ufunc is np.minimum])
    if ufunc is np.bitwise_and:
        return ~dtype.type(0)
    # Zero plus minus zero is zero, so only minus zero leaves both zeros alone.
    return dtype.type(1 if ufunc is np.multiply else -0.0 if ufunc is np.add and dtype.kind == "f" else 0)


def _any_windows(site: Site, name: str, arrays: Pieces, inits: Pieces, window: Sequence[WindowDimension]) -> Pieces:
    """Reduce windows by any computation; a mask beside the values says which of them are there."""
    if not may_group(site, name, [*arrays, *inits]):
        return _windows_in_order(site, name, arrays, inits, window)

    def combine(left: Pieces, right: Pieces) -> Pieces:
        both = lifted_list(site, name, [*left[:-1], *right[:-1]])
        either = [np.where(left[-1], *pair) for pair in zip(left[:-1], right[:-1], strict=True)]
        found = left[-1] & right[-1]
        return [*select_values(found, tuple(both), tuple(either)), left[-1] | right[-1]]

    # The mask travels with the values: padding it says that nothing is there.
    pieces = [*arrays, np.ones(arrays[0].shape, np.bool_)]
    for axis in reversed(range(arrays[0].ndim)):
        pieces = _slide(pieces, [*inits, False], axis, window[axis], combine)
    return combine([*inits, np.ones((), np.bool_)], pieces)[:-1]


def _windows_in_order(
    site: Site, name: str, arrays: Pieces, inits: Pieces, window: Sequence[WindowDimension]
) -> Pieces:
    """Reduce windows element by element in row-major order, all windows at once."""
    edges = [(d.pad_low, d.pad_high, d.lhs_dilate - 1) for d in window]
    pieces = [padded(array, init, edges) for array, init in zip(arrays, inits, strict=True)]
    present = padded(np.ones(arrays[0].shape, np.bool_), np.zeros((), np.bool_), edges)
    counts = [output_size(d, size) for size, d in zip(arrays[0].shape, window, strict=True)]
    reduced: Pieces = [np.broadcast_to(init, counts) for init in inits]
    for offset in _offsets(site, name, window) if min(counts, default=1) else ():
        spans = [
            (place * d.rhs_dilate, count, d.stride) for place, count, d in zip(offset, counts, window, strict=True)
        ]
        seen: Any = (*(slice(at, at + (count - 1) * stride + 1, stride) for at, count, stride in spans), ...)
        following = lifted_list(site, name, [*reduced, *(piece[seen] for piece in pieces)])
        # Padding and holes of dilation leave what has been reduced so far as it is.
        reduced = [np.where(present[seen], *pair) for pair in zip(following, reduced, strict=True)]
    return reduced


def _offsets(site: Site, name: str, window: Sequence[WindowDimension]) -> Iterator[tuple[int, ...]]:
    """Yield the places in a window, in row-major order, or refuse one with too many to apply a computation to."""
    sizes = [dimension.size for dimension in window]
    if fault := WINDOW_STEPS.fault(prod(sizes)):
        raise UnsupportedError(fault)
    site.device.work.apply(name, prod(sizes))
    yield from np.ndindex(*sizes)


def _sees_everything(size: int, dimension: WindowDimension) -> bool:
    """Return whether every position of the window covers all ``size`` elements, as in a compiled softmax."""
    last = (output_size(dimension, size) - 1) * dimension.stride - dimension.pad_low
    # The first position ends no earlier than the last element, the last one begins no later than the first.
    is_plain = dimension.rhs_dilate == 1 and dimension.lhs_dilate == 1
    return is_plain and dimension.pad_low >= 0 and last <= 0 and dimension.size - dimension.pad_low >= size


def _slide(pieces: Pieces, fills: Sequence[Any], axis: int, dimension: WindowDimension, combine: Combine) -> Pieces:
    """Reduce over the window in one dimension.

    Runs of 1, 2, 4, ... elements are computed at all places, and a window is put together of some of them: its size in
    binary says which. So a window of n elements takes at most 2 log n calls.
    """
    count = output_size(dimension, pieces[0].shape[axis])
    edges = [(0, 0, 0)] * pieces[0].ndim
    edges[axis] = (dimension.pad_low, dimension.pad_high, dimension.lhs_dilate - 1)
    runs = [padded(piece, fill, edges) for piece, fill in zip(pieces, fills, strict=True)]
    # ``begin`` is what of the window is done, ``reach`` how far apart two neighbouring runs begin.
    result: Pieces = []
    begin, reach, left = 0, dimension.rhs_dilate, dimension.size
    while True:
        if left % 2:
            part = [_from(run, axis, begin, count, dimension.stride) for run in runs]
            result = combine(result, part) if result else part
            begin += reach
        left //= 2
        if not left or not count:
            return result or [_from(run, axis, 0, 0, 1) for run in runs]
        length = runs[0].shape[axis] - reach
        runs = combine(
            [_from(run, axis, 0, length, 1) for run in runs], [_from(run, axis, reach, length, 1) for run in runs]
        )
        reach *= 2


def _from(array: Array, axis: int, begin: int, count: int, stride: int) -> Array:
    """Return ``count`` elements along an axis, ``stride`` apart, as a view."""
    # No further than the last one: a stride may lead past the end of the array.
    end = begin + max(0, count - 1) * stride + min(1, count)
    return array[(slice(None),) * axis + (slice(begin, end, stride),)]


@computes("select-and-scatter")
def select_and_scatter(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the initial value everywhere, with each source element combined in where its window selects."""
    operand, source, init = operands
    window = instruction.attributes["window"].dimensions
    chosen = _selected(site, instruction.attributes["select"], operand, source.shape, window)
    result = np.full(operand.size, init, operand.dtype)
    found = np.ravel(chosen >= 0)
    places, rows = np.ravel(chosen)[found], source.reshape(-1, 1)[found]
    only = np.zeros(1, np.int64)
    combined = combine_at(site, instruction.attributes["scatter"], [result], [rows], (places, only))
    return combined[0].reshape(operand.shape)


def _selected(
    site: Site, name: str, operand: Array, counts: Sequence[int], window: Sequence[WindowDimension]
) -> NDArray[np.int64]:
    """Return the flat position in ``operand`` that every position of the window selects, or -1 if it sees nothing.

    Elements are looked at in row-major order; the selected one stays as long as the computation ``name`` prefers it.
    """
    best = np.zeros(counts, operand.dtype)
    chosen = np.full(counts, -1, np.int64)
    strides = element_strides(operand.shape)
    # One step per element of the window, not per position: windows are small and positions many.
    for offset in _offsets(site, name, window):
        parts = zip(counts, operand.shape, window, offset, strict=True)
        # The positions whose window has this element inside the operand, and which elements these are.
        spans = [inside(count, place - d.pad_low, d.stride, size) for count, size, d, place in parts]
        # The ellipsis makes a view of an array of rank 0 as well.
        seen: Any = (*(span[0] for span in spans), ...)
        there: Any = (*(span[1] for span in spans), ...)
        candidate = operand[there]
        keeps = apply_lifted(site, name, [best[seen], candidate]) & (chosen[seen] >= 0)
        axes = [np.arange(n)[span[1]] * stride for n, span, stride in zip(operand.shape, spans, strides, strict=True)]
        np.copyto(best[seen], candidate, where=~keeps)
        np.copyto(chosen[seen], sum(np.ix_(*axes)), where=~keeps)
    return chosen


@computes("scan")
def scan(site: Site, instruction: Instruction, operands: list[Any]) -> Generator[Run, Any, Any]:
    """Return what a computation gives for one slice after the other, and the values that it last carried.

    Operands are the scanned arrays, then ``num_carries`` initial values. The computation takes the slices, without the
    scanned dimension, and the carried values; it returns the slices of the results and the new carried values.
    """
    attributes = instruction.attributes
    axis, carry_count = attributes["dimensions"][0], attributes["num_carries"]
    arrays = operands[: len(operands) - carry_count]
    carried = list(operands[len(arrays) :])
    # One result alone, stacked or carried, is no tuple of one.
    elements = parts(instruction.shape)
    results = list(map(zeros, elements[: len(elements) - carry_count]))
    count = arrays[0].shape[axis] if arrays else results[0].shape[axis]
    order = range(count)[:: -1 if attributes.get("is_reverse") else 1]
    if (found := _scanned(site, instruction, arrays, carried, order)) is not None:
        carried, results = found
        order = range(0)
    for step in order:
        slices = [np.take(array, step, axis) for array in arrays]
        value = yield Run(attributes["to_apply"], slices + carried)
        given = value if isinstance(value, tuple) else (value,)
        for result, part in zip(results, given, strict=False):
            result[(slice(None),) * axis + (step,)] = part
        carried = list(given[len(results) :])
    return (*results, *carried) if isinstance(instruction.shape, TupleShape) else (*results, *carried)[0]


def _scanned(
    site: Site, instruction: Instruction, arrays: Pieces, carried: Pieces, order: range
) -> tuple[Pieces, Pieces] | None:
    """Return what a scan last carried, and its results, where compiled code takes one element after the other."""
    name, is_of_rows = instruction.attributes["to_apply"], all(array.ndim == 1 for array in arrays)
    if not is_of_rows or any(np.ndim(value) for value in carried):
        site.device.work.apply(name, len(order))
        return None
    states, elements = [np.reshape(value, 1) for value in carried], [array[:: order.step, None] for array in arrays]
    places = np.zeros(len(order), np.int64), np.zeros(1, np.int64)
    found = take_turns(site, name, states, elements, places, len(order), is_state_first=False)
    if found is None:
        return None
    results = [np.ascontiguousarray(result[:: order.step]) for result in found[1]]
    return [value.reshape(()) for value in found[0]], results
