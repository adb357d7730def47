"""Pass 8: every kernel states its tiles, and of several cores that they share them.

The pass knows no machine: what a kernel takes with which tiles is asked of a callable, see ``Target.tiles``. Without
one the tiles are left to whoever runs the program.

Source: programs compiled ahead of time, which state them in ``window_config``; those for chips of two cores split
nearly every kernel of several tiles.
"""

from __future__ import annotations

from tpusim.compiler.kernels.emitters import state
from tpusim.compiler.target import Target
from tpusim.draft import Draft
from tpusim.ir.ops import HAS_TILES
from tpusim.program.compilation import split_at


def state_tiles(draft: Draft, target: Target) -> None:
    """State of every kernel the tiles that take it least, and that its outermost loop is split among several cores."""
    kernels = {node: graph.name for graph in draft.running() for node in graph.order() if node.opcode in HAS_TILES}
    names = {node.name: computation for node, computation in kernels.items()}
    chosen = target.tiles(draft.write(), names) if target.tiles else {}
    for node in kernels:
        state(node, chosen.get(node.name, split_at(0) if target.cores > 1 else {}))
