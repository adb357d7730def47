"""The numbers of a literal as NumPy arrays, NaN payloads included. NumPy is imported when first asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tpusim.shapes.shape import ArrayShape

MANTISSA_BITS: Final = {
    "f64": 52,
    "f32": 23,
    "f16": 10,
    "bf16": 7,
    "f8e5m2": 2,
    "f8e4m3": 3,
    "f8e3m4": 4,
    "c64": 23,
    "c128": 52,
}
"""Bits that the payload of a NaN may have, for the types that tell NaNs apart."""

_NUMPY_NAMES = {
    "pred": "bool",
    "bf16": "bfloat16",
    "c64": "complex64",
    "c128": "complex128",
    "f4e2m1fn": "float4_e2m1fn",
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"s{bits}": f"int{bits}" for bits in (1, 2, 4, 8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (1, 2, 4, 8, 16, 32, 64)},
}
_LEAST_POWER_OF_TWO = 2.0**-127
_FLOAT8 = re.compile(r"f8e(\d)m(\d)(\w*)")
_BRACES = str.maketrans("", "", "{}() \t\r\n")


# From rank 4 on XLA writes an element's place before it.
_PLACES = re.compile(r"/\*[^*]*\*/")


def numpy_dtype(name: str) -> Any:
    """Return the NumPy type, from ml_dtypes where NumPy has none, of an element type of XLA."""
    import ml_dtypes
    import numpy as np

    float8 = _FLOAT8.fullmatch(name)
    wanted = f"float8_e{float8[1]}m{float8[2]}{float8[3]}" if float8 else _NUMPY_NAMES[name]
    return np.dtype(getattr(ml_dtypes, wanted, wanted))


def array_values(text: str, shape: ArrayShape) -> Any:
    """Return the elements of an array's literal as an array of its dimensions."""
    import numpy as np

    name = shape.dtype.name
    # Payloads have parentheses too; only a complex number's may go.
    plain = _PLACES.sub("", text).replace("0x", "")
    elements = [e for e in plain.translate(_BRACES).split(",") if e]
    dtype = numpy_dtype(name)
    if shape.dtype.is_complex:
        parts = _floats(elements, "f32" if name == "c64" else "f64")
        return (parts.view(dtype) if len(parts) else np.empty(0, dtype)).reshape(shape.dimensions)
    if shape.dtype.is_float:
        return _floats(elements, name).reshape(shape.dimensions)
    if shape.dtype.is_pred:
        return np.array([e not in ("0", "false") for e in elements], dtype).reshape(shape.dimensions)
    return _integers(elements, shape.dtype.bits, dtype).reshape(shape.dimensions)


def _integers(elements: list[str], bits: int, dtype: Any) -> Any:
    """Return integers as an array; 64 bits out of the type's range are its bits."""
    import numpy as np

    # 64 bits of either sign go through unsigned numbers, which hold them all.
    if bits < 64:
        return np.array(list(map(int, elements)), np.int64).astype(dtype)
    return np.array([int(e) & (1 << 64) - 1 for e in elements], np.uint64).view(dtype)


def _floats(elements: list[str], name: str) -> Any:
    """Return floating-point numbers as an array, rounded through f32 as XLA does for narrower types."""
    import numpy as np

    plain = np.array([0.0 if "nan" in e else float(e) for e in elements], np.float64)
    wide = plain if name == "f64" else plain.astype(np.float32)
    if name == "f8e8m0fnu":
        wide = np.maximum(wide, np.float32(_LEAST_POWER_OF_TWO))
    values = wide.astype(numpy_dtype(name))
    # A NaN that passes through a conversion may lose its payload; its bits are put in afterwards.
    for place, element in enumerate(elements):
        if "nan" in element:
            values[place] = _nan(element, name)
    return values


def _nan(element: str, name: str) -> Any:
    """Return one NaN with its sign and payload; ``element`` is ``nan`` or ``-nan`` and the digits of the payload."""
    import numpy as np

    dtype = numpy_dtype(name)
    sign, _, payload = element.partition("nan")
    if name not in MANTISSA_BITS:
        return np.array(float("nan")).astype(dtype)[()]
    mantissa = MANTISSA_BITS[name]
    width = 8 * dtype.itemsize
    # The lexer of XLA gives a NaN without payload that of a quiet f64; no type takes it literally.
    quiet = 1 << mantissa - 1
    bits = int(payload, 16) if payload and payload != "8000000000000" else quiet
    bits |= ((1 << width - 1) - (1 << mantissa)) | (bool(sign) << width - 1)
    return np.array(bits, f"uint{width}").view(dtype)[()]
