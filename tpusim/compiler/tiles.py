"""Pass 8: the tiles of every kernel are shared out among the cores, where there are several.

Which tiles a kernel has, lowering chooses for it: the cut of its loops that takes least.

Source: programs compiled ahead of time for chips of two cores, which split nearly every kernel of several tiles.
"""

from __future__ import annotations

from tpusim.compiler.fuse import running
from tpusim.compiler.graph import Draft
from tpusim.compiler.kernels.emitters import state
from tpusim.compiler.target import Target
from tpusim.ir.ops import ENDS_KERNELS, FUSES_INTO_USERS

SPLIT = {"megacore_config": {"megacore_split_dim": "0"}}
"""What a ``backend_config`` says of a kernel whose outermost loop is split."""

HAS_TILES = FUSES_INTO_USERS | ENDS_KERNELS | {"fusion"}
"""Opcodes of kernels that have tiles."""


def split_over_cores(draft: Draft, target: Target) -> None:
    """State for every kernel that its outermost loop is split, if there are several cores."""
    if target.cores == 1:
        return
    for graph in running(draft):
        for node in graph.order():
            if node.opcode in HAS_TILES:
                state(node, SPLIT)
