"""What both models of an array are made of: shift registers that move by a pointer, and counters.

A shift register of ``n`` places lies in a buffer of three times its length and begins at a moving ``head``. To shift
it is to move the head one place back; what it holds stays where it is, and is moved once per ``2 n`` shifts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Values = np.ndarray[Any, Any]

SETTLE_CYCLES = 255
"""Multiply-accumulates that a counter of ``count`` holds: it has one byte, so that a vector register has many."""


# Plain loops in all of them: an assignment to a slice takes Numba a second and more to compile.


@njit(cache=True)
def shift_right(values: Values, head: int, columns: int) -> int:
    """Shift (lane, row, place) right by one element and let zeros in; return where column 0 is now."""
    lanes, rows, places = values.shape
    new_head = (places - columns if head == 0 else head) - 1
    for lane in range(lanes):
        for i in range(rows):
            line = values[lane, i]
            if head == 0:
                for j in range(columns):
                    line[places - columns + j] = line[j]
            line[new_head] = 0
    return new_head


@njit(cache=True)
def shift_down(values: Values, top: int, rows: int) -> int:
    """Shift (lane, place, column) down by one element and let zeros in; return where row 0 is now."""
    lanes, places, columns = values.shape
    new_top = (places - rows if top == 0 else top) - 1
    for lane in range(lanes):
        for i in range(rows if top == 0 else 0):
            for j in range(columns):
                values[lane, places - rows + i, j] = values[lane, i, j]
        for j in range(columns):
            values[lane, new_top, j] = 0
    return new_top


# Whole arrays below, not a call for each row: Numba counts references to every slice that it passes on.


@njit(cache=True)
def multiply(sums: Values, top: int, left: Values, head: int, right: Values, right_top: int) -> None:
    """Let every element add its product to its sum; rows of ``sums`` and ``right`` begin where they are said to."""
    rows, columns = left.shape[0], right.shape[1]
    for i in range(rows):
        line, below, sum_row = left[i, head : head + columns], right[right_top + i], sums[top + i]
        for j in range(columns):
            sum_row[j] += line[j] * below[j]


@njit(cache=True)
def count(left: Values, head: int, right: Values, right_top: int, recent: Values) -> int:
    """Count the elements that have both operands: one by one in ``recent``, and return how many."""
    rows, columns = recent.shape
    active = 0
    for i in range(rows):
        line, below, counters = left[i, head : head + columns], right[right_top + i], recent[i]
        # Narrow types, written out: with Numba's own wide ones this takes longer than the multiplication.
        in_row = np.uint16(0)
        for j in range(columns):
            busy = line[j] & below[j]
            counters[j] = np.uint8(counters[j] + busy)
            in_row = np.uint16(in_row + busy)
        active += int(in_row)
    return active


@njit(cache=True)
def settle(macs: Values, recent: Values) -> None:
    """Move what the small counters hold into the large ones."""
    for i in range(macs.shape[0]):
        for j in range(macs.shape[1]):
            macs[i, j] += recent[i, j]
            recent[i, j] = 0
