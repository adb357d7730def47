"""Values as the canonical HLO text of literals: the writing half of what the parser of literals reads.

NumPy is imported when a value is first written, since most of this room does without it.
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Any

from tpusim.errors import ProgramError
from tpusim.ir.module import Literal
from tpusim.shapes.dtype import DTYPES, DType
from tpusim.shapes.shape import ArrayShape

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMES = {"bool": "pred", "bfloat16": "bf16", "complex64": "c64", "complex128": "c128"}
_PREFIXES = {"int": "s", "uint": "u", "float": "f"}
_DEFAULTS = {"b": "pred", "i": "s32", "u": "u32", "f": "f32", "c": "c64"}
# What text/literals.py can read back of a NaN: mantissa bits by type.
_MANTISSA_BITS = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7, "f8e5m2": 2, "f8e4m3": 3, "f8e3m4": 4}


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
        return _scalar(texts[0], dtype), ArrayShape(dtype), array.shape
    return Literal(_nested(texts, array.shape)), ArrayShape(dtype, array.shape), ()


def _as_array(value: Any, wanted: DType | None) -> tuple[Any, DType]:
    """Return the value as a NumPy array and its element type."""
    import numpy as np

    array = np.asarray(value)
    is_typed = isinstance(value, np.ndarray | np.generic)
    own = _name_of(str(array.dtype)) if is_typed else _DEFAULTS.get(array.dtype.kind)
    if own is None:
        raise ProgramError(f"expected numbers as the value of a constant, found {str(value)[:60]!r}")
    dtype = wanted or DTYPES[own]
    if (dtype.is_integer and dtype.name != own) or (dtype.is_integer and not is_typed):
        _check_range(array, dtype)
    return array, dtype


def _name_of(name: str) -> str | None:
    """Return XLA's name of a NumPy type, None if it has none."""
    match = re.fullmatch(r"(int|uint|float)(\d+)_?(\w*)", name)
    known = f"{_PREFIXES[match[1]]}{match[2]}{match[3]}" if match else _NAMES.get(name)
    return known if known in DTYPES else None


def _check_range(array: Any, dtype: DType) -> None:
    """Refuse what is no integer, and integers that the type does not hold."""
    values = array.reshape(-1).tolist()
    least = -(1 << dtype.bits - 1) if dtype.is_signed else 0
    most = (1 << dtype.bits - dtype.is_signed) - 1
    wrong = next((v for v in values if int(v) != v or not least <= v <= most), None)
    if wrong is not None:
        raise ProgramError(f"expected integers from {least} to {most} for {dtype}, found {wrong}")


def _element_texts(flat: Any, dtype: DType) -> list[str]:
    """Return the text of every element in row-major order; truth values are 1 and 0."""
    if dtype.is_pred:
        return [str(int(bool(value))) for value in flat.tolist()]
    if dtype.is_integer:
        return [str(int(value)) for value in flat.tolist()]
    if not dtype.is_complex:
        return _float_texts(flat, dtype)
    part = DTYPES["f32" if dtype.bits == 64 else "f64"]
    pairs = zip(_float_texts(flat.real, part), _float_texts(flat.imag, part), strict=True)
    return [f"({real}, {imaginary})" for real, imaginary in pairs]


def _float_texts(flat: Any, dtype: DType) -> list[str]:
    """Return for each number the shortest decimal that reads back as it, rounded to the type."""
    import ml_dtypes
    import numpy as np

    name = numpy_name(dtype)
    with np.errstate(over="ignore"):
        rounded = flat.astype(np.dtype(getattr(ml_dtypes, name, name)))
        # NumPy's shortest text of an f32 also reads back as the narrower number that it holds.
        wide = rounded.astype(np.float64 if dtype.name == "f64" else np.float32)
    # The zero below zero keeps its fraction: XLA reads "-0" as an integer, which has no such zero.
    texts = [text if text == "-0.0" else text.removesuffix(".0") for text in wide.astype(str).tolist()]
    for place in np.flatnonzero(np.isnan(wide)).tolist():
        texts[place] = _nan_text(rounded[place : place + 1], dtype)
    return texts


def numpy_name(dtype: DType) -> str:
    """Return what NumPy or ml_dtypes calls a floating-point type of XLA: ``float8_e4m3fn`` is ``f8e4m3fn``."""
    if dtype.name == "bf16":
        return "bfloat16"
    bits, exponent, rest = re.sub(r"^f", "", dtype.name).partition("e")
    return f"float{bits}{'_' + exponent + rest if exponent else ''}"


def _nan_text(value: Any, dtype: DType) -> str:
    """Return one NaN with its sign and, unless it is the ordinary one, its payload."""
    mantissa = _MANTISSA_BITS.get(dtype.name)
    # These types have one NaN only, or two that nothing tells apart.
    if mantissa is None:
        return "nan"
    bits = int(value.view(f"uint{dtype.bits}")[0])
    sign = "-" if bits >> dtype.bits - 1 else ""
    payload = bits & (1 << mantissa) - 1
    # The quiet bit alone is the ordinary NaN, which text writes without a payload.
    return f"{sign}nan" if payload == 1 << mantissa - 1 else f"{sign}nan({payload:#x})"


def _scalar(text: str, dtype: DType) -> Literal:
    """Return the literal of a scalar: only there are truth values words."""
    return Literal(("false", "true")[int(text)] if dtype.is_pred else text)


def _nested(texts: Sequence[str], dimensions: tuple[int, ...], is_inner: bool = False) -> str:
    """Return elements in nested braces with XLA's blanks: the braces of a vector and of nothing have none."""
    if len(dimensions) == 1:
        blank = " " if is_inner and texts else ""
        return f"{{{blank}{', '.join(texts)}{blank}}}"
    step = prod(dimensions[1:])
    parts = (_nested(texts[i * step : (i + 1) * step], dimensions[1:], True) for i in range(dimensions[0]))
    return f"{{ {', '.join(parts)} }}"
