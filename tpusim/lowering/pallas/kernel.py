"""A Pallas kernel as a step: its grid steps are the tiles, its blocks the streams, its body the work.

Steps that run the same parts of the body and move the same blocks are one class, of which one is costed; the blocks of
the next step come in, and those of the last one go out, while a step computes (JAX documentation, Pallas: Software
Pipelining).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs

from tpusim.hardware.chip import Chip
from tpusim.hardware.units import MemorySpace
from tpusim.ir.module import Instruction, Literal
from tpusim.ir.mosaic import DYNAMIC, KernelBody, Operation, Type, Unreadable
from tpusim.ir.ops import COPIES, SAME_ELEMENTS
from tpusim.lowering.kernels.tiles import blocks, run_bytes, run_pitch_bytes
from tpusim.lowering.kernels.vector import estimated_type
from tpusim.lowering.pallas.axes import axes_along
from tpusim.lowering.pallas.blocks import Flags, block_indices, changes, moves_beside
from tpusim.lowering.pallas.classes import classes_of, code_of
from tpusim.lowering.pallas.merged import Code, Merging, cut_of
from tpusim.lowering.pallas.operands import Fed, part_of, streams_of
from tpusim.lowering.pallas.sends import with_sends
from tpusim.lowering.pallas.walk import Assumptions, Times, Transfer, Walk
from tpusim.lowering.pallas.work import Costed, code_lines, costed
from tpusim.lowering.scope import Scope
from tpusim.program.grid import CodeLine, Grid
from tpusim.program.steps import AnyStep, Kernel, TileLoop
from tpusim.program.work import Stream
from tpusim.semantics.memory_spaces import space_of
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import ArrayShape, leaves

MOST_STEPS = 1 << 20
"""Steps of a grid that are told apart; a kernel with more of them takes what it states."""


class _Array(NamedTuple):
    """An operand or result in memory."""

    name: str
    shape: ArrayShape
    space: MemorySpace
    made_by: Kernel | None = None
    is_output: bool = False


class _Call(NamedTuple):
    """A kernel with what it is called on: its ``grid``, its arrays by window, and what is known of its scalars."""

    body: KernelBody
    grid: tuple[int, ...]
    arrays: tuple[_Array, ...]
    contents: dict[int, np.ndarray[Any, Any]]


def pallas_steps(
    scope: Scope, instruction: Instruction, body: KernelBody, operands: Sequence[Fed]
) -> tuple[AnyStep, ...]:
    """Return the kernel of a Pallas call, and what it sends to other devices beside it.

    ``instruction`` is what stands in the schedule: the call, or the fusion around it. Raises ``Unreadable`` if its body
    is not what its call gives it.
    """
    warnings: dict[str, None] = {}
    call = _call(scope, instruction, body, operands, warnings)
    assumed = Assumptions(scope.default_trips, warnings)
    walk = Walk(body, call.grid, call.contents, assumed).run()
    kernel = _kernel(scope, instruction, call, walk)
    for text in warnings:
        scope.notes.warn(f"{instruction.name}: {text}")

    def transfers(device: int) -> list[Transfer]:
        return Walk(body, call.grid, call.contents, assumed, device).run().transfers if device else walk.transfers

    return with_sends(scope, instruction, kernel, transfers, lambda end: getattr(_array(call, end), "space", None))


def _kernel(scope: Scope, instruction: Instruction, call: _Call, walk: Walk) -> Kernel:
    """Return what one device does: the code of its steps, and the blocks that it moves."""
    body = call.body
    moved = _moved(call, scope.chip)
    kept = _kept(call, walk, moved, scope.chip)
    copied = _copied(call, walk.transfers)
    for name in dict.fromkeys(name for item in kept for name in item.cost.unknown):
        scope.notes.warn(f"{instruction.name}: {name} has no cost of its own: one operation per register")
    code = code_of(call.grid, [item.cost for item in kept], [item.times for item in kept], moved.moves, scope.chip)
    # Where no product says it.
    code.setdefault("flops_type", estimated_type(scope.computation, instruction, scope.chip))
    made = sum(array.made_by.flops for array in call.arrays if array.made_by)
    return Kernel(
        **scope.label(instruction, "custom fusion" if instruction.opcode == "fusion" else "custom-call"),
        **code | {"flops": code["flops"] + made},
        loops=tuple(TileLoop(word, size) for word, size in zip(body.semantics, call.grid, strict=False) if size > 1),
        streams=(*moved.streams, *copied),
        scoped_vmem_bytes=instruction.backend_config.scoped_vmem_bytes,
        cores=_cores(scope, call),
        family="hand-written",
        basis="body",
    )


class _Kept(NamedTuple):
    """Code that takes time, and how often it runs in each step; what a fused operand is made with has no operations."""

    cost: Costed
    times: Times
    operations: Sequence[Operation] = ()


def _kept(call: _Call, walk: Walk, moved: _Moved, chip: Chip) -> list[_Kept]:
    """Return the code of a kernel, that of fused operands first."""
    types = call.body.main.types
    found = (_Kept(costed(part.operations, types, chip), part.times, part.operations) for part in walk.parts)
    # What only reads indices is the scalar core's, beside the vectors.
    return [item for item in (*moved.parts, *found) if item.cost.part.stages]


def grid_steps(scope: Scope, instruction: Instruction, body: KernelBody, operands: Sequence[Fed]) -> Grid:
    """Return how the kernel of a Pallas call goes through its grid; arguments and errors are those of its steps."""
    warnings: dict[str, None] = {}
    call = _call(scope, instruction, body, operands, warnings)
    walk = Walk(body, call.grid, call.contents, Assumptions(scope.default_trips, warnings)).run()
    moved = _moved(call, scope.chip)
    kept = _kept(call, walk, moved, scope.chip)
    _, order = classes_of(call.grid, [item.times for item in kept], moved.moves)
    code = [line for n, item in enumerate(kept) for line in _code(n, item, body.main.types, scope.chip)]
    return Grid(call.grid, body.semantics, order, tuple(moved.blocks), tuple(code))


def merging(scope: Scope, instruction: Instruction, body: KernelBody, operands: Sequence[Fed]) -> Merging | None:
    """Return how steps of the kernel of a Pallas call can be merged; None if it has one, or moves more than its blocks.

    Arguments and errors are those of its steps.
    """
    call = _call(scope, instruction, body, operands, {})
    if prod(call.grid) == 1:
        return None
    walk = Walk(body, call.grid, call.contents, Assumptions(scope.default_trips, {})).run()
    kernel = _kernel(scope, instruction, call, walk)
    if walk.transfers or any(array.made_by for array in call.arrays) or not kernel.classes:
        return None
    arguments = body.main.block.arguments[body.first_window :]
    # Nothing verifies bodies.
    if len(arguments) < len(body.windows):
        return None
    kept = _kept(call, walk, _moved(call, scope.chip), scope.chip)
    shown = [at for at, window in enumerate(body.windows) if window.bounds]
    cuts = []
    for at in shown:
        transform, array = body.functions.get(body.windows[at].transform), call.arrays[at]
        indices = block_indices(transform, call.grid, call.contents)
        cuts.append(cut_of(call.grid, body.windows[at].bounds, indices, is_output=array.is_output))
    numbers = {arguments[at]: cut for at, cut in zip(shown, cuts, strict=True)}
    # What stays in one block throughout goes along nothing.
    known = {n: cut.along for n, cut in numbers.items() if len(cut.along) == len(body.main.types[n].dimensions)}

    def stream_of(number: int, bounds: tuple[int, ...], fetches: int) -> Stream:
        array = call.arrays[shown[number]]
        return _stream(array, _block(array.shape, bounds), fetches, scope.chip)

    return Merging(
        kernel=kernel,
        grid=call.grid,
        cuts=tuple(cuts),
        code=tuple(
            Code(item.operations, item.times, [numbers[n] for n in walk.arguments(item.operations) if n in numbers])
            for item in kept
        ),
        types=body.main.types,
        along=axes_along(body.main.block, body.main.types, known),
        scratch=body.main.block.arguments[len(body.main.block.arguments) - body.scratch :],
        stream_of=stream_of,
    )


def _code(number: int, item: _Kept, types: Sequence[Type], chip: Chip) -> list[CodeLine]:
    """Return the lines of a part; what makes an operand's blocks was written elsewhere."""
    if item.operations:
        return code_lines(number, item.operations, types, chip)
    part = item.cost.part
    lines = [CodeLine(number, stage, "", "fused operand", work) for stage, work in enumerate(part.stages)]
    return [structs.replace(lines[0], chain_cycles=part.depth_cycles, products=part.products), *lines[1:]]


def _cores(scope: Scope, call: _Call) -> int:
    """Return how many cores share the steps: those of the chip where a dimension may be split."""
    split = any("parallel" in word and size > 1 for word, size in zip(call.body.semantics, call.grid, strict=False))
    return scope.chip.cores_per_device if split else 1


def _call(
    scope: Scope, instruction: Instruction, body: KernelBody, operands: Sequence[Fed], warnings: dict[str, None]
) -> _Call:
    """Match a body with its operands: bounds of the grid, scalars, blocks in; the results are blocks out."""
    results = leaves(instruction.shape)
    dynamic = sum(bound == DYNAMIC for bound in body.grid)
    windows = len(body.windows) - len(results)
    inputs = operands[dynamic + body.prefetched :]
    if windows < 0 or len(inputs) < windows or len(body.main.block.arguments) < len(body.grid) + body.prefetched:
        raise Unreadable(f"its body has {len(body.windows)} windows for {len(inputs)} operands")
    arrays = [_Array(item.source.name, *item[1:]) for item in inputs[:windows]]
    arrays += [
        _Array(f"{instruction.name}#{n}", shape, space_of(shape), is_output=True) for n, shape in enumerate(results)
    ]
    scalars = operands[dynamic : dynamic + body.prefetched]
    tables = {len(body.grid) + at: _table(scope, item) for at, item in enumerate(scalars)}
    longest = max((max(item.shape.dimensions, default=1) for item in scalars), default=1)
    grid = []
    for bound in body.grid:
        if bound == DYNAMIC:
            # A list of what is to be done is as long as that can be.
            warnings[f"only data decides a bound of its grid: taken as {longest}"] = None
        grid.append(longest if bound == DYNAMIC else max(1, bound))
    if prod(grid) > MOST_STEPS:
        raise Unreadable(f"its grid has {prod(grid):,} steps, more than {MOST_STEPS:,}")
    known = {at: table for at, table in tables.items() if table is not None}
    return _Call(body, tuple(grid), tuple(arrays), known)


def _table(scope: Scope, operand: Fed) -> np.ndarray[Any, Any] | None:
    """Return the numbers of an array that the program has as a constant; None for anything else."""
    if operand.made_by:
        return None
    made = operand.source
    while made.opcode in SAME_ELEMENTS | COPIES:
        made = scope.operand(made, 0)
    text = made.immediate.text if isinstance(made.immediate, Literal) else "..."
    if "..." in text or "." in text:
        return None
    numbers = text.replace("{", " ").replace("}", " ").replace(",", " ").split()
    dimensions = leaves(made.shape)[0].dimensions
    plain = [int(number) for number in numbers if number.lstrip("-").isdecimal()]
    return np.array(plain, np.int64).reshape(dimensions) if len(plain) == len(numbers) == prod(dimensions) else None


class _Moved(NamedTuple):
    """What the windows move, in which steps, and the code that makes blocks of operands fused with the kernel."""

    streams: list[Stream]
    moves: list[Flags]
    blocks: list[tuple[int, ...]]
    parts: list[_Kept]


def _moved(call: _Call, chip: Chip) -> _Moved:
    """Return what each window moves: the next block of an operand comes a step before."""
    found = _Moved([], [], [], [])
    for window, array in zip(call.body.windows, call.arrays, strict=True):
        if not window.bounds:
            # The kernel itself moves what it needs of it.
            continue
        transform = call.body.functions.get(window.transform)
        changed = changes(transform, call.grid, call.contents)
        block = _block(array.shape, window.bounds)
        streams = [_stream(array, block, int(changed.sum()), chip)]
        if array.made_by:
            share = physical_bytes(block) / physical_bytes(array.shape)
            streams = streams_of(array.made_by, share, int(changed.sum()))
            found.parts.append(_Kept(Costed(part_of(array.made_by, share)), changed.reshape(call.grid).astype(float)))
        found.streams.extend(streams)
        found.moves.extend([moves_beside(changed, is_output=array.is_output)] * len(streams))
        found.blocks.extend([block.dimensions] * len(streams))
    return found


def _stream(array: _Array, block: ArrayShape, fetches: int, chip: Chip) -> Stream:
    """Return what moves of an array that is fetched or written block by block."""
    cut = blocks(block, chip.vpu.register_shape) if block.rank == array.shape.rank else ()
    # A block is as many runs as the dimension inside of which it is cut has.
    runs = [run(array.shape, cut, chip.vpu.register_shape) for run in (run_bytes, run_pitch_bytes)]
    return Stream(array.name, array.space, float(physical_bytes(block)), fetches, array.is_output, *runs)


def _block(shape: ArrayShape, bounds: tuple[int, ...]) -> ArrayShape:
    """Return the shape of a block: its tiles are padded as the array's are."""
    if len(bounds) != shape.rank:
        return ArrayShape(shape.dtype, bounds)
    return structs.replace(shape, dimensions=tuple(map(min, bounds, shape.dimensions)))


def _copied(call: _Call, transfers: Sequence[Transfer]) -> list[Stream]:
    """Return what the kernel copies itself, on its own device, between VMEM and other memories."""
    found = []
    for transfer in transfers:
        for end, is_output in ((transfer.source, False), (transfer.destination, True)):
            array = _array(call, end)
            times = float(np.broadcast_to(transfer.times, call.grid).sum())
            # What leaves the device is a step of its own.
            if array is not None and times and transfer.target is None:
                # Half a time, on average, is a whole copy of half the size.
                count = max(1, round(times))
                found.append(Stream(array.name, array.space, transfer.n_bytes * times / count, count, is_output))
    return found


def _array(call: _Call, position: int | None) -> _Array | None:
    """Return the operand or result that an argument of a body refers to, if it lies outside of the kernel's VMEM."""
    at = -1 if position is None else position - call.body.first_window
    if not 0 <= at < len(call.arrays) or call.body.windows[at].bounds:
        return None
    return call.arrays[at]
