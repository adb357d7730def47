"""Element types, by XLA's lower-case names."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tpusim.errors import ProgramError, UnsupportedError, did_you_mean

if TYPE_CHECKING:
    import numpy as np


class DType(msgspec.Struct, frozen=True, cache_hash=True):
    """An element type: XLA's name, the bits that a value has, and its kind.

    ``kind`` is one of ``pred``, ``signed``, ``unsigned``, ``float``, ``complex``, ``token``, ``opaque``. ``pred`` has 8
    bits, since one value fills a byte wherever XLA stores it; ``token`` and ``opaque`` have none.
    """

    name: str
    bits: int
    kind: str

    def __str__(self) -> str:
        return self.name

    @property
    def storage_bits(self) -> int:
        """Bits per element where no layout says otherwise: whole bytes, so 8 for ``s4`` (XLA, ``ByteSizeOf``)."""
        return -(-self.bits // 8) * 8

    @property
    def packed_bits(self) -> int:
        """Bits per element as the TPU compiler lays arrays out: types of 4 and 2 bits are packed, ``E(bits)`` says so.

        Source: programs compiled ahead of time by libtpu 0.0.52 for v5e, v6e and v7x.
        """
        return self.bits if self.bits in (2, 4) else self.storage_bits

    @property
    def is_pred(self) -> bool:
        """Whether values are truth values."""
        return self.kind == "pred"

    @property
    def is_integer(self) -> bool:
        """Whether values are integers, signed or not (``pred`` is none)."""
        return self.kind in ("signed", "unsigned")

    @property
    def is_signed(self) -> bool:
        """Whether values are signed integers."""
        return self.kind == "signed"

    @property
    def is_unsigned(self) -> bool:
        """Whether values are unsigned integers."""
        return self.kind == "unsigned"

    @property
    def is_float(self) -> bool:
        """Whether values are real floating-point numbers."""
        return self.kind == "float"

    @property
    def has_infinity(self) -> bool:
        """Whether infinity is one of the values; names of floats that are all finite end in fn and what follows."""
        return self.is_float and not self.name.endswith(("fn", "fnu", "fnuz"))

    @property
    def is_complex(self) -> bool:
        """Whether values are pairs of floats."""
        return self.kind == "complex"

    @property
    def is_array_type(self) -> bool:
        """Whether arrays of it hold data, as all do but those of ``token`` and ``opaque``."""
        return self.bits > 0


_TYPES = {
    # XLA counts one bit of value here, but every backend stores, moves and charges a byte.
    "pred": {8: "pred"},
    "signed": {bits: f"s{bits}" for bits in (1, 2, 4, 8, 16, 32, 64)},
    "unsigned": {bits: f"u{bits}" for bits in (1, 2, 4, 8, 16, 32, 64)},
    "float": {
        **{16: "bf16 f16", 32: "f32", 64: "f64"},
        8: "f8e5m2 f8e4m3 f8e4m3fn f8e4m3b11fnuz f8e3m4 f8e5m2fnuz f8e4m3fnuz f8e8m0fnu",
        4: "f4e2m1fn",
    },
    "complex": {64: "c64", 128: "c128"},
    "token": {0: "token"},
    "opaque": {0: "opaque"},
}
"""Names by kind and bits."""

DTYPES: dict[str, DType] = {
    name: DType(name, bits, kind)
    for kind, by_bits in _TYPES.items()
    for bits in by_bits
    for name in by_bits[bits].split()
}
"""All element types by name."""

_WIDE_MANTISSAS = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7, "c64": 23, "c128": 52}
MANTISSA_BITS: Final = {**_WIDE_MANTISSAS, "f8e5m2": 2, "f8e4m3": 3, "f8e3m4": 4}
"""Bits that the payload of a NaN may have, for the types that have some; of complex types in either part."""

_NUMPY_NAMES = {"pred": "bool", "bf16": "bfloat16", "c64": "complex64", "c128": "complex128"}
_NUMPY_KINDS = {"s": "int", "u": "uint", "f": "float"}


def dtype(name: str) -> DType:
    """Return the element type of that name.

    Raises ``ProgramError``, with the nearest known name, if there is none.
    """
    found = DTYPES.get(name)
    if found is None:
        raise ProgramError(unknown_dtype(name))
    return found


def unknown_dtype(name: str) -> str:
    """Return the message for a name that is no element type, with the nearest one that is."""
    # What stands where a type should may be a whole file without a blank.
    shown = name[:40]
    return f"expected an element type such as f32, found {shown!r}{did_you_mean(shown.lower(), DTYPES)}"


@lru_cache(maxsize=64)
def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy type, from ml_dtypes where NumPy has none, that holds the values of an element type.

    Raises ``UnsupportedError`` for ``token`` and ``opaque``, which have no values.
    """
    # Most programs are read without NumPy, whose import takes longer than reading them.
    import ml_dtypes
    import numpy as np

    if not dtype.is_array_type:
        raise UnsupportedError(f"expected an element type with values, found {dtype.name!r}; leave such arrays out")
    match = re.fullmatch(r"([suf])(\d+)(e\w+)?", dtype.name)
    name = _NUMPY_NAMES.get(dtype.name, "")
    if match is not None:
        name = _NUMPY_KINDS[match[1]] + match[2] + (f"_{match[3]}" if match[3] else "")
    return np.dtype(getattr(ml_dtypes, name, name))


def native(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array with its bytes in the order of this machine: the same numbers, whichever end they begin at."""
    is_swapped = array.dtype.kind in "iufc" and not array.dtype.isnative
    # Not by newbyteorder: its type equals NumPy's own, but is not the one that NumPy has registered.
    return array.astype(array.dtype.type) if is_swapped else array


def rounded_to_odd(wide: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return f64 numbers as f32, with the last bit set where anything was lost.

    Rounding that once more to the few bits of a byte gives what rounding the double would: nothing beside a tie becomes
    the tie.
    """
    import numpy as np

    rounded = wide.astype(np.float32)
    # What is nothing stays nothing: a type of powers of two makes NaN of zero alone.
    is_lost = (rounded != wide) & (rounded != 0) & ~np.isnan(wide)
    # One unit less is one step towards zero, for either sign, and from infinity to the largest number.
    bits = np.ravel(rounded).view(np.uint32) - np.ravel(np.abs(rounded) > np.abs(wide)) | np.ravel(is_lost)
    return bits.astype(np.uint32).view(np.float32).reshape(wide.shape)
