"""Windows: which block of an array a step of the grid has in VMEM, fetched and written back when the next is another.

A block keeps its place while its indices do not change, as on the machine: a result is written back once. Where a block
reaches past the end of its array, and in a result that no step has written yet, memory holds nothing that is defined:
NaN stands for it, as in JAX's interpreter, and the largest integer.

Source: JAX documentation, Pallas: Grids and BlockSpecs.
"""

from __future__ import annotations

import re
from typing import Any

from tpusim.ir.mosaic import Window
from tpusim.numerics.pallas.references import Reference
from tpusim.numerics.pallas.table import undefined, undefined_element
from tpusim.numerics.registry import Array


class Blocks:
    """An operand or result that is moved block by block through a buffer."""

    def __init__(self, window: Window, array: Array, key: Any, *, is_output: bool) -> None:
        """Begin with no block."""
        self.reference = Reference(undefined(window.bounds, array.dtype), key)
        self._array = array
        self._is_output = is_output
        # By elements, with so many before the first one; else by blocks.
        numbers = re.search(r"element_window<\s*\[([^\]]*)\]", window.kind)
        self._before = tuple(map(int, numbers[1].split(","))) if numbers else None
        self._at: tuple[int, ...] | None = None

    def leave(self, at: tuple[int, ...]) -> None:
        """Write a result's block back if the next step's is another one."""
        if at != self._at:
            self.write_back()

    def enter(self, at: tuple[int, ...]) -> None:
        """Bring the block of these indices in, unless it is there."""
        if at == self._at:
            return
        self._at = at
        buffer, (inside, there) = self.reference.array, self._overlap()
        if self._is_output or buffer[inside].shape != buffer.shape:
            buffer[...] = undefined_element(buffer.dtype)
        if not self._is_output:
            buffer[inside] = self._array[there]

    def write_back(self) -> None:
        """Write a result's block to its array."""
        if self._is_output and self._at is not None:
            inside, there = self._overlap()
            self._array[there] = self.reference.array[inside]

    def _overlap(self) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Return which part of the buffer lies in the array, and where."""
        sizes = self.reference.array.shape
        if self._before is None:
            starts = [index * size for index, size in zip(self._at or (), sizes, strict=True)]
        else:
            starts = [index - before for index, before in zip(self._at or (), self._before, strict=True)]
        inside, there = [], []
        for start, size, extent in zip(starts, sizes, self._array.shape, strict=True):
            low, high = min(max(start, 0), extent), max(min(start + size, extent), 0)
            high = max(low, high)
            inside.append(slice(low - start, high - start) if high > low else slice(0, 0))
            there.append(slice(low, high))
        return tuple(inside), tuple(there)
