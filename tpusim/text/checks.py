"""What the parser holds an instruction to beyond its row: counts and kinds that depend on its shapes.

Each check returns what is wrong, or None. Whether the result's shape follows from the operands is not asked here: XLA
leaves that to its verifier, and so do we.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from tpusim.ir.ops import OPERATIONS, async_parts
from tpusim.shapes.shape import ArrayShape, TupleShape, compatible, leaves, shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpusim.ir.module import Computation, Instruction


class Surroundings(Protocol):
    """What has been read before the instruction that is checked."""

    def async_start(self, name: str) -> Instruction:
        """Return the start that an asynchronous update goes on with; any other instruction itself."""

    @property
    def computations(self) -> Mapping[str, Computation]:
        """The computations that it may call."""


Operands: TypeAlias = "tuple[Instruction, ...]"
Check: TypeAlias = "Callable[[Instruction, Operands, Surroundings], str | None]"


def find_check(opcode: str) -> Check | None:
    """Return the check of an opcode, if it has one."""
    parts = async_parts(opcode)
    # slice-start is held to what every async-start is; the slice inside is inference's to judge.
    return _CHECKS.get(f"async-{parts[1]}" if parts else opcode)


def _check_tuple(instruction: Instruction, operands: Operands, around: Surroundings) -> str | None:
    """Require as many operands as the tuple has elements."""
    shape = instruction.shape
    if isinstance(shape, TupleShape) and len(shape.elements) == len(operands):
        return None
    return f"a tuple of {len(operands)} operands cannot have the shape {shape_text(shape)}"


def _check_parameter(instruction: Instruction, operands: Operands, around: Surroundings) -> str | None:
    """Require ``parameter_replication`` to say yes or no for every leaf of the shape."""
    # XLA asks this of every instruction; only parameters carry it.
    replication = instruction.attributes.get("parameter_replication")
    if replication is None:
        return None
    count = sum(1 for _ in leaves(instruction.shape))
    return None if len(replication) == count else f"parameter_replication lists {len(replication)} of {count} leaves"


def _check_broadcast(instruction: Instruction, operands: Operands, around: Surroundings) -> str | None:
    """Require ``dimensions``, unless a scalar is broadcast."""
    if "dimensions" in instruction.attributes or _rank(operands[0]) == 0:
        return None
    return "'broadcast' of an array must have the attribute 'dimensions'"


def _check_conditional(instruction: Instruction, operands: Operands, around: Surroundings) -> str | None:
    """Require two computations or a list of them, as the type of the first operand decides."""
    selector, attributes = operands[0].shape, instruction.attributes
    if not isinstance(selector, ArrayShape) or selector.dimensions or selector.dtype.name not in ("pred", "s32"):
        return f"the first operand of 'conditional' must be a scalar of pred or s32, found {shape_text(selector)}"
    is_pred = selector.dtype.name == "pred"
    # Both spellings at once would leave open which computation is branch 0.
    wanted = {"true_computation", "false_computation"} if is_pred else {"branch_computations"}
    if attributes.keys() & _BRANCHES != wanted:
        return f"'conditional' on {selector.dtype.name} needs {', '.join(sorted(wanted))} and no other branches"
    branches = 2 if is_pred else len(attributes["branch_computations"])
    return None if branches == len(operands) - 1 else f"{branches} branches take {branches} operands after the first"


def _check_dynamic_slice(instruction: Instruction, operands: Operands, around: Surroundings) -> str | None:
    """Require one scalar start per dimension, or a vector of them."""
    return _check_starts(operands, 1)


def _check_dynamic_update_slice(instruction: Instruction, operands: Operands, around: Surroundings) -> str | None:
    """Require the same after operand and update."""
    return _check_starts(operands, 2)


def _check_starts(operands: Operands, before: int) -> str | None:
    """Compare the number of starts with the rank of the first operand."""
    starts = operands[before:]
    # A vector of starts is the old form, which XLA still reads.
    if (len(starts) == 1 and _rank(starts[0]) == 1) or len(starts) == _rank(operands[0]):
        return None
    return f"expected one start for each of {_rank(operands[0])} dimensions, found {len(starts)}"


def _check_pairs(instruction: Instruction, operands: Operands, around: Surroundings) -> str | None:
    """Require an initial value for each array."""
    return f"expected an even number of operands, found {len(operands)}" if len(operands) % 2 else None


def _check_scatter(instruction: Instruction, operands: Operands, around: Surroundings) -> str | None:
    """Require an update for each array, around the indices."""
    return None if len(operands) % 2 else f"expected an odd number of operands, found {len(operands)}"


def _check_one_dimension(instruction: Instruction, operands: Operands, around: Surroundings) -> str | None:
    """Require ``dimensions``, where it is there, to list one."""
    dimensions = instruction.attributes.get("dimensions")
    if dimensions is None or len(dimensions) == 1:
        return None
    return f"'dimensions' of {instruction.opcode!r} lists one dimension, found {len(dimensions)}"


def _check_scan(instruction: Instruction, operands: Operands, around: Surroundings) -> str | None:
    """Require one operand, carries included, per parameter of the computation."""
    parameters = len(around.computations[instruction.attributes["to_apply"]].parameters)
    if parameters != len(operands):
        return f"'to_apply' takes {parameters} parameters, found {len(operands)} operands"
    if instruction.attributes["num_carries"] > len(operands):
        return f"'num_carries' is more than the {len(operands)} operands"
    return _check_one_dimension(instruction, operands, around)


def _check_reduction(instruction: Instruction, operands: Operands, around: Surroundings) -> str | None:
    """Require a channel for global ids, and one dimension to scatter."""
    attributes = instruction.attributes
    # Texts with a mode come from the few versions of XLA that printed one, and say it all.
    if attributes.get("use_global_device_ids") and "channel_id" not in attributes and "mode" not in attributes:
        return "'use_global_device_ids=true' needs a 'channel_id'"
    return _check_one_dimension(instruction, operands, around)


def _check_permute(instruction: Instruction, operands: Operands, around: Surroundings) -> str | None:
    """Require pairs, and in the form with slices source, destination and their starts."""
    if any(len(pair) != 2 for pair in instruction.attributes["source_target_pairs"]):
        return "'source_target_pairs' must list pairs"
    if "slice_sizes" in instruction.attributes and len(operands) != 4:
        return f"{instruction.opcode!r} with 'slice_sizes' takes 4 operands, found {len(operands)}"
    return None


def _check_custom_call(instruction: Instruction, operands: Operands, around: Surroundings) -> str | None:
    """Require layout constraints, where given, to be as many as the operands and to fit them."""
    constraints = instruction.attributes.get("operand_layout_constraints")
    if constraints is None:
        return None
    if len(constraints) != len(operands):
        return f"expected a layout constraint for each of {len(operands)} operands, found {len(constraints)}"
    for constraint, operand in zip(constraints, operands, strict=True):
        if not compatible(constraint, operand.shape):
            return f"the layout constraint {constraint} does not fit %{operand.name} of shape {operand.shape}"
    return None


def _check_async_start(instruction: Instruction, operands: Operands, around: Surroundings) -> str | None:
    """Require the shape ``((operands), result, ...)``."""
    shape = instruction.shape
    if isinstance(shape, TupleShape) and len(shape.elements) > 1 and isinstance(shape.elements[0], TupleShape):
        return None
    return f"expected a shape ((operands), result, ...) for {instruction.opcode!r}, found {shape_text(shape)}"


def _check_async_update(instruction: Instruction, operands: Operands, around: Surroundings) -> str | None:
    """Require a start or an update to go on with, and the shape of one."""
    return _check_async_start(instruction, operands, around) or _check_async_done(instruction, operands, around)


def _check_async_done(instruction: Instruction, operands: Operands, around: Surroundings) -> str | None:
    """Require a start or an update of the same operation, and nothing said that the start did not."""
    # What an update leaves out is what the start said, however many updates lie between.
    start = around.async_start(operands[0].name)
    if async_phase(start.opcode) != "start":
        return f"{instruction.opcode!r} must take an asynchronous start or update, found {operands[0].opcode!r}"
    parts, parts_before = async_parts(instruction.opcode), async_parts(start.opcode)
    if parts and parts_before and parts[0] != parts_before[0]:
        return f"{instruction.opcode!r} cannot go on with {start.opcode!r}"
    for name, default in (("calls", None), ("async_execution_thread", "main")):
        stated, begun = instruction.attributes.get(name), start.attributes.get(name, default)
        if stated is not None and begun is not None and stated != begun:
            return f"{name!r} is {stated}, but {begun} where the operation started"
    return None


def async_phase(opcode: str) -> str:
    """Return ``start`` or ``update`` of an asynchronous opcode, an empty string of any other."""
    parts = async_parts(opcode)
    if parts:
        return parts[1]
    return opcode.removeprefix("async-") if opcode in ("async-start", "async-update") else ""


def _check_transfer_tuple(instruction: Instruction, operands: Operands, around: Surroundings) -> str | None:
    """Require a tuple, of the data that come in and a token."""
    if isinstance(instruction.shape, TupleShape) and instruction.shape.elements:
        return None
    return f"{instruction.opcode!r} must have a tuple shape that is not empty, found {shape_text(instruction.shape)}"


def _check_transfer_done(instruction: Instruction, operands: Operands, around: Surroundings) -> str | None:
    """Require the channel of the transfer that it waits for."""
    before = operands[0]
    # The operand may be a tuple's element, whose channel nobody knows here.
    if before.opcode not in ("send", "recv"):
        return None
    channels = instruction.attributes.get("channel_id"), before.attributes.get("channel_id")
    if channels[0] == channels[1]:
        return None
    return f"{instruction.opcode!r} is on channel {channels[0]}, but its operand on {channels[1]}"


def _rank(instruction: Instruction) -> int:
    """Return the rank of an instruction's shape, -1 for a tuple."""
    shape = instruction.shape
    return len(shape.dimensions) if isinstance(shape, ArrayShape) else -1


_BRANCHES = frozenset({"true_computation", "false_computation", "branch_computations"})
_CHECKS: dict[str, Check] = {
    "all-gather": _check_one_dimension,
    "all-gather-start": _check_one_dimension,
    "all-reduce": _check_reduction,
    "all-reduce-start": _check_reduction,
    "all-to-all": _check_one_dimension,
    "async-done": _check_async_done,
    "async-start": _check_async_start,
    "async-update": _check_async_update,
    "broadcast": _check_broadcast,
    "collective-permute": _check_permute,
    "collective-permute-start": _check_permute,
    "concatenate": _check_one_dimension,
    "conditional": _check_conditional,
    "custom-call": _check_custom_call,
    "dynamic-slice": _check_dynamic_slice,
    "dynamic-update-slice": _check_dynamic_update_slice,
    "get-dimension-size": _check_one_dimension,
    "infeed": _check_transfer_tuple,
    "parameter": _check_parameter,
    "ragged-all-to-all": _check_one_dimension,
    "recv": _check_transfer_tuple,
    "recv-done": _check_transfer_done,
    "reduce": _check_pairs,
    "reduce-scatter": _check_reduction,
    "reduce-window": _check_pairs,
    "scan": _check_scan,
    "scatter": _check_scatter,
    "send-done": _check_transfer_done,
    "set-dimension-size": _check_one_dimension,
    "sort": _check_one_dimension,
    "tuple": _check_tuple,
}
# A misspelt opcode would otherwise be a check that never runs.
assert _CHECKS.keys() <= OPERATIONS.keys()
