"""Why one kernel takes as long as it does: the program is lowered, and the kernel run alone and in its place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from tpusim.analysis.explanation import Kind, explanation
from tpusim.cost.classes import Moving, class_cycles, class_moving
from tpusim.cost.tile import between_tiles_cycles, floor_ps, stage_cycles, tile_costs
from tpusim.errors import ConfigError, did_you_mean
from tpusim.hardware.chip import Chip
from tpusim.hardware.pod import Topology
from tpusim.hardware.units import SMEM, VMEM
from tpusim.ir.module import Module
from tpusim.lowering.kernels.choice import tried_tiles
from tpusim.pipeline.result import ExplainedKernel
from tpusim.pipeline.stages import prepare, run_program
from tpusim.program.module import Program, walk
from tpusim.program.steps import Branch, Call, ChannelTransfer, Collective, Copy, HostTransfer, Kernel, Loop, Wait
from tpusim.program.work import TileClass
from tpusim.report.provenance import provenance_text
from tpusim.semantics.marks import apart_of
from tpusim.shapes.address import logical_bytes, physical_bytes
from tpusim.shapes.shape import Shape, leaves


def explain(
    program: Module | Program | str | Path,
    op: str,
    chip: Chip | str | None = None,
    *,
    topology: Topology | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    schedule: str = "",
    tried: int = 5,
) -> ExplainedKernel:
    """Return why the kernel of one instruction takes as long as it does: its tiles, units, memories and padding.

    ``tried`` is how many ways to cut it are wanted, the best of those that can be stated; there may be fewer.
    Raises ConfigError if the program has no kernel of that name.
    """
    lowered, machine, slice_, module, _ = prepare(program, chip, topology, overrides, schedule=schedule)
    kernel = kernel_named(lowered, op)
    by_itself = structs.replace(lowered, steps=(structs.replace(kernel, needs=()),))
    alone = next(r for r in run_program(by_itself, machine, slice_).records if r.name == op)
    in_run = [r for r in run_program(lowered, machine, slice_).records if r.name == op]
    shapes = {}
    if module:
        computation = next(c for c in module.computations if op in c.by_name)
        arrays = (computation[op], *computation.operands_of(computation[op]))
        named: dict[str, Shape] = {array.name: array.shape for array in arrays}
        # Results of a hand-written kernel have numbers behind its name.
        named |= {f"{op}#{number}": leaf for number, leaf in enumerate(leaves(computation[op].shape))}
        shapes = {name: (physical_bytes(shape), logical_bytes(shape)) for name, shape in named.items()}
    costs = (tile_costs(kernel, machine), between_tiles_cycles(kernel, machine))
    stages = stage_cycles(kernel, machine)
    found = explanation(
        kernel,
        machine,
        *costs,
        (alone, in_run),
        shapes,
        stages=stages,
        floor_ps=floor_ps(kernel, machine),
        kinds=[
            _kind(kernel, tiles, moving, machine)
            for tiles, moving in zip(kernel.classes, class_moving(kernel, machine), strict=True)
        ],
        provenance=lowered.provenance,
    )
    known = _choices(module, machine, op, 0 if kernel.basis else tried)
    known["compiled"] = provenance_text(lowered.provenance, machine.name)
    return ExplainedKernel(**structs.asdict(found) | known)


def _choices(module: Module | None, chip: Chip, op: str, tried: int) -> dict[str, Any]:
    """Return what is said of a kernel's neighbours and tiles, by field of an explanation; nothing of a lowered one.

    ``tried`` is how many ways to cut it are wanted, 0 where it is cut by hand.
    """
    if module is None:
        return {}
    computation = next(c for c in module.computations if op in c.by_name)
    users = {user.name: apart_of(user) for user in computation}
    return {
        "apart": users[op],
        "apart_users": {name: apart[op] for name, apart in users.items() if op in apart},
        "tried": tuple(tried_tiles(module, chip, computation.name, op, wanted=tried)[:tried]) if tried else (),
    }


def _kind(kernel: Kernel, tiles: TileClass, moving: Moving, chip: Chip) -> Kind:
    """Return what a tile of a class takes, with what moves beside it."""
    waited = moving.with_latency(chip.dma.fixed_latency_seconds)
    moves = zip(kernel.streams, tiles.moves, strict=False)
    return Kind(
        tiles=tiles.tiles,
        cycles=class_cycles(kernel, tiles, chip),
        moved_bytes=sum(stream.block_bytes * count for stream, count in moves if stream.space not in (VMEM, SMEM)),
        moving_cycles=moving.seconds * chip.clock_hz,
        latency_cycles=(waited - moving.seconds) * chip.clock_hz,
        is_skipped=is_skipped(kernel, tiles),
    )


def is_skipped(kernel: Kernel, tiles: TileClass) -> bool:
    """Return whether tiles of a class do nothing of what others do: they have no product where others have one."""
    multiplies = any(count and part.products for part, count in zip(kernel.parts, tiles.runs, strict=True))
    return not any(tiles.runs) or (bool(kernel.product_flops) and not multiplies)


def kernel_named(program: Program, name: str) -> Kernel:
    """Return the kernel of an instruction. Raises ConfigError if the program has none of that name."""
    steps = {step.name: step for step, _ in walk(program.steps)}
    found = steps.get(name)
    if isinstance(found, Kernel) and not found.scalar:
        return found
    kernels = [step.name for step in steps.values() if isinstance(step, Kernel) and not step.scalar]
    hint = f", which is {_OTHER_STEPS[type(found)]}" if found else did_you_mean(name, kernels)
    raise ConfigError(f"{program.name}: expected the name of one of its {len(kernels)} kernels, found {name!r}{hint}")


_OTHER_STEPS: dict[type, str] = {
    Kernel: "an instruction of the scalar core",
    Copy: "an asynchronous copy",
    Wait: "a wait for an asynchronous step",
    Collective: "a collective",
    HostTransfer: "a transfer to or from the host",
    ChannelTransfer: "a transfer over a channel",
    Loop: "a loop: name a kernel of its body",
    Branch: "a conditional: name a kernel of a branch",
    Call: "a call: name a kernel of what it calls",
}
"""What a step is that has no tiles to explain."""
