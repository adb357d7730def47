"""Random shapes for Hypothesis, and the naive twin of the layout: pad, reshape and transpose with NumPy."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tpusim.shapes.dtype import DTYPES, DType
from tpusim.shapes.layout import COMBINE, Layout, SplitConfig
from tpusim.shapes.shape import ArrayShape, BufferShape, Shape, TupleShape

DATA_TYPES = [dtype for dtype in DTYPES.values() if dtype.is_array_type]
_SMALL = st.integers(1, 4)
_INTEGER_TYPES = ["", "u8", "u32", "s64"]


@st.composite
def tiles(draw: st.DrawFn) -> tuple[int, ...]:
    """Draw a tile of up to four entries; all but the last may combine dimensions."""
    sizes = draw(st.lists(_SMALL | st.just(COMBINE), max_size=3))
    return (*sizes, draw(_SMALL))


@st.composite
def tiled_arrays(draw: st.DrawFn, dtype: DType = DTYPES["s32"]) -> ArrayShape:
    """Draw an array of up to four small dimensions in any order under up to three tiles."""
    sizes = draw(st.lists(st.integers(0, 5) | _SMALL, max_size=4))
    order = draw(st.permutations(range(len(sizes))))
    layout = Layout(tuple(order), tuple(draw(st.lists(tiles(), max_size=3))))
    return ArrayShape(dtype, tuple(sizes), (), layout)


@st.composite
def layouts(draw: st.DrawFn, rank: int) -> Layout:
    """Draw a layout with any of the parts that have a text form."""
    cuts = st.builds(SplitConfig, st.integers(0, 3), st.lists(_SMALL, min_size=1, max_size=3).map(tuple))
    physical = st.none() | st.just(TupleShape((ArrayShape(DTYPES["f32"], (3,), (), Layout((0,))),)))
    return Layout(
        tuple(draw(st.permutations(range(rank)))),
        tuple(draw(st.lists(tiles(), max_size=3))),
        element_size_bits=draw(st.sampled_from([0, 1, 4, 32])),
        memory_space=draw(st.integers(0, 9)),
        dim_level_types=draw(st.sampled_from(["", "D", "D,C+~"])),
        tail_padding_alignment=draw(st.sampled_from([1, 8, 1024])),
        index_primitive_type=draw(st.sampled_from(_INTEGER_TYPES)),
        pointer_primitive_type=draw(st.sampled_from(_INTEGER_TYPES)),
        split_configs=tuple(draw(st.lists(cuts, max_size=2))),
        physical_shape=draw(physical),
        metadata_prefix_bytes=draw(st.sampled_from([0, 16])),
    )


@st.composite
def arrays(draw: st.DrawFn) -> ArrayShape:
    """Draw an array of any element type, with bounds, unbounded dimensions and a layout or none."""
    sizes = draw(st.lists(st.tuples(st.integers(0, 2**40), st.booleans()) | st.just((-1, True)), max_size=4))
    dynamic = tuple(is_bound for _, is_bound in sizes)
    # XLA writes no "{}", so a scalar's layout without any part cannot be told from none.
    layout = draw(st.none() | layouts(len(sizes)).filter(lambda layout: str(layout) != "{}"))
    dimensions = tuple(size for size, _ in sizes)
    return ArrayShape(draw(st.sampled_from(DATA_TYPES)), dimensions, dynamic if any(dynamic) else (), layout)


def shapes() -> st.SearchStrategy[Shape]:
    """Draw any shape: arrays, tokens, opaque values and buffers in nested tuples."""
    plain = st.sampled_from([ArrayShape(DTYPES["token"]), ArrayShape(DTYPES["opaque"])])
    base = arrays() | plain | st.builds(BufferShape, arrays())
    tuples = st.lists(base, max_size=12).map(lambda elements: TupleShape(tuple(elements)))
    return st.recursive(base, lambda inner: st.builds(TupleShape, st.tuples(inner, tuples)), max_leaves=3)


def naive_buffer(array: NDArray[np.int64], layout: Layout) -> NDArray[np.int64]:
    """Return the buffer, padding as 0, by the definition: per tile pad, reshape, transpose (XLA, "Tiled layout")."""
    physical = array.transpose(layout.minor_to_major[::-1])
    for tile in layout.tiles:
        physical = _naive_tile(physical, list(tile))
    return physical.reshape(-1)


def _naive_tile(array: NDArray[np.int64], tile: list[int]) -> NDArray[np.int64]:
    """Apply one tile; ``*`` takes a dimension out of both the shape and the tile, one at a time."""
    sizes = [1] * (len(tile) - array.ndim) + list(array.shape)
    first = len(sizes) - len(tile)
    while COMBINE in tile:
        place = tile.index(COMBINE)
        del tile[place]
        major = sizes.pop(first + place)
        sizes[first + place] *= major
    n_tiled = len(tile)
    array = array.reshape(sizes)
    counts = [-(-size // t) for size, t in zip(sizes[first:], tile, strict=True)]
    widths = [(0, n * t - size) for size, n, t in zip(sizes[first:], counts, tile, strict=True)]
    array = np.pad(array, [(0, 0)] * first + widths)
    array = array.reshape(sizes[:first] + [part for pair in zip(counts, tile, strict=True) for part in pair])
    order = [*range(first), *range(first, first + 2 * n_tiled, 2), *range(first + 1, first + 2 * n_tiled, 2)]
    return array.transpose(order)
