"""A product on an array with its memory, folds one after the other: what SCALE-Sim's three reports say of it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from tpusim.errors import UnsupportedError
from tpusim.hardware.array import Array
from tpusim.hardware.buffers import Buffers
from tpusim.program.layers import Layer
from tpusim.systolic.memory.demands import Demand, Demands, list_demands
from tpusim.systolic.memory.fills import count_fills
from tpusim.systolic.memory.waits import DRAM_CYCLES, Waits, wait
from tpusim.systolic.memory.windows import SETS, count_moves
from tpusim.timeline.folds import Accesses, MemoryRun

Values = np.ndarray[Any, Any]

_CALC_WORDS_PER_CYCLE: Final = 10
"""With which SCALE-Sim's CALC mode fills an SRAM before the array begins."""

_OFMAP: Final = 2
"""Which SRAM is that of the results."""


class _Dram(NamedTuple):
    """First and last cycle of an operand's fetches, and words."""

    start: int
    stop: int
    words: int


def run_memory(layer: Layer, array: Array, buffers: Buffers) -> MemoryRun:
    """Return what a product takes on an array with SRAMs, as SCALE-Sim v3 counts it.

    Raises UnsupportedError for what SCALE-Sim's array does not have.
    """
    if array.overlaps or (array.count, array.passes, array.rows_per_cycle) != (1, 1, 1):
        what = "one array whose folds run one after the other (mode scale-sim), one row per cycle, one pass"
        raise UnsupportedError(f"SRAMs: expected {what}, found {array!r}")
    demands = list_demands(layer, array)
    operands = (demands.ifmap, demands.filter)
    if buffers.rates is None:
        waits = _wait(
            demands, np.zeros((2, len(demands.writes)), np.int64), (0, 0), (buffers.ofmap_words, array.columns)
        )
        sizes = (buffers.ifmap_words, buffers.filter_words)
        fetched = [_as_needed(demand, size, demands, waits) for demand, size in zip(operands, sizes, strict=True)]
    else:
        waits, fetched = _at_rates(demands, buffers)
    ifmap, filters = (
        _read(demand, dram, sram, demands, waits)
        for sram, (demand, dram) in enumerate(zip(operands, fetched, strict=True))
    )
    ofmap = _written(demands, waits, array)
    return MemoryRun(
        cycles_with_prefetch=ofmap.dram_stop - min(ifmap.dram_start, filters.dram_start),
        cycles=waits.served(_OFMAP, len(demands.writes) - 1),
        stall_cycles=int(waits.total_stalls),
        ifmap=ifmap,
        filter=filters,
        ofmap=ofmap,
    )


def _wait(demands: Demands, moves: Values, fetch_cycles: tuple[int, int], ofmap: tuple[int, int]) -> Waits:
    """Return when every line is served, where windows move on in these lines."""
    return wait(moves[0], moves[1], demands.writes, np.array(fetch_cycles), np.array(ofmap))


def _at_rates(demands: Demands, buffers: Buffers) -> tuple[Waits, list[_Dram]]:
    """Return when lines are served and what is fetched where DRAM is as fast as stated (USER)."""
    rates = buffers.rates
    assert rates
    lines = len(demands.writes)
    operands = ((demands.ifmap, buffers.ifmap_words, rates.ifmap), (demands.filter, buffers.filter_words, rates.filter))
    moves = np.stack([count_moves(demand, size, lines, demands.fold_lines) for demand, size, _ in operands])
    # At first the half that serves the array is filled; each move of its window fetches the other half.
    first_cycles = [_ceil(min(_ceil(size, 2), _fetched(one)), rate) for one, size, rate in operands]
    fetch_cycles = tuple(_ceil(size // 2, rate) for _, size, rate in operands)
    waits = _wait(demands, moves, fetch_cycles, (buffers.ofmap_words, rates.ofmap))  # type: ignore[arg-type]
    drams = [
        _Dram(-first, int(last), (first + fetches * again) * rate)
        for first, last, fetches, again, (_, _, rate) in zip(
            first_cycles, waits.last_fetch, moves.sum(1).tolist(), fetch_cycles, operands, strict=True
        )
    ]
    return waits, drams


def _fetched(demand: Demand) -> int:
    """Return the places of an operand as memory fetches it: ragged folds are padded."""
    high, along = (demand.layer.m if demand.is_left else demand.layer.n), demand.layer.inner
    rows, columns = (along, high) if demand.turned == demand.is_left else (high, along)
    return rows * _ceil(columns, demand.width) * demand.width


def _as_needed(demand: Demand, sram_words: int, demands: Demands, waits: Waits) -> _Dram:
    """Return what is fetched where DRAM is as fast as it has to be (CALC)."""
    fills = count_fills(demand, sram_words, demands.fold_lines)
    if not len(fills.lines):
        set_words = sram_words // SETS
        words = _ceil(fills.left_words, set_words) * set_words
        return _Dram(-_ceil(words, _CALC_WORDS_PER_CYCLE), -1, fills.left_words)
    full = fills.lines + waits.stalls[fills.lines]
    before = _first_line(demand) - 1 - DRAM_CYCLES
    start = before - _ceil(fills.words, _CALC_WORDS_PER_CYCLE) + 1
    # What came after the last time that it was full is fetched while that was used.
    return _Dram(start + DRAM_CYCLES, int(full[-1]) + DRAM_CYCLES, len(full) * fills.words + fills.left_words)


def _ceil(whole: int, part: int) -> int:
    return -(-whole // part)


def _first_line(demand: Demand) -> int:
    """Return the line in which something is asked for first."""
    return demand.before if demand.skewed else demand.before - int(demand.blocks[0, 1]) + 1


def _read(demand: Demand, dram: _Dram, sram: int, demands: Demands, waits: Waits) -> Accesses:
    """Return what the SRAM of an operand saw."""
    words = int(demand.blocks[:, 1] @ demand.blocks[:, 3])
    return Accesses(
        sram_start=waits.served(sram, _first_line(demand)),
        sram_stop=waits.served(sram, demand.last_line(demands.fold_lines)),
        sram_words=words,
        dram_start=dram.start,
        dram_stop=dram.stop,
        dram_words=dram.words,
    )


def _written(demands: Demands, waits: Waits, array: Array) -> Accesses:
    """Return what the SRAM of the results saw."""
    busy = demands.writes > 0
    words = int(demands.writes.sum())
    if array.dataflow == "os":
        # So in SCALE-Sim (``systolic_compute_os.py``): the sides of the array, once a fold.
        words += len(demands.ifmap.blocks) * (array.rows + array.columns)
    first, last, drained = (int(x) for x in waits.drains)
    return Accesses(
        sram_start=waits.served(_OFMAP, int(busy.argmax())),
        sram_stop=waits.served(_OFMAP, len(busy) - 1 - int(busy[::-1].argmax())),
        sram_words=words,
        dram_start=first,
        dram_stop=last,
        dram_words=drained,
    )
