"""References to memory: a part of an array, or its bits as another element type.

What a reference shows is a view of NumPy, which later writes change. Bits of another width are no view, since a wider
element is made of neighbouring rows: they are put together when they are read, and taken apart when they are written.
Each reference knows how it was made, so that a device can find the same part of another one's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpusim.numerics.ops.convert import as_bits_of
from tpusim.numerics.registry import Array
from tpusim.shapes.dtype import DType

View = Callable[[Array], Array]


class _Located:
    """What knows how it was made of a whole memory, which ``key`` names on every device."""

    key: Hashable
    made_by: tuple[Callable[[Any], Any], ...]

    def on(self, memory: dict[Hashable, Any]) -> Any:
        """Return the same part of another memory."""
        found = memory[self.key]
        for step in self.made_by:
            found = step(found)
        return found

    def _next(self, step: Callable[[Any], Any]) -> tuple[Callable[[Any], Any], ...]:
        return (*self.made_by, step)


@dataclass(frozen=True, slots=True)
class Reference(_Located):
    """A part of memory: a view, which writes change."""

    array: Array
    key: Hashable
    made_by: tuple[Callable[[Any], Any], ...] = ()

    def part(self, view: View) -> Reference:
        """Return the part that a function of arrays selects, which has to return a view."""
        return Reference(view(self.array), self.key, self._next(lambda whole: whole.part(view)))

    def repacked(self, types: tuple[DType, DType]) -> Repacked:
        """Return the same bits as elements of the second type instead of the first, by rows."""
        return Repacked(self, types, self.key, self._next(lambda whole: whole.repacked(types)))

    def write(self, index: Any, values: Any) -> None:
        """Write some of the elements."""
        self.array[index] = values


@dataclass(frozen=True, slots=True)
class Repacked(_Located):
    """Bits of a reference as elements of another width, or the part of them that ``views`` select one after another."""

    below: Reference | Repacked
    types: tuple[DType, DType]
    key: Hashable
    made_by: tuple[Callable[[Any], Any], ...]
    views: tuple[View, ...] = ()

    @property
    def array(self) -> Array:
        """What the memory holds now, in an array of its own."""
        return self._seen(repacked(self.below.array, *self.types))

    def part(self, view: View) -> Repacked:
        """Return the part that a function of arrays selects, which has to return a view."""
        made_by = self._next(lambda whole: whole.part(view))
        return Repacked(self.below, self.types, self.key, made_by, (*self.views, view))

    def repacked(self, types: tuple[DType, DType]) -> Repacked:
        """Return the same bits as elements of the second type instead of the first, by rows."""
        return Repacked(self, types, self.key, self._next(lambda whole: whole.repacked(types)))

    def write(self, index: Any, values: Any) -> None:
        """Write some of the elements: all are put together, changed, and taken apart again."""
        whole = repacked(self.below.array, *self.types)
        self._seen(whole)[index] = values
        self.below.write(..., repacked(whole, *reversed(self.types)))

    def _seen(self, whole: Array) -> Array:
        for view in self.views:
            whole = view(whole)
        return whole


def repacked(array: Array, source: DType, target: DType) -> Array:
    """Return the bits of an array as elements of another width: those of neighbouring rows, the first one lowest.

    The last dimension but one shrinks or grows by the ratio of the widths (Mosaic, ``tpu.bitcast``).
    """
    if source.bits == target.bits:
        return as_bits_of(array, source, target)
    if source.bits < target.bits:
        ratio = target.bits // source.bits
        rows = array.reshape(*array.shape[:-2], array.shape[-2] // ratio, ratio, array.shape[-1])
        return as_bits_of(np.swapaxes(rows, -1, -2), source, target)
    narrow = np.swapaxes(as_bits_of(array, source, target), -1, -2)
    return narrow.reshape(*array.shape[:-2], -1, array.shape[-1])
