"""Questions about shapes that inference rules ask: agreement of types and sizes, and the wider of two types.

Source: XLA, Shapes and layout, and the notes on dynamic dimensions in its operation semantics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeGuard

from tpusim.shapes.dtype import DTYPES, DType
from tpusim.shapes.shape import UNBOUNDED, ArrayShape, Shape, TupleShape, compatible, leaves, shape_text

PRED: Final = ArrayShape(DTYPES["pred"])
S32: Final = ArrayShape(DTYPES["s32"])
U32: Final = ArrayShape(DTYPES["u32"])
TOKEN: Final = ArrayShape(DTYPES["token"])

FLOAT_REACH: Final = {
    "f64": (1024, 53),
    "f32": (128, 24),
    "bf16": (128, 8),
    "f8e8m0fnu": (128, 1),
    "f16": (16, 11),
    "f8e5m2": (16, 3),
    "f8e5m2fnuz": (16, 3),
    "f8e4m3fn": (9, 4),
    "f8e4m3": (8, 4),
    "f8e4m3fnuz": (8, 4),
    "f8e4m3b11fnuz": (5, 4),
    "f8e3m4": (4, 5),
    "f4e2m1fn": (3, 2),
}
"""Of each float type: the exponent of two that overflows, and the bits of the significand, the hidden one included."""


def is_array(shape: Shape) -> TypeGuard[ArrayShape]:
    """Return whether a shape is an array that holds data: no tuple, buffer, token or opaque value."""
    # A token is written token[], as an array, but has no bits.
    return isinstance(shape, ArrayShape) and shape.dtype.bits > 0


def is_scalar(shape: Shape) -> TypeGuard[ArrayShape]:
    """Return whether a shape is an array of rank 0."""
    return is_array(shape) and not shape.dimensions


def is_token(shape: Shape) -> bool:
    """Return whether a shape is ``token[]``."""
    return isinstance(shape, ArrayShape) and shape.dtype.kind == "token"


def plain(shape: Shape) -> str:
    """Return the notation of a shape without layouts, as messages show it."""
    return shape_text(shape, layout=False)


def dynamic_flags(shape: ArrayShape) -> tuple[bool, ...]:
    """Return for each dimension whether it is dynamic."""
    return shape.dynamic or (False,) * len(shape.dimensions)


def is_unbounded(shape: Shape) -> bool:
    """Return whether any dimension anywhere in the shape is ``?``."""
    return any(UNBOUNDED in array.dimensions for array in leaves(shape))


def make_array(dtype: DType, sizes: Iterable[int], dynamic: Iterable[bool] = ()) -> ArrayShape:
    """Return an array with no layout; no dynamic dimension at all is ``()``, as everywhere."""
    # No layout: operands do not imply one, and compilers assign it later.
    flags = tuple(dynamic)
    return ArrayShape(dtype, tuple(sizes), flags if any(flags) else ())


def retyped(shape: ArrayShape, dtype: DType) -> ArrayShape:
    """Return the shape with another element type; the layout stays."""
    return shape if shape.dtype is dtype else ArrayShape(dtype, shape.dimensions, shape.dynamic, shape.layout)


def resized(shape: ArrayShape, dimension: int, size: int, dynamic: bool) -> ArrayShape:
    """Return the shape with another size in one dimension, and no layout."""
    sizes, flags = list(shape.dimensions), list(dynamic_flags(shape))
    sizes[dimension], flags[dimension] = size, dynamic
    return make_array(shape.dtype, sizes, flags)


def one_or_tuple(shapes: Sequence[Shape]) -> Shape:
    """Return the only shape, or a tuple of several: what a variadic operation gives."""
    return shapes[0] if len(shapes) == 1 else TupleShape(tuple(shapes))


def parts(shape: Shape) -> tuple[Shape, ...]:
    """Return the elements of a tuple; anything else is the only element of itself."""
    return shape.elements if isinstance(shape, TupleShape) else (shape,)


def sizes_agree(one: int, other: int) -> bool:
    """Return whether two sizes are equal, or may be because one is not known."""
    return one == other or UNBOUNDED in (one, other)


def dimensions_agree(one: ArrayShape, other: ArrayShape) -> bool:
    """Return whether two arrays have sizes that are, or may be, equal."""
    if one.dimensions == other.dimensions:
        return True
    return one.rank == other.rank and all(map(sizes_agree, one.dimensions, other.dimensions))


def types_agree(one: DType, other: DType) -> bool:
    """Return whether two element types are equal up to floating-point precision."""
    # Verifiers may be told to let precisions mix, as TPU compilers leave them in fusions.
    return one is other or one == other or (one.is_float and other.is_float)


def alike(one: Shape, other: Shape) -> bool:
    """Return whether two shapes are compatible up to the precision of their floats."""
    if isinstance(one, ArrayShape) and isinstance(other, ArrayShape):
        return one.dimensions == other.dimensions and types_agree(one.dtype, other.dtype)
    if isinstance(one, TupleShape) and isinstance(other, TupleShape):
        return len(one.elements) == len(other.elements) and all(map(alike, one.elements, other.elements))
    return compatible(one, other)


def is_prefix(short: Shape, whole: Shape) -> bool:
    """Return whether a shape is another one of which elements of tuples, from some element on, may be missing."""
    if compatible(short, whole):
        return True
    # An empty tuple begins every shape: nothing of it is known yet.
    if not isinstance(short, TupleShape) or not short.elements:
        return isinstance(short, TupleShape)
    if not isinstance(whole, TupleShape) or len(short.elements) > len(whole.elements):
        return False
    return all(is_prefix(a, b) for a, b in zip(short.elements, whole.elements, strict=False))


def wider(one: DType, other: DType) -> DType:
    """Return the type of the two that holds more: complex, then range, then precision, then bits, then sign."""
    return one if one is other or _reach(one) >= _reach(other) else other


def _reach(dtype: DType) -> tuple[bool, int, int, int, bool]:
    """Return what decides which of two types holds more."""
    # XLA, HigherPrecisionType: range comes first, so that bf16 counts for more than f16.
    exponent, significand = FLOAT_REACH.get(dtype.name, (-1, -1))
    return dtype.is_complex, exponent, significand, dtype.bits, dtype.is_signed


def indexed_leaves(shape: Shape, index: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Shape]]:
    """Yield each part of a shape that is no tuple, after its index into nested tuples."""
    if not isinstance(shape, TupleShape):
        yield index, shape
        return
    for number, element in enumerate(shape.elements):
        yield from indexed_leaves(element, (*index, number))


def subshape(shape: Shape, index: Sequence[int]) -> Shape | None:
    """Return the part of a shape at an index into nested tuples; None if there is none."""
    for number in index:
        if not isinstance(shape, TupleShape) or not 0 <= number < len(shape.elements):
            return None
        shape = shape.elements[number]
    return shape
