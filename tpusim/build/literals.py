"""Values as the canonical HLO text of literals: the writing half of what the parser of literals reads.

NumPy is imported when a value is first written, since most of this room does without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod
from typing import Any

from tpusim.errors import ProgramError
from tpusim.ir.module import Literal
from tpusim.semantics.scalars import integer_range
from tpusim.shapes.dtype import DTYPES, MANTISSA_BITS, DType, native, numpy_dtype
from tpusim.shapes.shape import ArrayShape

_DEFAULTS = {"b": "pred", "i": "s32", "u": "u32", "f": "f32", "c": "c64"}


def literal_of(value: Any, wanted: DType | None) -> tuple[Literal, ArrayShape, tuple[int, ...]]:
    """Return a literal, its shape, and the sizes to broadcast it to: an array of equal elements is one of them.

    ``value`` is a number, nested lists of numbers, or a NumPy array. Without ``wanted`` an array keeps its type, and
    Python's numbers become ``pred``, ``s32``, ``f32`` or ``c64``. Raises ProgramError for a value that does not fit.
    """
    array, dtype = _as_array(value, wanted)
    # Comparing texts tells zeros of either sign apart, and takes NaNs of the same bits for equal.
    texts = _element_texts(array.reshape(-1), dtype)
    is_splat = len(texts) > 1 and len(set(texts)) == 1
    if not array.shape or is_splat:
        # Truth values are words in scalars only.
        text = ("false", "true")[int(texts[0])] if dtype.is_pred else texts[0]
        return Literal(text), ArrayShape(dtype), array.shape
    return Literal(_nested(texts, array.shape)), ArrayShape(dtype, array.shape), ()


def _as_array(value: Any, wanted: DType | None) -> tuple[Any, DType]:
    """Return the value as a NumPy array and its element type."""
    import numpy as np

    try:
        array = native(np.asarray(value))
    except ValueError as error:
        raise ProgramError(f"expected lists of one length as the value of a constant: {error}") from error
    is_typed = isinstance(value, np.ndarray | np.generic)
    known = (each for each in DTYPES.values() if each.is_array_type and numpy_dtype(each) == array.dtype)
    own = next(known, None) if is_typed else DTYPES.get(_DEFAULTS.get(array.dtype.kind, ""))
    if own is None:
        raise ProgramError(f"expected numbers as the value of a constant, found {str(value)[:60]!r}")
    dtype = wanted or own
    if not dtype.is_integer or (is_typed and dtype == own):
        return array, dtype
    least, most = integer_range(dtype)
    wrong = next((v for v in array.reshape(-1).tolist() if not _is_whole(v) or not least <= v <= most), None)
    if wrong is not None:
        raise ProgramError(f"expected integers from {least} to {most} for {dtype}, found {wrong}")
    return array, dtype


def _is_whole(value: complex) -> bool:
    return not isinstance(value, complex) and isfinite(value) and int(value) == value


def _element_texts(flat: Any, dtype: DType) -> list[str]:
    """Return the text of every element in row-major order; truth values are 1 and 0."""
    if dtype.is_pred or dtype.is_integer:
        return [str(int(value)) for value in (flat.astype(bool) if dtype.is_pred else flat).tolist()]
    if not dtype.is_complex:
        return _float_texts(flat, dtype)
    part = DTYPES["f32" if dtype.bits == 64 else "f64"]
    pairs = zip(_float_texts(flat.real, part), _float_texts(flat.imag, part), strict=True)
    return [f"({real}, {imaginary})" for real, imaginary in pairs]


def _float_texts(flat: Any, dtype: DType) -> list[str]:
    """Return for each number the shortest decimal that reads back as it, rounded to the type."""
    import numpy as np

    with np.errstate(over="ignore"):
        rounded = flat.astype(numpy_dtype(dtype))
        # NumPy's shortest text of an f32 also reads back as the narrower number that it holds.
        wide = rounded.astype(np.float64 if dtype.name == "f64" else np.float32)
    # The zero below zero keeps its fraction: XLA reads "-0" as an integer, which has no such zero.
    texts = [text if text == "-0.0" else text.removesuffix(".0") for text in wide.astype(str).tolist()]
    for place in np.flatnonzero(np.isnan(wide)).tolist():
        texts[place] = _nan_text(rounded[place : place + 1], dtype)
    return texts


def _nan_text(value: Any, dtype: DType) -> str:
    """Return one NaN with its sign and, unless it is the ordinary one, its payload."""
    import numpy as np

    mantissa = MANTISSA_BITS.get(dtype.name)
    # These types have one NaN only, or one of either sign: the conversion knows where the sign is, if there is one.
    if mantissa is None:
        return "-nan" if np.signbit(value.astype(np.float32))[0] else "nan"
    bits = int(value.view(f"uint{dtype.bits}")[0])
    sign = "-" if bits >> dtype.bits - 1 else ""
    payload = bits & (1 << mantissa) - 1
    # The quiet bit alone is the ordinary NaN, which text writes without a payload.
    return f"{sign}nan" if payload == 1 << mantissa - 1 else f"{sign}nan({payload:#x})"


def _nested(texts: Sequence[str], dimensions: tuple[int, ...], is_inner: bool = False) -> str:
    """Return elements in nested braces with XLA's blanks: the braces of a vector and of nothing have none."""
    if len(dimensions) == 1:
        blank = " " if is_inner and texts else ""
        return f"{{{blank}{', '.join(texts)}{blank}}}"
    step = prod(dimensions[1:])
    parts = (_nested(texts[i * step : (i + 1) * step], dimensions[1:], True) for i in range(dimensions[0]))
    return f"{{ {', '.join(parts)} }}"
