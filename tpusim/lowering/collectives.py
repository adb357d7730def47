"""Collectives: what each device of a group puts in and gets out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tpusim.hardware.units import HBM
from tpusim.ir.ops import CALLS, COLLECTIVES, collective_kind
from tpusim.lowering.scope import rule
from tpusim.program.steps import Algorithm, Collective
from tpusim.semantics.device_groups import device_groups, device_pairs
from tpusim.semantics.memory_spaces import bytes_in_hbm, space_of
from tpusim.semantics.scalars import table_of
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import leaves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpusim.ir.module import Computation, Instruction
    from tpusim.lowering.scope import Scope
    from tpusim.program.steps import AnyStep

_COLORS = re.compile(r"colors:(\d+)")
_MAY_HOLD = COLLECTIVES | {f"{kind}-start" for kind in COLLECTIVES} | CALLS


@rule(*COLLECTIVES)
def lower_collective(scope: Scope, instruction: Instruction) -> tuple[AnyStep, ...]:
    """Lower a collective that holds the core until it is done."""
    return (collective_step(scope, instruction, scope.computation, instruction),)


# Only these have a start of their own; all others come wrapped in async-start (XLA, HLO text).
@rule("all-gather-start", "all-reduce-start", "collective-permute-start")
def lower_collective_start(scope: Scope, instruction: Instruction) -> tuple[AnyStep, ...]:
    """Lower the start of a collective that runs beside the core."""
    return (collective_step(scope, instruction, scope.computation, instruction, is_async=True),)


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
    operands = _sent(computation, collective)
    operand_bytes = sum(physical_bytes(operand.shape) for operand in operands)
    # What a start returns holds its operands, results and flags; the results of these kinds follow from the operands.
    groups = device_groups(scope.module, collective)
    pairs = device_pairs(scope.module, collective)
    # A single pair is still a transfer between two, which a group of 1 would make free.
    group_size = max(2, len(pairs)) if pairs else max(map(len, groups))
    gathered = operand_bytes * group_size if kind == "all-gather" else operand_bytes
    elements = sum(leaf.element_count for op in operands for leaf in leaves(op.shape))
    shares = _shares(scope, computation, collective, group_size)
    # Rows that a ragged exchange sends to nobody are not touched.
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


def _sent(computation: Computation, collective: Instruction) -> tuple[Instruction, ...]:
    """Return the operands that a collective sends.

    Of a ragged all-to-all that is the first: behind it stand the buffer that it updates, and offsets and sizes.
    """
    operands = computation.operands_of(collective)
    return operands[:1] if collective.opcode == "ragged-all-to-all" else operands


def _shares(scope: Scope, computation: Computation, collective: Instruction, group_size: int) -> tuple[float, ...]:
    """Return which parts of its rows a ragged all-to-all sends to whom, nothing (with a warning) if values tell.

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
    computation = scope.module[name]
    # Hardly any computation has one: what its opcodes are is known before they are gone through.
    if not computation.opcodes & _MAY_HOLD:
        return None
    for instruction in computation.instructions:
        if is_collective(instruction):
            return computation, instruction
        # The computation that a reduction applies is called too, but holds no collective: not searched.
        called = instruction.called_computations if instruction.opcode in CALLS else ()
        found = next(filter(None, (inner_collective(scope, name) for name in called)), None)
        if found:
            return found
    return None


def is_collective(instruction: Instruction) -> bool:
    """Tell whether an instruction is a collective, or starts one."""
    return bool(collective_kind(instruction.opcode))


def algorithm_of(collective: Instruction) -> Algorithm | None:
    """Return how the compiler carries a collective out, None where it does not say.

    Nobody documents the names; read here: ``1D`` and plain ``Ring`` strategies go round one ring, ``ND`` ones along
    every axis; a colour is a ring that works in both directions, or in one where the name says ``UniDirection``.
    """
    config = collective.backend_config.fields.get("collective_algorithm_config")
    if not isinstance(config, dict) or not config.get("emitter"):
        return None
    emitter, strategy = str(config["emitter"]), str(config.get("strategy", ""))
    colors = _COLORS.search(str(config.get("debug", "")))
    rings = int(colors[1]) if colors else 0
    return Algorithm(
        name=f"{emitter} {strategy}".strip(),
        one_ring=emitter.startswith(("1D", "SinglePhase")) or ("Ring" in strategy and "ND" not in strategy),
        lanes=rings if "UniDirection" in strategy else 2 * rings,
        single_phase=emitter.startswith("SinglePhase"),
    )
