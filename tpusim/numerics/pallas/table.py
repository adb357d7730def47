"""The table of operations: from an operation of a body to the function that computes it.

An operation is looked at once, when its kernel is *bound*: its rule gets types and attributes and returns a function of
the operands' values. A vector is a NumPy array, a scalar a NumPy scalar or an array of rank 0, a reference to memory
a ``Reference``. Integers are signed, as MLIR leaves them without a sign; operations that take them for unsigned ones
look at them so. Values are never written to; memory is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tpusim.errors import UnsupportedError, did_you_mean
from tpusim.ir.mosaic import Operation, Type
from tpusim.numerics.registry import Array
from tpusim.numerics.site import Settings
from tpusim.shapes.dtype import DTYPES, DType, numpy_dtype

Function = Callable[..., Any]

SEMAPHORES = ("!tpu.semaphore", "!tpu.dma_semaphore")


@dataclass(frozen=True)
class Where:
    """An operation in its function, as a rule sees it; ``types`` are those of the function's values, by number."""

    operation: Operation
    types: tuple[Type, ...]
    settings: Settings

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the operation."""
        return self.operation.attributes

    def operand(self, position: int = 0) -> Type:
        """Return the type of an operand."""
        return self.types[self.operation.operands[position]]

    def result(self, position: int = 0) -> Type:
        """Return the type of a result."""
        return self.types[self.operation.results[position]]

    def segments(self, *defaults: int) -> list[slice]:
        """Return where each group of operands stands, for operations whose groups vary in size."""
        sizes = self.attributes.get("operandSegmentSizes", defaults)
        return [slice(sum(sizes[:at]), sum(sizes[: at + 1])) for at in range(len(sizes))]

    def unsupported(self, what: str) -> UnsupportedError:
        """Return the error that something of this operation is not computed."""
        return UnsupportedError(f"{self.operation.name} in the body of a Pallas kernel: {what}")


class Entry(NamedTuple):
    """A rule; ``in_frame`` if its function takes the frame of the run before the operands, and may have to wait.

    One that ``is_pure`` is left out where nothing uses its results.
    """

    rule: Callable[[Where], Function]
    in_frame: bool
    is_pure: bool


_ENTRIES: dict[str, Entry] = {}


def operation(*names: str, in_frame: bool = False, is_pure: bool = True) -> Callable[[Any], Any]:
    """Return a decorator that enters a rule for the operations of some names."""

    def enter(rule: Callable[[Where], Function]) -> Callable[[Where], Function]:
        _ENTRIES.update(dict.fromkeys(names, Entry(rule, in_frame, is_pure and not in_frame)))
        return rule

    return enter


def entry_of(operation: Operation) -> Entry:
    """Return the entry of an operation; raise UnsupportedError for one that the table does not have."""
    found = _ENTRIES.get(operation.name)
    if found is None:
        raise UnsupportedError(
            f"{operation.name} in the body of a Pallas kernel: its value is not computed"
            f"{did_you_mean(operation.name, _ENTRIES)}"
        )
    return found


@lru_cache(maxsize=64)
def element_of(element: str) -> DType:
    """Return the element type of MLIR's word for it: signed for integers, a truth value for one bit."""
    names = {"i1": "pred", "index": "s32", **dict.fromkeys(SEMAPHORES, "s32")}
    name = names.get(element, element.lower().replace("i", "s", 1) if element.startswith("i") else element.lower())
    if name not in DTYPES:
        raise UnsupportedError(f"elements of type {element} in the body of a Pallas kernel: not computed")
    return DTYPES[name]


def dtype_of(kind: Type) -> np.dtype[Any]:
    """Return the NumPy type of the elements of a type."""
    return numpy_dtype(element_of(kind.element))


def undefined(dimensions: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array of what stands for memory that nothing has written: NaN, or the largest integer."""
    return np.full(dimensions, undefined_element(dtype), dtype)


def undefined_element(dtype: np.dtype[Any]) -> Any:
    """Return what stands for an element that nothing has written."""
    if dtype.kind == "b":
        return False
    is_integer = dtype.kind in "iu" or dtype.name.startswith(("int", "uint"))
    return ml_dtypes.iinfo(dtype).max if is_integer else np.nan


@lru_cache(maxsize=32)
def unsigned(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of the same bits without a sign; other types are their own."""
    is_signed = dtype.kind == "i" or dtype.name in ("int2", "int4")
    return np.dtype(getattr(ml_dtypes, f"u{dtype.name}", f"u{dtype.name}")) if is_signed else dtype


def seen_as(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return an array as a type of the same width, with a sign or without; truth values, say, are converted."""
    return array.view(dtype) if array.dtype.itemsize == dtype.itemsize else array.astype(dtype)


def scalar(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return one number of a type; of an integer that is too large its low bits."""
    return np.asarray(value).astype(dtype)[()]
