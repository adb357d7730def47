"""How often an SRAM lets its window over an operand move on, where DRAM's bandwidth is stated (SCALE-Sim's USER mode).

Memory fetches an operand in an order of its own, in *sets* of a hundredth of the SRAM. Half of the SRAM holds sets that
follow each other; a request for an address beyond them has the window move on by the other half, around and around,
until a set holds it. SCALE-Sim v3's rules (``read_buffer.py``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tpusim.compiled import njit
from tpusim.systolic.memory.demands import Demand
from tpusim.systolic.memory.orders import find_first
from tpusim.systolic.memory.pixels import Pixels, Requests, asking_lines, find_address, find_requested

Values = np.ndarray[Any, Any]

SETS = 100
"""Sets of an SRAM."""


class _Fetches(NamedTuple):
    """How memory fetches an operand: rows and columns of the whole, words of a set."""

    steps: int
    columns: int
    set_words: int


class _Window(NamedTuple):
    """Sets that are held, by which it moves, and that there are."""

    sets: int
    step: int
    total: int


class _Places(NamedTuple):
    """In which sets an address lies: ``sets[first[address] : first[address + 1]]``."""

    first: Values
    sets: Values
    line_sets: Values
    """(line): first set of what is fetched for each line."""
    words: int


def count_moves(demand: Demand, sram_words: int, lines: int, fold_lines: int) -> Values:
    """Return how often the window of sets moves on in each line."""
    moves = np.zeros(lines, np.int64)
    active = -(-sram_words // 2)
    set_words = -(-sram_words // SETS)
    held = -(-active // set_words)
    if demand.words // set_words < held:
        return moves
    requests, fetches = demand.requests(fold_lines), _Fetches(*demand.shape, set_words)
    places = None if demand.is_matrix else _find_places(demand.pixels(), requests, fetches)
    total = (places.words if places else demand.words) // set_words + 1
    if total > held:
        window = _Window(held, min(-(-(sram_words - active) // set_words), total - held), total)
        if places:
            _move_over_image(demand.pixels(), demand.blocks, requests, fetches, window, places, moves)
        else:
            _move_over_matrix(demand.blocks, requests, fetches, window, moves)
    return moves


@njit(cache=True)
def _move_over_matrix(blocks: Values, requests: Requests, fetches: _Fetches, window: _Window, moves: Values) -> None:
    """Count in ``moves`` how often the window moves on: what a line asks for is fetched one after the other."""
    start = 0
    for fold in range(len(blocks)):
        row, rows, column, columns = blocks[fold]
        above = column // requests.width
        first_line, end, _ = asking_lines(requests, rows, columns)
        for line in range(end - first_line):
            if requests.skewed:
                first = find_first(above, line, fetches.steps, requests.width, fetches.columns)
                words = min(line, columns - 1) - max(0, line - rows + 1) + 1
            else:
                first = above * fetches.steps * requests.width + (row + rows - 1 - line) * columns
                words = columns
            for one in range(first // fetches.set_words, (first + words - 1) // fetches.set_words + 1):
                while (one - start) % window.total >= window.sets:
                    start = (start + window.step) % window.total
                    moves[fold * requests.fold_lines + first_line + line] += 1


@njit(cache=True)
def _find_places(pixels: Pixels, requests: Requests, fetches: _Fetches) -> _Places:
    """Return the sets in which the pixels of an image lie, in the order in which memory fetches it."""
    steps, columns, width = fetches.steps, fetches.columns, requests.width
    folds = (columns + width - 1) // width
    # Twice the same walk: count, then note down.
    first = np.zeros(pixels.words + 1, np.int64)
    for row in range(steps):
        for column in range(columns):
            address = find_address(pixels, row, column)
            if address >= 0:
                first[address + 1] += 1
    for address in range(len(first) - 1):
        first[address + 1] += first[address]
    sets, noted, words = np.zeros(first[-1], np.int32), np.zeros(len(first), np.int64), 0
    # By diagonals of all folds below each other; or row by row, which is as many diagonals of one element each.
    reach = width if requests.skewed else 1
    line_sets = np.zeros(folds * steps + reach, np.int32)
    for line in range(folds * steps + reach - 1):
        line_sets[line] = words // fetches.set_words
        for offset in range(min(line, folds * steps - 1), max(-1, line - reach), -1):
            fold, row = divmod(offset, steps)
            for along in range(1 if requests.skewed else width):
                column = fold * width + (line - offset if requests.skewed else along)
                inside = column < min(columns, (fold + 1) * width)
                address = find_address(pixels, row, column) if inside else -1
                if address >= 0:
                    sets[first[address] + noted[address]] = words // fetches.set_words
                    noted[address] += 1
                    words += 1
    line_sets[-1] = words // fetches.set_words
    return _Places(first, sets, line_sets, words)


@njit(cache=True)
def _move_over_image(
    pixels: Pixels,
    blocks: Values,
    requests: Requests,
    fetches: _Fetches,
    window: _Window,
    places: _Places,
    moves: Values,
) -> None:
    """Count in ``moves`` how often the window moves on, pixel by pixel where it does not hold all of a line."""
    start = 0
    for fold in range(len(blocks)):
        row, rows, column, columns = blocks[fold]
        above = column // requests.width * fetches.steps
        first, end, requests_of_line = asking_lines(requests, rows, columns)
        for line in range(first, end):
            fetched = above + (line - first if requests.skewed else row + requests.before - line)
            # What several slots share is not asked for as it is fetched.
            if requests.group == 1 and _holds(window, start, places.line_sets[fetched], places.line_sets[fetched + 1]):
                continue
            for request in range(requests_of_line):
                down, along = find_requested(requests, rows, columns, line, request)
                address = find_address(pixels, row + down, column + along) if down >= 0 else -1
                while address >= 0 and not _is_held(places, address, start, window):
                    start = (start + window.step) % window.total
                    moves[fold * requests.fold_lines + line] += 1


@njit(cache=True)
def _holds(window: _Window, start: int, first: int, last: int) -> bool:
    """Return whether a window that goes around holds all of some sets."""
    return (first - start) % window.total + last - first < window.sets


@njit(cache=True)
def _is_held(places: _Places, address: int, start: int, window: _Window) -> bool:
    """Return whether an address lies in one of the sets of a window that goes around."""
    for place in range(places.first[address], places.first[address + 1]):
        beyond = places.sets[place] - start
        if (beyond if beyond >= 0 else beyond + window.total) < window.sets:
            return True
    return False
