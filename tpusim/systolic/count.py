"""Systolic arrays cycle by cycle: every register of every element, the values that come out, and which were busy when.

In each cycle an element reads what its neighbours' registers held after the previous one. ``closed_form`` computes how
many cycles this takes; here they are counted. The models of the three dataflows stand in ``weight_stationary`` (an
operand stays: ``ws``, ``is``) and ``output_stationary`` (the result stays: ``os``).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from tpusim.errors import ProgramError, SimulationError, UnsupportedError
from tpusim.hardware.array import Array
from tpusim.program.layers import Layer
from tpusim.systolic.closed_form import Folds, cut_folds, run_gemm, share_folds
from tpusim.systolic.memory.demands import kept_rows
from tpusim.systolic.output_stationary import run_output_stationary
from tpusim.systolic.registers import Operands, Values
from tpusim.systolic.weight_stationary import run_weight_stationary
from tpusim.timeline.folds import ArrayRun

# Each element takes some eight bytes, each cycle some seventeen.
_MOST_ELEMENTS: Final = 1 << 26
_MOST_CYCLES: Final = 1 << 24


class CycleRun(NamedTuple):
    """A product as the arrays computed it."""

    totals: ArrayRun
    values: Values
    """The product, (m, n), in the type of the operands: f32, f64, or i64 for all whole numbers."""
    macs: Values
    """Multiply-accumulates of every element, (array, row, column)."""
    active: Values
    """Multiply-accumulates of every cycle, over all arrays; with one row per cycle, the elements at work."""


class _One(NamedTuple):
    """What one array did."""

    cycles: int
    macs: Values
    active: Values


def run_cycle_by_cycle(lhs: Values, rhs: Values, array: Array) -> CycleRun:
    """Return what the arrays of a core make of an (m, k) and a (k, n) matrix, and how.

    Sums run down the rows of a fold, then over the folds; operands that are neither f64 nor whole are computed in f32.
    Passes beyond the first stream zeros: they take their time, but which pieces of which operands they would carry is
    not known here. Raises ProgramError if the matrices do not fit together.
    """
    if lhs.ndim != 2 or rhs.ndim != 2 or lhs.shape[1] != rhs.shape[0] or not lhs.size or not rhs.size:
        raise ProgramError(f"expected matrices (m, k) and (k, n), none empty, found {lhs.shape} and {rhs.shape}")
    kind: Any = np.result_type(lhs, rhs)
    kind = np.int64 if kind.kind in "biu" else np.float64 if kind == np.float64 else np.float32
    # The product with the left operand at rest is the transposed product with the right one at rest.
    turned = array.dataflow == "is"
    left, right = (rhs.T, lhs.T) if turned else (lhs, rhs)
    layer = Layer(name="", m=lhs.shape[0], n=rhs.shape[1], k=lhs.shape[1])
    folds = cut_folds(layer, array)
    operands = _lay_out(left.astype(kind), right.astype(kind), array)
    runs = [_run_array(operands, folds, array, part) for part in share_folds(folds.total, array.count)]
    active = np.zeros(max(len(run.active) for run in runs), np.int64)
    for run in runs:
        active[: len(run.active)] += run.active
    macs = np.stack([run.macs for run in runs])
    out = operands.out if array.dataflow == "os" else _join_lanes(operands.out, left.shape[0])
    return CycleRun(_totals(layer, array, runs), out if turned else out.T, macs, active)


def _lay_out(left: Values, right: Values, array: Array) -> Operands:
    """Return an (m, k) and a (k, n) matrix as the array reads them, and room for their product."""
    lanes, stays = array.rows_per_cycle, array.dataflow == "os"
    length = left.shape[1 if stays else 0]
    # The last cycle of a stream may not have something for every lane.
    steps = np.array([len(range(lane, length, lanes)) for lane in range(lanes)])
    if stays:
        stream = np.ascontiguousarray(_split_lanes(left, lanes).transpose(1, 2, 0))
        return Operands(
            stream, _split_lanes(right.T, lanes), np.zeros((right.shape[1], left.shape[0]), left.dtype), steps
        )
    out = np.zeros((right.shape[1], lanes, steps[0]), left.dtype)
    return Operands(_split_lanes(left.T, lanes), np.ascontiguousarray(right.T), out, steps)


def _split_lanes(values: Values, lanes: int) -> Values:
    """Return (x, step of any lane) as (x, lane, step), zeros where there is none."""
    padded = np.pad(values, ((0, 0), (0, -values.shape[1] % lanes)))
    return np.ascontiguousarray(padded.reshape(len(values), -1, lanes).transpose(0, 2, 1))


def _join_lanes(values: Values, length: int) -> Values:
    """Return (x, lane, step) as (x, step of any lane)."""
    return values.transpose(0, 2, 1).reshape(len(values), -1)[:, :length]


def _run_array(operands: Operands, folds: Folds, array: Array, run: range) -> _One:
    """Let one array compute its folds, and add their results to the product."""
    tiles = np.array([_write_down(fold, folds, array) for fold in run])
    sizes = np.array([array.rows, array.columns, array.overlaps])
    macs = np.zeros((array.rows, array.columns), np.int64)
    # No dataflow can take longer: folds one after the other, tiles in and sums out at full height.
    most_cycles = len(run) * (folds.stream_cycles + 3 * array.rows + array.columns) + 1
    active = np.zeros(most_cycles, np.int64)
    kernel = run_output_stationary if array.dataflow == "os" else run_weight_stationary
    cycles = int(kernel(operands, tiles, sizes, macs, active))
    # SCALE-Sim counts the cycles from 0 and reports the last one's number.
    return _One(cycles if array.overlaps else cycles - 1, macs, active[:cycles])


def _write_down(fold: int, folds: Folds, array: Array) -> tuple[int, ...]:
    """Return a fold as ``registers`` reads it: its tile, its pass, and when the array is free for what comes next."""
    column, within = divmod(fold, folds.per_column)
    number, place = divmod(within, folds.high)
    height = folds.last_height if folds.is_ragged(fold) else array.rows
    width = folds.last_width if column == folds.wide - 1 else array.columns
    across = folds.stream_cycles + array.rows + array.columns - 2
    if array.dataflow == "os":
        # Sums that are ready have to be out before the next ones are.
        lead, busy = 0, max(folds.stream_cycles, height)
        stay = across + (array.rows + height if array.overlaps else 0)
    else:
        lead, busy, stay = height if array.overlaps else array.rows, folds.stream_cycles, across
    return place * array.rows, height, column * array.columns, width, number, lead, busy, stay


def _totals(layer: Layer, array: Array, runs: list[_One]) -> ArrayRun:
    """Return the totals that were counted; only what the product and the array state is taken from the closed form."""
    expected = run_gemm(layer, array)
    cycles = max(run.cycles for run in runs)
    computing = sum(_span(run.active != 0) for run in runs) * (array.mac_slots // array.count)
    return msgspec.structs.replace(
        expected,
        cycles=cycles,
        macs=int(sum(run.macs.sum(dtype=np.int64) for run in runs)),
        slots=cycles * array.mac_slots,
        computing_slots=computing if array.overlaps else expected.computing_slots,
    )


def _span(is_busy: Values) -> int:
    """Return the cycles from the first multiply-accumulate to the last."""
    return len(is_busy) - int(is_busy.argmax()) - int(is_busy[::-1].argmax())


def count_layer(layer: Layer, array: Array) -> ArrayRun:
    """Return what a product of random whole numbers took, cycle by cycle; the array is fed the rows that are kept.

    Raises UnsupportedError if that would take all memory or all day, and where columns keep rows of their own; and
    SimulationError if the array's values are not the product, which would be a fault of this model.
    """
    if layer.rowwise:
        found = "columns keep different rows, of which an element would have to choose what it multiplies"
        raise UnsupportedError(f"layer {layer.name!r}: {found}: use --model fast")
    elements = layer.m * layer.k + layer.k * layer.n + layer.m * layer.n
    cycles = run_gemm(layer, array).cycles
    if elements > _MOST_ELEMENTS or cycles > _MOST_CYCLES:
        found = f"{elements:,} elements and {cycles:,} cycles"
        raise UnsupportedError(f"layer {layer.name!r}: {found} are too many to go through one by one: use --model fast")
    # Small enough that sums of them are exact in f32, in any order.
    rng = np.random.default_rng(0)
    lhs, rhs = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((layer.m, layer.k), (layer.k, layer.n)))
    kept = kept_rows(layer)
    rhs[np.setdiff1d(np.arange(layer.k), kept)] = 0
    run = run_cycle_by_cycle(lhs[:, kept], rhs[kept], array)
    if not _is_product(run.values, lhs, rhs, rng):
        wrong = np.argwhere(run.values != lhs @ rhs)[0].tolist()
        raise SimulationError(f"layer {layer.name!r}: the array's values differ from NumPy's, first at {wrong}")
    return run.totals


def _is_product(values: Values, lhs: Values, rhs: Values, rng: np.random.Generator) -> bool:
    """Return whether values are a product, as far as a random combination of its columns tells (Freivalds).

    A wrong value would go unseen once in a million times. To compute the product takes a good part of what the array's
    model takes.
    """
    # Whole numbers below 2 ** 53 all through, for as many elements as are gone through one by one.
    weights = rng.integers(1 << 20, size=rhs.shape[1]).astype(np.float64)
    return np.array_equal(
        values.astype(np.float64) @ weights, lhs.astype(np.float64) @ (rhs.astype(np.float64) @ weights)
    )
