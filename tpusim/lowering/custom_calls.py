"""Custom calls that the TPU compiler makes, by their target."""

from __future__ import annotations

from tpusim.errors import ProgramError
from tpusim.ir.custom_calls import REGISTERED
from tpusim.ir.module import Instruction
from tpusim.lowering.control import lower_computation
from tpusim.lowering.kernels.kernel import make_kernel, scalar_kernel
from tpusim.lowering.kernels.vector import CUSTOM_WORK
from tpusim.lowering.scope import Scope, rule
from tpusim.program.steps import AnyStep, Call
from tpusim.program.work import unit_fault

# Left behind by the partitioner, the allocator and the scheduler; no code is made of them.
FREE_TARGETS = frozenset(
    "AllocateBuffer AssumeGatherIndicesInBound ConcatBitcast LayoutConstraint"
    " PrepareAsyncCallDone PrepareAsyncCallStart SPMDFullToShardShape SPMDShardToFullShape Sharding"
    " annotate_device_placement xla.sdy.FuncResultSharding".split()
)
"""Targets that name memory, promise something or mark a place, and take no time."""


@rule("custom-call")
def lower_custom_call(scope: Scope, instruction: Instruction) -> tuple[AnyStep, ...]:
    """Lower a custom call by its target; of an unknown one only the operands and results are costed."""
    target = instruction.attributes.get("custom_call_target", "")
    registered = REGISTERED.get(target)
    if registered is not None and registered.cost is not None:
        work = registered.cost(instruction, scope.chip)
        if fault := unit_fault(work):
            raise ProgramError(f"cost of the custom call {target!r}: {fault}")
        return (make_kernel(scope, instruction, "custom-call", work),)
    if target in FREE_TARGETS:
        return ()
    called = instruction.called_computations
    if called and target not in CUSTOM_WORK:
        # The wrapper that hands a computation to the sparse cores: what runs is the computation.
        body = tuple(step for name in called for step in lower_computation(scope.inside(name)))
        return (Call(**scope.label(instruction, "call"), body=body),)
    if target not in CUSTOM_WORK:
        # Not refused: its bytes bound its time from below, and every report names it.
        scope.notes.estimated(instruction, f"custom call to {target!r}: only its operands and results are moved")
    return (make_kernel(scope, instruction, "custom-call"),)


@rule("partition-id", "replica-id")
def lower_device_id(scope: Scope, instruction: Instruction) -> tuple[AnyStep, ...]:
    """Lower the reading of the device's own number."""
    return (scalar_kernel(scope, instruction),)
