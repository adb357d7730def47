"""Another compiler's tiles, undone: its kernels stay, and lowering chooses their tiles for the chip."""

from __future__ import annotations

import json
from typing import Any

from msgspec import structs

from tpusim.hardware.chip import Chip
from tpusim.ir.attributes import Raw
from tpusim.ir.module import Instruction, Module
from tpusim.ir.ops import HAS_TILES
from tpusim.program.compilation import split_at
from tpusim.semantics.contents import running_computations
from tpusim.semantics.marks import RETILED_FOR, with_mark

_TILES = frozenset({"window_config", "megacore_config"})
"""What ``backend_config`` says of a kernel's tiles and of the cores that share them."""


def untile(module: Module, chip: Chip, cores: int) -> Module:
    """Return a scheduled module whose kernels do not state their tiles, for lowering to choose them for the chip.

    ``cores`` is how many the program was compiled for. Where the chip has more, they share the tiles of every kernel,
    and where it has as many, of those that the program says they share.
    """
    running = running_computations(module)
    split = {
        i.name
        for c in running
        for i in c
        if chip.cores_per_device > 1
        and (
            i.opcode in HAS_TILES if chip.cores_per_device > cores else i.backend_config.megacore_split_dim is not None
        )
    }
    names = {computation.name for computation in running}
    computations = tuple(
        structs.replace(c, instructions=tuple(_without_tiles(i, split_at(0) if i.name in split else {}) for i in c))
        if c.name in names
        else c
        for c in module.computations
    )
    named = with_mark(module.attributes, RETILED_FOR, chip.name)
    return structs.replace(module, computations=computations, attributes=named)


def _without_tiles(instruction: Instruction, split: dict[str, Any]) -> Instruction:
    """Return an instruction that states of its tiles no more than that cores share them."""
    stated = instruction.backend_config.fields
    if _TILES.isdisjoint(stated) and not split:
        return instruction
    kept = {key: value for key, value in stated.items() if key not in _TILES} | split
    named = dict(instruction.attributes) | {"backend_config": Raw(json.dumps(kept))}
    return structs.replace(instruction, attributes=named)
