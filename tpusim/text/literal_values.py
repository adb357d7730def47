"""The numbers of a literal as NumPy arrays, NaN payloads included. NumPy is imported when first asked for."""

from __future__ import annotations

import re
from typing import Any

from tpusim.shapes.dtype import DTYPES, MANTISSA_BITS, DType, numpy_dtype, rounded_to_odd
from tpusim.shapes.shape import ArrayShape

_LEAST_POWER_OF_TWO = 2.0**-127
_BRACES = str.maketrans("", "", "{}() \t\r\n")
# From rank 4 on XLA writes an element's place before it.
_PLACES = re.compile(r"/\*[^*]*\*/")


def array_values(text: str, shape: ArrayShape) -> Any:
    """Return the elements of an array's literal as an array of its dimensions."""
    import numpy as np

    # Without the parentheses of complex numbers, and with them those of payloads.
    plain = _PLACES.sub("", text).replace("0x", "")
    elements = [e for e in plain.translate(_BRACES).split(",") if e]
    wanted = numpy_dtype(shape.dtype)
    if shape.dtype.is_complex:
        values = _floats(elements, DTYPES["f32" if shape.dtype.bits == 64 else "f64"]).view(wanted)
    elif shape.dtype.is_float:
        values = _floats(elements, shape.dtype)
    elif shape.dtype.is_pred:
        values = np.array([e not in ("0", "false") for e in elements], wanted)
    elif shape.dtype.bits < 64:
        values = np.array(list(map(int, elements)), np.int64).astype(wanted)
    else:
        # Unsigned numbers hold the 64 bits of either sign: XLA takes what is out of the type's range for its bits.
        values = np.array([int(e) & (1 << 64) - 1 for e in elements], np.uint64).view(wanted)
    return values.reshape(shape.dimensions)


def _floats(elements: list[str], dtype: DType) -> Any:
    """Return floating-point numbers as an array: those of 16 bits are rounded through f32, as by XLA, others once."""
    import numpy as np

    plain = np.array([0.0 if "nan" in e else float(e) for e in elements], np.float64)
    wide = rounded_to_odd(plain) if dtype.bits <= 8 else plain.astype(np.float32) if dtype.bits <= 32 else plain
    if dtype.name == "f8e8m0fnu":
        # Of what is below zero infinity alone is read, which like the other one is NaN here.
        wide = np.maximum(np.abs(wide), np.float32(_LEAST_POWER_OF_TWO))
    values = wide.astype(numpy_dtype(dtype))
    # A NaN that passes through a conversion may lose its payload; its bits are put in afterwards.
    for place, element in enumerate(elements):
        if "nan" in element:
            values[place] = _nan(element, dtype)
    return values


def _nan(element: str, dtype: DType) -> Any:
    """Return one NaN with its sign and payload; ``element`` is ``nan`` or ``-nan`` and the digits of the payload."""
    import numpy as np

    sign, _, payload = element.partition("nan")
    if dtype.name not in MANTISSA_BITS:
        # Without a payload a NaN may still have a sign: what the conversion makes of each is what XLA reads.
        return np.array(float(sign + "nan"), np.float32).astype(numpy_dtype(dtype))[()]
    mantissa, width = MANTISSA_BITS[dtype.name], dtype.bits
    # The lexer of XLA gives a NaN without payload that of a quiet f64; no type takes it literally.
    quiet = 1 << mantissa - 1
    bits = int(payload, 16) if payload and payload != "8000000000000" else quiet
    bits |= ((1 << width - 1) - (1 << mantissa)) | (bool(sign) << width - 1)
    return np.array(bits, f"uint{width}").view(numpy_dtype(dtype))[()]
