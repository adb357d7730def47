"""Products of rows in groups: tiles in which no row is of the tile's group are left out.

The compiler writes a ragged product as one of all rows with every group's matrix, of which a mask keeps the right one,
and says beside it that the loops skip what is masked (``iteration_skipper_mode``). How many tiles that leaves depends
on the sizes of the groups: tiles of all rows once, and one more for each group that ends within a tile.

Source: programs compiled ahead of time for v5e, v6e and v7x (libtpu 0.0.52).
"""

from __future__ import annotations

from msgspec import structs

from tpusim.ir.attributes import BackendConfig
from tpusim.program.steps import Kernel, TileLoop
from tpusim.program.work import Stream


def without_skipped(kernel: Kernel, config: BackendConfig) -> Kernel:
    """Return a kernel with the tiles that run, where its loops skip groups; else as it is."""
    loops = config.loops_of_groups
    if loops is None:
        return kernel
    groups, rows = loops
    tiles = max(1, kernel.tiles * (groups + rows - 1) // (groups * rows))
    share = tiles / kernel.tiles
    return structs.replace(
        kernel,
        tiles=tiles,
        loops=(TileLoop("rows", tiles),),
        flops=kernel.flops * share,
        product_flops=kernel.product_flops * share,
        streams=tuple(_without_skipped(stream, tiles) for stream in kernel.streams),
    )


def _without_skipped(stream: Stream, tiles: int) -> Stream:
    """Return what is fetched with fewer tiles, or written: of a result each row is written once all the same."""
    fetches = min(stream.fetches, tiles)
    block_bytes = stream.block_bytes * (stream.fetches / fetches if stream.is_output else 1)
    return structs.replace(stream, fetches=fetches, block_bytes=block_bytes)
