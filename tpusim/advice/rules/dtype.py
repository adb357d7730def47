"""Arrays of f32 that could be bf16."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from msgspec import structs

from tpusim.advice.trials import Case, Trial, advises
from tpusim.ir.module import Instruction, Module
from tpusim.program.steps import Kernel
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape, BufferShape, Shape, TupleShape, leaves

_WIDE, _NARROW = "f32", "bf16"
_PRECISION = ("operand_precision", "algorithm")
_SHOWN = 3


@advises("cast to bf16")
def cast_to_bf16(case: Case) -> Iterator[Trial]:
    """Propose to have in bf16 what is in f32: products take one pass, and arrays half the bytes."""
    kernels = sorted((one for one in case.program.every_step if isinstance(one, Kernel)), key=lambda k: -case.share(k))
    wide = [kernel for kernel in kernels if _is_wide(case.instruction(kernel))]
    precise = [
        kernel for kernel in kernels if any(m.passes > 1 or m.operand_type == _WIDE for m in kernel.work.matmuls)
    ]
    if case.front_end is None or not (wide or precise):
        return
    named = (precise or wide)[:_SHOWN]
    yield Trial(
        what=f"{len(precise)} products of f32" if precise else f"{len(wide)} kernels write f32",
        change="cast weights and activations to bf16 (x.astype(jnp.bfloat16)); products at the default precision",
        ops=tuple(kernel.name for kernel in named),
        source=named[0].source,
        alternative=in_bf16(case.front_end),
    )


def in_bf16(module: Module) -> Module:
    """Return a module with bf16 for f32 throughout, and products at the default precision."""
    computations = tuple(
        dataclasses.replace(computation, instructions=tuple(map(_narrowed, computation)))
        for computation in module.computations
    )
    # The layouts of parameters and results are of their types.
    attributes = {name: value for name, value in module.attributes.items() if name != "entry_computation_layout"}
    return dataclasses.replace(module, computations=computations, attributes=attributes)


def _is_wide(instruction: Instruction | None) -> bool:
    return instruction is not None and any(leaf.dtype.name == _WIDE for leaf in leaves(instruction.shape))


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
