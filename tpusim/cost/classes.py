"""What the code of a tile takes its core, unit by unit, and what the tiles of one class take that are not all alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec

from tpusim.cost.dma import link_of, memory_rates, stream_loads
from tpusim.cost.models.arrays import array_of
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import MATRIX, SCALAR, UNITS, chip_value
from tpusim.program.grid import CodeLine
from tpusim.program.steps import Kernel
from tpusim.program.work import TileClass, TilePart, Work, sum_work


def unit_cycles(work: Work, chip: Chip) -> dict[str, float]:
    """Return the cycles that work keeps each functional unit of one core busy, at the unit's peak rate."""
    cycles = {MATRIX: sum(array_of(chip).cycles(matmul, chip) for matmul in work.matmuls)}
    for unit in UNITS.values():
        if unit.slots:
            # A chip need not have a unit that nothing is asked of.
            count = work.ops.get(unit.key, 0.0)
            per_op = chip_value(chip, unit.op_cycles) if count and unit.op_cycles else 1.0
            cycles[unit.key] = count * per_op / chip_value(chip, unit.slots) if count else 0.0
    return cycles


def class_cycles(kernel: Kernel, tiles: TileClass, chip: Chip) -> float:
    """Return what a tile of a class takes of its core, in cycles: its parts one after another, and its blocks' turns.

    The scalar core looks at each block that may change: whether this one has come, and whether to ask for the next one.
    """
    parts = zip(kernel.parts, tiles.runs, strict=True)
    blocks = len(tiles.moves) if kernel.tiles > 1 else 0
    looking = 2 * blocks * chip.fixed.scalar_op_cycles
    return looking + sum(runs * part_cycles(part, chip) for part, runs in parts if runs)


def part_cycles(part: TilePart, chip: Chip) -> float:
    """Return what a part takes: its busiest unit, stage after stage, and the chain of what waits for each other.

    No more than that: whenever an operation of the chain is not under way, the units are busy (R. L. Graham, Bounds for
    Certain Multiprocessing Anomalies, 1966).
    """
    chain = part.depth_cycles + part.products * chip.mxu.result_latency_cycles
    return chain + sum(max(unit_cycles(work, chip).values()) for work in part.stages)


CHAIN: Final = "chain"
"""What holds a core up while no unit does: operations that wait for each other."""


def held_cycles(kernel: Kernel, tiles: TileClass, chip: Chip) -> dict[str, float]:
    """Return what the cycles of a class are: of each stage its busiest unit's, chains, and looking at blocks."""
    held: dict[str, float] = defaultdict(float)
    for part, runs in zip(kernel.parts, tiles.runs, strict=True):
        held[CHAIN] += runs * (part.depth_cycles + part.products * chip.mxu.result_latency_cycles)
        for work in part.stages:
            unit, cycles = busiest(work, chip)
            held[unit] += runs * cycles
    held[SCALAR] += class_cycles(kernel, tiles, chip) - sum(held.values())
    return dict(held)


def body_cycles(kernel: Kernel, chip: Chip) -> dict[str, float]:
    """Return the same of all tiles of a kernel together, what takes any: what bounds it, and by how much."""
    total: dict[str, float] = defaultdict(float)
    for tiles in kernel.classes:
        for name, cycles in held_cycles(kernel, tiles, chip).items():
            total[name] += tiles.tiles * cycles
    return {name: cycles for name, cycles in total.items() if cycles > 0}


def line_cycles(code: Sequence[CodeLine], chip: Chip) -> list[dict[str, float]]:
    """Return the same of lines of code, each for one run of its part: their sums are the part's."""
    works: dict[tuple[int, int], list[Work]] = defaultdict(list)
    for line in code:
        works[line.part, line.stage].append(line.work)
    units = {at: busiest(sum_work(own), chip)[0] for at, own in works.items()}
    found = []
    for line in code:
        unit = units[line.part, line.stage]
        chain = line.chain_cycles + line.products * chip.mxu.result_latency_cycles
        found.append({unit: unit_cycles(line.work, chip)[unit], CHAIN: chain})
    return found


def busiest(work: Work, chip: Chip) -> tuple[str, float]:
    """Return the unit that some work keeps busy longest, and its cycles."""
    return max(unit_cycles(work, chip).items(), key=lambda item: item[1])


class Moving(msgspec.Struct, frozen=True):
    """What moves beside a tile, in seconds of the memory or link that takes longest; of it what comes ``in``."""

    seconds: float
    in_seconds: float

    def with_latency(self, latency_seconds: float) -> float:
        """Return what a tile waits at least: all goes over the link, and what comes in is asked for a tile before."""
        return max(self.seconds, self.in_seconds + latency_seconds if self.seconds else 0.0)


def class_moving(kernel: Kernel, chip: Chip) -> list[Moving]:
    """Return what moves beside a tile of each class."""
    blocks, found = block_seconds(kernel, chip), []
    for tiles in kernel.classes:
        moving: dict[str, float] = defaultdict(float)
        coming: dict[str, float] = defaultdict(float)
        for stream, (link, seconds), count in zip(kernel.streams, blocks, tiles.moves, strict=False):
            moving[link] += count * seconds
            coming[link] += count * seconds * (not stream.is_output)
        found.append(Moving(max(moving.values(), default=0.0), max(coming.values(), default=0.0)))
    return found


def block_seconds(kernel: Kernel, chip: Chip) -> list[tuple[str, float]]:
    """Return the memory or link that each stream of a kernel uses, and what one of its blocks takes of that.

    What lies in VMEM already stays where it is, and takes nothing.
    """
    rates, links = memory_rates(chip), [link_of(stream, chip) for stream in kernel.streams]
    loads = {link: iter(stream_loads(kernel, link, chip)[0]) for link in set(links) & rates.keys()}
    return [
        (link, next(loads[link])[1] / stream.fetches / rates[link] if link in loads else 0.0)
        for link, stream in zip(links, kernel.streams, strict=True)
    ]
