"""References to memory: their parts, and what is loaded from them and stored to them.

A load beyond the end of a reference, or a store, is an error here: what the machine would do there is not defined.

Source: JAX, dialect ``tpu`` of Mosaic; MLIR, dialects ``memref`` and ``vector``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tpusim.errors import ProgramError
from tpusim.ir.mosaic import Operation
from tpusim.numerics.pallas.code import Frame
from tpusim.numerics.pallas.references import Reference
from tpusim.numerics.pallas.table import (
    SEMAPHORES,
    Function,
    Where,
    dtype_of,
    element_of,
    operation,
    undefined,
    undefined_element,
)
from tpusim.numerics.registry import Array
from tpusim.shapes.dtype import numpy_dtype


def region(operation: Operation, first: Sequence[Any], spans: Sequence[tuple[int, int]], extents: Sequence[int]) -> Any:
    """Return the index of a part of a memory that begins at ``first``, of so many elements, each a stride apart.

    Raises ProgramError for one that does not lie inside.
    """
    parts = []
    for start, (size, stride), extent in zip(map(int, first), spans, extents, strict=True):
        end = start + (size - 1) * stride + 1 if size else start
        if start < 0 or end > extent:
            raise ProgramError(
                f"{operation.name} in the body of a Pallas kernel: expected a part of a memory of {list(extents)},"
                f" found one from {[int(each) for each in first]} of {[size for size, _ in spans]} elements,"
                " which the machine does not define"
            )
        parts.append(slice(start, end, stride))
    return tuple(parts)


@operation("vector.load", "tpu.vector_load", "tpu.strided_load", is_pure=True)
def _load(where: Where) -> Function:
    """Return a part of a memory; elements that a mask leaves out are zero."""
    kind, item = where.result(), where.operation
    rank = len(where.operand().dimensions)
    sizes = (1,) * (rank - len(kind.dimensions)) + kind.dimensions
    spans = tuple(zip(sizes, where.attributes.get("strides") or (1,) * rank, strict=True))

    def load(reference: Any, *rest: Any) -> Array:
        memory, mask = reference.array, rest[rank:]
        found = memory[region(item, rest[:rank], spans, memory.shape)].reshape(kind.dimensions)
        return np.where(mask[0], found, np.zeros((), found.dtype)) if mask else found.copy()

    return load


@operation("tpu.vector_store", "vector.store", "tpu.strided_store", is_pure=False)
def _store(where: Where) -> Function:
    """Write a part of a memory, where a mask says so, or add to it."""
    rank = len(where.operand(1).dimensions)
    given = where.operand().dimensions
    sizes = (1,) * (rank - len(given)) + given
    spans = tuple(zip(sizes, where.attributes.get("strides") or (1,) * rank, strict=True))
    adds, item = bool(where.attributes.get("add")), where.operation

    def store(value: Array, reference: Any, *rest: Any) -> None:
        mask = rest[rank:]
        memory = reference.array
        index = region(item, rest[:rank], spans, memory.shape)
        values = value.reshape(sizes)
        if adds:
            values = memory[index] + values
        if mask:
            values = np.where(mask[0].reshape(sizes), values, memory[index])
        reference.write(index, values)

    return store


@operation("memref.load")
def _load_scalar(where: Where) -> Function:
    """Return an element; one beyond the end, which the scalar core reads without a trap, is undefined."""
    undefined_scalar = dtype_of(where.result()).type(undefined_element(dtype_of(where.result())))

    def load(reference: Any, *indices: Any) -> Any:
        place, memory = tuple(map(int, indices)), reference.array
        inside = all(0 <= at < size for at, size in zip(place, memory.shape, strict=True))
        return memory[place] if inside else undefined_scalar

    return load


@operation("memref.store", is_pure=False)
def _store_scalar(where: Where) -> Function:
    item = where.operation

    def store(value: Any, reference: Any, *indices: Any) -> None:
        extents = reference.array.shape
        region(item, indices, ((1, 1),) * len(extents), extents)
        reference.write(tuple(map(int, indices)), value)

    return store


@operation("tpu.memref_slice")
def _slice(where: Where) -> Function:
    """Return a part of a memory: at indices that are operands, of the sizes of the result's type or of operands."""
    item, sizes = where.operation, where.result().dimensions
    groups = where.segments(1, len(sizes), 0)

    def part(*values: Any) -> Any:
        (reference,), first, dynamic = (values[group] for group in groups)
        left = iter(dynamic)
        spans = [(int(next(left)) if size < 0 else size, 1) for size in sizes]
        index = region(item, first, spans, reference.array.shape)
        return reference.part(lambda memory: memory[index])

    return part


@operation("tpu.memref_squeeze", "tpu.memref_reshape", "tpu.reinterpret_cast")
def _reshape(where: Where) -> Function:
    """Return the same memory in other dimensions."""
    if any(size < 0 for size in where.result().dimensions):
        return _squeeze_dynamic(where)
    sizes = where.result().dimensions
    if where.operand().element != where.result().element:
        raise where.unsupported("another element type")

    def view(memory: Array) -> Array:
        found = memory.view()
        try:
            return np.reshape(found, sizes, copy=False)
        except ValueError as error:
            raise where.unsupported(f"a part of a memory that is not in one piece, as {list(sizes)}") from error

    return lambda reference: reference.part(view)


def _squeeze_dynamic(where: Where) -> Function:
    """Return the function that leaves out dimensions of one element where others are known only at run time."""
    kept, dropped = list(where.result().dimensions), []
    for axis, size in enumerate(where.operand().dimensions):
        if kept and size == kept[0]:
            kept.pop(0)
        else:
            dropped.append(axis)
    axes = tuple(dropped)
    return lambda reference: reference.part(lambda memory: memory.squeeze(axes))


@operation("tpu.memref_bitcast")
def _bitcast(where: Where) -> Function:
    """Return the same memory as elements of another type."""
    types = element_of(where.operand().element), element_of(where.result().element)
    dtype = dtype_of(where.result())
    if types[0].bits == types[1].bits:
        return lambda reference: reference.part(lambda memory: memory.view(dtype))
    return lambda reference: reference.repacked(types)


@operation("memref.cast", "tpu.erase_memref_layout")
def _same(where: Where) -> Function:
    return lambda reference: reference


@operation("memref.alloca", "memref.alloc", "tpu.sem_alloc", in_frame=True)
def _allocate(where: Where) -> Function:
    """Return new memory, which holds nothing that is defined; semaphores are zero."""
    kind, number = where.result(), where.operation.results[0]

    def allocate(frame: Frame) -> Reference:
        reference = new_memory(kind.dimensions, kind.element, ("allocated", number))
        frame.run.memory[reference.key] = reference
        return reference

    return allocate


def new_memory(dimensions: tuple[int, ...], element: str, key: Any) -> Reference:
    """Return a reference to memory of its own: undefined, or semaphores that are zero."""
    if element in SEMAPHORES:
        return Reference(np.zeros(dimensions, np.int64), key)
    return Reference(undefined(dimensions, numpy_dtype(element_of(element))), key)
