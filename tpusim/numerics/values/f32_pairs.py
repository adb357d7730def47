"""bf16 intermediates held in f32: what exact arithmetic means for a program that the TPU compiler has already narrowed.

A compiled module rounds the operands of its products to bf16 of its own accord. Where exact values are asked for, these
roundings are left out, as XLA's ``xla_allow_excess_precision`` permits. What the module takes and returns keeps its
type, and a conversion that the program itself asks for still rounds.
"""

from __future__ import annotations

from itertools import chain, count, repeat

from msgspec import structs

from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import MEETS_OTHERS, SEES_BITS
from tpusim.semantics.marks import COMPILED_FOR, mark_of
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape, leaves

# How JAX calls a conversion of the program; the compiler's own have no name, or that of the product they are for.
_OWN_CONVERSION = "/convert_element_type"
_ROUNDING = {"exponent_bits": 8, "mantissa_bits": 7}
# Only bf16: f16 and the types of 8 bits are never a compiler's own choice.
_NARROW, _WIDE = DTYPES["bf16"], DTYPES["f32"]


def widen_module(module: Module) -> Module:
    """Return a scheduled module with f32 in place of bf16; any other module, and one that looks at bits, as it is.

    So is one of tpusim's own compiler, which narrows nothing.
    """
    if not module.is_scheduled or mark_of(module, COMPILED_FOR):
        return module
    shapes = (
        shape
        for computation in module.computations
        for instruction in computation.instructions
        # They would see f32's bits where the program means those of bf16.
        if instruction.opcode in SEES_BITS
        for shape in (instruction.shape, *(operand.shape for operand in computation.operands_of(instruction)))
    )
    if any(leaf.dtype == _NARROW for shape in shapes for leaf in leaves(shape)):
        return module
    return structs.replace(module, computations=tuple(_wide_computation(c) for c in module.computations))


def _wide_computation(computation: Computation) -> Computation:
    taken = {instruction.name for instruction in computation.instructions}
    wide = [_wide_instructions(computation, instruction, taken) for instruction in computation.instructions]
    # What was one instruction has one place in the text.
    offsets = chain.from_iterable(map(repeat, computation.offsets, map(len, wide)))
    return structs.replace(computation, instructions=tuple(chain.from_iterable(wide)), offsets=tuple(offsets))


def _wide_instructions(computation: Computation, instruction: Instruction, taken: set[str]) -> tuple[Instruction, ...]:
    """Return what stands for an instruction, under its name and with a wide shape."""
    # What comes must be of the type that the program states. It is widened where it is taken out of its tuple.
    if instruction.opcode in MEETS_OTHERS:
        return (instruction,)
    if instruction.opcode != "constant":
        wide = structs.replace(instruction, shape=_wide_shape(instruction.shape))
        if _is_own_rounding(computation, instruction):
            attributes = {**wide.attributes, **_ROUNDING}
            wide = structs.replace(wide, opcode="reduce-precision", attributes=attributes)
        return (wide,)
    if all(leaf.dtype != _NARROW for leaf in leaves(instruction.shape)) or isinstance(instruction.shape, TupleShape):
        return (instruction,)
    # The text stands for a narrow number; as an initial value of a reduction that would narrow all that is reduced.
    name = next(f"{instruction.name}.narrow{i}" for i in count() if f"{instruction.name}.narrow{i}" not in taken)
    converted = Instruction(instruction.name, _wide_shape(instruction.shape), "convert", (name,))
    return structs.replace(instruction, name=name), converted


def _is_own_rounding(computation: Computation, instruction: Instruction) -> bool:
    """Return whether an instruction is a conversion of f32 to bf16 that the program asks for."""
    if instruction.opcode != "convert" or not isinstance(instruction.shape, ArrayShape):
        return False
    (operand,) = computation.operands_of(instruction)
    is_rounding = isinstance(operand.shape, ArrayShape) and operand.shape.dtype == _WIDE
    return is_rounding and instruction.shape.dtype == _NARROW and instruction.metadata.op_name.endswith(_OWN_CONVERSION)


def _wide_shape(shape: Shape) -> Shape:
    """Return a shape with f32 for bf16, layouts as they are: positions count elements, so they stay right."""
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(_wide_shape(element) for element in shape.elements))
    if isinstance(shape, ArrayShape) and shape.dtype == _NARROW:
        return structs.replace(shape, dtype=_WIDE)
    return shape
