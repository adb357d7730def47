"""Collectives: what each device of a group puts in and gets out; and fusions that hold one.

A collective that shall run beside the core is fused three times, whole each time: into a start, whose root is a custom
call to ``AsyncCollectiveStart``, into the kernels under which it goes on, which hand its buffers and flags through, and
into an end, whose root is a call to ``AsyncCollectiveDone``. All of them are one collective, with one channel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tpusim.hardware.units import HBM
from tpusim.ir.custom_calls import ASYNC_DONE, ASYNC_START
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import CALLS, COLLECTIVES, VIEWS, collective_kind
from tpusim.limits import DEVICES
from tpusim.lowering.scope import Scope, rule
from tpusim.nesting import depth_first
from tpusim.program.steps import Algorithm, AnyStep, Collective, Wait
from tpusim.semantics.aliasing import behind_views
from tpusim.semantics.contexts import Context
from tpusim.semantics.device_groups import device_groups, device_pairs
from tpusim.semantics.marks import BY_SLICE
from tpusim.semantics.memory_spaces import bytes_in_hbm, space_of
from tpusim.semantics.scalars import table_of
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import Shape, TupleShape, leaves

_COLORS = re.compile(r"colors:(\d+)")
MAY_HOLD = COLLECTIVES | {f"{kind}-start" for kind in COLLECTIVES} | CALLS
"""Opcodes of collectives, and of what may have one inside."""


# Only these have a start of their own; all others come wrapped in async-start (XLA, HLO text).
@rule("all-gather-start", "all-reduce-start", "collective-permute-start")
@rule(*COLLECTIVES)
def lower_collective(scope: Scope, instruction: Instruction) -> tuple[AnyStep, ...]:
    """Lower a collective that holds the core until it is done, or the start of one that runs beside the core."""
    is_async = instruction.opcode.endswith("-start")
    return (collective_step(scope, instruction, scope.computation, instruction, is_async=is_async),)


def collective_step(
    scope: Scope,
    label_of: Instruction,
    computation: Computation,
    collective: Instruction,
    *,
    kind: str = "",
    is_async: bool = False,
) -> Collective:
    """Return the step of ``collective``, which stands in ``computation``, under the name of ``label_of``."""
    kind = kind or collective_kind(collective.opcode)
    operands = computation.operands_of(collective)
    if collective.opcode == "ragged-all-to-all":
        # It sends the first: behind it stand the buffer that it updates, and offsets and sizes.
        operands = operands[:1]
    operand_bytes = sum(physical_bytes(operand.shape) for operand in operands)
    # What a start returns holds its operands, results and flags; the results of these kinds follow from the operands.
    groups = device_groups(scope.module, collective)
    pairs = device_pairs(scope.module, collective)
    # A single pair is still a transfer between two, which a group of 1 would make free.
    group_size = max(2, len(pairs)) if pairs else max(map(len, groups))
    gathered = operand_bytes * group_size if kind == "all-gather" else operand_bytes
    elements = sum(leaf.element_count for op in operands for leaf in leaves(op.shape))
    shares = _shares(scope, computation, collective, group_size)
    # Rows that a ragged exchange does not send are not touched.
    touched = min(1.0, sum(shares)) if shares else 1.0
    return Collective(
        **scope.label(label_of, kind),
        kind=kind,
        n_bytes=float(gathered),
        hbm_bytes=touched * _hbm_bytes(operands, collective, kind, group_size),
        group_size=group_size,
        group_count=max(1, scope.module.device_count // max(1, group_size)),
        is_async=is_async,
        flops=float(elements) if "reduce" in kind else 0.0,
        channel_id=collective.attributes.get("channel_id", 0),
        groups=() if pairs else groups,
        pairs=pairs,
        algorithm=algorithm_of(collective),
        shares=shares,
    )


def _shares(scope: Scope, computation: Computation, collective: Instruction, group_size: int) -> tuple[float, ...]:
    """Return which parts of its rows a ragged all-to-all sends to each member, nothing (with a warning) if values tell.

    Its fourth operand are the rows for each member of the group (XLA, RaggedAllToAll).
    """
    if collective.opcode != "ragged-all-to-all":
        return ()
    operands = computation.operands_of(collective)
    sizes, rows = table_of(computation, operands[3]), next(iter(leaves(operands[0].shape))).dimensions
    if sizes is None or len(sizes) != group_size or not rows or not 0 <= sum(sizes) <= rows[0]:
        scope.notes.warn(
            f"how much {collective.name!r} sends to whom depends on values: even parts of all rows assumed"
        )
        return ()
    return tuple(size / rows[0] for size in sizes)


def _hbm_bytes(sent: Sequence[Instruction], collective: Instruction, kind: str, group_size: int) -> float:
    """Return what one device reads and writes in HBM: operands in, results out, where they are not in VMEM."""
    scale = {"all-gather": group_size, "reduce-scatter": 1 / group_size}.get(kind, 1)
    operands = [operand.shape for operand in sent]
    read = sum(map(bytes_in_hbm, operands))
    # Without dimensions are flags and contexts of a start, which are no payload.
    results = [leaf for leaf in leaves(collective.shape) if space_of(leaf) == HBM and leaf.rank]
    # A start returns its operands too; its results are the operands' size times the group's effect.
    written = scale * sum(physical_bytes(leaf) for shape in operands for leaf in leaves(shape)) if results else 0.0
    return read + written


def inner_collective(scope: Scope, name: str) -> tuple[Computation, Instruction] | None:
    """Return the collective that a fused or called computation holds, with the computation it stands in."""

    def called(found: tuple[Computation, Instruction]) -> dict[str, Iterator[tuple[Computation, Instruction]]]:
        # The computation that a reduction applies is called too, but holds no collective: not searched.
        names = found[1].called_computations if found[1].opcode in CALLS else ()
        return {one: _may_hold(scope.module[one]) for one in names}

    return next(
        (found for found in depth_first(_may_hold(scope.module[name]), called) if is_collective(found[1])), None
    )


def _may_hold(computation: Computation) -> Iterator[tuple[Computation, Instruction]]:
    """Yield what of a computation may be or hold a collective, with the computation."""
    # Hardly any computation has one: what its opcodes are is known before they are gone through.
    instructions = computation.instructions if computation.opcodes & MAY_HOLD else ()
    return ((computation, one) for one in instructions if one.opcode in MAY_HOLD)


def is_collective(instruction: Instruction) -> bool:
    """Return whether an instruction is a collective, or starts one."""
    return bool(collective_kind(instruction.opcode))


def algorithm_of(collective: Instruction) -> Algorithm | None:
    """Return how the compiler carries a collective out, None where it does not say.

    The names are not documented; read here: ``1D`` and plain ``Ring`` strategies go round one ring, ``ND`` ones along
    every axis; a colour is a ring that works in both directions, or in one where the name says ``UniDirection``.
    """
    config = collective.backend_config.fields.get("collective_algorithm_config")
    if not isinstance(config, dict) or not config.get("emitter"):
        return None
    emitter, strategy = str(config["emitter"]), str(config.get("strategy", ""))
    colors = _COLORS.search(str(config.get("debug", "")))
    rings = DEVICES.number(colors[1]) if colors else 0
    return Algorithm(
        name=f"{emitter} {strategy}".strip(),
        one_ring=emitter.startswith(("1D", "SinglePhase")) or ("Ring" in strategy and "ND" not in strategy),
        lanes=rings if "UniDirection" in strategy else 2 * rings,
        single_phase=emitter.startswith("SinglePhase"),
        one_way="UniDirection" in strategy,
        by_slice=emitter == BY_SLICE,
    )


def collective_part(scope: Scope, fusion: Instruction) -> tuple[AnyStep, ...]:
    """Return what a fusion does with its collectives: starts, runs or awaits them; nothing where they only go on."""
    computation, collectives = _held(scope, fusion)
    return tuple(step for collective in collectives for step in _steps(scope, fusion, computation, collective))


def _steps(scope: Scope, fusion: Instruction, computation: Computation, collective: Instruction) -> tuple[AnyStep, ...]:
    """Return what a fusion does with one collective, which stands in ``computation``."""
    called = scope.module[fusion.attributes["calls"]]
    if _calls(called, ASYNC_START):
        # (operands, results, flags): inside the fusion nothing says in which memory the result will be.
        elements = fusion.shape.elements if isinstance(fusion.shape, TupleShape) else ()
        count = len(collective.operands)
        placed = replace(collective, shape=TupleShape(elements[count : 2 * count])) if elements else collective
        return (collective_step(scope, fusion, computation, placed, is_async=True),)
    started = _start_of(scope, fusion, collective)
    if not started:
        scatters = collective.opcode == "all-reduce" and _gives_slices(computation)
        kind = "reduce-scatter" if scatters else collective_kind(collective.opcode)
        return (collective_step(scope, fusion, computation, collective, kind=kind),)
    return (Wait(**scope.label(fusion, "wait"), needs=(started,)),) if _calls(called, ASYNC_DONE) else ()


def _gives_slices(computation: Computation) -> bool:
    """Return whether each device keeps its slices alone: an all-reduce with such, of several arrays too, scatters."""
    root = computation.root
    kept = computation.operands_of(root) if root.opcode == "tuple" else (root,)
    return all(value.opcode == "dynamic-slice" for value in kept)


def is_fed(scope: Scope, fusion: Instruction) -> bool:
    """Return whether the collective in a fusion takes what the fusion makes, and so comes behind it."""
    computation, collectives = _held(scope, fusion)
    return not all(_takes_parameters(computation, collective) for collective in collectives)


def other_part(scope: Scope, fusion: Instruction) -> tuple[Scope, Instruction]:
    """Return a fusion without its collective, and a scope for it.

    Results that are only handed on, or are the collective's, are left out with all that makes them. Where the rest
    takes what the collective gives it reads what that took.
    """
    holder, _ = _held(scope, fusion)
    free = {"opcode": "custom-call", "attributes": {}}
    costless = tuple(replace(i, **free) if is_collective(i) else i for i in holder)
    module = _with_computation(scope.module, replace(holder, instructions=costless))
    called = module[fusion.attributes["calls"]]
    whole = scope.module[called.name]
    kept = {}
    for value, shape in _results(whole, fusion):
        source = behind_views(whole, value)
        # What the core does not make is only handed on: an operand, or a collective of operands.
        collects = is_collective(source) and _takes_parameters(whole, source)
        if not (source.opcode == "parameter" or collects):
            kept[value.name] = shape
    if len(kept) == 1:
        ((name, shape),) = kept.items()
        rest = _needed(called, called[name])
    else:
        shape = TupleShape(tuple(kept.values()))
        rest = _needed(called, Instruction(whole.root_name, shape, "tuple", tuple(kept)))
    inside = scope.inside(Context(_with_computation(module, rest), scope.computation, {}, scope.context.budget))
    return inside, replace(fusion, shape=shape)


def _held(scope: Scope, fusion: Instruction) -> tuple[Computation, list[Instruction]]:
    """Return the collectives of a fusion that has some, with the computation they stand in."""
    found = inner_collective(scope, fusion.attributes["calls"])
    assert found is not None
    return found[0], [instruction for instruction in found[0] if is_collective(instruction)]


def _calls(computation: Computation, target: str) -> bool:
    if "custom-call" not in computation.opcodes:
        return False
    return any(instruction.attributes.get("custom_call_target") == target for instruction in computation)


def _start_of(scope: Scope, fusion: Instruction, collective: Instruction) -> str:
    """Return the name of the fusion that started the collective of ``fusion``, empty if none did."""
    channel = collective.attributes.get("channel_id")
    behind = (_start_behind(scope, name) for name in fusion.operands)
    handed = next((name for name in behind if name and _channel(scope, scope.computation[name]) == channel), "")
    if handed or channel is None:
        return handed
    # In a loop the flags come in with its state: there the channel tells. What was started here, before, comes first.
    here = scope.computation.instructions
    earlier = list(_starts(scope, here[: here.index(fusion)], channel))
    others = (c for c in scope.module.computations if c is not scope.computation and "fusion" in c.opcodes)
    return (earlier or [name for c in others for name in _starts(scope, c.instructions, channel)] or [""])[-1]


def _starts(scope: Scope, instructions: tuple[Instruction, ...], channel: int) -> Iterator[str]:
    for instruction in instructions:
        if _is_start(scope, instruction) and _channel(scope, instruction) == channel:
            yield instruction.name


def _is_start(scope: Scope, instruction: Instruction) -> bool:
    return instruction.opcode == "fusion" and _calls(scope.module[instruction.attributes["calls"]], ASYNC_START)


def _channel(scope: Scope, fusion: Instruction) -> int | None:
    found = inner_collective(scope, fusion.attributes["calls"])
    return found[1].attributes.get("channel_id") if found else None


def _start_behind(scope: Scope, name: str) -> str:
    """Return the fusion that starts a collective and made ``name``, handed on as it may be; empty if there is none."""
    value, indices = scope.computation[name], list[int]()
    while not _is_start(scope, value):
        source = _handed_from(scope, value, indices)
        if source is None:
            return ""
        value = scope.computation[source]
    return value.name


def _handed_from(scope: Scope, value: Instruction, indices: list[int]) -> str | None:
    """Return which operand a value is handed on from; ``indices`` are those of elements still to take, the last first.

    A loop hands on what comes in at the same place.
    """
    if value.opcode == "get-tuple-element":
        indices.append(value.attributes["index"])
        return value.operands[0]
    if value.opcode in VIEWS | {"while"}:
        return value.operands[0]
    if value.opcode == "tuple" and indices:
        return value.operands[indices.pop()]
    if value.opcode == "fusion":
        called = scope.module[value.attributes["calls"]]
        parts = [part for part, _ in _results(called, value)]
        part = parts[indices.pop()] if called.root.opcode == "tuple" and indices else None
        source = behind_views(called, part) if part else None
        return value.operands[int(str(source.immediate))] if source and source.opcode == "parameter" else None
    return None


def _results(called: Computation, fusion: Instruction) -> list[tuple[Instruction, Shape]]:
    """Return what a fusion writes, each with its shape outside."""
    root, shape = called.root, fusion.shape
    if root.opcode == "custom-call" and root.attributes.get("custom_call_target") == ASYNC_DONE:
        return []
    elements = shape.elements if isinstance(shape, TupleShape) else ()
    if root.opcode == "custom-call" and root.attributes.get("custom_call_target") == ASYNC_START:
        # A start returns the operands of the collective first; of the rest nothing is made here.
        return list(zip(called.operands_of(called[root.operands[0]]), elements, strict=False))
    return list(zip(called.operands_of(root), elements, strict=True)) if root.opcode == "tuple" else [(root, shape)]


def _takes_parameters(computation: Computation, collective: Instruction) -> bool:
    return all(behind_views(computation, i).opcode == "parameter" for i in computation.operands_of(collective))


def _needed(computation: Computation, root: Instruction) -> Computation:
    """Return a computation with another root, and of the rest the parameters and what the root needs."""
    needed, todo = {root.name}, list(root.operands)
    while todo:
        name = todo.pop()
        if name not in needed:
            needed.add(name)
            todo.extend(computation[name].operands)
    kept = (i for i in computation if i.name != root.name and (i.name in needed or i.opcode == "parameter"))
    return replace(computation, instructions=(*kept, root), root_name=root.name, offsets=())


def _with_computation(module: Module, changed: Computation) -> Module:
    kept = tuple(changed if computation.name == changed.name else computation for computation in module.computations)
    return replace(module, computations=kept)
