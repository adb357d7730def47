"""Arrays of f32 that could be bf16."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import structs

from tpusim.advice.trials import LEAST_SHARE, Case, Trial, advises
from tpusim.ir.module import Instruction, Module
from tpusim.program.steps import Kernel
from tpusim.shapes.address import logical_bytes
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape, BufferShape, Shape, TupleShape, leaves

_WIDE, _NARROW = "f32", "bf16"
_PRECISION = ("operand_precision", "algorithm")


@advises("cast to bf16")
def cast_to_bf16(case: Case) -> Iterator[Trial]:
    """Propose to have in bf16 what is in f32: products take one pass, and arrays half the bytes."""
    kernels = [step for step in case.program.every_step if isinstance(step, Kernel)]
    widths = {id(kernel): _wide_bytes(case.instruction(kernel)) for kernel in kernels}
    # Of small results, as sums of rows, nothing is gained.
    wide = [kernel for kernel in kernels if widths[id(kernel)] > LEAST_SHARE * sum(widths.values())]
    precise = [
        kernel for kernel in kernels if any(m.passes > 1 or m.operand_type == _WIDE for m in kernel.work.matmuls)
    ]
    if case.front_end is None or not (wide or precise):
        return
    yield Trial(
        what=f"products of f32: {len(precise)}" if precise else f"kernels that write f32: {len(wide)}",
        change="cast weights and activations to bf16 (x.astype(jnp.bfloat16)); products at the default precision",
        alternative=in_bf16(case.front_end),
        **case.places(precise or wide),
    )


def in_bf16(module: Module) -> Module:
    """Return a module with bf16 for f32 throughout, and products at the default precision."""
    computations = tuple(
        structs.replace(computation, instructions=tuple(map(_narrowed, computation)))
        for computation in module.computations
    )
    # The layouts of parameters and results are of their types.
    attributes = {name: value for name, value in module.attributes.items() if name != "entry_computation_layout"}
    return structs.replace(module, computations=computations, attributes=attributes)


def _wide_bytes(instruction: Instruction | None) -> int:
    """Return the bytes of the results that are f32."""
    results = leaves(instruction.shape) if instruction else ()
    return sum(logical_bytes(result) for result in results if result.dtype.name == _WIDE)


def _narrowed(instruction: Instruction) -> Instruction:
    attributes = {name: value for name, value in instruction.attributes.items() if name not in _PRECISION}
    return structs.replace(instruction, shape=_shape(instruction.shape), attributes=attributes)


def _shape(shape: Shape) -> Any:
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(map(_shape, shape.elements)))
    if isinstance(shape, BufferShape):
        return BufferShape(_shape(shape.element))
    assert isinstance(shape, ArrayShape)
    if shape.dtype.name != _WIDE:
        return shape
    return ArrayShape(DTYPES[_NARROW], shape.dimensions, shape.dynamic, None)
