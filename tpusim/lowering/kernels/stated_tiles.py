"""The compiler's own tiling: from ``window_config`` to tiles and to how often each operand's blocks are fetched.

Bounds count blocks of (8,128) elements in the two minor dimensions. For a convolution the loop nest is, outermost
first: output features, batch, each spatial dimension of the output, each spatial dimension of the kernel, input
features. Where a spatial dimension is really a batch dimension, which all three arrays share, it stands outermost
instead.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, inf, prod
from typing import TYPE_CHECKING

import msgspec

from tpusim.ir.attributes import Window

if TYPE_CHECKING:
    from tpusim.ir.attributes import ConvolutionLabels, WindowConfig
    from tpusim.ir.module import Instruction
    from tpusim.shapes.shape import ArrayShape

# One register of f32; bounds count in it for every element type.
BLOCK = (8, 128)

LHS, RHS, OUT = "lhs", "rhs", "out"

# Which arrays a loop over each kind of dimension moves through.
TOUCHES = {
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
    """One loop of a tile nest: its trips, and over what kind of dimension it runs (a key of ``TOUCHES``)."""

    trips: int
    role: str

    @property
    def touches(self) -> tuple[str, ...]:
        """The arrays whose block changes with it."""
        return TOUCHES[self.role]


class Nest(msgspec.Struct, frozen=True):
    """A loop nest, outermost first, and by array the share of it that one block covers.

    Where the compiler states them, ``bounds`` are each array's block in blocks of (8,128), and ``extents`` the elements
    of a full tile by the role of the dimension (a key of ``TOUCHES``); else both are empty.
    """

    loops: tuple[Loop, ...]
    block_share: dict[str, float]
    bounds: dict[str, tuple[int, ...]] = {}
    extents: dict[str, int] = {}

    @property
    def tiles(self) -> int:
        """Iterations of the whole nest."""
        return prod(loop.trips for loop in self.loops)

    def trips(self, *roles: str) -> int:
        """Return into how many pieces the loops over these kinds of dimension cut."""
        return prod(loop.trips for loop in self.loops if loop.role in roles)

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


def fits(config: WindowConfig, shapes: dict[str, ArrayShape]) -> bool:
    """Tell whether the compiler's bounds can be about a product's arrays: there is one for each of their dimensions."""
    bounds = _bounds(config)
    needed = (LHS, RHS, OUT) if config.iteration_bounds else (RHS, OUT)
    return all(len(bounds[array]) == shapes[array].rank and min(bounds[array], default=0) >= 1 for array in needed)


def misfit(config: WindowConfig, shapes: dict[str, ArrayShape]) -> float:
    """Return how badly the compiler's bounds fit a product's arrays: 0 for a perfect fit, infinity for other ranks."""
    if not fits(config, shapes):
        return inf
    return _best_loops(config, shapes)[1] if config.iteration_bounds else 0.0


def _bounds(config: WindowConfig) -> dict[str, tuple[int, ...]]:
    """Return the bounds by array."""
    return {LHS: config.input_window_bounds, RHS: config.kernel_window_bounds, OUT: config.output_window_bounds}


def _best_loops(config: WindowConfig, shapes: dict[str, ArrayShape]) -> tuple[tuple[Loop, ...], float]:
    """Return the loops in the order that explains the bounds best, and how badly it still does."""
    bounds = _bounds(config)
    splits = {array: block_tiles(shapes[array], bounds[array]) for array in bounds}
    # The text does not name the loops: of the known orders the one that explains the bounds best is taken.
    candidates = [_loops(config.iteration_bounds, roles) for roles in _role_orders(len(config.iteration_bounds))]
    return min(((loops, _mismatch(loops, splits)) for loops in candidates), key=lambda found: found[1])


def product_nest(
    config: WindowConfig, shapes: dict[str, ArrayShape], instruction: Instruction, shared: frozenset[str]
) -> Nest:
    """Return the nest of a convolution's tiles; ``shapes`` are those of ``lhs``, ``rhs`` and ``out``.

    ``shared`` are the letters of spatial dimensions that are batch dimensions of all three arrays. Without the trips of
    the loops (``iteration_bounds``) these follow from the bounds of kernel and output. The bounds must fit the arrays.
    """
    labels: ConvolutionLabels = instruction.attributes["dim_labels"]
    out = _cuts(shapes[OUT], config.output_window_bounds, labels.output)
    kernel = _cuts(shapes[RHS], config.kernel_window_bounds, labels.rhs)
    if not config.iteration_bounds:
        return _bounded_nest(config, shapes, instruction, (out, kernel), shared)
    bounds, (loops, _) = _bounds(config), _best_loops(config, shapes)
    nest = Nest(loops, {})
    shares = {RHS: 1 / nest.distinct(RHS), OUT: 1 / nest.distinct(OUT)}
    shares[LHS] = _window_share(nest, shapes[LHS], bounds[LHS])
    return Nest(loops, shares, bounds, _extents(out, kernel, shared))


def _extents(out: dict[str, _Cut], kernel: dict[str, _Cut], shared: frozenset[str]) -> dict[str, int]:
    """Return the elements of a full tile by role: a ragged last tile is computed as if it were full."""
    sliding = [letter for letter in out if letter.isdigit() and letter not in shared]
    return {
        "output_feature": out["f"].size,
        "batch": out["b"].size,
        "input_feature": kernel["i"].size,
        "shared": prod(out[letter].size for letter in shared),
        "output_spatial": prod(out[letter].size for letter in sliding),
        "kernel_spatial": prod(kernel[letter].size for letter in sliding),
    }


def _bounded_nest(
    config: WindowConfig,
    shapes: dict[str, ArrayShape],
    instruction: Instruction,
    cuts: tuple[dict[str, _Cut], dict[str, _Cut]],
    shared: frozenset[str],
) -> Nest:
    """Return the nest of a convolution of which only the bounds of kernel and output are given, cut as ``cuts`` say."""
    labels: ConvolutionLabels = instruction.attributes["dim_labels"]
    out, kernel = cuts
    sliding = sorted(letter for letter in labels.output if letter.isdigit() and letter not in shared)
    # What all three arrays share is cut where the output is; the kernel has no loop of its own there.
    loops = (
        *(Loop(out[d].trips, "shared") for d in sorted(shared)),
        Loop(out["f"].trips, "output_feature"),
        Loop(out["b"].trips, "batch"),
        *(Loop(out[d].trips, "output_spatial") for d in sliding),
        *(Loop(kernel[d].trips, "kernel_spatial") for d in sliding),
        Loop(kernel["i"].trips, "input_feature"),
    )
    means = {"b": 1 / out["b"].trips, "f": 1 / kernel["i"].trips}
    means |= {d: 1 / out[d].trips for d in shared}
    means |= {d: _share(instruction, shapes, d, out[d], kernel[d]) for d in sliding}
    sizes = {"b": out["b"].size, "f": kernel["i"].size}
    sizes |= {d: out[d].size for d in shared}
    sizes |= {d: _reach(instruction, d, out[d].size, kernel[d].size) for d in sliding}
    order = zip(physical_order(shapes[LHS]), _units(shapes[LHS]), strict=True)
    window = tuple(ceil(sizes[labels.lhs[dimension]] / unit) for dimension, unit in order)
    bounds = {LHS: window, RHS: config.kernel_window_bounds, OUT: config.output_window_bounds}
    nest = Nest(loops, {})
    shares = {LHS: prod(means.values()), RHS: 1 / nest.distinct(RHS), OUT: 1 / nest.distinct(OUT)}
    return Nest(loops, shares, bounds, _extents(out, kernel, shared))


class _Cut(msgspec.Struct, frozen=True, gc=False):
    """How one dimension is cut: into how many pieces, and how many elements a full one has."""

    trips: int
    size: int


def _cuts(shape: ArrayShape, bounds: tuple[int, ...], letters: str) -> dict[str, _Cut]:
    """Return by letter of the dimension labels how the bounds cut an array's dimensions."""
    cuts: dict[str, _Cut] = {}
    for dimension, unit, bound in zip(physical_order(shape), _units(shape), bounds, strict=True):
        size, full = shape.dimensions[dimension], max(1, bound) * unit
        cuts[letters[dimension]] = _Cut(ceil(size / full), min(size, full))
    return cuts


def _units(shape: ArrayShape) -> tuple[int, ...]:
    """Return the elements of a block along each dimension, in physical order."""
    # A vector is tiled by whole registers.
    return (*[1] * (shape.rank - len(BLOCK)), *BLOCK) if shape.rank > 1 else (prod(BLOCK),) * shape.rank


def _reach(instruction: Instruction, letter: str, out: float, kernel: float) -> int:
    """Return the positions of one spatial dimension of the input that a tile of output and kernel positions reads."""
    window = instruction.attributes.get("window", Window()).dimensions[int(letter)]
    dilated = (out - 1) * window.stride + (kernel - 1) * window.rhs_dilate + 1
    reach: int = ceil(dilated / window.lhs_dilate)
    return reach


def _share(instruction: Instruction, shapes: dict[str, ArrayShape], letter: str, out: _Cut, kernel: _Cut) -> float:
    """Return the mean share of one spatial dimension of the input in a tile: the last tile is smaller than the rest."""
    labels: ConvolutionLabels = instruction.attributes["dim_labels"]
    sizes = (array.dimensions[letters.index(letter)] for array, letters in _lettered(shapes, labels))
    lhs, rhs, whole = sizes
    return min(1.0, _reach(instruction, letter, whole / out.trips, rhs / kernel.trips) / max(1, lhs))


def _lettered(shapes: dict[str, ArrayShape], labels: ConvolutionLabels) -> tuple[tuple[ArrayShape, str], ...]:
    """Pair the arrays of a convolution with the letters of their dimensions."""
    return ((shapes[LHS], labels.lhs), (shapes[RHS], labels.rhs), (shapes[OUT], labels.output))


def run_bytes(shape: ArrayShape, bounds: tuple[int, ...]) -> int:
    """Return how many bytes of a block lie one after the other in memory; 0 if all of it does."""
    run, sizes = BLOCK[0] * BLOCK[1] * shape.dtype.bits // 8, blocks(shape)
    for size, bound in zip(reversed(sizes), reversed(bounds), strict=False):
        run *= min(size, bound)
        # What a dimension leaves out lies between this run and the next.
        if bound < size:
            return run
    return 0


def physical_order(shape: ArrayShape) -> tuple[int, ...]:
    """Return an array's dimensions in physical order, major to minor."""
    order = shape.layout.minor_to_major if shape.layout else tuple(reversed(range(shape.rank)))
    return tuple(reversed(order))


@lru_cache(maxsize=1 << 14)
def blocks(shape: ArrayShape) -> tuple[int, ...]:
    """Return an array's sizes in physical order, major to minor, the two minor ones counted in blocks of (8,128)."""
    order = physical_order(shape)
    return tuple(ceil(shape.dimensions[d] / unit) for d, unit in zip(order, _units(shape), strict=True))


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
    return tuple(Loop(max(1, trips), role) for trips, role in zip(bounds, padded, strict=False))


def block_tiles(shape: ArrayShape, bounds: tuple[int, ...]) -> int:
    """Return into how many blocks the bounds cut an array."""
    return prod(ceil(size / bound) for size, bound in zip(blocks(shape), bounds, strict=False) if bound)


def _mismatch(loops: tuple[Loop, ...], splits: dict[str, int]) -> float:
    """Return how far a nest is from cutting each array into as many blocks as its bounds do."""
    nest = Nest(loops, {})
    # Relative errors, so that an array of two blocks counts as much as one of a thousand.
    return sum(abs(nest.distinct(array) - count) / max(1, count) for array, count in splits.items())


def _window_share(nest: Nest, shape: ArrayShape, bounds: tuple[int, ...]) -> float:
    """Return the share of the streamed array in one block; windows that overlap (a halo) count in full."""
    distinct = nest.distinct(LHS)
    # Bounds are whole blocks, so that even cuts without overlap cover somewhat more than the array.
    window = prod(bounds) / max(1, prod(blocks(shape))) if bounds else 1.0
    return min(1.0, window if window * distinct > _HALO_SHARE else 1.0 / distinct)
