"""Loops over examples that could be worked on all at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod

from msgspec import structs

from tpusim.advice.loops import body_of, element_of, handed_as_is, update_of
from tpusim.advice.stacks import best_stack
from tpusim.advice.trials import LEAST_SHARE, Case, Trial, advises
from tpusim.cost.models.arrays import array_of
from tpusim.cost.models.protocols import TileProduct
from tpusim.cost.peaks import flops_by_type
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import HBM, VMEM
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import COPIES, VIEWS
from tpusim.program.edit import with_steps
from tpusim.program.steps import AnyStep, Copy, Kernel, Loop, Steps, Wait
from tpusim.program.work import Stream, VectorLoop, Work
from tpusim.semantics.aliasing import behind_views
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import ArrayShape

_KINDS = (Kernel, Copy, Wait)


@advises("batch loops")
def batch_loops(case: Case) -> Iterator[Trial]:
    """Propose to work on all trips of a loop at once that hands nothing from trip to trip but what it collects."""
    for loop in case.program.every_step:
        if not isinstance(loop, Loop) or case.share(loop, *loop.body) < LEAST_SHARE or loop.trips < 2 or loop.choices:
            continue
        body = body_of(case, loop)
        if body is None or case.module is None or not all(isinstance(step, _KINDS) for step in loop.body):
            continue
        same = handed_as_is(body)
        if _is_collecting(case.module, body, same):
            fixed = _unchanging(body, same)
            working = [_from_where_it_lies(step, loop.body, body) for step in _working(loop)]
            batch = tuple(_batched(step, loop.trips, fixed, body, case.chip) for step in working)
            yield Trial(
                what=f"a loop of {loop.trips:,} trips that do not depend on each other",
                change="work on all of them at once, or on some: vmap for lax.map, scan or fori_loop (batch_size=...)",
                alternative=with_steps(case.program, partial(_at_once, loop=loop, batch=batch)),
                **case.places(loop.body),
            )


def _is_collecting(module: Module, body: Computation, same: set[int]) -> bool:
    """Return whether a trip leaves nothing to the next but a counter, and arrays in which each fills a part."""
    handed = list(enumerate(body.operands_of(body.root))) if body.root.opcode == "tuple" else []
    changed = [(number, made) for number, made in handed if number not in same]
    return bool(same) and all(_counts(body, *one, same) or _collects(module, body, *one) for one in changed)


def _counts(body: Computation, number: int, made: Instruction, same: set[int]) -> bool:
    """Return whether an element of the state goes up by as much in each trip."""
    if made.opcode != "add":
        return False
    sides = [element_of(body, one) for one in body.operands_of(made)]
    steps = [one.opcode == "constant" or side in same for one, side in zip(body.operands_of(made), sides, strict=True)]
    return number in sides and any(steps)


def _collects(module: Module, body: Computation, number: int, made: Instruction) -> bool:
    """Return whether an element of the state is an array of which a trip writes a part, and reads nothing."""
    update = update_of(module, body, made)
    if update is None or element_of(body, update[1]) != number:
        return False
    passes_on = COPIES | VIEWS | {"tuple"}
    readers = [one for one in body if any(element_of(body, body[name]) == number for name in one.operands)]
    later = [user for user, _ in body.users.get(made.name, ())]
    return all(one is update[0] or one.opcode in passes_on for one in readers) and all(
        one is body.root for one in later
    )


def _unchanging(body: Computation, same: set[int]) -> set[str]:
    """Return the values of a body that are the same in all trips: copies of what these hand on."""
    return {one.name for one in body if element_of(body, one) in same}


def _working(loop: Loop) -> list[AnyStep]:
    """Return the steps of a trip that are left if there are no trips.

    What cuts a trip's part out, or puts it back, is not: what works on all of them reads and writes them where they
    lie. If trips only move parts, the work is the last move, which puts them where they are to lie.
    """
    steps = [step for step in loop.body if not isinstance(step, Kernel) or not step.scalar]
    work = [step for step in steps if not isinstance(step, Kernel) or step.family != "copy"]
    return work if any(isinstance(step, Kernel) for step in work) else steps[-1:]


def _from_where_it_lies(step: AnyStep, steps: Steps, body: Computation) -> AnyStep:
    """Return a step that reads and writes in HBM what kernels that only move data bring from it, or take to it."""
    if not isinstance(step, Kernel):
        return step
    moves = [one for one in steps if isinstance(one, Kernel) and one.family == "copy"]
    far = {
        _behind(body, stream.operand)
        for one in moves
        if any(stream.space == HBM for stream in one.streams)
        for stream in one.streams
    }
    streams = (structs.replace(one, space=HBM) if _behind(body, one.operand) in far else one for one in step.streams)
    return structs.replace(step, streams=tuple(streams))


def _behind(body: Computation, name: str) -> str:
    """Return the name of the instruction whose value one of a body is a view of."""
    return behind_views(body, body[name]).name if name in body.by_name else name


def _batched(step: AnyStep, trips: int, same: set[str], body: Computation, chip: Chip) -> AnyStep:
    """Return a step that does what all trips of one do."""
    if not isinstance(step, Kernel):
        return step
    weights = [one for one in step.streams if one.operand in same and _is_whole(body, one)]
    largest = max(weights, key=lambda one: one.total_bytes, default=None)
    rows = step.flops / 2 / prod(_dimensions(body, largest)) if largest else 0.0
    if largest is None or rows < 1:
        streams = tuple(one if one in weights else _times(one, trips, chip) for one in step.streams)
        return best_stack(structs.replace(step, streams=streams), trips, chip, same=weights)
    # What takes a vector, or few rows, past weights takes those of all trips past them: these come in once.
    return structs.replace(
        step,
        loops=(),
        flops=step.flops * trips,
        product_flops=step.product_flops * trips,
        stages=(),
        vector_loop=VectorLoop(),
        work=_products(_dimensions(body, largest), rows * trips, step, chip) * (1 / step.tiles),
        streams=tuple(one if one in weights else _times(one, trips, chip, larger=trips) for one in step.streams),
    )


def _products(sides: tuple[int, ...], rows: float, step: Kernel, chip: Chip) -> Work:
    """Return the work of products of some rows in all, of the types of a step, with weights of these dimensions."""
    *outer, depth, columns = (1, *sides)
    matmuls = []
    for name, own in flops_by_type(step, rows).items():
        passes = max((matmul.passes for matmul in step.work.matmuls if matmul.operand_type == name), default=1)
        tile = TileProduct(own, columns, 1, depth, prod(outer), name, passes)
        popped = own * columns / chip.vpu.register_elements
        matmuls.append(structs.replace(array_of(chip).work(tile, chip).matmul, results=popped))
    return Work(tuple(matmuls))


def _dimensions(body: Computation, stream: Stream) -> tuple[int, ...]:
    shape = body[stream.operand].shape
    return shape.dimensions if isinstance(shape, ArrayShape) else ()


def _is_whole(body: Computation, stream: Stream) -> bool:
    """Return whether all of an array is read, and not a trip's part of it."""
    shape = body[stream.operand].shape
    return isinstance(shape, ArrayShape) and stream.total_bytes >= physical_bytes(shape)


def _times(stream: Stream, trips: int, chip: Chip, *, larger: int = 1) -> Stream:
    """Return a stream of what all trips move; what has no room in VMEM then lies in HBM."""
    fits = stream.total_bytes * trips <= chip.vmem.capacity_bytes - chip.vmem.kernel_bytes
    return structs.replace(
        stream,
        block_bytes=stream.block_bytes * larger,
        space=HBM if stream.space == VMEM and not fits else stream.space,
    )


def _at_once(steps: Steps, loop: Loop, batch: Steps) -> Steps:
    """Return steps with a loop's trips at once instead of it."""
    return tuple(new for step in steps for new in (batch if step is loop else (step,)))
