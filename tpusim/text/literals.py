"""Literals of constants: read and checked against their shape, kept as canonical text.

The numbers keep the digits that they were written with; braces, commas and blanks become XLA's. A row of plain numbers
is read at once, since constants of a million elements are ordinary; everything else goes token by token.

Source: XLA, the HLO text format.
"""

from __future__ import annotations

import re
from math import nextafter
from typing import Any, Final

from tpusim.errors import UnsupportedError
from tpusim.ir.module import Literal
from tpusim.semantics.scalars import integer_range
from tpusim.shapes.dtype import MANTISSA_BITS, DType
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape, shape_text
from tpusim.text.lexer import Lexer
from tpusim.text.literal_values import array_values

ELIDED: Final = "{...}"
"""What XLA prints for a large constant unless told otherwise."""

_BLANK = r"[ \t\r\n]*+"
_NUMERAL = r"-?+(?:[0-9]++(?:\.[0-9]*+)?+(?:[eE][+-]?+[0-9]++)?+|inf|nan)"
_ROW = re.compile(rf"\{{{_BLANK}({_NUMERAL}{_BLANK}(?:,{_BLANK}{_NUMERAL}{_BLANK})*+)\}}")
# Out of range for no type; XLA does not check them.
_SPECIAL = frozenset({"inf", "-inf", "nan", "-nan"})
_COMMAS = re.compile(r"[, \t\r\n]*+")
_WHOLE_ELISION = re.compile(rf"\{{{_BLANK}\.\.\.{_BLANK}\}}")

# The least magnitude that a type refuses. XLA rounds through f32, which is why those of f16 and bf16 lie half a unit
# of f32 below the middle between the largest number and the next. Complex parts are compared with the largest number
# itself. f8e8m0fnu holds powers of two only: no zero, no sign.
_OVERFLOW: Final[dict[str, float]] = {
    "f64": float("inf"),
    "f32": (2 - 2.0**-24) * 2.0**127,
    "bf16": (2 - 2.0**-8 - 2.0**-24) * 2.0**127,
    "f16": 65520.0 - 2.0**-9,
    "f8e5m2": 61440.0,
    "f8e5m2fnuz": 61440.0,
    "f8e4m3": 248.0,
    "f8e4m3fnuz": 248.0,
    "f8e4m3fn": 464.0 + 2.0**-44,
    "f8e4m3b11fnuz": 31.0,
    "f8e3m4": 15.75,
    "f8e8m0fnu": 1.5 * 2.0**127,
    "f4e2m1fn": float("inf"),
    "c64": nextafter((2 - 2.0**-23) * 2.0**127, float("inf")),
    "c128": float("inf"),
}
# XLA takes leading zeros; what is left must be short enough to convert.
_MOST_DIGITS = 25


def take_literal(lexer: Lexer, shape: Shape) -> Literal:
    """Read the literal of a constant of this shape; raise ProgramError where the two do not fit."""
    # XLA elides large tuples in the same way, although it could not read them again.
    if _take_elision(lexer):
        return Literal(ELIDED, elided=True)
    text = _take_text(lexer, shape)
    return Literal(text, elided="..." in text)


def take_shaped_literal(lexer: Lexer) -> None:
    """Read ``shape literal``, or a tuple of them in parentheses, in a loop so that depth costs no recursion."""
    depth = 0
    while True:
        if lexer.accept("("):
            depth += 1
            if lexer.kind != ")":
                continue
        else:
            take_literal(lexer, lexer.take_shape())
        while depth and lexer.accept(")"):
            depth -= 1
        if not depth:
            return
        lexer.take(",", "',' or ')' in a tuple of literals")


def literal_values(literal: Literal, shape: Shape) -> Any:
    """Return the value of a literal: an array of NumPy (or ml_dtypes) elements, or a tuple of values.

    Raises:
        UnsupportedError: The text leaves the value out.
    """
    if literal.elided:
        raise UnsupportedError(
            f"the value of this constant of shape {shape_text(shape)} is left out of the text ('{{...}}');"
            " print the program with print_large_constants to have it"
        )
    if isinstance(shape, TupleShape):
        parts = _split_tuple(literal.text)
        return tuple(literal_values(Literal(t), s) for t, s in zip(parts, shape.elements, strict=True))
    assert isinstance(shape, ArrayShape)
    return array_values(literal.text, shape)


def _take_elision(lexer: Lexer) -> bool:
    """Pass over ``{...}`` if that is what comes; return whether it was."""
    match = _WHOLE_ELISION.match(lexer.text, lexer.start) if lexer.kind == "{" else None
    if match is not None:
        lexer.jump(match.end())
    return match is not None


def _take_text(lexer: Lexer, shape: Shape) -> str:
    if isinstance(shape, TupleShape):
        return _take_tuple(lexer, shape)
    if not isinstance(shape, ArrayShape) or not shape.dtype.is_array_type or min(shape.dimensions, default=0) < 0:
        lexer.fail(f"a constant of shape {shape_text(shape)} has no literal")
    if not shape.dimensions:
        return _take_element(lexer, shape.dtype)
    return ELIDED if _take_elision(lexer) else _take_array(lexer, shape)


def _take_tuple(lexer: Lexer, shape: TupleShape) -> str:
    """Read ``(literal, literal)``."""
    lexer.take("(", "'(' before the elements of a tuple")
    texts: list[str] = []
    for number, element in enumerate(shape.elements):
        if number:
            lexer.take(",", f"',' and element {number} of {len(shape.elements)}")
        texts.append(_take_text(lexer, element))
    lexer.take(")", f"')' after {len(texts)} elements")
    return f"( {', '.join(texts)} )"


def _take_array(lexer: Lexer, shape: ArrayShape) -> str:
    """Read nested braces, in a loop so that rank costs no recursion."""
    # Braces of the innermost dimension are read by the row, so that this loop turns once per row.
    rank = len(shape.dimensions)
    counts = [0] * rank
    parts: list[str] = []
    depth = 0
    while True:
        if lexer.kind == "{":
            if depth:
                _count_element(lexer, shape, counts, depth - 1, parts)
            depth += 1
            if depth == rank:
                parts.append(_take_row(lexer, shape))
                depth -= 1
            else:
                counts[depth - 1] = 0
                # From rank 4 on XLA prints the index of the element in its brace.
                shown = f"/*i{depth - 2}={counts[depth - 2] - 1}*/ " if rank > 3 and depth > 1 else ""
                parts.append("{ " + shown)
                lexer.advance()
        elif lexer.kind == "}" and depth:
            depth -= 1
            _check_count(lexer, shape, counts[depth], depth)
            parts.append(" }")
            lexer.advance()
        elif lexer.kind != "," or not depth:
            lexer.fail(f"expected a literal of {rank} nested braces, found {lexer.shown()}")
        else:
            lexer.advance()
        if not depth:
            return "".join(parts)


def _count_element(lexer: Lexer, shape: ArrayShape, counts: list[int], dimension: int, parts: list[str]) -> None:
    """Count one more element of a dimension, which must have room for it."""
    if counts[dimension] == shape.dimensions[dimension]:
        lexer.fail(f"dimension {dimension} of {shape_text(shape)} has only {shape.dimensions[dimension]} elements")
    if counts[dimension]:
        parts.append(", ")
    counts[dimension] += 1


def _check_count(lexer: Lexer, shape: ArrayShape, count: int, dimension: int) -> None:
    """Refuse a brace that closes a dimension too early, or after too many elements."""
    size = shape.dimensions[dimension]
    if count != size:
        lexer.fail(f"dimension {dimension} of {shape_text(shape)} has {size} elements, found {count}")


def _take_row(lexer: Lexer, shape: ArrayShape) -> str:
    """Read the innermost braces and what they hold."""
    match = _ROW.match(lexer.text, lexer.start)
    elements = "".join(match[1].split()).split(",") if match else []
    if match and len(elements) == shape.dimensions[-1] and _are_plain_and_fit(elements, shape.dtype):
        lexer.jump(match.end())
    else:
        elements = _take_elements(lexer, shape)
    # XLA's spelling: {1, 2} alone, { 1, 2 } inside another brace, but {1} there too, and {} if empty.
    blank = " " if len(shape.dimensions) > 1 and len(elements) > 1 else ""
    return f"{{{blank}{', '.join(elements)}{blank}}}"


def _are_plain_and_fit(elements: list[str], dtype: DType) -> bool:
    """Return whether numbers can be taken at once; if not, reading them one by one finds out why."""
    try:
        # min and max over converted numbers run in C; the elements stay the text that they were.
        if dtype.is_integer:
            least, most = _integer_range(dtype)
            values = list(map(int, elements))
            return least <= min(values) and max(values) <= most
        if not dtype.is_float or dtype.name == "f8e8m0fnu":
            return False
        limit = _OVERFLOW[dtype.name]
        numbers = [float(element) for element in elements if element not in _SPECIAL]
        return not numbers or (-limit < min(numbers) and max(numbers) < limit)
    except ValueError:
        # A fraction among integers, or more digits than Python converts.
        return False


def _take_elements(lexer: Lexer, shape: ArrayShape) -> list[str]:
    """Read the innermost braces token by token; commas may be missing, as in XLA."""
    size, dimension = shape.dimensions[-1], len(shape.dimensions) - 1
    lexer.take("{", "'{'")
    elements: list[str] = []
    while lexer.kind != "}":
        if lexer.kind == ",":
            commas = _COMMAS.match(lexer.text, lexer.end)
            lexer.jump(commas.end() if commas else lexer.end)
            continue
        if lexer.kind == "{":
            lexer.fail(f"a literal of {shape_text(shape)} has {len(shape.dimensions)} nested braces, found more")
        if len(elements) == size:
            lexer.fail(f"dimension {dimension} of {shape_text(shape)} has only {size} elements")
        element = _take_element(lexer, shape.dtype)
        elements.append({"true": "1", "false": "0"}.get(element, element))
    _check_count(lexer, shape, len(elements), dimension)
    lexer.advance()
    return elements


def _take_element(lexer: Lexer, dtype: DType) -> str:
    if dtype.is_pred:
        return _take_truth(lexer)
    if dtype.is_integer:
        return _take_integer(lexer, dtype)
    if dtype.is_float:
        return _take_float(lexer, dtype)
    lexer.take("(", f"'(real, imaginary)' for {dtype.name}")
    real = _take_float(lexer, dtype)
    lexer.take(",", "','")
    imaginary = _take_float(lexer, dtype)
    lexer.take(")", "')'")
    return f"({real}, {imaginary})"


def _take_truth(lexer: Lexer) -> str:
    """Read ``true``, ``false`` or an integer, which is true unless it is 0."""
    if lexer.kind == "keyword" and lexer.value in ("true", "false"):
        return lexer.take("keyword", "true or false")
    # XLA takes any integer for a truth value, and prints arrays of them as 1 and 0.
    text = lexer.take("integer", "true, false or an integer")
    return "false" if not text.strip("-0") else "true"


def _take_integer(lexer: Lexer, dtype: DType) -> str:
    start = lexer.start
    text = lexer.take("integer", f"an integer for {dtype.name}")
    least, most = _integer_range(dtype)
    digits = text.lstrip("-").lstrip("0") or "0"
    if len(digits) > _MOST_DIGITS or not least <= (-int(digits) if text[0] == "-" else int(digits)) <= most:
        lexer.fail(f"{text[:_MOST_DIGITS]} is outside the range of {dtype.name}, {least} to {most}", start)
    return text


def _integer_range(dtype: DType) -> tuple[int, int]:
    """Return the integers that a type takes; 64 bits of either sign are taken as bits of the other, as in XLA."""
    return (-(1 << 63), (1 << 64) - 1) if dtype.bits == 64 else integer_range(dtype)


def _take_float(lexer: Lexer, dtype: DType) -> str:
    """Read a number, infinity or NaN in the range of a floating-point type."""
    start = lexer.start
    if lexer.kind not in ("integer", "float"):
        lexer.fail(f"expected a number for {dtype.name}, found {lexer.shown()}")
    text = lexer.take(lexer.kind, "")
    name, _, payload = text.partition("(")
    if payload:
        _check_payload(lexer, dtype, payload, start)
    elif name not in _SPECIAL and not _fits(name, dtype):
        lexer.fail(f"{text[:40]} is outside the range of {dtype.name}", start)
    return text


def _fits(text: str, dtype: DType) -> bool:
    """Return whether a decimal number rounds to a finite value of a type."""
    # Python rounds a decimal text to the nearest double, as XLA does before it narrows it.
    value = float(text)
    # A power of two is above zero; what is smaller than the least is the least, as XLA reads it.
    if dtype.name == "f8e8m0fnu" and value <= 0:
        return False
    return abs(value) < _OVERFLOW[dtype.name]


def _check_payload(lexer: Lexer, dtype: DType, payload: str, start: int) -> None:
    """Refuse the payload of a NaN that has no room for it, or that is 0."""
    digits = payload.removeprefix("0x").rstrip(")").lstrip("0")
    bits = MANTISSA_BITS.get(dtype.name, 0)
    fits = len(digits) <= 13 and 0 < int(digits or "0", 16) < 1 << bits
    # The payload of an ordinary NaN says nothing and is taken by every type, as in XLA.
    if not fits and digits != "8000000000000":
        lexer.fail(f"the payload of a NaN of {dtype.name} has {bits} bits and is not 0", start)


def _split_tuple(text: str) -> list[str]:
    """Split ``( a, ( b, c ) )`` at its own commas."""
    parts, depth, begin = [], 0, 1
    for match in re.finditer(r"[(){},]", text):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(match.group(), 0)
        if depth == 0 or (depth == 1 and match.group() == ","):
            parts.append(text[begin : match.start()].strip())
            begin = match.end()
    return parts if parts != [""] else []
