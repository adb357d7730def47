"""Which bytes a kernel really reads and writes: what it slices, gathers or updates in place, not whole operands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tpusim.hardware.units import HBM, MEMORY_SPACES, OTHER, MemorySpace
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import ArrayShape, leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpusim.ir.module import Computation, Instruction, Module
    from tpusim.shapes.shape import Shape

# The same bytes under another name: who reads through a view reads its operand.
VIEWS = ("bitcast", "opt-barrier")
PARTIAL_READS = ("slice", "dynamic-slice", "gather")
IN_PLACE = ("dynamic-update-slice", "scatter")


class Access(msgspec.Struct, frozen=True, gc=False):
    """One operand or result of a kernel: bytes that move, the memory they move to or from, the shortest run of them."""

    name: str
    shape: ArrayShape
    n_bytes: float
    space: MemorySpace
    is_output: bool = False
    chunk_bytes: int = 0


def space_of(shape: Shape) -> MemorySpace:
    """Return the memory that holds an array; XLA writes none for HBM."""
    number = shape.layout.memory_space if isinstance(shape, ArrayShape) and shape.layout else 0
    return MEMORY_SPACES.get(number, OTHER)


def bytes_in_hbm(shape: Shape) -> int:
    """Return the bytes of a value's arrays that lie in HBM."""
    return sum(physical_bytes(leaf) for leaf in leaves(shape) if space_of(leaf) == HBM)


def accesses(module: Module, computation: Computation, instruction: Instruction) -> list[Access]:
    """Return what ``instruction``, on its own or as a fusion, reads and writes. Operands that no use reads are left
    out.
    """
    # An operand that is named twice is fetched once: no more than all of it moves.
    merged: dict[tuple[str, int], Access] = {}
    for leaf, access in _reads(module, computation, instruction):
        key = (access.name, leaf)
        before = merged[key].n_bytes if key in merged else 0.0
        total = min(before + access.n_bytes, float(physical_bytes(access.shape)))
        merged[key] = msgspec.structs.replace(access, n_bytes=total)
    return [*merged.values(), *_writes(module, computation, instruction)]


def _reads(module: Module, computation: Computation, instruction: Instruction) -> Iterator[tuple[int, Access]]:
    """Yield the reads, one per array operand or leaf of a tuple operand, with the number of the leaf."""
    for position, name in enumerate(instruction.operands):
        shape = computation[name].shape
        n_bytes, chunk = _read_bytes(module, computation, instruction, position)
        total = physical_bytes(shape)
        for number, leaf in enumerate(leaves(shape)):
            # What is read of a tuple is not known array by array: it is shared out by size.
            share = n_bytes * physical_bytes(leaf) / total if total else 0.0
            if share:
                yield number, Access(name, leaf, share, space_of(leaf), chunk_bytes=chunk)


def _read_bytes(module: Module, computation: Computation, user: Instruction, position: int) -> tuple[float, int]:
    """Return the bytes that ``user`` reads of operand ``position`` and, if it reads rows or slices, their length."""
    shape = computation[user.operands[position]].shape
    if user.opcode == "fusion":
        inner = module[user.attributes["calls"]]
        return _parameter_bytes(module, inner, inner.parameters[position])
    if user.opcode in PARTIAL_READS and position == 0:
        n_bytes = float(physical_bytes(user.shape))
        # Rows that a gather takes more than once are assumed to be fetched once.
        return min(n_bytes, physical_bytes(shape)), _run_bytes(user)
    if user.opcode in IN_PLACE and position == 0:
        # Whatever the update does not touch stays where it is.
        return 0.0, 0
    return float(physical_bytes(shape)), 0


def _is_returned(computation: Computation, value: Instruction) -> bool:
    """Tell whether a computation returns ``value`` as it is."""
    root = computation.root
    returned = computation.operands_of(root) if root.opcode == "tuple" else (root,)
    return any(behind_views(computation, candidate).name == value.name for candidate in returned)


def behind_views(computation: Computation, value: Instruction) -> Instruction:
    """Return the instruction whose value ``value`` is a view of."""
    while value.opcode in VIEWS:
        value = computation[value.operands[0]]
    return value


def _parameter_bytes(module: Module, computation: Computation, value: Instruction) -> tuple[float, int]:
    """Return the bytes that a computation reads of ``value``, following views; never more than all of it."""
    total, chunk = 0.0, 0
    for user, position in computation.users.get(value.name, ()):
        if user.opcode in VIEWS:
            n_bytes, run = _parameter_bytes(module, computation, user)
        elif user.opcode in IN_PLACE and position == 0 and not _is_returned(computation, user):
            # An update that is used inside the fusion is not written over its operand, but computed with.
            n_bytes, run = float(physical_bytes(value.shape)), 0
        else:
            n_bytes, run = _read_bytes(module, computation, user, position)
        total, chunk = total + n_bytes, max(chunk, run)
    full = physical_bytes(value.shape)
    # What a computation returns is used by its caller, as a whole for all that can be seen here.
    return (float(full), 0) if total >= full or value.name == computation.root_name else (total, chunk)


def _run_bytes(reader: Instruction) -> int:
    """Return the length of the runs that a slice or gather takes: whole for a slice, one row for a gather."""
    shape = reader.shape
    assert isinstance(shape, ArrayShape)
    if reader.opcode != "gather":
        # A slice consists of whole tiles, 512 B and more: all that a DMA engine needs (ISCA 2021, TPUv4i).
        return physical_bytes(shape)
    row = 1
    for size in reader.attributes["slice_sizes"]:
        row *= size
    return max(1, row * shape.dtype.bits // 8)


def _writes(module: Module, computation: Computation, instruction: Instruction) -> Iterator[Access]:
    """Yield the writes, one per leaf of the result."""
    written = _written(module, computation, instruction)
    for leaf, n_bytes in zip(leaves(instruction.shape), written, strict=True):
        if n_bytes:
            yield Access(instruction.name, leaf, n_bytes, space_of(leaf), is_output=True)


def _written(module: Module, computation: Computation, value: Instruction, is_fused: bool = False) -> list[float]:
    """Return the bytes written to each leaf of a value that leaves its kernel, in order."""
    if value.opcode == "fusion":
        inner = module[value.attributes["calls"]]
        return _written(module, inner, inner.root, is_fused=True)
    if value.opcode == "tuple":
        parts = (_written(module, computation, operand, is_fused) for operand in computation.operands_of(value))
        return [n_bytes for part in parts for n_bytes in part]
    whole = [float(physical_bytes(leaf)) for leaf in leaves(value.shape)]
    if value.opcode in VIEWS:
        source = _written(module, computation, computation[value.operands[0]], is_fused)
        # A view of an update in place writes what the update writes.
        return source if len(source) == len(whole) else whole
    if value.opcode in IN_PLACE:
        target = behind_views(computation, computation[value.operands[0]])
        # What the fusion makes itself has no buffer yet to be updated in.
        if not is_fused or target.opcode == "parameter":
            update = computation[value.operands[1 if value.opcode == "dynamic-update-slice" else -1]]
            return [min(n_bytes, float(physical_bytes(update.shape))) for n_bytes in whole]
    return whole
