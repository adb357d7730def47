"""One kernel that does what many do that are alike."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import structs

from tpusim.cost.tile import alone_ps
from tpusim.hardware.chip import Chip
from tpusim.program.steps import Kernel
from tpusim.program.work import Stream

_MOST_AT_ONCE = 4096


def best_stack(one: Kernel, count: int, chip: Chip, same: Collection[Stream] = ()) -> Kernel:
    """Return a kernel for a ``count`` of them, as many at a time as is fastest and fits, as a compiler would cut it.

    Streams that are the ``same`` for all of them move once.
    """
    # Tiles of hand-written code stay as they are written.
    most = 1 if one.classes else min(count, _MOST_AT_ONCE)
    sizes = (at_once for at_once in range(1, most + 1) if count % at_once == 0)
    stacks = [_stack(one, count, at_once, same) for at_once in sizes]
    fits = [stack for stack in stacks if stack.vmem_bytes <= chip.vmem.kernel_bytes]
    return min(fits or stacks[:1], key=lambda stack: alone_ps(stack, chip))


def _stack(one: Kernel, count: int, at_once: int, same: Collection[Stream]) -> Kernel:
    """Return a kernel that does a ``count`` of times what one does, some of them in each tile."""
    return structs.replace(
        one,
        tiles=one.tiles * count // at_once,
        loops=(),
        work=one.work * at_once,
        stages=tuple(stage * at_once for stage in one.stages),
        vector_loop=structs.replace(one.vector_loop, turns=one.vector_loop.turns * at_once),
        classes=tuple(structs.replace(tiles, tiles=tiles.tiles * count) for tiles in one.classes),
        streams=tuple(
            s
            if s in same
            else structs.replace(s, block_bytes=s.block_bytes * at_once, fetches=s.fetches * count // at_once)
            for s in one.streams
        ),
        flops=one.flops * count,
        product_flops=one.product_flops * count,
        scoped_vmem_bytes=0,
    )
