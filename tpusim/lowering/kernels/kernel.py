"""Kernels: fusions, and every other instruction that the compiler turns into code of its own on the core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf, prod
from operator import itemgetter
from typing import Any

import msgspec
from msgspec import structs

from tpusim.cost.models.memories import needs_places
from tpusim.cost.models.operations import operations_of
from tpusim.cost.peaks import typed
from tpusim.cost.tile import alone_ps, loop_cycles
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import HBM, LOAD, SCALAR, SMEM, STORE
from tpusim.ir.attributes import BackendConfig, WindowConfig
from tpusim.ir.module import Instruction
from tpusim.ir.ops import ELEMENTWISE, MOVES_ONLY, PRODUCTS
from tpusim.lowering.kernels.inner_loop import inner_loop
from tpusim.lowering.kernels.products import conversion_work, product_work
from tpusim.lowering.kernels.ragged import Grouped, grouped, grouped_nest, masking, shared_sides, without_skipped
from tpusim.lowering.kernels.roles import Moved, Roles, cut_kinds, moved_once, roles_of
from tpusim.lowering.kernels.stages import stages_of
from tpusim.lowering.kernels.tiles import (
    LHS,
    OUT,
    RHS,
    TAPS,
    Loop,
    Nest,
    StatedTiling,
    block_tiles,
    cut_alike,
    is_streamed,
    own_nests,
    run_bytes,
    run_pitch_bytes,
    streaming_tiles,
    tile_room_bytes,
)
from tpusim.lowering.kernels.values import ValueCost, value_costs
from tpusim.lowering.kernels.vector import estimated_type, stored_registers
from tpusim.lowering.scope import Scope, rule
from tpusim.program.steps import SCALAR_BYTES, Family, Kernel, TileLoop
from tpusim.program.work import Stream, TileClass, TilePart, VectorLoop, Work, sum_work
from tpusim.semantics.demand.inlining import Body, Inner, made_from
from tpusim.semantics.demand.needs import accesses, demand_of, needed_shares
from tpusim.semantics.memory_spaces import space_of
from tpusim.semantics.products import (
    BATCH,
    COLUMNS,
    DEPTH,
    ROWS,
    WINDOW,
    Product,
    canonical_product,
    flops_by_operands,
    lettered,
    product_sides,
    result_kinds,
)
from tpusim.shapes.address import padded_element_count, physical_bytes
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape, leaves
from tpusim.units import seconds_to_ps


class Plan(msgspec.Struct, frozen=True):
    """What is known of a kernel before its tiles are: ``roles`` say what it moves for which side of its product.

    ``shares`` say how much of each value is needed, ``costs`` by position what those take of which anything is.
    """

    scope: Scope
    instruction: Instruction
    body: Body
    roles: Roles
    products: list[tuple[int, Product]]
    shares: list[float]
    costs: dict[int, ValueCost]

    @property
    def touched(self) -> list[Moved]:
        """What it reads and writes: operands once for each role."""
        return self.roles.moved


def make_kernel(scope: Scope, instruction: Instruction, category: str, extra: Work | None = None) -> Kernel:
    """Return the kernel of one scheduled instruction; ``extra`` is work that the rules do not see."""
    plan, window = plan_of(scope, instruction), instruction.backend_config.window_config
    body, products = plan.body, plan.products
    nest: Nest | None = None
    if groups := _grouped(plan):
        nest = grouped_nest(groups, scope.chip)
        masks = masking(groups, nest, scope.chip)
        extra = extra + masks if extra else masks
    elif products:
        nest = _stated_nest(plan) or _own_nest(plan, extra)
    product_flops = sum(product.flops for _, product in products)
    cut = tiled(plan, nest, extra)
    made = structs.replace(
        cut,
        **scope.label(instruction, category),
        loops=tuple(TileLoop(loop.role, loop.trips) for loop in nest.loops if loop.trips > 1) if nest else (),
        flops=product_flops + sum([cost.flops * plan.shares[at] for at, cost in plan.costs.items()]),
        product_flops=product_flops,
        **_types(plan, cut.work),
        compiler_cycles=window.estimated_cycles if window else 0,
        scoped_vmem_bytes=instruction.backend_config.scoped_vmem_bytes,
        family=_family(body, [product for _, product in products]),
    )
    ran = without_skipped(made, nest) if nest and nest.shared else made
    if ran is not made:
        taken = f"{ran.tiles} of {made.tiles} taken, as if every group ended within one"
        scope.notes.estimated(instruction, f"which tiles have rows of their group depends on values: {taken}")
    return operations_of(scope.chip).kernel(instruction, ran, scope.chip)


def plan_of(scope: Scope, instruction: Instruction) -> Plan:
    """Return what is known of the kernel of a scheduled instruction whatever its tiles are."""
    body = scope.body_of(instruction)
    demand = demand_of(body)
    found = enumerate(body.values) if body.opcodes & PRODUCTS else ()
    products = [(at, _product(item)) for at, item in found if item.instruction.opcode in PRODUCTS]
    # A fusion is tiled around one product; any other one in it has to live with the same loops.
    products = _main_first(scope, body, products, instruction.backend_config)
    roles = roles_of(body, demand, accesses(body, demand, instruction), products)
    shares = needed_shares(body, demand)
    costs = value_costs(scope, body.values, shares)
    return Plan(scope, instruction, body, roles, products, shares, costs)


def tiled(plan: Plan, nest: Nest | None, extra: Work | None = None) -> Kernel:
    """Return what takes time of a kernel around a product that ``nest`` cuts, or around none."""
    scope, body, touched, products = plan.scope, plan.body, plan.touched, plan.products
    window = plan.instruction.backend_config.window_config
    tiles = nest.tiles if nest else vector_tiles(plan)
    computes = not body.opcodes <= MOVES_ONLY
    other = _other_costs(plan, nest)
    loop = inner_loop(body, other, plan.shares, scope.chip)
    fed = _fed(body, products[1:])
    stages = []
    works = _product_works(plan, nest) | {at: cost.work for at, cost in other.items()}
    for part, accesses_of in _by_stage(plan, works):
        conversion = conversion_work(accesses_of, nest, scope.chip, computes=computes)
        stages.append(sum_work((part, conversion, _register_traffic(scope, accesses_of, fed))) * (1 / tiles))
    work = stages[0] if len(stages) == 1 else sum_work(stages)
    work = work + extra * (1 / tiles) if extra else work
    made = Kernel(
        name=plan.instruction.name,
        opcode=plan.instruction.opcode,
        tiles=tiles,
        work=work,
        stages=tuple(stages) if len(stages) > 1 else (),
        vector_loop=structs.replace(loop, turns=loop.turns / tiles),
        streams=tuple(_streams(scope.chip, touched, nest or _plain_nest(body, tiles, window))),
        cores=_cores(plan, tiles),
    )
    steps_cycles = sum(cost.steps_cycles for cost in other.values())
    return _in_turn(made, steps_cycles) if steps_cycles else made


def _in_turn(kernel: Kernel, steps_cycles: float) -> Kernel:
    """Return a kernel whose work is of steps that wait for each other, for so many cycles in all."""
    part = TilePart(kernel.stages or (kernel.work,), steps_cycles / kernel.tiles)
    moves = tuple((stream.fetches - 1) / kernel.tiles for stream in kernel.streams)
    alike = TileClass(kernel.tiles, (1.0,), moves)
    return structs.replace(kernel, stages=(), vector_loop=VectorLoop(), parts=(part,), classes=(alike,))


def _cores(plan: Plan, tiles: int) -> int:
    """Return on how many cores a kernel runs."""
    # One tile cannot be split.
    return _sharing_cores(plan.scope, plan.instruction) if tiles > 1 else 1


def _sharing_cores(scope: Scope, instruction: Instruction) -> int:
    """Return how many cores share the tiles of a kernel, if it has several: one more only where its loops are split."""
    return scope.chip.cores_per_device if instruction.backend_config.megacore_split_dim is not None else 1


def _types(plan: Plan, work: Work) -> dict[str, Any]:
    """Return the fields of a kernel that say against which peaks it is measured."""
    if not plan.products:
        return {"flops_type": _other_type(plan.body, plan.scope.chip)}
    flops = flops_by_operands(product for _, product in plan.products)
    # What the vector unit multiplies is measured with what the arrays do beside it.
    on_arrays = {matmul.operand_type for matmul in work.matmuls}
    there = {name: count for name, count in flops.items() if name in on_arrays}
    return typed(there or flops, plan.scope.chip)


def _other_type(body: Body, chip: Chip) -> str:
    """Return the type against whose rate a kernel without products is measured."""
    if "custom-call" not in body.opcodes:
        return "f32"
    calls = (item for item in body.values if item.instruction.opcode == "custom-call")
    call = next((item for item in calls if item.instruction.backend_config.cost_estimate), None)
    # Vector work is measured against f32.
    return estimated_type(call.computation, call.instruction, chip) if call else "f32"


def _family(body: Body, products: list[Product]) -> Family:
    if "custom-call" in body.opcodes:
        return "custom call"
    if products:
        return "convolution" if any(WINDOW in product.kinds for product in products) else "product"
    return "copy" if body.opcodes <= MOVES_ONLY else "vector"


def is_scalar(scope: Scope, instruction: Instruction) -> bool:
    """Return whether an instruction only touches single elements, which the scalar core handles."""
    # Nearly always the result tells.
    if not _is_single(instruction):
        return False
    # Scalars live in SMEM: a vector kernel, with its fixed cost, would be far too dear for them.
    operands = scope.computation.operands_of(instruction)
    # A fusion may make a large array between its scalar operands and its scalar result.
    inside = [item.instruction for item in scope.body_of(instruction).values]
    return all(map(_is_single, (*operands, *inside)))


def _is_single(value: Instruction) -> bool:
    # A tile may be written that is larger than any memory.
    return all(leaf.element_count <= 1 and physical_bytes(leaf) <= SCALAR_BYTES for leaf in leaves(value.shape))


def scalar_kernel(scope: Scope, instruction: Instruction) -> Kernel:
    """Return the step of an instruction on the scalar core."""
    # Even a scalar that is only copied takes an instruction: hence at least one.
    ops = sum(item.instruction.opcode not in MOVES_ONLY for item in scope.body_of(instruction).values)
    work = Work(ops={SCALAR: float(max(1, ops))})
    return Kernel(
        **scope.label(instruction, "scalar"), work=work, streams=_scalar_streams(scope, instruction), scalar=True
    )


def _scalar_streams(scope: Scope, instruction: Instruction) -> tuple[Stream, ...]:
    """Return what a copy of a scalar from one memory to another fetches or writes."""
    # What is computed with lies in SMEM; a copy is there to bring it, for kernels that would fetch it each for itself.
    if instruction.opcode != "copy":
        return ()
    source, target = scope.operand(instruction, 0), instruction
    if space_of(source.shape) == space_of(target.shape):
        return ()
    return tuple(
        Stream(item.name, space_of(item.shape), float(physical_bytes(item.shape)), is_output=item is target)
        for item in (source, target)
        if space_of(item.shape) != SMEM
    )


def _product(item: Inner) -> Product:
    shapes = [leaves(operand.shape)[0] for operand in item.computation.operands_of(item.instruction)]
    return canonical_product(item.instruction, shapes)


def _other_costs(plan: Plan, nest: Nest | None) -> dict[int, ValueCost]:
    """Return what all in a kernel but its products takes, by position: what is needed, as often as it is made."""
    # Values inside a fusion stay in registers: only what crosses its edge is loaded and stored.
    uses = {side: max(1.0, nest.fetches(side) * nest.block_share[side]) for side in (LHS, RHS)} if nest else {}
    found, shares, sides = dict(plan.costs), plan.shares, plan.roles.sides
    # Of most values all is needed once.
    for at in [at for at in found if at in sides or shares[at] != 1]:
        # What is made for an operand of the product stays as long as its tile does, and is then made anew.
        times = shares[at] * (_times_made(plan.roles, at, uses, nest) if nest and at in sides else 1.0)
        if times != 1:
            found[at] = found[at].times(times, plan.body.values[at].instruction.opcode, plan.scope.chip)
    return found


def _times_made(roles: Roles, at: int, uses: dict[str, float], nest: Nest) -> float:
    """Return how often a value is made that either side of the product, or both of them, are made of."""
    each = [uses[side] for side in roles.sides[at]]
    is_one = at in roles.apart and cut_kinds(nest).isdisjoint(roles.apart[at])
    return max(each) if is_one else sum(each)


def _by_stage(plan: Plan, works: dict[int, Work]) -> list[tuple[Work, list[Moved]]]:
    """Return the work of a kernel, given by position of its values, and what it touches, stage by stage."""
    stages = stages_of(plan.body, [at for at, _ in plan.products]) if plan.products else []
    count = max(stages, default=0) + 1
    if count == 1:
        return [(sum_work(works.values()), plan.touched)]
    first = dict.fromkeys((access.name for access in plan.touched), count - 1)
    for item, stage in zip(plan.body.values, stages, strict=True):
        for name in [plan.body.operands[-1 - o].name for o in item.operands if o < 0]:
            first[name] = min(first.get(name, stage), stage)
    each: list[tuple[list[Work], list[Moved]]] = [([], []) for _ in range(count)]
    for at, work in works.items():
        each[stages[at]][0].append(work)
    # An operand comes into registers for its first use; results leave at the end.
    for access in plan.touched:
        each[count - 1 if access.is_output else first[access.name]][1].append(access)
    return [(sum_work(done), touched) for done, touched in each]


def _product_works(plan: Plan, nest: Nest | None) -> dict[int, Work]:
    """Return the work of a kernel's products, by position."""
    found = {}
    for number, (at, size) in enumerate(plan.products):
        parts = leaves(plan.body.values[at].instruction.shape)
        elements = sum(leaf.element_count for leaf in parts)
        padding = sum(padded_element_count(leaf) for leaf in parts) / max(1, elements)
        # The stated tile is the main product's, as the emitter; of any other each tile does its share.
        emitter = plan.instruction.backend_config.convolution_emitter
        tiling, way = (nest, emitter) if nest and not number else (Nest((), {}), "")
        groups = _grouped(plan) if tiling.shared else None
        size, elements = (groups.product, groups.results) if groups else (size, elements)
        found[at] = product_work(size, elements, tiling, plan.scope.chip, padding=padding, emitter=way)
    return found


def _register_traffic(scope: Scope, touched: list[Moved], fed: set[str]) -> Work:
    """Return the loads of operands and the stores of results; what is ``fed`` to products their own rule loads.

    So it does the sides of the main one.
    """
    loads = stores = 0.0
    for access in touched:
        if access.is_output:
            stores += stored_registers(access.n_bytes, scope.chip)
        elif access.side == OUT and access.name not in fed:
            loads += stored_registers(access.n_bytes, scope.chip)
    return Work(ops={LOAD: loads, STORE: stores})


def vector_tiles(plan: Plan) -> int:
    """Return the tiles of a kernel without a product: the compiler's if it says, else our own."""
    window, scope = plan.instruction.backend_config.window_config, plan.scope
    if window and window.iteration_bounds:
        return prod(max(1, bound) for bound in window.iteration_bounds)
    if window and window.output_window_bounds:
        return block_tiles(gone_through(plan.body), window.output_window_bounds, scope.chip.vpu.register_shape)
    tiles = streaming_tiles(sum(a.n_bytes for a in plan.touched if is_streamed(a.space)), scope.chip)
    # Cores that share a kernel have a tile each at least.
    return max(tiles, _sharing_cores(scope, plan.instruction))


def gone_through(body: Body) -> ArrayShape:
    """Return the array that a kernel without a product goes through: what a reduction takes in, or its first result."""
    item = body.values[-1]
    if item.instruction.opcode == "tuple":
        item = next((body.values[at] for at in item.operands[:1] if at >= 0), item)
    name = item.instruction.operands[0] if item.instruction.opcode == "reduce" else item.instruction.name
    # A call for its effects gives nothing.
    return next(iter(leaves(item.computation[name].shape)), ArrayShape(DTYPES["u8"]))


def _main_first(
    scope: Scope, body: Body, products: list[tuple[int, Product]], config: BackendConfig
) -> list[tuple[int, Product]]:
    """Return the products of a kernel with the one first that the compiler's bounds are about."""
    if len(products) < 2:
        return products
    if config.window_config is None:
        # Another one feeds it, tile by tile.
        return products[::-1] if _feed(body, products[-1][0], products[:-1]) else products
    tilings = [_stated_tiling(scope, body.values[at], size, config) for at, size in products]
    misfits = [tiling.misfit if tiling else inf for tiling in tilings]
    # The last of those that fit equally: what comes after feeds on it, so that it is computed tile by tile.
    order = sorted(range(len(products)), key=lambda number: (misfits[number], -number))
    return [products[number] for number in order]


def _stated_tiling(scope: Scope, item: Inner, size: Product, config: BackendConfig) -> StatedTiling | None:
    """Return a dot or a convolution with the compiler's bounds; they say nothing about other products."""
    left, right = product_sides(item.instruction)
    names = {LHS: left, RHS: right, OUT: item.instruction.name}
    shapes = {side: leaves(item.computation[name].shape)[0] for side, name in names.items()}
    letters = lettered(item.instruction, shapes[LHS], shapes[RHS], size.kinds)
    if letters is None:
        return None
    window, block = config.window_config or WindowConfig(), scope.chip.vpu.register_shape
    shared = shared_sides(config.loops_of_groups)
    return StatedTiling(window, shapes, item.instruction, *letters, block, size.groups, shared)


def stated_tiling(plan: Plan) -> StatedTiling | None:
    """Return the product that a kernel is made around, with the bounds that are stated for it, if any can be."""
    at, size = plan.products[0]
    return _stated_tiling(plan.scope, plan.body.values[at], size, plan.instruction.backend_config)


def _grouped(plan: Plan) -> Grouped | None:
    """Return the product that a kernel is made around as one of rows in groups, if it is one."""
    if not plan.products:
        return None
    at, size = plan.products[0]
    item = plan.body.values[at]
    lhs, rhs = (leaves(item.computation[name].shape)[0] for name in product_sides(item.instruction))
    return grouped(item.instruction, lhs, rhs, size)


def is_fed(plan: Plan) -> bool:
    """Return whether the product that a kernel is made around is made of all others in it."""
    (main, _), *others = plan.products
    return _feed(plan.body, main, others)


def _feed(body: Body, main: int, others: Iterable[tuple[int, Product]]) -> bool:
    """Return whether the product at a position is made of all others."""
    return made_from([item.operands for item in body.values], (main,)).issuperset(at for at, _ in others)


def _stated_nest(plan: Plan) -> Nest | None:
    """Return the loop nest that the compiler states for a kernel around a product, if it fits that."""
    scope, config = plan.scope, plan.instruction.backend_config
    stated, split = stated_tiling(plan) if config.window_config else None, config.megacore_split_dim
    if not stated or not stated.fits:
        return None
    nest = stated.nest()
    is_split = split is not None and 0 <= split < len(nest.loops)
    return structs.replace(nest, split=split, cores=scope.chip.cores_per_device) if is_split else nest


def _own_nest(plan: Plan, extra: Work | None) -> Nest:
    """Return the loop nest of our own with which a kernel around a product takes least, by itself.

    The least of what all cuts take, and no rule that only stands for it: on a better machine none takes longer, so that
    the least does not.
    """
    chip = plan.scope.chip
    best, least_ps = None, 0
    for bound, nest in own_candidates(plan):
        if best and seconds_to_ps(bound) >= least_ps:
            break
        if not best or alone_ps(bare(plan, nest), chip) < least_ps:
            taken_ps = alone_ps(tiled(plan, nest, extra), chip)
            best, least_ps = (nest, taken_ps) if not best or taken_ps < least_ps else (best, least_ps)
    assert best is not None
    return best


def own_candidates(plan: Plan) -> list[tuple[float, Nest]]:
    """Return the nests to choose from, each with the least seconds that its blocks take to move, these first."""
    chip, limits, apart = plan.scope.chip, _cut_limits(plan), [a for a in plan.touched if not a.held]
    nests = own_nests(_side_bytes(apart), chip, limits)
    if len(apart) < len(plan.touched):
        # Of those in which what may be one block is one; where none fits, each has room of its own.
        fitting = tuple(nest for nest in nests if block_room_bytes(plan, nest) <= tile_room_bytes(chip))
        nests = fitting or own_nests(_side_bytes(plan.touched), chip, limits)
    return sorted(((bound_seconds(plan, nest), nest) for nest in nests), key=itemgetter(0))


def block_room_bytes(plan: Plan, nest: Nest) -> float:
    """Return what one block takes of all that a kernel around a product moves."""
    n_bytes = _side_bytes(moved_once(plan.touched, nest))
    return sum(n_bytes[side] * nest.block_share[side] for side in n_bytes)


def _side_bytes(moved: Iterable[Moved]) -> dict[str, float]:
    """Return what a kernel around a product moves of, and along with, either side and the result."""
    n_bytes = dict.fromkeys((LHS, RHS, OUT), 0.0)
    for access in moved:
        # What feeds neither side is for the epilogue (a bias, a residual) and moves along with the result.
        n_bytes[access.side] += access.n_bytes
    return n_bytes


def _cut_limits(plan: Plan) -> dict[str, int]:
    """Return into how many pieces, of a register or an array at least, each kind of dimension can be cut."""
    size, vpu = plan.products[0][1], plan.scope.chip.vpu
    rows, columns = -(-size.rows // vpu.sublanes), -(-size.columns // vpu.lanes)
    limits = {BATCH: size.batch * size.groups, ROWS: rows, COLUMNS: columns, DEPTH: -(-size.depth // vpu.lanes)}
    limits[TAPS] = round(size.reach)
    return limits | dict.fromkeys(_whole_rows(plan) | _fed_whole(plan), 1)


def _fed_whole(plan: Plan) -> set[str]:
    """Return the kinds of dimension along which a product is not cut, so that what feeds it is computed once."""
    (main, _), *others = plan.products
    made_of, feeders = [item.operands for item in plan.body.values], {at for at, _ in others}
    kinds = (COLUMNS, ROWS)
    sides = zip(made_of[main], kinds, strict=False)
    return {kind for operand, kind in sides if not feeders.isdisjoint(made_from(made_of, (operand,)))}


def _whole_rows(plan: Plan) -> set[str]:
    """Return the kinds of dimension that windows behind a product reach over, so that a tile has all of it."""
    item = plan.body.values[plan.products[0][0]]
    kinds = result_kinds(item.instruction, leaves(item.computation[product_sides(item.instruction)[0]].shape)[0])
    found = set()
    for inner in plan.body.values:
        if inner.instruction.opcode == "reduce-window" and len(leaves(inner.instruction.shape)[0].dimensions) == len(
            kinds
        ):
            window = inner.instruction.attributes["window"].dimensions
            found |= {kind for kind, dimension in zip(kinds, window, strict=True) if dimension.size > 1}
    return found - {BATCH}


def bound_seconds(plan: Plan, nest: Nest) -> float:
    """Return what a kernel takes at least for the blocks that it moves."""
    chip, fetches, moved_bytes = plan.scope.chip, [], 0.0
    for access in moved_once(plan.touched, nest):
        if access.space == HBM:
            fetches.append(nest.fetches(access.side))
            moved_bytes += access.n_bytes * nest.block_share[access.side] * fetches[-1]
    cycles = loop_cycles(nest.tiles, fetches, _cores(plan, nest.tiles), chip)
    return moved_bytes / chip.hbm.bandwidth_bytes_per_second + cycles / chip.clock_hz


def bare(plan: Plan, nest: Nest) -> Kernel:
    """Return a kernel without what the vector unit does in it, which takes no longer than the whole one."""
    return Kernel(
        name=plan.instruction.name,
        opcode=plan.instruction.opcode,
        tiles=nest.tiles,
        work=sum_work(_product_works(plan, nest).values()) * (1 / nest.tiles),
        streams=tuple(_streams(plan.scope.chip, plan.touched, nest)),
        cores=_cores(plan, nest.tiles),
    )


def _plain_nest(body: Body, tiles: int, window: WindowConfig | None) -> Nest:
    """Return the nest of a kernel without a product: every tile moves its share of everything."""
    arrays, bounds = (LHS, RHS, OUT), window.output_window_bounds if window else ()
    nest = Nest((Loop(tiles, BATCH),), dict.fromkeys(arrays, 1 / tiles), dict.fromkeys(arrays, bounds))
    tiled = gone_through(body)
    return structs.replace(nest, tiled=tiled) if len(bounds) == tiled.rank else nest


def _streams(chip: Chip, touched: list[Moved], nest: Nest) -> Iterator[Stream]:
    moves = {side: nest.fetches(side) for side in {access.side for access in touched}}
    register, is_placed = chip.vpu.register_shape, needs_places(chip)
    for access in moved_once(touched, nest):
        side = access.side
        cut, overlap = nest.bounds.get(side, ()), 1.0
        if nest.tiled and cut and access.shape.dimensions == nest.tiled.dimensions:
            cut, overlap = cut_alike(nest.tiled, cut, access.shape, register)
        # Only an array of as many dimensions is cut as the bounds say; rows of a gather are runs of their own.
        chunk, own = run_bytes(access.shape, cut, register) if len(cut) == access.shape.rank else 0, access.chunk_bytes
        chunk = min(chunk, own) if chunk and own else chunk or own
        groups = nest.trips(BATCH) if side in nest.shared else 1
        block, fetches = access.n_bytes * overlap * nest.block_share[side] * groups, moves[side]
        stride = _stride_bytes(access, cut, chunk, chip) if chunk and is_placed else 0
        yield Stream(access.name, access.space, block, fetches, access.is_output, chunk, stride)


def _stride_bytes(access: Moved, cut: tuple[int, ...], chunk: int, chip: Chip) -> int:
    """Return how far apart runs begin: by the pitch of the dimension that the block cuts, rows of a gather evenly."""
    if chunk == access.chunk_bytes:
        return round(physical_bytes(access.shape) / max(1.0, access.n_bytes / chunk) / chunk) * chunk
    return run_pitch_bytes(access.shape, cut, chip.vpu.register_shape)


def _fed(body: Body, products: list[tuple[int, Product]]) -> set[str]:
    """Return the names of a kernel's operands that any of its products is made of."""
    starts = [operand for at, _ in products for operand in body.values[at].operands[:2]]
    return {body.operands[-1 - at].name for at in made_from([item.operands for item in body.values], starts) if at < 0}


@rule(*ELEMENTWISE, "iota", "map")
def lower_elementwise(scope: Scope, instruction: Instruction) -> tuple[Kernel, ...]:
    """Lower an element-wise instruction that stands alone."""
    return (kernel_or_scalar(scope, instruction, "non-fusion elementwise"),)


@rule("broadcast", "copy", "transpose", "reshape", "dynamic-reshape", "slice", "pad", "concatenate", "reverse")
@rule("dynamic-slice", "dynamic-update-slice")
def lower_data_formatting(scope: Scope, instruction: Instruction) -> tuple[Kernel, ...]:
    """Lower an instruction that moves data and computes nothing."""
    return (kernel_or_scalar(scope, instruction, "data formatting"),)


@rule("reduce", "reduce-window", "select-and-scatter", "gather", "scatter", "sort", "topk", "scan", "fft")
@rule("cholesky", "triangular-solve", "rng", "rng-bit-generator", "rng-get-and-update-state")
@rule("batch-norm-training", "batch-norm-inference", "batch-norm-grad")
@rule("convolution", "dot", "ragged-dot", "scaled-dot")
def lower_single(scope: Scope, instruction: Instruction) -> tuple[Kernel, ...]:
    """Lower an instruction that is a kernel by itself."""
    return (kernel_or_scalar(scope, instruction, instruction.opcode),)


def kernel_or_scalar(scope: Scope, instruction: Instruction, category: str) -> Kernel:
    """Return the kernel of an instruction, which the scalar core runs if it only touches single elements."""
    if is_scalar(scope, instruction):
        return scalar_kernel(scope, instruction)
    return make_kernel(scope, instruction, category)
