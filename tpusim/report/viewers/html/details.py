"""What the page says of one op when it is selected: its tiles, its line of HLO, what it reads and what reads it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from tpusim.analysis.utilisation import Group
from tpusim.cost.tile import between_tiles_cycles, stage_cycles, tile_costs
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import UNITS
from tpusim.ir.module import Module
from tpusim.program.module import walk
from tpusim.program.steps import Kernel
from tpusim.report.result import ResultLike
from tpusim.report.viewers.lines import instruction_lines
from tpusim.semantics.contents import running_computations

MOST_OPS = 2_000
"""So many ops, the longest, have their HLO; the page stays small."""
_KERNELS = 300
_LETTERS = 600
_NEIGHBOURS = 12


def op_details(result: ResultLike, groups: Sequence[Group]) -> dict[str, Any]:
    """Return by the number of an op, in the order of ``groups``, what is known of it beyond its figures."""
    found: dict[str, dict[str, Any]] = {str(number): {} for number in range(min(len(groups), MOST_OPS))}
    if result.module is not None:
        for number, known in enumerate(_texts(result.module, groups[:MOST_OPS])):
            found[str(number)] |= known
    kernels = {step.name: step for step, _ in walk(result.program.steps) if isinstance(step, Kernel)}
    own = ((number, kernels[group.name]) for number, group in enumerate(groups[:MOST_OPS]) if group.name in kernels)
    for number, kernel in islice(own, _KERNELS):
        found[str(number)]["tiles"] = _tiles(kernel, result.chip)
    return {number: known for number, known in found.items() if known}


def _texts(module: Module, groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return for each op its line of text, and the names of its neighbours in the program."""
    lines = instruction_lines(module)
    homes = {i.name: computation for computation in running_computations(module) for i in computation}
    found = []
    for group in groups:
        known: dict[str, Any] = {}
        if 0 < group.line <= len(lines):
            text = lines[group.line - 1]
            known["hlo"] = text if len(text) <= _LETTERS else f"{text[:_LETTERS]} ..."
        if home := homes.get(group.name):
            known["reads"] = list(home[group.name].operands[:_NEIGHBOURS])
            known["read_by"] = [user.name for user, _ in home.users.get(group.name, ())][:_NEIGHBOURS]
        found.append(known)
    return found


def _tiles(kernel: Kernel, chip: Chip) -> dict[str, Any]:
    """Return how a kernel is cut, what one tile takes each unit and memory in cycles, and what its operands move."""
    cycles = sorted(tile_costs(kernel, chip).items(), key=lambda item: -item[1])
    streams = sorted(kernel.streams, key=lambda stream: -stream.total_bytes)
    return {
        "count": kernel.tiles,
        "cores": kernel.cores,
        "loops": " > ".join(f"{loop.trips} x {loop.over.replace('_', ' ')}" for loop in kernel.loops),
        "cycles": [[UNITS[unit].label, round(count, 1)] for unit, count in cycles if count > 0],
        "stages": [[UNITS[unit].label, round(count, 1)] for unit, count in stage_cycles(kernel, chip)],
        "between": round(between_tiles_cycles(kernel, chip), 1) if kernel.tiles > 1 else 0,
        "moves": [
            [one.operand, one.is_output, UNITS[one.space].label, one.block_bytes, one.fetches, one.total_bytes]
            for one in streams[:_NEIGHBOURS]
        ],
    }
