"""Products on a systolic array in closed form: the cycles that ``count`` counts, without counting them.

A product is cut into folds: tiles of (height, width) that stay in the array while a stream of some length passes. Folds
are numbered with the height inside, then the passes, then the width, so that partial sums meet soon. Fold ``f`` begins
to stream at ``t(f)``; its wavefront reaches the last row and column ``rows + columns - 2`` cycles later.

- ``ws``, ``is``, overlapping: a tile of ``h`` rows takes ``h`` cycles to shift in, and may begin in the cycle in which
  the tile before starts to be used, since the spare registers are free again behind the wavefront. Hence
  ``t(f) = t(f-1) + max(stream, h(f))`` with ``t(0) = h(0)``, and the last result leaves the bottom row at
  ``t + stream + rows + w - 2``.
- ``os``, overlapping: sums that are ready move into spare registers behind the wavefront and shift out of the bottom
  row in ``h`` cycles, which must be over before the next sums come. Hence ``t(f) = t(f-1) + max(stream, h(f-1))`` with
  ``t(0) = 0``, and the last one is out at ``t + stream + rows + w + h - 2``.
- ``scale-sim``: nothing of a fold happens before the fold before has drained; tiles load at full height, results of
  ``os`` leave from where they are. A fold takes ``2 rows + columns + stream - 2`` cycles (``os``: ``rows + columns +
  stream - 2``). What is reported is the number of the last cycle, counted from 0 (SCALE-Sim's issue 125).
"""

from __future__ import annotations

from typing import NamedTuple

from tpusim.hardware.array import Array
from tpusim.program.layers import Layer
from tpusim.timeline.folds import ArrayRun


class Folds(NamedTuple):
    """How a product is cut: tiles along the height (ragged last one of ``last_height``) and along the width."""

    high: int
    wide: int
    last_height: int
    last_width: int
    stream_cycles: int
    per_column: int
    """Folds of one tile along the width: its heights, once a pass."""

    @property
    def total(self) -> int:
        """Folds of all passes."""
        return self.per_column * self.wide

    def is_ragged(self, fold: int) -> bool:
        """Whether a fold is the last one along the height."""
        return fold % self.high == self.high - 1


def cut_folds(layer: Layer, array: Array) -> Folds:
    """Return how a product is cut for an array."""
    height, width, stream = array.extent(layer.m, layer.n, layer.inner)
    high, wide = -(-height // array.rows), -(-width // array.columns)
    return Folds(
        high,
        wide,
        height - (high - 1) * array.rows,
        width - (wide - 1) * array.columns,
        array.stream_cycles(stream),
        high * array.passes,
    )


def share_folds(total: int, count: int) -> list[range]:
    """Return the runs of consecutive folds that ``count`` arrays take, none longer than another by more than one."""
    busy = min(total, count)
    return [range(total * i // busy, total * (i + 1) // busy) for i in range(busy)]


def run_gemm(layer: Layer, array: Array) -> ArrayRun:
    """Return what a product takes on the arrays of a core: the slowest array's cycles, and what all of them did."""
    folds = cut_folds(layer, array)
    runs = share_folds(folds.total, array.count)
    measure = _overlapping if array.overlaps else _one_by_one
    cycles, computing = zip(*(measure(folds, array, run) for run in runs), strict=True)
    per_array = array.mac_slots // array.count
    return ArrayRun(
        cycles=max(cycles),
        folds=folds.total,
        macs=layer.macs * array.passes,
        slots=max(cycles) * array.mac_slots,
        streamed_slots=folds.total * folds.stream_cycles * per_array,
        computing_slots=sum(computing) * per_array,
    )


def _one_by_one(folds: Folds, array: Array, run: range) -> tuple[int, int]:
    """Return the cycles of a run of folds in SCALE-Sim's way, and the cycles that its compute utilisation is of."""
    across = array.rows + array.columns - 2
    if array.dataflow == "os":
        fold_cycles = computing = across + folds.stream_cycles
    else:
        fold_cycles = array.rows + across + folds.stream_cycles
        # SCALE-Sim skews the trace of the operand that stays too, for this figure alone.
        computing = fold_cycles + array.columns - 1
    return len(run) * fold_cycles - 1, len(run) * computing


def _overlapping(folds: Folds, array: Array, run: range) -> tuple[int, int]:
    """Return the cycles of a run of folds that overlap, and those from its first multiply-accumulate to its last."""
    drains = array.dataflow == "os"
    last_out = last_mac = 0
    for fold in _latest_of_each_shape(folds, run):
        height = folds.last_height if folds.is_ragged(fold) else array.rows
        width = folds.last_width if fold >= folds.total - folds.per_column else array.columns
        streamed = _start(folds, array, run, fold) + folds.stream_cycles
        last_mac = max(last_mac, streamed + height + width - 2)
        last_out = max(last_out, streamed + array.rows + width - 2 + (height if drains else 0))
    return last_out, last_mac - _start(folds, array, run, run.start)


def _latest_of_each_shape(folds: Folds, run: range) -> set[int]:
    """Return folds among which is the latest of each shape in a run: of two alike, the later one ends later."""
    last = run.stop - 1
    # The last one along the height, here and before the last tile along the width; and the full ones before them.
    ends = (last, run.stop // folds.high * folds.high - 1, folds.total - folds.per_column - 1)
    return {fold for end in ends for fold in (end, end - 1) if fold in run}


def _start(folds: Folds, array: Array, run: range, fold: int) -> int:
    """Return when a fold of a run begins to stream, in cycles."""
    # What the next fold waits for: its own tile to come in, or the sums before it to go out.
    waited = range(run.start, fold) if array.dataflow == "os" else range(run.start + 1, fold + 1)
    ragged = waited.stop // folds.high - waited.start // folds.high
    full_cycles = max(folds.stream_cycles, array.rows)
    ragged_cycles = max(folds.stream_cycles, folds.last_height)
    cycles = ragged * ragged_cycles + (len(waited) - ragged) * full_cycles
    if array.dataflow == "os":
        return cycles
    return cycles + (folds.last_height if folds.is_ragged(run.start) else array.rows)
