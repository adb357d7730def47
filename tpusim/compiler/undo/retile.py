"""Another compiler's tiles and placement, undone: its kernels stay, and the rest is chosen anew for the chip."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec

from tpusim.compiler.graph import Draft
from tpusim.compiler.place.run import place
from tpusim.compiler.place.spaces import match_fusion
from tpusim.compiler.target import Target
from tpusim.compiler.tiles import HAS_TILES, SPLIT
from tpusim.compiler.undo.unplace import unplace
from tpusim.ir.attributes import Raw
from tpusim.ir.module import Instruction, Module
from tpusim.semantics.contents import running_computations
from tpusim.semantics.marks import RETILED_FOR, with_mark

_TILES = frozenset({"window_config", "megacore_config"})
"""What ``backend_config`` says of a kernel's tiles and of the cores that share them."""


def retile(module: Module, target: Target, cores: int) -> Module:
    """Return a scheduled module whose kernels do not state their tiles, so that lowering chooses them for the chip.

    ``cores`` is how many the program was compiled for. Where the chip has more, they share the tiles of every kernel,
    and where it has as many, of those that the program says they share.
    """
    running = running_computations(module)
    split = {
        i.name
        for c in running
        for i in c
        if target.cores > 1
        and (i.opcode in HAS_TILES if target.cores > cores else i.backend_config.megacore_split_dim is not None)
    }
    names = {computation.name for computation in running}
    computations = tuple(
        replace(c, instructions=tuple(_without_tiles(i, SPLIT if i.name in split else {}) for i in c))
        if c.name in names
        else c
        for c in module.computations
    )
    named = with_mark(module.attributes, RETILED_FOR, target.chip.name)
    return replace(module, computations=computations, attributes=named)


def placed_anew(module: Module, target: Target) -> Module:
    """Return a scheduled module with arrays placed in the chip's memories, and fetched ahead, as our own passes do."""
    draft = Draft(module)
    unplace(draft)
    place(draft, target)
    # Callers first: fusions inside of fusions take what these do.
    for graph in reversed(draft.reachable()):
        for node in graph.order():
            if node.opcode == "fusion":
                match_fusion(node, draft)
    return draft.write()


def _without_tiles(instruction: Instruction, split: dict[str, Any]) -> Instruction:
    """Return an instruction that states of its tiles no more than that cores share them."""
    stated = instruction.backend_config.fields
    if _TILES.isdisjoint(stated) and not split:
        return instruction
    kept = {key: value for key, value in stated.items() if key not in _TILES} | split
    named = dict(instruction.attributes) | {"backend_config": Raw(json.dumps(kept))}
    return msgspec.structs.replace(instruction, attributes=named)
