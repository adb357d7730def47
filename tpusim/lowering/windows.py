"""The compiler's own tiling: from ``window_config`` to tiles and to how often each operand's blocks are fetched.

Bounds count blocks of (8,128) elements in the two minor dimensions. For a convolution the loop nest is, outermost
first: output features, batch, each spatial dimension of the output, each spatial dimension of the kernel, input
features. Where a spatial dimension is really a batch dimension, which all three arrays share, it stands outermost
instead.
"""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tpusim.ir.attributes import WindowConfig
    from tpusim.shapes.shape import ArrayShape

# One register of f32; bounds count in it for every element type.
BLOCK = (8, 128)

LHS, RHS, OUT = "lhs", "rhs", "out"

# Which arrays a loop over each kind of dimension moves through.
_TOUCHES = {
    "output_feature": (RHS, OUT),
    "batch": (LHS, OUT),
    "output_spatial": (LHS, OUT),
    "kernel_spatial": (LHS, RHS),
    "input_feature": (LHS, RHS),
    "shared": (LHS, RHS, OUT),
}
_HALO_SHARE = 1.3
"""Windows that cover this many times the array overlap each other; less is only the raggedness of the last one."""


class Loop(msgspec.Struct, frozen=True, gc=False):
    """One loop of a tile nest: its trips and the arrays whose block changes with it."""

    trips: int
    touches: tuple[str, ...]


class Nest(msgspec.Struct, frozen=True):
    """A loop nest, outermost first, and by array the share of it that one block covers."""

    loops: tuple[Loop, ...]
    block_share: dict[str, float]

    @property
    def tiles(self) -> int:
        """Iterations of the whole nest."""
        return prod(loop.trips for loop in self.loops)

    def fetches(self, array: str) -> int:
        """Return how often a block of ``array`` moves: not at all while only loops inside its innermost one advance.

        A result is written when it is complete, so loops over what is summed do not write it again.
        """
        if array == OUT:
            return self.distinct(OUT)
        last = max((i for i, loop in enumerate(self.loops) if array in loop.touches and loop.trips > 1), default=-1)
        return prod(loop.trips for loop in self.loops[: last + 1])

    def distinct(self, array: str) -> int:
        """Return how many different blocks ``array`` is cut into."""
        return prod(loop.trips for loop in self.loops if array in loop.touches)

    @property
    def row_tiles(self) -> int:
        """How often the weights are gone through again for other rows."""
        return prod(loop.trips for loop in self.loops if RHS not in loop.touches)


def product_nest(config: WindowConfig, shapes: dict[str, ArrayShape]) -> Nest:
    """Return the nest of a convolution's tiles; ``shapes`` are those of ``lhs``, ``rhs`` and ``out``."""
    bounds = {LHS: config.input_window_bounds, RHS: config.kernel_window_bounds, OUT: config.output_window_bounds}
    splits = {array: _splits(shapes[array], bounds[array]) for array in bounds}
    # The text does not name the loops: of the known orders the one that explains the bounds best is taken.
    candidates = [_loops(config.iteration_bounds, roles) for roles in _role_orders(len(config.iteration_bounds))]
    loops = min(candidates, key=lambda loops: _mismatch(loops, splits))
    nest = Nest(loops, {})
    shares = {array: _block_share(nest, array, shapes[array], bounds[array]) for array in bounds}
    return Nest(loops, shares)


def blocks(shape: ArrayShape) -> tuple[int, ...]:
    """Return an array's sizes in physical order, major to minor, the two minor ones counted in blocks of (8,128)."""
    order = shape.layout.minor_to_major if shape.layout else tuple(reversed(range(shape.rank)))
    sizes = [shape.dimensions[d] for d in reversed(order)]
    minor = len(sizes) - len(BLOCK)
    return tuple(ceil(size / BLOCK[i - minor]) if i >= minor else size for i, size in enumerate(sizes))


def _role_orders(count: int) -> list[tuple[str, ...]]:
    """Return the orders in which the compiler nests ``count`` loops of a convolution."""
    # Output features, batch and input features are three; each spatial dimension adds two.
    spatial = max(0, (count - 3) // 2)
    ordinary = (
        "output_feature",
        "batch",
        *["output_spatial"] * spatial,
        *["kernel_spatial"] * spatial,
        "input_feature",
    )
    shared = (*["shared"] * spatial, "output_feature", "batch", *["kernel_spatial"] * spatial, "input_feature")
    return [ordinary, shared]


def _loops(bounds: tuple[int, ...], roles: tuple[str, ...]) -> tuple[Loop, ...]:
    """Pair trips with what they touch; loops beyond the known roles touch everything."""
    padded = (*roles, *["shared"] * (len(bounds) - len(roles)))
    return tuple(Loop(max(1, trips), _TOUCHES[role]) for trips, role in zip(bounds, padded, strict=False))


def _splits(shape: ArrayShape, bounds: tuple[int, ...]) -> int:
    """Return into how many blocks the bounds cut an array."""
    return prod(ceil(size / bound) for size, bound in zip(blocks(shape), bounds, strict=False) if bound)


def _mismatch(loops: tuple[Loop, ...], splits: dict[str, int]) -> float:
    """Return how far a nest is from cutting each array into as many blocks as its bounds do."""
    nest = Nest(loops, {})
    # Relative errors, so that an array of two blocks counts as much as one of a thousand.
    return sum(abs(nest.distinct(array) - count) / max(1, count) for array, count in splits.items())


def _block_share(nest: Nest, array: str, shape: ArrayShape, bounds: tuple[int, ...]) -> float:
    """Return the share of an array in one block; windows that overlap (a convolution's halo) count in full."""
    distinct = nest.distinct(array)
    # Bounds are whole blocks, so that even cuts without overlap cover somewhat more than the array.
    window = prod(bounds) / max(1, prod(blocks(shape))) if bounds else 1.0
    return min(1.0, window if window * distinct > _HALO_SHARE else 1.0 / distinct)
