"""Another compiler's tiles, undone: its kernels stay, and lowering chooses their tiles for the chip."""

from __future__ import annotations

import json
from typing import Any

from msgspec import structs

from tpusim.hardware.chip import Chip
from tpusim.ir.attributes import Raw
from tpusim.ir.module import Instruction, Module
from tpusim.ir.ops import HAS_TILES, USES_FAST_MEMORY
from tpusim.program.compilation import split_at
from tpusim.semantics.contents import running_computations
from tpusim.semantics.marks import RETILED_FOR, with_mark

_TILES = frozenset({"window_config", "megacore_config"})
"""What ``backend_config`` says of a kernel's tiles and of the cores that share them."""

_ROOM = frozenset({"used_scoped_memory_configs"})
"""What it says of the VMEM that they take."""

_CUT = USES_FAST_MEMORY - {"custom-call"}
"""Kernels whose tiles lowering chooses where none are stated."""


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
        structs.replace(
            c, instructions=tuple(_without_tiles(module, i, split_at(0) if i.name in split else {}) for i in c)
        )
        if c.name in names
        else c
        for c in module.computations
    )
    named = with_mark(module.attributes, RETILED_FOR, chip.name)
    return structs.replace(module, computations=computations, attributes=named)


def _without_tiles(module: Module, instruction: Instruction, split: dict[str, Any]) -> Instruction:
    """Return an instruction that states of its tiles no more than that cores share them."""
    stated = instruction.backend_config.fields
    # Other tiles take other room; no tiles of ours are what a collective adds up in, and blocks of a kernel by hand.
    is_cut_anew = instruction.opcode in _CUT and not _is_by_hand(module, instruction)
    undone = _TILES | _ROOM if is_cut_anew else _TILES
    if undone.isdisjoint(stated) and not split:
        return instruction
    kept = {key: value for key, value in stated.items() if key not in undone} | split
    named = dict(instruction.attributes) | {"backend_config": Raw(json.dumps(kept))}
    return structs.replace(instruction, attributes=named)


def _is_by_hand(module: Module, instruction: Instruction) -> bool:
    """Return whether a kernel is a fusion around code that is not the compiler's."""
    inside = (module[name] for name in instruction.called_computations if instruction.opcode == "fusion")
    calls = (one for body in inside if "custom-call" in body.opcodes for one in body)
    return any("custom_call_config" in one.backend_config.fields for one in calls)
