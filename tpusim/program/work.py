"""What one kernel asks of the machine: work per functional unit and bytes per memory, for one tile of its loop nest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tpusim.errors import did_you_mean
from tpusim.hardware.units import MemorySpace, counted_units


class Matmul(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A matrix product as the matrix units see it: weight tiles, each with rows streamed past it.

    ``weight_rows`` rows of ``weight_tiles`` tiles of weights are loaded, and ``streamed_rows`` rows enter an array in
    all (summed over the tiles); ``results`` registers leave it, and ``parked`` ones are added to parts of their sums
    that wait in VMEM. All are padded: they are what the hardware does, not what the program asked for.
    """

    # Not whole numbers: a tile has its share of the rows of a kernel.
    weight_rows: float
    streamed_rows: float
    weight_tiles: float = 0.0
    results: float = 0.0
    parked: float = 0.0
    operand_type: str = "bf16"
    passes: int = 1

    def __mul__(self, count: float) -> Matmul:
        """Return ``count`` times the work of this product."""
        return Matmul(
            self.weight_rows * count,
            self.streamed_rows * count,
            self.weight_tiles * count,
            self.results * count,
            self.parked * count,
            self.operand_type,
            self.passes,
        )


class Work(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Work of one tile: products on the matrix units, and operations by functional unit (``hardware.units``).

    The vector units' are operations on whole registers, the scalar core's instructions. Work can be added, and
    multiplied by a number.
    """

    matmuls: tuple[Matmul, ...] = ()
    ops: dict[str, float] = {}

    def __add__(self, other: Work) -> Work:
        """Return both pieces of work together."""
        return sum_work((self, other))

    def __mul__(self, count: float) -> Work:
        """Return ``count`` times this work."""
        return Work(tuple(matmul * count for matmul in self.matmuls), scaled(self.ops, count))


def sum_work(parts: Iterable[Work]) -> Work:
    """Return many pieces of work as one, without the units that have nothing to do."""
    # Not a sum of pairs, which would make an object for each: kernels have hundreds of instructions.
    matmuls: list[Matmul] = []
    ops: dict[str, float] = {}
    for part in parts:
        matmuls += part.matmuls
        for unit, count in part.ops.items():
            if count:
                ops[unit] = ops.get(unit, 0.0) + count
    return Work(tuple(matmuls), ops)


def unit_fault(work: Work) -> str:
    """Return what is wrong with the units that some work names, an empty text if nothing is."""
    units = [unit.key for unit in counted_units()]
    stray = next((name for name in work.ops if name not in units), None)
    hint = did_you_mean(stray or "", units)
    return "" if stray is None else f"ops: expected one of {', '.join(units)}, found {stray!r}{hint}"


def scaled(ops: Mapping[str, float], count: float) -> dict[str, float]:
    """Return ``count`` times some operations by unit."""
    return {unit: each * count for unit, each in ops.items()}


class VectorLoop(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The vector unit's loop over the registers of a tile: ``turns`` of it, each over one register of every value.

    A turn takes ``depth_cycles`` from its first load to its last store, and holds registers for ``held_cycles`` (the
    sum of their lifetimes).
    """

    turns: float = 0.0
    depth_cycles: float = 0.0
    held_cycles: float = 0.0


class TilePart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A piece without a branch of the code of a kernel's tiles: its ``stages``, which run one after another.

    The longest chain of operations that wait for each other takes ``depth_cycles``, and ``products`` times the way of a
    result through the arrays.
    """

    stages: tuple[Work, ...]
    depth_cycles: float = 0.0
    products: int = 0


class TileClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Tiles of a kernel that are alike, where not all of them are.

    ``runs`` are how often each of the kernel's ``parts`` runs in one of these ``tiles``, ``moves`` how many blocks of
    each of its first streams are under way beside it.
    """

    tiles: int
    runs: tuple[float, ...] = ()
    moves: tuple[float, ...] = ()


class Floor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What hand-written code states that it does, less than which it cannot take: operations, and bytes of HBM."""

    flops: float = 0.0
    transcendentals: float = 0.0
    hbm_bytes: float = 0.0


class Stream(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """One operand's or result's traffic between its memory and VMEM.

    ``fetches`` times in the whole loop nest a block of ``block_bytes`` moves (fewer than the tiles when the block's
    index does not change from one tile to the next); ``chunk_bytes`` is the length of the runs that are contiguous in
    memory, and ``stride_bytes`` from the start of one to that of the next (0: they follow each other). ``address`` is
    the place of its first byte (None: not known, or of no interest to the chip's memory).
    """

    operand: str
    space: MemorySpace
    block_bytes: float
    fetches: int = 1
    is_output: bool = False
    chunk_bytes: int = 0
    stride_bytes: int = 0
    address: int | None = None

    @property
    def total_bytes(self) -> float:
        """Bytes over the whole kernel."""
        return self.block_bytes * self.fetches
