"""What a kernel written by hand is given: an array in memory, or one that is made block by block on its way in.

The compiler fuses what makes an operand into the kernel where that allows it (JAX, ``allow_input_fusion``): whenever a
block is fetched, the blocks that it is made of come in, and the block is computed before the body begins.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import structs

from tpusim.hardware.units import LOAD, STORE, MemorySpace
from tpusim.ir.module import Instruction
from tpusim.program.steps import Kernel
from tpusim.program.work import Stream, TilePart
from tpusim.semantics.memory_spaces import space_of
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape, leaves


class Fed(NamedTuple):
    """One operand: the instruction that makes it, and the array as the kernel sees it.

    ``made_by`` is the work of making all of it where that is fused with the kernel; the array then lies nowhere.
    """

    source: Instruction
    shape: ArrayShape
    space: MemorySpace
    made_by: Kernel | None = None


def as_given(source: Instruction) -> Fed:
    """Return the operand that an instruction of the schedule makes."""
    shape = array_of(source)
    return Fed(source, shape, space_of(shape))


def array_of(operand: Instruction) -> ArrayShape:
    """Return the array that a kernel sees of an operand: of a tuple the first, of one of nothing no element."""
    return next(iter(leaves(operand.shape)), ArrayShape(DTYPES["u8"], (0,)))


def streams_of(made_by: Kernel, share: float, fetches: int) -> list[Stream]:
    """Return what comes in for the blocks of an operand that the kernel makes; ``share`` is a block's of all of it."""
    return [
        structs.replace(s, block_bytes=s.total_bytes * share, fetches=fetches, chunk_bytes=0, stride_bytes=0)
        for s in made_by.streams
        if not s.is_output
    ]


def part_of(made_by: Kernel, share: float) -> TilePart:
    """Return the code that makes one block; none where what only moves comes in as it lies."""
    if set(made_by.work.ops) <= {LOAD, STORE}:
        return TilePart(())
    stages = tuple(work * (made_by.tiles * share) for work in made_by.stages or (made_by.work,))
    return TilePart(stages, made_by.vector_loop.depth_cycles)
