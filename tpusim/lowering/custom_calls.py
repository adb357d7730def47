"""Custom calls that the TPU compiler makes, by their target."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from tpusim.errors import ProgramError
from tpusim.hardware.units import HBM, VMEM
from tpusim.ir.attributes import CostEstimate
from tpusim.ir.custom_calls import registered_for
from tpusim.ir.module import Instruction
from tpusim.ir.mosaic import Unreadable, read_body
from tpusim.lowering.kernels.kernel import make_kernel, scalar_kernel
from tpusim.lowering.kernels.vector import FREE_TARGETS, compiler_work
from tpusim.lowering.pallas.operands import Fed, as_given
from tpusim.lowering.scope import Nested, Scope, rule
from tpusim.program.steps import AnyStep, Basis, Call, Kernel, Steps
from tpusim.program.verify import number_fault
from tpusim.program.work import Floor, Stream, Work, unit_fault

# What following a body raises whose operations lack operands, results or attributes, or have others than they should.
_MALFORMED = (LookupError, TypeError, ValueError)


@rule("custom-call")
def lower_custom_call(scope: Scope, instruction: Instruction) -> Steps | Nested:
    """Lower a custom call by its target; of an unknown one only the operands and results are costed."""
    target = instruction.attributes.get("custom_call_target", "")
    if (work := _registered_work(scope, instruction)) is not None:
        return (make_kernel(scope, instruction, "custom-call", work),)
    if target in FREE_TARGETS:
        return ()
    if compiler_work(instruction) is not None:
        return (make_kernel(scope, instruction, "custom-call"),)
    if instruction.called_computations:
        return _handed_over(scope, instruction)
    given = [as_given(item) for item in scope.computation.operands_of(instruction)]
    return written_elsewhere(scope, instruction, instruction, given)


def _handed_over(scope: Scope, instruction: Instruction) -> Nested:
    """Return the steps of the wrapper that hands computations to the sparse cores: what runs are the computations."""
    body: list[AnyStep] = []
    for name in instruction.called_computations:
        body += yield scope.inside(name)
    return (Call(**scope.label(instruction, "call"), body=tuple(body)),)


def _registered_work(scope: Scope, call: Instruction) -> Work | None:
    """Return what a user said that a call takes, if so."""
    registered = registered_for(call)
    if registered is None or registered.cost is None:
        return None
    work: Work = registered.cost(call, scope.chip)
    if fault := unit_fault(work):
        raise ProgramError(f"cost of the custom call {call.attributes.get('custom_call_target', '')!r}: work.{fault}")
    return work


def written_elsewhere(
    scope: Scope, instruction: Instruction, call: Instruction, operands: Sequence[Fed]
) -> tuple[AnyStep, ...]:
    """Return the steps of code that is not the compiler's: by its body, by what it states, or else by its bytes.

    ``instruction`` is the ``call`` itself, or the fusion that it stands in; ``operands`` are those of the call.
    """
    if (work := _registered_work(scope, call)) is not None:
        return (make_kernel(scope, instruction, "custom-call", work),)
    config, why = call.backend_config, ""
    estimate = config.cost_estimate
    if config.kernel_body and config.is_for_sparse_cores:
        why = " (it is code of the sparse cores, whose units have no costs yet)"
    elif config.kernel_body:
        # NumPy, which goes through a grid, is for programs with such a kernel.
        from tpusim.lowering.pallas.kernel import pallas_steps

        try:
            steps = pallas_steps(scope, instruction, read_body(config.kernel_body), operands)
            if fault := number_fault(steps):
                raise Unreadable(f"its body is beyond bounds: {fault}")
            return tuple(_with_floor(s, estimate) if estimate and isinstance(s, Kernel) else s for s in steps)
        except Unreadable as error:
            why = f" ({error.message})"
        # No compiler has checked it: operands may be missing, or of other kinds than their operation's.
        except _MALFORMED as error:
            why = f" (its body could not be gone through: {type(error).__name__})"
    # Not refused: what it states, or its bytes, bound its time from below, and every report names it.
    basis: Basis = "stated cost" if estimate else "bytes"
    target = call.attributes.get("custom_call_target", "")
    scope.notes.estimated(call, f"custom call to {target!r}: by its {basis}{why}")
    kernel = structs.replace(make_kernel(scope, instruction, "custom-call"), basis=basis)
    if estimate is None:
        return (kernel,)
    streams = _moving_at_least(kernel.streams, estimate.bytes_accessed)
    # What moves more than once needs no more room for that.
    return (_with_floor(structs.replace(kernel, streams=streams, scoped_vmem_bytes=kernel.vmem_bytes), estimate),)


def _with_floor(kernel: Kernel, estimate: CostEstimate) -> Kernel:
    """Return a kernel that takes at least what it states; its operations are those that it states.

    A body that multiplies less than that skips blocks: their share of what it states is never done.
    """
    in_hbm = sum(stream.total_bytes for stream in kernel.streams if stream.space == HBM)
    moved = sum(stream.total_bytes for stream in kernel.streams)
    share = in_hbm / moved if moved else 1.0
    stated, done = float(estimate.flops), 1.0
    flops = max(kernel.flops, stated)
    if stated and kernel.product_flops:
        done = min(1.0, kernel.product_flops / stated)
        flops = kernel.flops - kernel.product_flops + stated * done
    floor = Floor(stated * done, estimate.transcendentals * done, estimate.bytes_accessed * share)
    return structs.replace(kernel, floor=floor, flops=flops)


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
