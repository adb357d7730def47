"""What the parser holds an instruction to beyond its row: counts and kinds that depend on its shapes.

Each check raises what is wrong, by its label. Whether the result's shape follows from the operands is not
asked here: XLA leaves that to its verifier, and so do we.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tpusim.ir.module import Instruction, wrapped_opcode
from tpusim.ir.ops import OPERATIONS, TRANSFERS, async_parts, async_phase
from tpusim.semantics.infer.async_ops import find_async_state
from tpusim.semantics.infer.control import check_operand_layouts
from tpusim.semantics.infer.site import broken, require
from tpusim.shapes.shape import ArrayShape, BufferShape, TupleShape, leaves, shape_text
from tpusim.text.scope import ComputationScope

Operands: TypeAlias = "tuple[Instruction, ...]"
Check: TypeAlias = "Callable[[Instruction, Operands, ComputationScope], None]"


def find_check(opcode: str, attributes: Mapping[str, Any]) -> Check | None:
    """Return the check of an opcode, if it has one that asks something of instructions with these attributes."""
    parts = async_parts(opcode)
    # slice-start is held to what every async-start is; the slice inside is inference's to judge.
    check = _CHECKS.get(f"async-{parts[1]}" if parts else opcode)
    asks = _ASKS.get(opcode)
    return check if asks is None or asks(attributes) else None


def _check_tuple(instruction: Instruction, operands: Operands, scope: ComputationScope) -> None:
    """Require as many operands as the tuple has elements."""
    shape = instruction.shape
    if not isinstance(shape, TupleShape) or len(shape.elements) != len(operands):
        raise broken("tuple_c1", f"{len(operands)} operands for {shape_text(shape)}")


def _check_parameter(instruction: Instruction, operands: Operands, scope: ComputationScope) -> None:
    """Require ``parameter_replication`` to say yes or no for every leaf of the shape."""
    # XLA asks this of every instruction; only parameters carry it.
    replication = instruction.attributes["parameter_replication"]
    count = len(leaves(instruction.shape))
    require(len(replication) == count, "parameter_c2", len(replication), "for", count, "leaves")


def _check_broadcast(instruction: Instruction, operands: Operands, scope: ComputationScope) -> None:
    """Require ``dimensions``, which are not there, unless a scalar is broadcast."""
    if _rank(operands[0]) != 0:
        raise broken("broadcast_c1", f"no 'dimensions' for {shape_text(operands[0].shape)}")


def _check_conditional(instruction: Instruction, operands: Operands, scope: ComputationScope) -> None:
    """Require two computations or a list of them, as the type of the first operand decides."""
    selector, attributes = operands[0].shape, instruction.attributes
    if not isinstance(selector, ArrayShape) or selector.dimensions or selector.dtype.name not in ("pred", "s32"):
        raise broken("conditional_c1", shape_text(selector))
    is_pred = selector.dtype.name == "pred"
    # Both spellings at once would leave open which computation is branch 0.
    wanted = {"true_computation", "false_computation"} if is_pred else {"branch_computations"}
    if attributes.keys() & _BRANCHES != wanted:
        raise broken("conditional_c7", f"{', '.join(sorted(attributes.keys() & _BRANCHES)) or 'none'} on {selector}")
    branches = 2 if is_pred else len(attributes["branch_computations"])
    require(branches == len(operands) - 1, "conditional_c3", len(operands) - 1, "for", branches)


def _check_starts(instruction: Instruction, operands: Operands, scope: ComputationScope) -> None:
    """Require one scalar start per dimension of the first operand, or a vector of them."""
    starts = operands[2 if instruction.opcode == "dynamic-update-slice" else 1 :]
    # A vector of starts is the old form, which XLA still reads.
    if len(starts) != _rank(operands[0]) and (len(starts) != 1 or _rank(starts[0]) != 1):
        raise broken("dynamic_slice_c1", f"{len(starts)} for {shape_text(operands[0].shape)}")


def _check_pairs(instruction: Instruction, operands: Operands, scope: ComputationScope) -> None:
    """Require an initial value for each array; of a scatter an update for each, around the indices."""
    indices = 1 if instruction.opcode == "scatter" else 0
    label = f"{instruction.opcode.replace('-', '_')}_c1"
    require((len(operands) - indices) % 2 == 0, label, len(operands), "operands")


def _check_one_dimension(instruction: Instruction, operands: Operands, scope: ComputationScope) -> None:
    """Require ``dimensions``, where it is there, to list one."""
    count = len(instruction.attributes.get("dimensions", (0,)))
    if count != 1:
        raise broken(_ONE_DIMENSION[instruction.opcode.removesuffix("-start")], f"{count} in 'dimensions'")


def _check_scan(instruction: Instruction, operands: Operands, scope: ComputationScope) -> None:
    """Require one operand, carries included, per parameter of the computation."""
    attributes = instruction.attributes
    parameters = len(scope.computations[attributes["to_apply"]].parameters)
    require(parameters == len(operands), "scan_c5", parameters, "parameters for", len(operands), "operands")
    carries = attributes["num_carries"]
    require(carries <= len(operands), "scan_c1", carries, "for", len(operands), "operands")
    _check_one_dimension(instruction, operands, scope)


def _check_reduction(instruction: Instruction, operands: Operands, scope: ComputationScope) -> None:
    """Require a channel for global ids, and one dimension to scatter."""
    attributes = instruction.attributes
    # Texts with a mode come from the few versions of XLA that printed one, and say it all.
    if attributes.get("use_global_device_ids") and "channel_id" not in attributes and "mode" not in attributes:
        raise broken("groups_c1", "none")
    _check_one_dimension(instruction, operands, scope)


def _check_permute(instruction: Instruction, operands: Operands, scope: ComputationScope) -> None:
    """Require pairs, and in the form with slices source, destination and their starts."""
    pairs = instruction.attributes["source_target_pairs"]
    require(all(len(pair) == 2 for pair in pairs), "collective_permute_c1", pairs)
    is_sliced = "slice_sizes" in instruction.attributes
    require(not is_sliced or len(operands) == 4, "collective_permute_c5", len(operands), "operands")


def _check_custom_call(instruction: Instruction, operands: Operands, scope: ComputationScope) -> None:
    check_operand_layouts(instruction, [operand.shape for operand in operands])


def _check_async_start(instruction: Instruction, operands: Operands, scope: ComputationScope) -> None:
    """Require the shape ``((operands), result, ...)``."""
    if find_async_state(instruction.shape) is None:
        raise broken("async_c1", shape_text(instruction.shape))


def _check_async_done(instruction: Instruction, operands: Operands, scope: ComputationScope) -> None:
    """Require a start or an update of the same operation, and nothing said that the start did not."""
    # What an update leaves out is what the start said, however many updates lie between.
    start = scope.async_start(operands[0].name)
    if async_phase(start.opcode) != "start":
        raise broken("async_c9", f"{operands[0].opcode!r} {operands[0].name!r}")
    parts, wrapped = async_parts(instruction.opcode), wrapped_opcode(start, scope.computations)
    if parts and parts[0] != wrapped:
        raise broken("async_c15", f"{start.opcode!r} {start.name!r} around {wrapped!r}")
    # The computation around what a short form starts has no name that others could state.
    called = start.attributes["calls"] if start.opcode == "async-start" else None
    thread = start.attributes.get("async_execution_thread", "main")
    for name, begun in (("calls", called), ("async_execution_thread", thread)):
        stated = instruction.attributes.get(name, begun)
        if stated != begun:
            raise broken("async_c15", f"{name}={stated} after {name}={begun or 'none'}")


def _check_async_update(instruction: Instruction, operands: Operands, scope: ComputationScope) -> None:
    _check_async_start(instruction, operands, scope)
    _check_async_done(instruction, operands, scope)


def _check_transfer_tuple(instruction: Instruction, operands: Operands, scope: ComputationScope) -> None:
    """Require a tuple, of the data that come in and a token."""
    if not isinstance(instruction.shape, TupleShape) or not instruction.shape.elements:
        raise broken(f"{instruction.opcode}_c1", shape_text(instruction.shape))


def _check_transfer_done(instruction: Instruction, operands: Operands, scope: ComputationScope) -> None:
    """Require the channel of the transfer that it waits for."""
    before = operands[0]
    own, started = instruction.attributes.get("channel_id"), before.attributes.get("channel_id")
    # The operand may be a tuple's element, whose channel is not known here.
    require(before.opcode not in TRANSFERS or own == started, "channel_c1", own, "and", started)


def _rank(instruction: Instruction) -> int:
    """Return the rank of an instruction's shape, which for a buffer is that of its array; -1 for a tuple."""
    shape = instruction.shape
    if isinstance(shape, BufferShape):
        shape = shape.element
    return len(shape.dimensions) if isinstance(shape, ArrayShape) else -1


_BRANCHES = frozenset({"true_computation", "false_computation", "branch_computations"})
# The rules of inference require the same of instructions that were not read from a text.
_ONE_DIMENSION = {
    "all-gather": "all_gather_c2",
    "all-to-all": "all_to_all_c2",
    "concatenate": "concatenate_c1",
    "get-dimension-size": "get_dimension_size_c1",
    "ragged-all-to-all": "ragged_all_to_all_c3",
    "reduce-scatter": "reduce_scatter_c2",
    "scan": "scan_c2",
    "set-dimension-size": "set_dimension_size_c1",
    "sort": "sort_c1",
}
_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("all-gather-start", *_ONE_DIMENSION), _check_one_dimension),
    "all-reduce": _check_reduction,
    "all-reduce-start": _check_reduction,
    "async-done": _check_async_done,
    "async-start": _check_async_start,
    "async-update": _check_async_update,
    "broadcast": _check_broadcast,
    "collective-permute": _check_permute,
    "collective-permute-start": _check_permute,
    "conditional": _check_conditional,
    "custom-call": _check_custom_call,
    "dynamic-slice": _check_starts,
    "dynamic-update-slice": _check_starts,
    "infeed": _check_transfer_tuple,
    "parameter": _check_parameter,
    "recv": _check_transfer_tuple,
    "recv-done": _check_transfer_done,
    "reduce": _check_pairs,
    "reduce-scatter": _check_reduction,
    "reduce-window": _check_pairs,
    "scan": _check_scan,
    "scatter": _check_pairs,
    "send-done": _check_transfer_done,
    "tuple": _check_tuple,
}
# Parameters and broadcasts are half of a program, and few of them need a call.
_ASKS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "broadcast": lambda attributes: "dimensions" not in attributes,
    "parameter": lambda attributes: "parameter_replication" in attributes,
}
# A misspelt opcode would otherwise be a check that never runs.
assert _ASKS.keys() <= _CHECKS.keys() <= OPERATIONS.keys()
