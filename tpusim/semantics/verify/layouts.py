"""Whether layouts fit, in modules in which a compiler has assigned them: scheduled ones.

Most operations may lay their result out as they like. Those that work element by element, or on stretches of the least
dimensions, may not, and what only hands a value on changes nothing at all.

Source: XLA, ShapeVerifier and InstructionVerifier with a layout-sensitive ``HloVerifierOpts``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tpusim.ir.module import Computation, Instruction
from tpusim.ir.ops import CALLS
from tpusim.semantics.infer.control import branches
from tpusim.semantics.verify.view import Call, Finding, View, at, checks
from tpusim.shapes.layout import HOST_SPACE
from tpusim.shapes.shape import ArrayShape, Shape, leaves


def check_order(call: Call, operands: Sequence[Shape]) -> Iterator[Finding]:
    """Check that the operands of an array's rank lie in its order; tiles and memory spaces may differ."""
    result = call.instruction.shape
    if not isinstance(result, ArrayShape) or result.layout is None:
        return
    order = result.layout.minor_to_major
    # TPU programs scatter updates that lie in another order than what they are put into.
    for shape in operands[:1] if call.instruction.opcode == "scatter" else operands:
        if (
            shape is not result
            and isinstance(shape, ArrayShape)
            and shape.layout is not None
            # Scalars beside an array (what to pad with, where a slice begins) have no order.
            and len(shape.dimensions) == len(order)
            and shape.layout.minor_to_major != order
        ):
            yield at(call, "layout_c4", f"{result} of {shape}")


@checks
def _check_host_copies(view: View) -> Iterator[Finding]:
    """Check copies between the memories of host and device: a DMA converts nothing, and from the host turns nothing."""
    for call in view.all_of(frozenset({"copy"})) if view.module.is_scheduled else ():
        result, operand = call.instruction.shape, call.computation[call.instruction.operands[0]].shape
        if not isinstance(result, ArrayShape) or not isinstance(operand, ArrayShape):
            continue
        to, of = result.layout, operand.layout
        if to is None or of is None or to.memory_space == of.memory_space:
            continue
        # To the host it may still be one between two places there, of which the text says only the second.
        is_turned = to.memory_space != HOST_SPACE and to.minor_to_major != of.minor_to_major
        is_changed = result.dtype != operand.dtype or is_turned
        if HOST_SPACE in (to.memory_space, of.memory_space) and is_changed:
            yield at(call, "layout_c7", f"{result} of {operand}")


def laid_out_alike(one: Shape, other: Shape, *, only_order: bool = False) -> bool:
    """Return whether two shapes have the same layouts, or ``only_order``; no layout yet may become any."""
    if one is other or one == other:
        return True
    # Shapes that are not of one structure another check refuses.
    for array, twin in zip(leaves(one), leaves(other), strict=False):
        if array.layout is None or twin.layout is None or array.layout == twin.layout:
            continue
        if not only_order or array.layout.minor_to_major != twin.layout.minor_to_major:
            return False
    return True


def check_callers(view: View, call: Call) -> Iterator[Finding]:
    """Check that computations take and give what a caller hands in and takes out, layouts and memories included."""
    for computation, operands in _handed_in(view, call):
        # A fusion may have operands to spare.
        for parameter, operand in zip(computation.parameters, operands, strict=False):
            if parameter.shape is not operand.shape and not laid_out_alike(parameter.shape, operand.shape):
                yield at(call, "layout_c6", f"{operand.shape} for {parameter.shape}")
        is_fusion = call.instruction.opcode == "fusion"
        if is_fusion and not laid_out_alike(computation.root.shape, call.instruction.shape):
            yield at(call, "layout_c6", f"{call.instruction.shape} for {computation.root.shape}")


def _handed_in(view: View, call: Call) -> Iterator[tuple[Computation, Sequence[Instruction]]]:
    """Yield the computations to which an instruction hands whole operands, with these."""
    instruction, module = call.instruction, view.module
    if instruction.opcode == "conditional":
        names = branches(instruction.attributes)
        inputs = call.computation.operands_of(instruction)[1:]
        yield from ((module[name], (operand,)) for name, operand in zip(names, inputs, strict=True))
    elif instruction.opcode in CALLS - {"async-start"}:
        operands = call.computation.operands_of(instruction)
        yield from ((module[name], operands) for name in instruction.called_computations)
