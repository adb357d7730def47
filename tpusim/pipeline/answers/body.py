"""A hand-written kernel from the inside: kinds of steps by what they run and where, and lines by what they hold up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from tpusim.analysis.explained.body import BETWEEN, BLOCKS, Body, ChainLink, CodeTime, StepKind
from tpusim.cost.classes import CHAIN, Moving, class_cycles, class_moving, held_cycles, line_cycles, unit_cycles
from tpusim.cost.tile import alone_ps, between_tiles_cycles, tile_costs
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import MATRIX
from tpusim.program.grid import CodeLine, Grid
from tpusim.program.steps import Kernel
from tpusim.program.work import TileClass, sum_work
from tpusim.units import PS_PER_SECOND, cycles_to_ps

Ends = frozenset[str]
"""Where in a grid all of some steps are: ``dimension 2 first``."""


class _Place(NamedTuple):
    """What tells kinds of steps apart: what they are for, and where they are."""

    name: str
    where: tuple[str, ...]


class _Counts(NamedTuple):
    """Of steps, by name: cycles that hold them up, cycles that units are busy, operations, and bytes in and out."""

    held: dict[str, float]
    busy: dict[str, float]
    operations: dict[str, float]
    moved: dict[str, float]


def body_of(kernel: Kernel, grid: Grid | None, chip: Chip) -> Body:
    """Return what a kernel's steps and lines take; of a program that came lowered there is no ``grid``, and no line."""
    groups: dict[_Place, list[int]] = defaultdict(list)
    for number, place in enumerate(_places(kernel, grid)):
        groups[place].append(number)
    moving = class_moving(kernel, chip)
    kinds = [_kind(kernel, place, [(kernel.classes[n], moving[n]) for n in own], chip) for place, own in groups.items()]
    kinds.sort(key=lambda kind: -kind.time_ps)
    # The steps of the kind that takes most are alike in what they run; the longest of them stands for it.
    own = groups[_Place(kinds[0].name, kinds[0].where)]
    first = max((kernel.classes[n] for n in own), key=lambda tiles: class_cycles(kernel, tiles, chip))
    total_ps, code = alone_ps(kernel, chip), grid.code if grid else ()
    each = tile_costs(kernel, chip)
    return Body(
        kinds=tuple(kinds),
        lines=tuple(_lines(kernel, code, total_ps * chip.clock_hz / PS_PER_SECOND, chip)),
        chain=tuple(_chain(code, first, chip)),
        least_ps={
            unit: cycles_to_ps(count * kernel.tiles / kernel.cores, chip.clock_hz)
            for unit, count in each.items()
            if count
        },
        rest_ps=max(0, total_ps - sum(kind.time_ps for kind in kinds)),
        copies_itself=len(kernel.streams) > len(kernel.classes[0].moves),
    )


def is_skipped(kernel: Kernel, tiles: TileClass) -> bool:
    """Return whether tiles of a class do nothing of what others do: they have no product where others have one."""
    multiplies = any(count and part.products for part, count in zip(kernel.parts, tiles.runs, strict=True))
    # A kernel without any code of its own skips nothing: it copies.
    return bool(kernel.parts) and (not any(tiles.runs) or (bool(kernel.product_flops) and not multiplies))


def _places(kernel: Kernel, grid: Grid | None) -> list[_Place]:
    """Return what the steps of each class are for: code at one end of a dimension only is a prologue or an epilogue."""
    ends = _ends(grid, len(kernel.classes)) if grid else [Ends()] * len(kernel.classes)
    by_part = []
    for number in range(len(kernel.parts)):
        own = [ends[at] for at, tiles in enumerate(kernel.classes) if tiles.runs[number]]
        by_part.append(Ends.intersection(*own) if own else Ends())
    places = []
    for tiles in kernel.classes:
        found = Ends().union(*(ends for ends, runs in zip(by_part, tiles.runs, strict=True) if runs))
        names = [name for name, end in (("prologue", "first"), ("epilogue", "last")) if any(end in at for at in found)]
        names += ["skipped"] if is_skipped(kernel, tiles) else []
        places.append(_Place(", ".join(names) or "steady", tuple(sorted(found))))
    return places


def _ends(grid: Grid, classes: int) -> list[Ends]:
    """Return of each class at which end of which dimensions all of its steps are."""
    import numpy as np

    order = grid.order.reshape(grid.bounds)
    found: list[Ends] = [Ends()] * classes
    for dimension, bound in enumerate(grid.bounds):
        for name, end in (("first", 0), ("last", bound - 1)):
            elsewhere = np.unique(np.delete(order, end, dimension)) if bound > 1 else range(classes)
            here = set(range(classes)) - set(map(int, elsewhere))
            found = [own | {f"dimension {dimension} {name}"} if n in here else own for n, own in enumerate(found)]
    return found


def _kind(kernel: Kernel, place: _Place, own: Sequence[tuple[TileClass, Moving]], chip: Chip) -> StepKind:
    """Return some classes of steps as one: what one of them takes on the mean."""
    steps = sum(tiles.tiles for tiles, _ in own)
    sums = _Counts({}, {}, {}, {})
    for tiles, moving in own:
        for total, counts in zip(sums, _counts(kernel, tiles, moving, chip), strict=True):
            _add(total, counts, tiles.tiles / steps)
    mean = _Counts(*map(_some, sums))
    return StepKind(
        name=place.name,
        where=place.where,
        steps=steps,
        time_ps=cycles_to_ps(sum(mean.held.values()) * steps / kernel.cores, chip.clock_hz),
        held_cycles=mean.held,
        busy_cycles=mean.busy,
        operations=mean.operations,
        in_bytes=mean.moved.get("in", 0.0),
        out_bytes=mean.moved.get("out", 0.0),
    )


def _counts(kernel: Kernel, tiles: TileClass, moving: Moving, chip: Chip) -> _Counts:
    """Return the counts of one step of a class."""
    cycles = class_cycles(kernel, tiles, chip)
    waited = moving.with_latency(chip.dma.fixed_latency_seconds) * chip.clock_hz
    held = held_cycles(kernel, tiles, chip)
    _add(held, {BLOCKS: max(0.0, waited - cycles), BETWEEN: between_tiles_cycles(kernel, chip)})
    work = sum_work(sum_work(part.stages) * runs for part, runs in zip(kernel.parts, tiles.runs, strict=True))
    busy = unit_cycles(work, chip) | {BLOCKS: moving.seconds * chip.clock_hz}
    operations = work.ops.copy()
    for matmul in work.matmuls:
        for name, count in (
            ("rows", matmul.streamed_rows),
            ("weights", matmul.weight_rows),
            ("results", matmul.results),
        ):
            _add(operations, {f"{MATRIX}.{name}": count * matmul.passes})
    return _Counts(held, busy, operations, kernel.moved_bytes(tiles))


def _add(sums: dict[str, float], counts: Mapping[str, float], times: float = 1.0) -> None:
    """Add counts by name to sums, some times."""
    for name, count in counts.items():
        sums[name] = sums.get(name, 0.0) + count * times


def _some(counts: Mapping[str, float]) -> dict[str, float]:
    """Return what is not nothing, the most first; rounding leaves less than a cycle of what is none."""
    return {name: count for name, count in sorted(counts.items(), key=lambda item: -item[1]) if count > 1e-6}


def _lines(kernel: Kernel, code: Sequence[CodeLine], cycles: float, chip: Chip) -> list[CodeTime]:
    """Return the lines of the code of a kernel that takes some ``cycles`` in all, those that take most first."""
    runs = [
        sum(tiles.tiles * tiles.runs[part] for tiles in kernel.classes) / kernel.cores
        for part in range(len(kernel.parts))
    ]
    held: dict[str, dict[str, float]] = defaultdict(dict)
    names: dict[str, dict[str, float]] = defaultdict(dict)
    for line, own in zip(code, line_cycles(code, chip), strict=True):
        _add(held[line.source], own, runs[line.part])
        _add(names[line.source], {line.operation: sum(own.values())}, runs[line.part])
    found = [
        CodeTime(
            source=source,
            operations=tuple(_some(names[source])),
            held_cycles=_some(own),
            share=sum(own.values()) / cycles,
        )
        for source, own in held.items()
        if sum(own.values()) > 0
    ]
    return sorted(found, key=lambda line: -line.share)


def _chain(code: Sequence[CodeLine], tiles: TileClass, chip: Chip) -> list[ChainLink]:
    """Return the operations of a step that wait for each other, those of one line at a time."""
    waiting = [
        (line, cycles)
        for line, held in zip(code, line_cycles(code, chip), strict=True)
        if tiles.runs[line.part] and (cycles := held[CHAIN])
    ]
    found = []
    for source, group in groupby(waiting, key=lambda item: item[0].source):
        own = list(group)
        longest = max(own, key=lambda item: item[1])[0]
        found.append(ChainLink(source=source, operation=longest.operation, cycles=sum(cycles for _, cycles in own)))
    return found
