"""Tiles and how often each operand's blocks are fetched: as ``window_config`` states it, else of our own choosing.

Bounds count blocks of one register's sublanes and lanes in the two minor dimensions. The loop nest of a convolution is,
outermost first: output features and spatial dimensions that are columns like them, batch, the other spatial dimensions
of the output, each spatial dimension of the kernel, input features. Spatial dimensions that all three arrays share
stand outermost in some programs; groups of rows inside the columns where loops skip them.

Our own are chosen for what a tiler wants: blocks small enough that two of each operand fit into VMEM, large enough that
the bandwidth and not the loop decides, and as little fetched twice as possible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain, product
from math import ceil, gcd, inf, prod

import msgspec

from tpusim.hardware.chip import Chip
from tpusim.hardware.units import SMEM, VMEM, MemorySpace
from tpusim.ir.attributes import ConvolutionLabels, Window, WindowConfig
from tpusim.ir.module import Instruction
from tpusim.semantics.products import BATCH, COLUMNS, DEPTH, INNER, ROWS, WINDOW
from tpusim.shapes.shape import ArrayShape

LHS, RHS, OUT = "lhs", "rhs", "out"

TAPS = "taps"
"""Kernel positions that add up in one row: depth, whose parts are contracted one after another."""

TOUCHES = {BATCH: (LHS, RHS, OUT), ROWS: (LHS, OUT), COLUMNS: (RHS, OUT), TAPS: (LHS, RHS), DEPTH: (LHS, RHS)}
"""Which arrays a loop over each kind of dimension moves through."""

GROUPED = (COLUMNS, BATCH, ROWS, TAPS, DEPTH)
"""What the loops of a product of rows in groups run over, outermost first."""

_SHARED = {(RHS, "o"): "f", (LHS, "f"): "i"}
"""What the letters of a convolution's other arrays are called that mean the same: columns, and depth."""

_ROLES = {BATCH: BATCH, ROWS: ROWS, COLUMNS: COLUMNS, DEPTH: ROWS, WINDOW: ROWS, INNER: DEPTH}
"""What the loop over a spatial dimension of each kind runs over, of the output; that of depth has a single trip."""


def role_of(letter: str, array: str, kinds: Sequence[str]) -> str:
    """Return over what kind of dimension the loop runs that moves through a dimension of an array, by its letter.

    ``kinds`` are those of the spatial dimensions, which have digits for letters.
    """
    if not letter.isdigit():
        return {"b": ROWS, "o": COLUMNS, "i": DEPTH, "f": DEPTH if array == LHS else COLUMNS}[letter]
    kind = kinds[int(letter)]
    is_summed = kind == DEPTH or (kind == WINDOW and array == RHS)
    return TAPS if is_summed else _ROLES[kind]


class Loop(msgspec.Struct, frozen=True, gc=False):
    """One loop of a tile nest: its trips, and over what kind of dimension it runs (a key of ``TOUCHES``)."""

    trips: int
    role: str


class Nest(msgspec.Struct, frozen=True):
    """A loop nest, outermost first, and by array the share of it that one block covers.

    Where the compiler states them, ``bounds`` are each array's block in blocks of a register, and ``extents`` the
    elements of a full tile by the role of the dimension (a key of ``TOUCHES``); else both are empty. The loop at
    ``split`` is shared out among ``cores``, each with a memory of its own. ``tiled`` is the array that the bounds of a
    kernel without a product are about.
    """

    loops: tuple[Loop, ...]
    block_share: dict[str, float]
    bounds: dict[str, tuple[int, ...]] = {}
    extents: dict[str, int] = {}
    cores: int = 1
    split: int = -1
    tiled: ArrayShape | None = None
    shared: tuple[str, ...] = ()

    @property
    def tiles(self) -> int:
        """Iterations of the whole nest."""
        return prod([loop.trips for loop in self.loops])

    def trips(self, *roles: str) -> int:
        """Return into how many pieces the loops over these kinds of dimension cut."""
        return prod([loop.trips for loop in self.loops if loop.role in roles])

    def fetches(self, array: str) -> int:
        """Return how often a block of ``array`` moves: not at all while only loops inside its innermost one advance.

        A result is written when it is complete, so loops over what is summed do not write it again.
        """
        if array == OUT:
            return self.distinct(OUT)
        # What a core goes round only once moves nothing.
        last = -1
        for at, loop in enumerate(self.loops):
            if array in TOUCHES[loop.role] and loop.trips > (self.cores if at == self.split else 1):
                last = at
        fetched = prod([loop.trips for loop in self.loops[: last + 1]])
        # What does not depend on the loop that is split every core fetches for itself.
        return fetched if self.split <= last else fetched * self.cores

    def distinct(self, array: str) -> int:
        """Return how many different blocks ``array`` is cut into."""
        return prod([loop.trips for loop in self.loops if array in TOUCHES[loop.role]])


class _Cut(msgspec.Struct, frozen=True, gc=False):
    """How one dimension is cut: into how many pieces, and how many elements a full one and all of it have."""

    trips: int
    size: int
    whole: int


class StatedTiling(msgspec.Struct, frozen=True):
    """A product and the bounds of a compiler that may be about it.

    ``shapes`` are those of ``lhs``, ``rhs`` and ``out``, ``labels`` name their dimensions as those of a convolution,
    ``kinds`` are those of the spatial ones, ``block`` the elements that bounds count in. Each of the ``groups`` of
    output features has input features of its own. ``shared`` are as of a nest.
    """

    config: WindowConfig
    shapes: dict[str, ArrayShape]
    instruction: Instruction
    labels: ConvolutionLabels
    kinds: tuple[str, ...]
    block: tuple[int, int]
    groups: int = 1
    shared: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether there is a bound for each dimension of the arrays."""
        bounds = self._bounds
        needed = (LHS, RHS, OUT) if self.config.iteration_bounds else (RHS, OUT)
        ranks = {array: shape.rank for array, shape in self.shapes.items()}
        return all(len(bounds[array]) == ranks[array] and min(bounds[array], default=0) >= 1 for array in needed)

    @property
    def misfit(self) -> float:
        """How badly the bounds fit the arrays: 0 for a perfect fit, infinity for other ranks."""
        if not self.fits:
            return inf
        return self._best_loops()[1] if self.config.iteration_bounds else 0.0

    def nest(self) -> Nest:
        """Return the nest of the tiles, whose bounds must fit.

        Without the trips of the loops (``iteration_bounds``) these follow from the bounds of kernel and output.
        """
        out, kernel = self._cuts(OUT, self.labels.output), self._cuts(RHS, self.labels.rhs)
        loops = self._best_loops()[0] if self.config.iteration_bounds else self._loops_of_cuts(out, kernel)
        trips = Nest(loops, {})
        bounds = self._bounds
        if not self.config.iteration_bounds:
            bounds[LHS] = self._lhs_bounds(out, kernel)
        shares = {array: 1 / trips.distinct(array) for array in (LHS, RHS, OUT)}
        shares[LHS] *= self._overlap(out, kernel)
        return Nest(loops, shares, bounds, self._extents(trips, out, kernel), shared=self.shared)

    def stating(self, nest: Nest, *, windows_last: bool) -> StatedTiling:
        """Return the tiling whose bounds cut as the loops of a nest do: in whole blocks, major dimensions first.

        Or those first along which no window slides, so that neighbours share nothing.
        """
        left, units, extents = {role: nest.trips(role) for role in TOUCHES}, dict[str, int](), dict[str, int]()
        for name, _, unit in chain.from_iterable(map(self._named, (LHS, RHS, OUT))):
            units[name] = max(unit, units.get(name, 1))
        roles = {"b": ROWS, "f": COLUMNS, "i": DEPTH} | {str(d): _ROLES[kind] for d, kind in enumerate(self.kinds)}
        slides = set(self._letters(WINDOW)) if windows_last else ()
        for name, size, _ in sorted((*self._named(OUT), *self._named(RHS)), key=lambda named: named[0] in slides):
            if name not in extents:
                role, count = roles.get(name, TAPS), max(1, ceil(size / units[name]))
                # Rather smaller than larger: these fit as well.
                piece = max(1, count // left[role])
                extents[name] = min(size, piece * units[name])
                left[role] = ceil(left[role] / ceil(count / piece))
        out, kernel = (tuple(max(1, ceil(extents[n] / unit)) for n, _, unit in self._named(a)) for a in (OUT, RHS))
        return msgspec.structs.replace(self, config=WindowConfig(kernel, out))

    def _named(self, array: str) -> Iterator[tuple[str, int, int]]:
        """Yield for each dimension, major ones first, a name that its arrays share, its size and its block's."""
        shape, letters = self.shapes[array], getattr(self.labels, "output" if array == OUT else array)
        kinds = {str(number): kind for number, kind in enumerate(self.kinds)}
        for dimension, unit in zip(physical_order(shape), _units(shape, self.block), strict=True):
            letter = letters[dimension]
            # Positions of a window are others on each side, and what is summed has no place in the result.
            is_shared = kinds.get(letter) not in (WINDOW, DEPTH) or array == OUT
            yield (
                _SHARED.get((array, letter), letter if is_shared else array + letter),
                shape.dimensions[dimension],
                unit,
            )

    @property
    def _bounds(self) -> dict[str, tuple[int, ...]]:
        config = self.config
        return {LHS: config.input_window_bounds, RHS: config.kernel_window_bounds, OUT: config.output_window_bounds}

    def _letters(self, *kinds: str) -> list[str]:
        return [str(number) for number, kind in enumerate(self.kinds) if kind in kinds]

    def _cuts(self, array: str, letters: str) -> dict[str, _Cut]:
        """Return by letter of the dimension labels how the bounds cut an array's dimensions."""
        # A dot need not have rows, columns or depth.
        cuts: dict[str, _Cut] = defaultdict(lambda: _Cut(1, 1, 1))
        shape = self.shapes[array]
        order = zip(physical_order(shape), _units(shape, self.block), self._bounds[array], strict=True)
        for dimension, unit, bound in order:
            size, full = shape.dimensions[dimension], max(1, bound) * unit
            cuts[letters[dimension]] = _Cut(max(1, ceil(size / full)), min(size, full), size)
        return cuts

    def _extents(self, nest: Nest, out: dict[str, _Cut], kernel: dict[str, _Cut]) -> dict[str, int]:
        """Return the elements of a full tile by role: a ragged last tile is computed as if it were full."""
        cuts = {
            BATCH: [out[d] for d in self._letters(BATCH)],
            ROWS: [out["b"], *(out[d] for d in self._letters(ROWS, WINDOW))],
            COLUMNS: [out["f"], *(out[d] for d in self._letters(COLUMNS))],
            TAPS: [kernel[d] for d in self._letters(DEPTH, WINDOW)],
            DEPTH: [kernel["i"], *(kernel[d] for d in self._letters(INNER))],
        }
        # Where one side is transposed on its way the bounds of its two minor dimensions are others: the loops decide.
        extents = {}
        for role, own in cuts.items():
            trips, fits = nest.trips(role), prod([cut.trips for cut in own])
            extents[role] = prod([cut.size for cut in own])
            if trips != fits:
                extents[role] = ceil(prod([cut.whole for cut in own]) / trips)
        return extents

    def _loops_of_cuts(self, out: dict[str, _Cut], kernel: dict[str, _Cut]) -> tuple[Loop, ...]:
        """Return the loops where only the bounds of kernel and output are given."""
        # What all three arrays share is cut where the output is; the kernel has no loop of its own there.
        return (
            *(Loop(out[d].trips, BATCH) for d in self._letters(BATCH)),
            Loop(out["f"].trips, self._features_role(out["f"].trips)),
            *(Loop(out[d].trips, COLUMNS) for d in self._letters(COLUMNS)),
            Loop(out["b"].trips, ROWS),
            *(Loop(out[d].trips, ROWS) for d in self._letters(ROWS, WINDOW)),
            *(Loop(kernel[d].trips, TAPS) for d in self._letters(DEPTH, WINDOW)),
            *(Loop(kernel[d].trips, DEPTH) for d in self._letters(INNER)),
            Loop(kernel["i"].trips, DEPTH),
        )

    def _features_role(self, trips: int) -> str:
        """Return what the loop over output features runs over: groups, each with an input of its own, or columns."""
        return BATCH if trips <= self.groups > 1 else COLUMNS

    def _best_loops(self) -> tuple[tuple[Loop, ...], float]:
        """Return the loops in the order that explains the bounds best, and how badly it still does."""
        splits = {array: block_tiles(self.shapes[array], bound, self.block) for array, bound in self._bounds.items()}
        found, bounds = [], self.config.iteration_bounds
        for known in [GROUPED] if self.shared else _role_orders(self.kinds):
            # Loops beyond the known roles move through everything.
            roles = [*known, *[BATCH] * (len(bounds) - len(known))]
            features = roles.index(COLUMNS)
            roles[features] = self._features_role(bounds[features])
            trips = [(max(1, bound), role) for bound, role in zip(bounds, roles, strict=False)]
            distinct = {array: prod([count for count, role in trips if array in TOUCHES[role]]) for array in splits}
            # Relative errors, so that an array of two blocks counts as much as one of a thousand.
            errors = [abs(distinct[array] - count) / max(1, count) for array, count in splits.items()]
            found.append((trips, sum(errors)))
        # The text does not name the loops: of the known orders the one that explains the bounds best is taken.
        best, error = min(found, key=lambda one: one[1])
        return tuple([Loop(*loop) for loop in best]), error

    def _lhs_bounds(self, out: dict[str, _Cut], kernel: dict[str, _Cut]) -> tuple[int, ...]:
        groups = [self.instruction.attributes.get(name, 1) for name in ("batch_group_count", "feature_group_count")]
        batch, features = (ceil(count / out["f"].trips) for count in groups)
        sizes = {"b": out["b"].size * batch, "f": kernel["i"].size * features}
        sizes |= {d: out[d].size for d in self._letters(BATCH, ROWS)}
        sizes |= {d: kernel[d].size for d in self._letters(DEPTH, INNER)}
        sizes |= dict.fromkeys(self._letters(COLUMNS), 1)
        sizes |= {d: self._reach(d, out[d].size, kernel[d].size) for d in self._letters(WINDOW)}
        order = zip(physical_order(self.shapes[LHS]), _units(self.shapes[LHS], self.block), strict=True)
        return tuple(ceil(sizes[self.labels.lhs[dimension]] / unit) for dimension, unit in order)

    def _overlap(self, out: dict[str, _Cut], kernel: dict[str, _Cut]) -> float:
        """Return how much more of the left side all tiles read than it has: windows overlap (a halo)."""
        factor = 1.0
        for letter in self._letters(WINDOW):
            positions, taps = out[letter], kernel[letter]
            size = self.shapes[LHS].dimensions[self.labels.lhs.index(letter)]
            # The last tile is smaller than the rest: hence the mean, not the full tile.
            reach = self._reach(letter, positions.whole / positions.trips, taps.whole / taps.trips)
            factor *= min(1.0, reach / max(1, size)) * positions.trips * taps.trips
        return factor

    def _reach(self, letter: str, out: float, kernel: float) -> int:
        """Return the positions of one dimension of the left side that a tile of output and kernel positions reads."""
        window = self.instruction.attributes.get("window", Window()).dimensions[int(letter)]
        dilated = (out - 1) * window.stride + (kernel - 1) * window.rhs_dilate + 1
        reach: int = ceil(dilated / window.lhs_dilate)
        return reach


def _units(shape: ArrayShape, block: tuple[int, int]) -> tuple[int, ...]:
    """Return the elements of a block along each dimension, in physical order."""
    # A vector is tiled by whole registers.
    return (*[1] * (shape.rank - len(block)), *block) if shape.rank > 1 else (prod(block),) * shape.rank


# Most operands of a kernel are alike, and cut alike.
@lru_cache(maxsize=1024)
def run_bytes(shape: ArrayShape, bounds: tuple[int, ...], block: tuple[int, int]) -> int:
    """Return how many bytes of a block lie one after the other in memory; 0 if all of it does."""
    run, sizes = prod(block) * shape.dtype.bits // 8, blocks(shape, block)
    for size, bound in zip(reversed(sizes), reversed(bounds), strict=False):
        run *= min(size, bound)
        # What a dimension leaves out lies between this run and the next.
        if bound < size:
            return run
    return 0


def run_pitch_bytes(shape: ArrayShape, bounds: tuple[int, ...], block: tuple[int, int]) -> int:
    """Return from the start of one run of a block to that of the next, in bytes; 0 if the block is one run."""
    pitch = prod(block) * shape.dtype.bits // 8
    for size, bound in zip(reversed(blocks(shape, block)), reversed(bounds), strict=False):
        pitch *= size
        if bound < size:
            return pitch
    return 0


@lru_cache(maxsize=1024)
def cut_alike(
    tiled: ArrayShape, bounds: tuple[int, ...], array: ArrayShape, block: tuple[int, int]
) -> tuple[tuple[int, ...], float]:
    """Return the bounds of ``array`` where tiles cut ``tiled``, of the same dimensions but perhaps another layout.

    And how much more of it all tiles move than it has: a tile that begins or ends inside a block moves all of that.
    """
    steps = zip(physical_order(tiled), _units(tiled, block), bounds, strict=True)
    extents = {d: min(tiled.dimensions[d], bound * unit) for d, unit, bound in steps}
    own, factor = [], 1.0
    for d, unit in zip(physical_order(array), _units(array, block), strict=True):
        extent = extents[d]
        own.append(ceil(extent / unit))
        if extent < array.dimensions[d]:
            # Over all places where a tile can begin; 1 where tiles are whole blocks.
            factor *= (extent + unit - gcd(extent, unit)) / extent
    return tuple(own), factor


def physical_order(shape: ArrayShape) -> tuple[int, ...]:
    """Return an array's dimensions in physical order, major to minor."""
    order = shape.layout.minor_to_major if shape.layout else tuple(reversed(range(shape.rank)))
    return tuple(reversed(order))


@lru_cache(maxsize=1 << 14)
def blocks(shape: ArrayShape, block: tuple[int, int]) -> tuple[int, ...]:
    """Return an array's sizes in physical order, major to minor, the two minor ones counted in blocks."""
    order = physical_order(shape)
    return tuple(ceil(shape.dimensions[d] / unit) for d, unit in zip(order, _units(shape, block), strict=True))


def block_tiles(shape: ArrayShape, bounds: tuple[int, ...], block: tuple[int, int]) -> int:
    """Return into how many tiles the bounds cut an array."""
    return prod(ceil(size / bound) for size, bound in zip(blocks(shape, block), bounds, strict=False) if bound)


@cache
def _role_orders(kinds: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the orders in which the compiler nests the loops of a convolution: one for each loop, outermost first."""
    columns = [COLUMNS] * (1 + kinds.count(COLUMNS))
    inner = [*[TAPS] * len(kinds), DEPTH]
    spatial = [_ROLES[kind] for kind in kinds if kind != COLUMNS]
    ordinary = (*columns, ROWS, *spatial, *inner)
    batch_first = (*[BATCH] * kinds.count(BATCH), *columns, ROWS, *(role for role in spatial if role != BATCH), *inner)
    # Without a batch the two are the same.
    return tuple(dict.fromkeys((ordinary, batch_first)))


# The first block in and the last one out overlap nothing: with eight tiles that is an eighth of the traffic.
_WANTED_TILES = 8
# Powers of two divide the sizes that programs have; twelve for each of three loops are few enough to try all.
_CUTS = tuple(2**power for power in range(12))
_UNLIMITED: Mapping[str, int] = {}


def streaming_tiles(moved_bytes: float, chip: Chip) -> int:
    """Return into how many tiles a kernel that goes once through ``moved_bytes`` of slow memory is cut."""
    largest = tile_room_bytes(chip)
    wanted = max(chip.dma.smallest_block_bytes, min(largest, moved_bytes / _WANTED_TILES))
    return max(1, ceil(moved_bytes / wanted))


def is_streamed(space: MemorySpace) -> bool:
    """Return whether what lies in a memory is worth tiles: what is in VMEM or SMEM already is used where it lies."""
    return space not in (VMEM, SMEM)


def tile_room_bytes(chip: Chip) -> float:
    """Return what the blocks of one tile may take: two copies of each have to fit.

    More copies than these take what is left; they are no reason for smaller blocks.
    """
    return chip.vmem.kernel_bytes / 2


def own_nests(n_bytes: dict[str, float], chip: Chip, limits: Mapping[str, int] = _UNLIMITED) -> tuple[Nest, ...]:
    """Return the nests for a product whose ``lhs``, ``rhs``, ``out`` hold these bytes: all cuts that fit into VMEM.

    ``limits`` are the pieces that a kind of dimension can be cut into at most.
    """
    most = tuple(limits.get(role, _CUTS[-1]) for role in (COLUMNS, ROWS, DEPTH))
    outer = limits.get(BATCH, 1), limits.get(TAPS, 1)
    return _own_nests(n_bytes[LHS], n_bytes[RHS], n_bytes[OUT], tile_room_bytes(chip), outer, most)


@lru_cache(maxsize=256)
def _own_nests(
    lhs_bytes: float,
    rhs_bytes: float,
    out_bytes: float,
    room_bytes: float,
    outer: tuple[int, int],
    most: tuple[int, int, int],
) -> tuple[Nest, ...]:
    """Return all cuts by powers of two whose blocks fit into a room.

    A batch is cut before anything else is, and kernel positions only where the depth of each is.
    """
    batches, taps, columns, rows, depths = (_cuts(limit) for limit in (*outer, *most))
    choices: list[tuple[int, ...]] = [(parts, 1, 1, 1, 1) for parts in batches[:-1]]
    sums = [(1, depth) for depth in depths] + [(parts, depths[-1]) for parts in taps[1:]]
    choices += ((batches[-1], *sizes, *parts) for *sizes, parts in product(columns, rows, sums))
    nests = map(_nest, choices)
    n_bytes = {LHS: lhs_bytes, RHS: rhs_bytes, OUT: out_bytes}
    fitting = (n for n in nests if sum(n_bytes[side] * n.block_share[side] for side in n_bytes) <= room_bytes)
    # None fits only if arrays are millions of times as large as VMEM: the finest cut must do.
    return tuple(fitting) or (_nest(choices[-1]),)


def _cuts(limit: int) -> list[int]:
    # What has no elements is one piece.
    return [cut for cut in _CUTS if cut < 2 * max(1, limit)]


def _nest(trips: Sequence[int]) -> Nest:
    batch, columns, rows, taps, depth = trips
    # What is summed is innermost, so that partial sums stay in one place until they are complete.
    loops = tuple(map(Loop, trips, (BATCH, COLUMNS, ROWS, TAPS, DEPTH)))
    pieces = {LHS: rows * taps * depth, RHS: columns * taps * depth, OUT: columns * rows}
    return Nest(loops, {side: 1 / (batch * count) for side, count in pieces.items()})
