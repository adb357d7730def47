"""When an SRAM runs out of what the array asks for next: by address and in order, without time.

Memory fetches an operand in an order of its own, in *sets* of a hundredth of the SRAM. With a stated bandwidth, half of
the SRAM holds sets that follow each other; whoever asks for an address beyond them has the window move on by the other
half, around and around, until a set holds it. Without one, the half fills with what is asked for and was not in it, and
is given up when it is full. Both are SCALE-Sim v3's rules (``read_buffer.py``, ``read_buffer_estimate_bw.py``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from tpusim.systolic.memory.demands import Demand

Values = np.ndarray[Any, Any]

Shape = tuple[Any, ...]

SETS = 100
"""Sets of an SRAM."""


class Fills(NamedTuple):
    """How often the half of an SRAM that fills with what is asked for was full, and what was in it at the end."""

    lines: Values
    """The line in which each was full."""
    words: int
    """Of a full half."""
    left_words: int


class _Places(NamedTuple):
    """In which sets an address lies: ``sets[first[address] : first[address + 1]]``."""

    first: Values
    sets: Values
    total: int


def count_moves(demand: Demand, sram_words: int, lines: int, fold_lines: int) -> Values:
    """Return how often the window of sets moves on in each line."""
    moves = np.zeros(lines, np.int64)
    active = -(-sram_words // 2)
    set_words = -(-sram_words // SETS)
    window = -(-active // set_words)
    if demand.words // set_words < window:
        return moves
    addresses = demand.addresses()
    places = _find_places(addresses, demand.width, demand.skewed, set_words)
    if places.total > window:
        step = min(-(-(sram_words - active) // set_words), places.total - window)
        shape = (demand.skewed, demand.before, fold_lines, window, step)
        _move(addresses, demand.blocks, shape, places, moves)
    return moves


def count_fills(demand: Demand, sram_words: int, fold_lines: int) -> Fills:
    """Return how often half of an SRAM was full."""
    words = sram_words // SETS * (SETS // 2)
    if demand.distinct_words < words:
        return Fills(np.zeros(0, np.int64), words, demand.distinct_words)
    if demand.asks_once:
        return _fill_in_order(demand, words, fold_lines)
    addresses = demand.addresses()
    most_times = int(demand.blocks[:, 1] @ demand.blocks[:, 3]) // words + 1
    full, seen = np.zeros(most_times, np.int64), np.zeros(int(addresses.max()) + 1, np.int64)
    shape = (demand.skewed, demand.before, fold_lines, words)
    times, left = _fill(addresses, demand.blocks, shape, seen, full)
    return Fills(full[:times], words, left)


def _fill_in_order(demand: Demand, words: int, fold_lines: int) -> Fills:
    """Return how often half of an SRAM was full where nothing is asked for twice."""
    rows, columns = demand.blocks[:, 1, None], demand.blocks[:, 3, None]
    row = demand.before - np.arange(fold_lines)[None, :]
    asked = np.cumsum(np.where((row >= 0) & (row < rows), columns, 0))
    times = int(asked[-1]) // words
    return Fills(np.searchsorted(asked, words * np.arange(1, times + 1)), words, int(asked[-1]) - times * words)


@njit(cache=True)
def _find_places(addresses: Values, width: int, skewed: bool, set_words: int) -> _Places:
    """Return the sets in which the addresses of an operand lie, in the order in which memory fetches it."""
    steps, columns = addresses.shape
    folds = (columns + width - 1) // width
    # Twice the same walk: count, then note down.
    first = np.zeros(addresses.max() + 2, np.int64)
    for row in range(steps):
        for column in range(columns):
            if addresses[row, column] >= 0:
                first[addresses[row, column] + 1] += 1
    for address in range(len(first) - 1):
        first[address + 1] += first[address]
    sets, noted, words = np.zeros(first[-1], np.int32), np.zeros(len(first), np.int64), 0
    # By diagonals of all folds below each other; or row by row, which is as many diagonals of one element each.
    reach = width if skewed else 1
    for line in range(folds * steps + reach - 1):
        for offset in range(min(line, folds * steps - 1), max(-1, line - reach), -1):
            fold, row = divmod(offset, steps)
            for along in range(1 if skewed else width):
                column = fold * width + (line - offset if skewed else along)
                if column < min(columns, (fold + 1) * width) and addresses[row, column] >= 0:
                    address = addresses[row, column]
                    sets[first[address] + noted[address]] = words // set_words
                    noted[address] += 1
                    words += 1
    return _Places(first, sets, words // set_words + 1)


@njit(cache=True)
def _move(addresses: Values, blocks: Values, shape: Shape, places: _Places, moves: Values) -> None:
    """Count in ``moves`` how often the window moves on; ``shape`` ends with the sets of a window and of a move."""
    skewed, before, fold_lines, window, step = shape
    start = 0
    for fold in range(len(blocks)):
        row, rows, column, columns = blocks[fold]
        for line in range(fold_lines):
            for across in range(columns):
                down = line - before - across if skewed else before - line
                if not 0 <= down < rows:
                    continue
                address = addresses[row + down, column + across]
                while address >= 0 and not _is_held(places, address, start, window):
                    start = (start + step) % places.total
                    moves[fold * fold_lines + line] += 1


@njit(cache=True)
def _is_held(places: _Places, address: int, start: int, window: int) -> bool:
    """Return whether an address lies in one of the sets of a window that goes around."""
    for place in range(places.first[address], places.first[address + 1]):
        beyond = places.sets[place] - start
        if (beyond if beyond >= 0 else beyond + places.total) < window:
            return True
    return False


@njit(cache=True)
def _fill(addresses: Values, blocks: Values, shape: Shape, seen: Values, full: Values) -> tuple[int, int]:
    """Write into ``full`` when half an SRAM was full; return how often, and the words that are in it at the end."""
    skewed, before, fold_lines, words = shape
    times, inside = 0, 0
    for fold in range(len(blocks)):
        row, rows, column, columns = blocks[fold]
        for line in range(fold_lines):
            for across in range(columns):
                down = line - before - across if skewed else before - line
                if not 0 <= down < rows:
                    continue
                address = addresses[row + down, column + across]
                if address < 0 or seen[address] == times + 1:
                    continue
                seen[address] = times + 1
                inside += 1
                if inside == words:
                    full[times] = fold * fold_lines + line
                    times, inside = times + 1, 0
    return times, inside
