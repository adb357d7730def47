"""Element types, by XLA's lower-case names."""

from __future__ import annotations

import msgspec

from tpusim.errors import ProgramError, did_you_mean


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
