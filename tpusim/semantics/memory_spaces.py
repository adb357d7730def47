"""Which memory an array lies in, as its layout says."""

from __future__ import annotations

from tpusim.hardware.units import HBM, MEMORY_SPACES, OTHER, MemorySpace
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import ArrayShape, Shape, leaves


def space_of(shape: Shape) -> MemorySpace:
    """Return the memory that holds an array; XLA writes none for HBM."""
    number = shape.layout.memory_space if isinstance(shape, ArrayShape) and shape.layout else 0
    return MEMORY_SPACES.get(number, OTHER)


def bytes_in_hbm(shape: Shape) -> int:
    """Return the bytes of a value's arrays that lie in HBM."""
    return sum(physical_bytes(leaf) for leaf in leaves(shape) if space_of(leaf) == HBM)
