"""Custom calls that the TPU compiler makes, by their target."""

from __future__ import annotations

from msgspec import structs

from tpusim.errors import ProgramError
from tpusim.hardware.units import VMEM
from tpusim.ir.custom_calls import REGISTERED
from tpusim.ir.module import Instruction
from tpusim.lowering.control import lower_computation
from tpusim.lowering.kernels.kernel import make_kernel, scalar_kernel
from tpusim.lowering.kernels.vector import CUSTOM_WORK, FREE_TARGETS
from tpusim.lowering.scope import Scope, rule
from tpusim.program.steps import AnyStep, Call
from tpusim.program.work import Stream, unit_fault


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
    estimate = instruction.backend_config.cost_estimate
    if target not in CUSTOM_WORK and estimate is not None:
        kernel = make_kernel(scope, instruction, "custom-call")
        return (structs.replace(kernel, streams=_moving_at_least(kernel.streams, estimate.bytes_accessed)),)
    if target not in CUSTOM_WORK:
        # Not refused: its bytes bound its time from below, and every report names it.
        scope.notes.estimated(instruction, f"custom call to {target!r}: only its operands and results are moved")
    return (make_kernel(scope, instruction, "custom-call"),)


def _moving_at_least(streams: tuple[Stream, ...], n_bytes: int) -> tuple[Stream, ...]:
    """Return streams of which those outside VMEM move more, where all together would move less than ``n_bytes``."""
    more = n_bytes / max(1.0, sum(stream.total_bytes for stream in streams))
    return tuple(
        structs.replace(stream, block_bytes=stream.block_bytes * more) if more > 1 and stream.space != VMEM else stream
        for stream in streams
    )


@rule("partition-id", "replica-id")
def lower_device_id(scope: Scope, instruction: Instruction) -> tuple[AnyStep, ...]:
    """Lower the reading of the device's own number."""
    return (scalar_kernel(scope, instruction),)
