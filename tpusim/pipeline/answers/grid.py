"""A hand-written kernel step by step: its program is lowered, and its steps follow each other as its time has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tpusim.analysis.explained.grid import AROUND, GridWindow, KernelGrid, Span
from tpusim.cost.classes import block_seconds, class_cycles, class_moving
from tpusim.cost.tile import alone_ps, between_tiles_cycles
from tpusim.errors import ConfigError, did_you_mean
from tpusim.hardware.chip import Chip
from tpusim.hardware.pod import Topology
from tpusim.ir.module import Module
from tpusim.lowering.grids import grid_of
from tpusim.lowering.module import DEFAULT_TRIPS
from tpusim.pipeline.answers.body import is_skipped
from tpusim.pipeline.answers.names import instruction_named
from tpusim.pipeline.stages import prepare
from tpusim.program.grid import Grid
from tpusim.program.module import Program
from tpusim.program.steps import Kernel

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, Any]


def kernel_grid(
    program: Module | str | Path,
    op: str,
    chip: Chip | str | None = None,
    *,
    topology: Topology | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    schedule: str = "",
) -> KernelGrid:
    """Return the steps of a hand-written kernel, as ``plot.pallas`` draws them.

    Raises ConfigError if the program has no kernel of that name, or not one whose body could be read.
    """
    lowered, machine, _, module, *_ = prepare(program, chip, topology, overrides, schedule=schedule)
    kernel = _kernel(lowered, op)
    if kernel.basis != "body" or module is None:
        raise ConfigError(f"{op}: expected a kernel that is timed by its body, found one by {kernel.basis or 'rules'}")
    grid = grid_of(module, machine, module.homes[op].name, op, DEFAULT_TRIPS)
    assert grid is not None
    paced = _paced(kernel, grid, machine)
    return KernelGrid(
        name=kernel.name,
        chip=machine.name,
        cores=kernel.cores,
        bounds=grid.bounds,
        semantics=grid.semantics,
        order=grid.order,
        cycles=tuple(class_cycles(kernel, tiles, machine) for tiles in kernel.classes),
        skipped=tuple(is_skipped(kernel, tiles) for tiles in kernel.classes),
        windows=paced.windows,
        alone_ps=alone_ps(kernel, machine),
        excerpts=tuple(tuple(_spans(paced, steps)) for steps in _excerpts(paced)),
    )


def _kernel(program: Program, name: str) -> Kernel:
    kernels = {step.name: step for step in program.every_step if isinstance(step, Kernel) and not step.scalar}
    name = instruction_named(name, None)
    if name not in kernels:
        hint = did_you_mean(name, list(kernels))
        raise ConfigError(
            f"{program.name}: expected the name of one of its {len(kernels)} kernels, found {name!r}{hint}"
        )
    return kernels[name]


class _Paced(NamedTuple):
    """The steps of one core: when each begins, how long it computes and lasts, in seconds.

    ``asked`` is when the first blocks are asked for, ``latency`` what memory takes to answer.
    """

    asked: float
    order: Numbers
    begins: Numbers
    computes: Numbers
    lengths: Numbers
    latency: float
    windows: tuple[GridWindow, ...]


def _paced(kernel: Kernel, grid: Grid, chip: Chip) -> _Paced:
    """Return the pace of a kernel's steps: each is as long as the longer of what it computes and what moves beside."""
    import numpy as np

    latency = chip.dma.fixed_latency_seconds
    # Cores go through as many steps each, at the same time.
    order = grid.order[: -(-kernel.tiles // kernel.cores)]
    computes = np.array([class_cycles(kernel, tiles, chip) for tiles in kernel.classes])[order] / chip.clock_hz
    moving = np.array([each.with_latency(latency) for each in class_moving(kernel, chip)])[order]
    lengths = np.maximum(computes, moving) + between_tiles_cycles(kernel, chip) / chip.clock_hz
    windows = tuple(_windows(kernel, grid, chip))
    first = sum(window.seconds for window in windows if not window.is_output)
    begin = chip.fixed.kernel_seconds + (latency + first if first else 0.0)
    begins = begin + np.cumsum(lengths) - lengths
    return _Paced(chip.fixed.kernel_seconds, order, begins, computes, lengths, latency, windows)


def _windows(kernel: Kernel, grid: Grid, chip: Chip) -> Iterator[GridWindow]:
    import numpy as np

    seconds = block_seconds(kernel, chip)
    for number, block in enumerate(grid.blocks):
        stream = kernel.streams[number]
        # Beside a step the next one's operands come in, and the last one's results go out.
        beside = np.array([tiles.moves[number] > 0 for tiles in kernel.classes])[grid.order]
        new = beside if stream.is_output else np.roll(beside, 1)
        new[0] = True
        yield GridWindow(
            name=stream.operand,
            is_output=stream.is_output,
            space=stream.space,
            block=block,
            block_bytes=stream.block_bytes,
            seconds=seconds[number][1],
            new=new,
        )


def _excerpts(paced: _Paced) -> list[range]:
    """Return the first steps, the last ones, and between them some around one of the class that takes most time."""
    import numpy as np

    count = len(paced.order)
    if count <= 3 * AROUND:
        return [range(count)]
    heaviest = np.argmax(np.bincount(paced.order, paced.lengths))
    alike = np.flatnonzero(paced.order == heaviest)
    centre = int(alike[np.argmin(np.abs(alike - count // 2))])
    begin = min(max(centre - AROUND // 2, AROUND), count - 2 * AROUND)
    return [range(AROUND), range(begin, begin + AROUND), range(count - AROUND, count)]


def _spans(paced: _Paced, steps: Sequence[int]) -> Iterator[Span]:
    """Yield the bars of an excerpt: what comes in one after another, what is computed, what goes out behind that."""
    last = len(paced.begins) - 1
    if steps[0] == 0:
        yield from _moved(paced, "in", 0, paced.asked, [n for n, w in enumerate(paced.windows) if not w.is_output])
    for step in steps:
        begin = float(paced.begins[step])
        yield Span(lane="compute", step=step, begin=begin, end=begin + float(paced.computes[step]))
        coming = [n for n, w in enumerate(paced.windows) if not w.is_output and step < last and w.new[step + 1]]
        spans = list(_moved(paced, "in", step + 1, begin, coming))
        yield from spans
        going = [n for n, w in enumerate(paced.windows) if w.is_output and step and w.new[step]]
        yield from _moved(paced, "out", step - 1, max((s.end for s in spans), default=begin), going, asks=False)
    if steps[-1] == last:
        end = float(paced.begins[last] + paced.lengths[last])
        yield from _moved(paced, "out", last, end, [n for n, w in enumerate(paced.windows) if w.is_output])


def _moved(
    paced: _Paced, lane: str, step: int, begin: float, numbers: Sequence[int], *, asks: bool = True
) -> Iterator[Span]:
    """Yield the blocks of some windows that move for a step, one after another; what ``asks`` first waits for it."""
    at = begin
    for number in numbers:
        seconds = paced.windows[number].seconds
        if seconds:
            if at == begin and asks:
                at += paced.latency
                yield Span(lane=lane, step=step, begin=begin, end=at)
            yield Span(lane=lane, step=step, begin=at, end=at + seconds, window=number)
            at += seconds
