"""What a program consists of: kernels, fusions, results in fast memories, asynchronous copies."""

from __future__ import annotations

from collections.abc import Iterable

from tpusim.hardware.units import CMEM, HBM, VMEM
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import ASYNC_DONES, ASYNC_STARTS, CONTROL_FLOW, ELEMENTWISE, FREE, PRODUCTS, async_phase
from tpusim.program.compilation import Contents
from tpusim.semantics.memory_spaces import space_of
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import TupleShape, leaves

_NO_KERNELS = FREE | CONTROL_FLOW | ASYNC_DONES | ASYNC_STARTS


def contents(module: Module) -> Contents:
    """Return what a program consists of, scheduled or not."""
    computations = running_computations(module)
    running = [i for computation in computations for i in computation]
    kernels = [i for i in running if _is_kernel(i)]
    fusions = [i for i in kernels if i.opcode == "fusion"]
    return Contents(
        instructions=module.instruction_count,
        kernels=len(kernels),
        hbm_bytes=sum(_hbm_bytes((i, *c.operands_of(i))) for c in computations for i in c if _is_kernel(i)),
        fusions=len(fusions),
        multi_output=sum(isinstance(i.shape, TupleShape) for i in fusions),
        product_fusions=sum(_has_product(module, i) for i in fusions),
        fast_results=sum(space_of(leaf) in (VMEM, CMEM) for i in kernels for leaf in leaves(i.shape)),
        prefetches=sum(i.opcode == "copy-start" or async_phase(i.opcode) == "start" for i in running),
        tiled=sum(i.backend_config.window_config is not None for i in kernels),
    )


def running_computations(module: Module) -> list[Computation]:
    """Return the computations whose instructions run one by one: the entry, and those of loops, branches and calls."""
    found = {module.entry_name: module.entry}
    todo = [module.entry]
    while todo:
        for instruction in todo.pop():
            for name in instruction.called_computations if instruction.opcode in CONTROL_FLOW else ():
                if name not in found:
                    found[name] = module[name]
                    todo.append(module[name])
    return list(found.values())


def _is_kernel(instruction: Instruction) -> bool:
    is_async = instruction.opcode in _NO_KERNELS or async_phase(instruction.opcode)
    return not is_async and not _is_scalar(instruction)


def _hbm_bytes(values: Iterable[Instruction]) -> int:
    return sum(physical_bytes(leaf) for value in values for leaf in leaves(value.shape) if space_of(leaf) == HBM)


def _is_scalar(instruction: Instruction) -> bool:
    """Return whether an instruction is one for the scalar core."""
    small = all(leaf.element_count <= 1 for leaf in leaves(instruction.shape))
    return small and instruction.opcode in ELEMENTWISE


def _has_product(module: Module, fusion: Instruction) -> bool:
    return any(not PRODUCTS.isdisjoint(module[name].opcodes) for name in fusion.called_computations)
