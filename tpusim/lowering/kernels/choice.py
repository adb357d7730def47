"""Which tiles a kernel could have, what each of them takes, and how a text states the best.

Stated are blocks of whole registers, as a TPU compiler states them: what is cut finer than that is rounded up, and what
then needs more than VMEM has for it is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from sys import maxsize
from typing import Any

from msgspec import structs

from tpusim.cost.tile import alone_ps
from tpusim.hardware.chip import Chip
from tpusim.ir.attributes import Raw, WindowConfig
from tpusim.ir.frames import SourceFrames
from tpusim.ir.module import Instruction, Module, with_window
from tpusim.lowering.collectives import inner_collective
from tpusim.lowering.kernels.kernel import (
    Plan,
    bare,
    block_room_bytes,
    bound_seconds,
    gone_through,
    is_fed,
    is_scalar,
    own_candidates,
    plan_of,
    stated_tiling,
    tiled,
    vector_tiles,
)
from tpusim.lowering.kernels.known import Known
from tpusim.lowering.kernels.tiles import LHS, OUT, RHS, Nest, StatedTiling, blocks, tile_room_bytes
from tpusim.lowering.scope import Notes, Scope
from tpusim.program.compilation import TriedTiles, split_at
from tpusim.program.steps import TileLoop
from tpusim.semantics.contexts import EntryContext
from tpusim.semantics.products import BATCH, COLUMNS, ROWS, WINDOW
from tpusim.units import seconds_to_ps


def chosen_tiles(module: Module, chip: Chip, names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return what ``backend_config`` should say of the tiles of some instructions, given with their computations.

    Of those that are left out lowering chooses whenever it comes to them.
    """
    # Networks repeat their layers: kernels that are alike are searched once.
    known: dict[object, list[TriedTiles]] = {}
    scope, found = _scope(module, chip), dict[str, dict[str, Any]]()
    for name, computation in names.items():
        inside = scope.inside(computation)
        key = _likeness(inside, inside.computation[name])
        if key not in known:
            known[key] = _tried_tiles(inside, inside.computation[name], wanted=1)
        found |= {name: known[key][0].fields} if known[key] else {}
    return found


def tried_tiles(module: Module, chip: Chip, computation: str, name: str, *, wanted: int) -> list[TriedTiles]:
    """Return the ways to cut a kernel that can be stated, the fastest first; the first ``wanted`` are the best of all.

    None for what is no kernel of its own, for kernels with a product in groups, and for those with several products
    of which one is not fed by all others.
    """
    inside = _scope(module, chip).inside(computation)
    return _tried_tiles(inside, inside.computation[name], wanted)


def _scope(module: Module, chip: Chip) -> Scope:
    return Scope(EntryContext(module), chip, Notes(), 1, SourceFrames(module), Known(module.likeness))


def _likeness(scope: Scope, instruction: Instruction) -> object:
    """Return all of a kernel that its tiles may depend on: two of which it is the same may have the same."""
    body = scope.body_of(instruction)
    first = {operand.name: number for number, operand in reversed(list(enumerate(body.operands)))}
    stated = instruction.backend_config
    return (
        stated.convolution_emitter,
        str(stated.fields.get("aliasing_operands")),
        instruction.shape,
        body.root,
        tuple((first[operand.name], operand.shape) for operand in body.operands),
        tuple((inner.operands, inner.in_place, _content(scope, inner.instruction)) for inner in body.values),
    )


def _content(scope: Scope, instruction: Instruction) -> tuple[object, ...]:
    applied = tuple(tuple(i.opcode for i in scope.module[name]) for name in instruction.called_computations)
    named = tuple((key, str(value)) for key, value in instruction.attributes.items() if key not in _NO_CONTENT)
    return instruction.opcode, instruction.shape, str(instruction.immediate), named, applied


_NO_CONTENT = frozenset({"metadata", "backend_config", "frontend_attributes", "calls", "to_apply", "sharding"})
"""Attributes that say nothing of what a kernel computes, or only name what does."""


def _tried_tiles(scope: Scope, instruction: Instruction, wanted: int) -> list[TriedTiles]:
    if is_scalar(scope, instruction) or (instruction.opcode == "fusion" and _has_collective(scope, instruction)):
        return []
    plan = plan_of(scope, instruction)
    if not plan.products:
        return sorted(_through_array(plan), key=lambda each: each.alone_ps)
    tiling = stated_tiling(plan) if len(plan.products) == 1 or is_fed(plan) else None
    return _around_product(plan, tiling, wanted) if tiling and plan.products[0][1].groups == 1 else []


def _has_collective(scope: Scope, instruction: Instruction) -> bool:
    return inner_collective(scope, scope.module[instruction.attributes["calls"]].name) is not None


def _around_product(plan: Plan, tiling: StatedTiling, wanted: int) -> list[TriedTiles]:
    room_bytes, orders = tile_room_bytes(plan.scope.chip), _ORDERS[WINDOW in tiling.kinds]
    seen, found = set[WindowConfig](), list[TriedTiles]()
    for least_seconds, own in own_candidates(plan):
        # What takes longer than the last of those that are wanted need not be known exactly.
        limit_ps = found[wanted - 1].alone_ps if len(found) >= wanted else maxsize
        if seconds_to_ps(least_seconds) >= limit_ps:
            break
        for stating in (tiling.stating(own, windows_last=last) for last in orders):
            nest = stating.nest() if stating.fits and stating.config not in seen else None
            seen.add(stating.config)
            if nest and block_room_bytes(plan, nest) <= room_bytes:
                shared = (each for each in _splits(plan, nest) if _least_ps(*each, limit_ps) < limit_ps)
                tried = min((_tried(*each) for each in shared), key=lambda each: each.alone_ps, default=None)
                found = sorted([*found, tried], key=lambda each: each.alone_ps) if tried else found
    return found


def _least_ps(plan: Plan, nest: Nest, limit_ps: int) -> int:
    """Return what a kernel takes at least: for what it moves and, if that is below a limit, for its product too."""
    least_ps = seconds_to_ps(bound_seconds(plan, nest))
    return least_ps if least_ps >= limit_ps else alone_ps(bare(plan, nest), plan.scope.chip)


_ORDERS = {True: (False, True), False: (False,)}
"""In which orders the dimensions of a product are cut, with windows and without."""


def _splits(plan: Plan, nest: Nest) -> Iterator[tuple[Plan, Nest]]:
    """Yield a nest with each loop shared out among cores that can be, or as it is where there is one core or tile."""
    cores = plan.scope.chip.cores_per_device
    loops = [at for at, loop in enumerate(nest.loops) if loop.trips > 1 and loop.role in (BATCH, ROWS, COLUMNS)]
    if cores == 1 or not loops:
        yield _on_cores(plan, {}), nest
        return
    for at in loops:
        yield _on_cores(plan, split_at(at)), structs.replace(nest, split=at, cores=cores)


def _on_cores(plan: Plan, split: dict[str, Any]) -> Plan:
    """Return a kernel that cores share as is said, or that one of them runs."""
    stated = plan.instruction.backend_config.fields
    if not split and stated.keys().isdisjoint(split_at(0)):
        return plan
    fields = {key: value for key, value in stated.items() if key not in split_at(0)}
    named = plan.instruction.attributes | {"backend_config": Raw(json.dumps(fields | split))}
    return structs.replace(plan, instruction=structs.replace(plan.instruction, attributes=named))


def _tried(plan: Plan, nest: Nest) -> TriedTiles:
    keys = {OUT: "output_window_bounds", RHS: "kernel_window_bounds", LHS: "input_window_bounds"}
    return TriedTiles(
        tiles=nest.tiles,
        loops=tuple(TileLoop(loop.role, loop.trips) for loop in nest.loops if loop.trips > 1),
        stated={key: nest.bounds[side] for side, key in keys.items()},
        alone_ps=alone_ps(tiled(plan, nest), plan.scope.chip),
        split=nest.split,
    )


def _through_array(plan: Plan) -> Iterator[TriedTiles]:
    """Yield cuts of a kernel without a product into about as many tiles as its bytes want, a few more and fewer."""
    array, chip = gone_through(plan.body), plan.scope.chip
    if plan.body.values[-1].in_place or not array.rank or not array.element_count:
        return
    wanted, sizes = vector_tiles(plan), blocks(array, chip.vpu.register_shape)
    counts = (max(ceil(wanted * 2.0**doublings), chip.cores_per_device) for doublings in (-2, -1, 0, 1, 2))
    # What lies in another order where it comes from is cut there into longer runs from the other end.
    ways = (cut for count in counts for cut in (_cut(sizes, count), _cut(sizes[::-1], count)[::-1]))
    for bounds in dict.fromkeys(ways):
        trips = tuple(ceil(size / bound) for size, bound in zip(sizes, bounds, strict=True))
        stated = {"output_window_bounds": bounds, "iteration_bounds": trips}
        shared = next((at for at, count in enumerate(trips) if count > 1), -1) if chip.cores_per_device > 1 else -1
        own = structs.replace(plan, instruction=with_window(plan.instruction, stated))
        kernel = tiled(_on_cores(own, {} if shared < 0 else split_at(shared)), None)
        if kernel.vmem_bytes <= chip.vmem.kernel_bytes:
            time = alone_ps(kernel, chip)
            yield TriedTiles(tiles=kernel.tiles, loops=(), stated=stated, alone_ps=time, split=shared)


def _cut(sizes: Sequence[int], tiles: int) -> tuple[int, ...]:
    """Return the bounds that cut sizes in blocks into so many tiles or a few more, the major ones first."""
    bounds = []
    for size in sizes:
        bounds.append(max(1, size // tiles))
        tiles = ceil(tiles / ceil(size / bounds[-1]))
    return tuple(bounds)
