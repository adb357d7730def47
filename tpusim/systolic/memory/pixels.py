"""Where the elements of an operand lie: a pixel that lies in several windows, once; what is not kept, nowhere."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tpusim.compiled import njit
from tpusim.program.layers import Convolution

Values = np.ndarray[Any, Any]


class Pixels(NamedTuple):
    """Where elements lie that share addresses, or have none: what their row and their column say, added up."""

    rows: Values
    """(3, row): two coordinates, and what else is added to the address."""
    columns: Values
    """(3, column)."""
    limits: Values
    """Below which both coordinates are of elements that have an address."""
    pitches: Values
    """Addresses from one to the next along each coordinate."""
    words: int
    """Addresses, from 0, if all are there."""

    def addresses(self) -> Values:
        """Return (row, column): where each element lies, from 0; -1 where there is nothing."""
        y, x, rest = self.rows[:, :, None] + self.columns[:, None, :]
        there = (y < self.limits[0]) & (x < self.limits[1])
        return np.where(there, y * self.pitches[0] + x * self.pitches[1] + rest, -1)

    def any(self, rows: Values, columns: Values) -> bool:
        """Return whether one of some elements, of which rows and columns are given, has an address."""
        y, x, _ = self.rows[:, rows] + self.columns[:, columns]
        return bool(((y < self.limits[0]) & (x < self.limits[1])).any())


class Requests(NamedTuple):
    """How folds ask for an operand; see ``Demand``."""

    skewed: bool
    before: int
    fold_lines: int
    width: int
    group: int


def list_pixels(shape: Convolution, positions: Values, places: Values, turned: bool) -> Pixels:
    """Return what lies in places of a window at positions of it; ``turned``: places are the rows."""
    row, column = np.divmod(positions, shape.positions[1])
    corners = np.stack([row * shape.stride, column * shape.stride, np.zeros_like(row)])
    row, rest = np.divmod(places, shape.filter_width * shape.channels)
    taps = np.stack([row, *np.divmod(rest, shape.channels)])
    limits = np.array([shape.height, shape.width])
    pitches = np.array([shape.width * shape.channels, shape.channels])
    words = shape.height * shape.width * shape.channels
    return Pixels(*((taps, corners) if turned else (corners, taps)), limits, pitches, words)


def list_elements(rows: int, columns: int) -> Pixels:
    """Return the elements of a matrix, row by row."""
    down, along = np.zeros((3, rows), np.int64), np.zeros((3, columns), np.int64)
    down[2], along[2] = np.arange(rows) * columns, np.arange(columns)
    return Pixels(down, along, np.ones(2, np.int64), np.zeros(2, np.int64), rows * columns)


def list_kept(group: int, k: int, kept: Values, rows: int) -> Pixels:
    """Return the elements of a matrix of ``k`` rows, of whose groups of rows each column keeps the first ``kept``.

    Half of a group's rows are there for it: ``rows`` in all.
    """
    found = list_elements(rows, len(kept))
    half = group // 2
    place, slot = np.divmod(np.arange(rows), half)
    # An element is there if its slot is below what its column keeps, and its row one of the matrix.
    found.rows[0], found.columns[0] = slot, half - kept
    found.rows[1] = place * group + slot
    return found._replace(limits=np.array([half, k]))


@njit(cache=True)
def find_address(pixels: Pixels, row: int, column: int) -> int:
    """Return where an element lies, or -1 where there is nothing."""
    y, x = pixels.rows[0, row] + pixels.columns[0, column], pixels.rows[1, row] + pixels.columns[1, column]
    if y >= pixels.limits[0] or x >= pixels.limits[1]:
        return -1
    rest: int = pixels.rows[2, row] + pixels.columns[2, column]
    return y * pixels.pitches[0] + x * pixels.pitches[1] + rest


@njit(cache=True)
def asking_lines(requests: Requests, rows: int, columns: int) -> tuple[int, int, int]:
    """Return the first line in which a fold may ask for something, the one after the last, and requests per line."""
    slots = columns if requests.group == 1 else requests.width
    if requests.skewed:
        return requests.before, requests.before + rows + slots - 1, slots * requests.group
    return requests.before - rows + 1, requests.before + 1, slots * requests.group


@njit(cache=True)
def find_requested(requests: Requests, rows: int, columns: int, line: int, request: int) -> tuple[int, int]:
    """Return which row and column of a fold one request of a line asks for, or a row of -1 if there is none."""
    slot = along = request
    if requests.group > 1:
        slot = request // requests.group
        # Half as many slots as a group has columns ask for the same ones.
        along = slot // (requests.group // 2) * requests.group + request % requests.group
    down = line - requests.before - slot if requests.skewed else requests.before - line
    return (down if down < rows and along < columns else -1), along
