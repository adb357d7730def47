"""Where the elements of an operand lie that is cut from an image: a pixel that lies in several windows, once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from tpusim.program.layers import Convolution

Values = np.ndarray[Any, Any]


class Pixels(NamedTuple):
    """Coordinates of an operand's elements: the sum of what their row and their column say."""

    rows: Values
    """(3, row): along the height, along the width, and the channel."""
    columns: Values
    """(3, column)."""
    size: Values
    """Of the image."""

    def addresses(self) -> Values:
        """Return (row, column): where each element lies, from 0; -1 beyond the edge of the image."""
        y, x, channel = self.rows[:, :, None] + self.columns[:, None, :]
        height, width, channels = self.size
        return np.where((y < height) & (x < width), (y * width + x) * channels + channel, -1)

    def any(self, rows: Values, columns: Values) -> bool:
        """Return whether one of some elements, of which rows and columns are given, is no place beyond the edge."""
        y, x, _ = self.rows[:, rows] + self.columns[:, columns]
        return bool(((y < self.size[0]) & (x < self.size[1])).any())


def list_pixels(shape: Convolution, positions: Values, places: Values, turned: bool) -> Pixels:
    """Return what lies in places of a window at positions of it; ``turned``: places are the rows."""
    row, column = np.divmod(positions, shape.positions[1])
    corners = np.stack([row * shape.stride, column * shape.stride, np.zeros_like(row)])
    row, rest = np.divmod(places, shape.filter_width * shape.channels)
    taps = np.stack([row, *np.divmod(rest, shape.channels)])
    size = np.array([shape.height, shape.width, shape.channels])
    return Pixels(taps, corners, size) if turned else Pixels(corners, taps, size)


@njit(cache=True)
def find_address(pixels: Pixels, row: int, column: int) -> int:
    """Return where an element lies, or -1 beyond the edge of the image."""
    y, x = pixels.rows[0, row] + pixels.columns[0, column], pixels.rows[1, row] + pixels.columns[1, column]
    if y >= pixels.size[0] or x >= pixels.size[1]:
        return -1
    channel: int = pixels.rows[2, row] + pixels.columns[2, column]
    return (y * pixels.size[1] + x) * pixels.size[2] + channel
