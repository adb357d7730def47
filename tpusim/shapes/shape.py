"""Shapes: arrays, tuples, tokens, opaque values and buffers, as XLA knows them, and the numbering of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod

import msgspec

from tpusim.shapes.dtype import DType
from tpusim.shapes.layout import Layout

UNBOUNDED = -1
"""The size of a dimension written ``?``."""

_INDEX_COMMENT_INTERVAL = 5
"""XLA numbers every fifth element of a tuple in a comment."""


class Shape(msgspec.Struct, frozen=True, cache_hash=True):
    """Base of all shapes. ``str(shape)`` is XLA's notation with layouts."""

    def __str__(self) -> str:
        return shape_text(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the notation, which holds brackets of HTML (``<=4``)."""
        # Has a table of all characters that have names, which nothing else needs.
        from html import escape

        return f"<code>{escape(str(self))}</code>"


class ArrayShape(Shape, frozen=True, cache_hash=True):
    """An array: element type, sizes, which of the sizes are only bounds (``<=N``), and a layout.

    ``token[]`` and ``opaque[]`` are array shapes of rank 0 whose element type takes no memory. A ``dynamic`` of ``()``
    means that no dimension is dynamic. A ``layout`` of ``None`` means that none was written: the default one counts.
    """

    dtype: DType
    dimensions: tuple[int, ...] = ()
    dynamic: tuple[bool, ...] = ()
    layout: Layout | None = None

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dimensions)

    @property
    def true_rank(self) -> int:
        """Number of dimensions larger than 1."""
        return sum(size > 1 for size in self.dimensions)

    @property
    def large_dimensions(self) -> tuple[int, ...]:
        """The dimensions larger than 1, by number."""
        return tuple(d for d, size in enumerate(self.dimensions) if size > 1)

    @property
    def element_count(self) -> int:
        """Logical elements: the product of the sizes (of the bounds, where dynamic)."""
        return prod(self.dimensions)

    @property
    def actual_layout(self) -> Layout:
        """The layout, or the default one if none was written."""
        return self.layout if self.layout is not None else Layout.default(len(self.dimensions))

    @property
    def memory_space(self) -> int:
        """The number of ``S(n)``; 0 is HBM."""
        return self.layout.memory_space if self.layout is not None else 0

    def with_layout(self, layout: Layout | None) -> ArrayShape:
        """Return the same array under another layout, or with none written."""
        return ArrayShape(self.dtype, self.dimensions, self.dynamic, layout)


class TupleShape(Shape, frozen=True, cache_hash=True):
    """A tuple of shapes, which may be tuples again."""

    elements: tuple[Shape, ...] = ()


class BufferShape(Shape, frozen=True, cache_hash=True):
    """``b(shape)``: a buffer that instructions may write in place."""

    element: Shape


def leaves(shape: Shape) -> tuple[ArrayShape, ...]:
    """Return the arrays (tokens and opaque values too) in a shape, depth first, left to right."""
    # Nearly all shapes are arrays, and nearly every module asks.
    if isinstance(shape, ArrayShape):
        return (shape,)
    found: list[ArrayShape] = []
    # A stack of our own: shapes built by hand may nest deeper than Python recurses.
    stack = [shape]
    while stack:
        top = stack.pop()
        if isinstance(top, ArrayShape):
            found.append(top)
        elif isinstance(top, TupleShape):
            # The last one in comes out first.
            stack.extend(reversed(top.elements))
        elif isinstance(top, BufferShape):
            stack.append(top.element)
    return tuple(found)


def with_default_layouts(shape: Shape) -> Shape:
    """Return the shape with the default layout in every array that has none written, as XLA keeps shapes.

    What has no dimensions stays as it is: its layout is not printed and so would not be read back.
    """
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(map(with_default_layouts, shape.elements)))
    if isinstance(shape, BufferShape):
        return BufferShape(with_default_layouts(shape.element))
    assert isinstance(shape, ArrayShape)
    return shape.with_layout(shape.actual_layout) if shape.rank else shape


def shape_text(shape: Shape, *, layout: bool = True) -> str:
    """Return XLA's notation of a shape, with the layouts that it has or, if ``layout`` is false, without any."""
    if isinstance(shape, ArrayShape):
        return _array_text(shape, layout)
    if isinstance(shape, TupleShape):
        texts = [shape_text(element, layout=layout) for element in shape.elements]
        for number in range(_INDEX_COMMENT_INTERVAL, len(texts), _INDEX_COMMENT_INTERVAL):
            texts[number] = f"/*index={number}*/{texts[number]}"
        return f"({', '.join(texts)})"
    assert isinstance(shape, BufferShape)
    return f"b({shape_text(shape.element, layout=layout)})"


# A program writes a few hundred arrays thousands of times: in signatures, in messages, beside buffers.
@lru_cache(maxsize=1 << 12)
def _array_text(shape: ArrayShape, layout: bool) -> str:
    # The common case of no dynamic dimension is kept as an empty tuple.
    bounds = ("<=" if dynamic else "" for dynamic in shape.dynamic or (False,) * len(shape.dimensions))
    sizes = ("?" if n == UNBOUNDED else f"{bound}{n}" for n, bound in zip(shape.dimensions, bounds, strict=True))
    text = f"{shape.dtype.name}[{','.join(sizes)}]"
    if not layout or shape.layout is None:
        return text
    suffix = str(shape.layout)
    # XLA writes no "{}", and would not read it as a layout.
    return text if suffix == "{}" else text + suffix


def compatible(one: Shape, other: Shape) -> bool:
    """Return whether two shapes agree in everything but layout and in which dimensions are only bounds."""
    if one is other:
        return True
    if isinstance(one, ArrayShape) and isinstance(other, ArrayShape):
        # XLA, ShapeUtil::Compatible: a bounded dynamic dimension fits a static one of that bound.
        return one.dimensions == other.dimensions and one.dtype == other.dtype
    if isinstance(one, TupleShape) and isinstance(other, TupleShape):
        same = len(one.elements) == len(other.elements)
        return same and all(map(compatible, one.elements, other.elements))
    return isinstance(one, BufferShape) and isinstance(other, BufferShape) and compatible(one.element, other.element)


@lru_cache(maxsize=1 << 12)
def nodes(shape: Shape) -> tuple[Shape, ...]:
    """Return the parts of a shape, each tuple before its elements."""
    found: list[Shape] = []
    # A stack of our own, as in ``leaves``.
    stack = [shape]
    while stack:
        found.append(stack.pop())
        if isinstance(found[-1], TupleShape):
            stack.extend(reversed(found[-1].elements))
    return tuple(found)


def node_count(shape: Shape) -> int:
    """Return how many parts a shape has."""
    return len(nodes(shape))


@lru_cache(maxsize=1024)
def element_begins(shape: TupleShape) -> tuple[int, ...]:
    """Return the number of the part that each element of a tuple begins at, and one past the last part."""
    # The tuple itself is part 0. Kept, since every element of a loop's state asks for it.
    return tuple(accumulate((node_count(element) for element in shape.elements), initial=1))


def node_number(shape: Shape, index: Sequence[int]) -> int | None:
    """Return which part of a shape the way ``index`` through nested tuples leads to, None if to none."""
    number = 0
    for step in index:
        if not isinstance(shape, TupleShape) or step >= len(shape.elements):
            return None
        number += element_begins(shape)[step]
        shape = shape.elements[step]
    return number
