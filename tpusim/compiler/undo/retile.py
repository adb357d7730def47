"""Another compiler's tiles, undone: its kernels stay, and lowering chooses their tiles for the chip."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec

from tpusim.compiler.target import Target
from tpusim.compiler.tiles import HAS_TILES, SPLIT
from tpusim.ir.attributes import Raw
from tpusim.ir.module import Instruction, Module
from tpusim.semantics.contents import running_computations
from tpusim.semantics.marks import RETILED_FOR, with_mark

_TILES = frozenset({"window_config", "megacore_config"})
"""What ``backend_config`` says of a kernel's tiles and of the cores that share them."""


def retile(module: Module, target: Target) -> Module:
    """Return a scheduled module whose kernels do not state their tiles, so that lowering chooses them for the chip.

    Where the chip has several cores, they share the tiles of every kernel.
    """
    split = SPLIT if target.cores > 1 else {}
    running = {computation.name for computation in running_computations(module)}
    computations = tuple(
        replace(computation, instructions=tuple(_without_tiles(instruction, split) for instruction in computation))
        if computation.name in running
        else computation
        for computation in module.computations
    )
    named = with_mark(module.attributes, RETILED_FOR, target.chip.name)
    return replace(module, computations=computations, attributes=named)


def _without_tiles(instruction: Instruction, split: dict[str, Any]) -> Instruction:
    """Return an instruction that states no tiles, but, if it is a kernel with tiles, whether cores share them."""
    stated = instruction.backend_config.fields
    if instruction.opcode not in HAS_TILES or (_TILES.isdisjoint(stated) and not split):
        return instruction
    kept = {key: value for key, value in stated.items() if key not in _TILES} | split
    named = dict(instruction.attributes) | {"backend_config": Raw(json.dumps(kept))}
    return msgspec.structs.replace(instruction, attributes=named)
