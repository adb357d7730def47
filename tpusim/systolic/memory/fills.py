"""How often the half of an SRAM is full of what the array asks for, where DRAM is as fast as it has to be (CALC mode).

The half fills with what is asked for and was not in it, and is given up when it is full. SCALE-Sim v3's rules
(``read_buffer_estimate_bw.py``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tpusim.compiled import njit
from tpusim.systolic.memory.demands import Demand
from tpusim.systolic.memory.orders import find_line
from tpusim.systolic.memory.pixels import Pixels, Requests, asking_lines, find_address, find_requested
from tpusim.systolic.memory.windows import SETS

Values = np.ndarray[Any, Any]


class Fills(NamedTuple):
    """How often the half of an SRAM that fills with what is asked for was full, and what was in it at the end."""

    lines: Values
    """The line in which each was full."""
    words: int
    """Of a full half."""
    left_words: int


def count_fills(demand: Demand, sram_words: int, fold_lines: int) -> Fills:
    """Return how often half of an SRAM was full."""
    words = sram_words // SETS * (SETS // 2)
    if demand.distinct_words < words:
        return Fills(np.zeros(0, np.int64), words, demand.distinct_words)
    # What slots share, each of them asks for.
    asked = int(demand.blocks[:, 1] @ demand.blocks[:, 3]) * max(1, demand.group // 2)
    full = np.zeros(asked // words, np.int64)
    requests = demand.requests(fold_lines)
    if demand.is_matrix:
        corners = demand.blocks[:, 0] * demand.shape[1] + demand.blocks[:, 2]
        names = np.unique(corners, return_inverse=True)[1]
        times, left = _fill_from_matrix(demand.blocks, names, requests, words, full)
    else:
        times, left = _fill_from_image(demand.pixels(), demand.blocks, requests, words, full)
    return Fills(full[:times], words, left)


@njit(cache=True)
def _fill_from_matrix(blocks: Values, names: Values, requests: Requests, words: int, full: Values) -> tuple[int, int]:
    """Write into ``full`` when half an SRAM was full; return how often, and the words that are in it at the end.

    Of each block, folds alike in ``names``, it has what was asked for last: from some element to the end.
    """
    times, inside = 0, 0
    filled, known = np.zeros(len(blocks), np.int64), np.zeros(len(blocks), np.int64)
    for fold in range(len(blocks)):
        _, rows, _, columns = blocks[fold]
        name, first = names[fold], 0
        end = known[name] if filled[name] == times + 1 else rows * columns
        while first + words - inside <= end:
            first += words - inside
            line = asking_lines(requests, rows, columns)[0] + find_line(first - 1, requests.skewed, rows, columns)
            full[times] = fold * requests.fold_lines + line
            times, inside, end = times + 1, 0, rows * columns
        inside += end - first
        filled[name], known[name] = times + 1, first
    return times, inside


@njit(cache=True)
def _fill_from_image(pixels: Pixels, blocks: Values, requests: Requests, words: int, full: Values) -> tuple[int, int]:
    """Write into ``full`` when half an SRAM was full; return how often, and the words that are in it at the end."""
    times, inside = 0, 0
    seen = np.zeros(pixels.words, np.int64)
    for fold in range(len(blocks)):
        row, rows, column, columns = blocks[fold]
        first, end, requests_of_line = asking_lines(requests, rows, columns)
        for line in range(first, end):
            for request in range(requests_of_line):
                down, along = find_requested(requests, rows, columns, line, request)
                address = find_address(pixels, row + down, column + along) if down >= 0 else -1
                if address < 0 or seen[address] == times + 1:
                    continue
                seen[address] = times + 1
                inside += 1
                if inside == words:
                    full[times] = fold * requests.fold_lines + line
                    times, inside = times + 1, 0
    return times, inside
