"""Why one kernel takes as long as it does: the program is lowered, and the kernel run alone and in its place."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from tpusim.analysis.explained.blocks import TriedBlocks
from tpusim.analysis.explained.body import Body
from tpusim.analysis.explanation import Kind, explanation
from tpusim.cost.classes import Moving, class_cycles, class_moving
from tpusim.cost.tile import between_tiles_cycles, floor_ps, stage_cycles, tile_costs
from tpusim.hardware.chip import Chip
from tpusim.hardware.pod import Topology
from tpusim.ir.module import Computation, Module
from tpusim.lowering.grids import grid_of
from tpusim.lowering.kernels.choice import tried_tiles
from tpusim.lowering.module import DEFAULT_TRIPS
from tpusim.pipeline.answers.blocks import larger_blocks
from tpusim.pipeline.answers.body import body_of, is_skipped
from tpusim.pipeline.answers.shown import ExplainedKernel
from tpusim.pipeline.result import Result
from tpusim.pipeline.stages import run_program
from tpusim.program.steps import Kernel
from tpusim.program.work import TileClass
from tpusim.report.provenance import provenance_text
from tpusim.semantics.marks import apart_of
from tpusim.shapes.address import logical_bytes, physical_bytes
from tpusim.shapes.shape import Shape, leaves


def explain_kernel(result: Result, topology: Topology | None, kernel: Kernel, tried: int) -> ExplainedKernel:
    """Return why a kernel of a run takes as long as it does; ``tried`` ways to cut it are wanted at most."""
    lowered, chip, module, op = result.program, result.chip, result.module, kernel.name
    by_itself = structs.replace(lowered, steps=(structs.replace(kernel, needs=()),))
    alone = next(r for r in run_program(by_itself, chip, topology).records if r.name == op)
    number = lowered.step_numbers[id(kernel)]
    in_run = [r for r in result.timeline.records if r.step == number]
    computation = None if module is None else module.homes[op]
    costs = (tile_costs(kernel, chip), between_tiles_cycles(kernel, chip))
    found = explanation(
        kernel,
        chip,
        *costs,
        (alone, in_run),
        {} if computation is None else _sizes(computation, op),
        stages=stage_cycles(kernel, chip),
        floor_ps=floor_ps(kernel, chip),
        stated_flops=_stated_flops(computation, op),
        kinds=[
            _kind(kernel, tiles, moving, chip)
            for tiles, moving in zip(kernel.classes, class_moving(kernel, chip), strict=True)
        ],
        provenance=lowered.provenance,
        body=_body(kernel, module, chip),
        blocks=_blocks(kernel, module, chip),
    )
    known = _choices(module, chip, op, 0 if kernel.basis else tried)
    known["compiled"] = provenance_text(lowered.provenance, chip.name)
    return ExplainedKernel(**structs.asdict(found) | known)


def _body(kernel: Kernel, module: Module | None, chip: Chip) -> Body | None:
    """Return a kernel that was written by hand from the inside, None of one whose body is not there."""
    if not kernel.classes or not kernel.basis:
        return None
    name = kernel.name
    grid = None if module is None else grid_of(module, chip, module.homes[name].name, name, DEFAULT_TRIPS)
    return body_of(kernel, grid, chip)


def _blocks(kernel: Kernel, module: Module | None, chip: Chip) -> tuple[TriedBlocks, ...]:
    """Return what a hand-written kernel takes with other blocks."""
    if module is None or kernel.basis != "body":
        return ()
    found = larger_blocks(module, chip, module.homes[kernel.name].name, kernel.name)
    return tuple(each.tried for each in found)


def _sizes(computation: Computation, op: str) -> dict[str, tuple[int, int]]:
    """Return the physical and the logical bytes of what an instruction reads and writes, by name."""
    arrays = (computation[op], *computation.operands_of(computation[op]))
    named: dict[str, Shape] = {array.name: array.shape for array in arrays}
    # Results of a hand-written kernel have numbers behind its name.
    named |= {f"{op}#{number}": leaf for number, leaf in enumerate(leaves(computation[op].shape))}
    return {name: (physical_bytes(shape), logical_bytes(shape)) for name, shape in named.items()}


def _stated_flops(computation: Computation | None, op: str) -> float:
    """Return the operations that a hand-written kernel states, 0 where it states none or that is not known."""
    estimate = None if computation is None else computation[op].backend_config.cost_estimate
    return float(estimate.flops) if estimate else 0.0


def _choices(module: Module | None, chip: Chip, op: str, tried: int) -> dict[str, Any]:
    """Return what is said of a kernel's neighbours and tiles, by field of an explanation; nothing of a lowered one.

    ``tried`` is how many ways to cut it are wanted, 0 where it is cut by hand.
    """
    if module is None:
        return {}
    computation = module.homes[op]
    users = {user.name: apart_of(user) for user in computation}
    return {
        "apart": users[op],
        "apart_users": {name: apart[op] for name, apart in users.items() if op in apart},
        "tried": tuple(tried_tiles(module, chip, computation.name, op, wanted=tried)[:tried]) if tried else (),
    }


def _kind(kernel: Kernel, tiles: TileClass, moving: Moving, chip: Chip) -> Kind:
    """Return what a tile of a class takes, with what moves beside it."""
    waited = moving.with_latency(chip.dma.fixed_latency_seconds)
    return Kind(
        tiles=tiles.tiles,
        cycles=class_cycles(kernel, tiles, chip),
        moved_bytes=sum(kernel.moved_bytes(tiles).values()),
        moving_cycles=moving.seconds * chip.clock_hz,
        latency_cycles=(waited - moving.seconds) * chip.clock_hz,
        is_skipped=is_skipped(kernel, tiles),
    )
