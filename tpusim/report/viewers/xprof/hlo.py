"""A module and its buffers as XLA's HloProto, from which XProf draws memory over the schedule.

Fields as in openxla/xla, xla/service/hlo.proto and xla/xla_data.proto. The module is XLA's own message where that is at
hand. Else only what identifies an instruction is written (name, opcode, shape, operands, origin): enough for memory and
the tables of ops, too little for graphs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tpusim.hardware.units import HOST, MEMORY_SPACES, SYNC
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.program.buffers import Buffer, heap_bytes, peak_bytes, stretches
from tpusim.report.viewers.xprof import wire
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import ArrayShape, BufferShape, Shape, TupleShape

_TYPES = {
    name: number
    for number, name in enumerate(
        "invalid pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 tuple opaque c64 bf16 token c128 f8e5m2 f8e4m3fn s4 u4"
        " f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz s2 u2 f8e4m3 f8e3m4 s1 u1 f4e2m1fn f8e8m0fnu".split()
    )
}
"""``PrimitiveType`` by name."""

_COLOURS = {space: number for number, space in MEMORY_SPACES.items() if space not in (SYNC, HOST)}
"""A buffer's colour is its memory space; sync flags and the host's memory have none that XProf shows."""

_WHOLE = {"argument": 5, "constant": 12, "output": 7}
"""By kind of buffer the field of its allocation that says so. These buffers last through the run."""

_SCRATCH = "scratch_of_kernels"
_SCRATCH_NUMBER = 1 << 20
"""A computation's number far above those of the module."""


class _Placed(NamedTuple):
    """A buffer, its number, and the instruction (by its 64-bit number) and the array in its result that it is of."""

    number: int
    buffer: Buffer
    instruction: int
    place: tuple[int, ...]


def hlo_proto(module: Module, buffers: Sequence[Buffer], full: bytes = b"") -> bytes:
    """Return the serialised HloProto of a module and of its buffers; ``full`` is XLA's HloModuleProto of it."""
    own = full or _reduced(module)
    # What lies within an output's memory is counted with it.
    shown = [buffer for buffer in buffers if buffer.space in _COLOURS and not buffer.within]
    placed, scratch = _place(module, shown, _ids(own))
    # Messages one after the other are one: XLA's, and a computation of what is not in it.
    return wire.message({1: own + (_scratch(scratch) if scratch else b""), 3: _assignment(placed)})


def _reduced(module: Module) -> bytes:
    """Return a ``HloModuleProto`` without attributes of instructions."""
    numbers = {c.name: number for number, c in enumerate(module.computations, start=1)}
    computations = [_computation(c, numbers) for c in module.computations]
    entry = module.entry_name
    return wire.message({1: module.name, 2: entry, 3: computations, 5: 1, 6: numbers[entry]})


def _ids(module: bytes) -> dict[str, int]:
    """Return the 64-bit numbers of the instructions of a ``HloModuleProto`` by name."""
    computations = [content for field, content in wire.fields(module) if field == 3]
    instructions = [content for one in computations for field, content in wire.fields(one) if field == 2]
    # A number of 0 is left out.
    return {own[1].decode(): own.get(35, 0) for own in map(dict, map(wire.fields, instructions))}


def _computation(computation: Computation, numbers: dict[str, int]) -> bytes:
    """Return a ``HloComputationProto``."""
    number = numbers[computation.name]
    ids = {instruction.name: _id(number, place) for place, instruction in enumerate(computation)}
    instructions = [_instruction(instruction, ids, numbers) for instruction in computation]
    root, thread = ids[computation.root_name], computation.execution_thread
    return wire.message({1: computation.name, 2: instructions, 5: number, 6: root, 8: thread})


def _id(computation: int, place: int) -> int:
    """Return the number of an instruction: its computation's in the upper 32 bits."""
    return computation << 32 | place


def _instruction(instruction: Instruction, ids: dict[str, int], numbers: dict[str, int]) -> bytes:
    """Return a ``HloInstructionProto``."""
    origin = instruction.metadata
    fields = {
        1: instruction.name,
        2: instruction.opcode,
        3: _shape(instruction.shape),
        7: wire.message({1: origin.op_type, 2: origin.op_name, 3: origin.source_file, 4: origin.source_line}),
        9: instruction.immediate if isinstance(instruction.immediate, int) else None,
        35: ids[instruction.name],
        36: [ids[name] for name in instruction.operands],
        38: [numbers[name] for name in instruction.called_computations],
    }
    return wire.message(fields)


def _shape(shape: Shape) -> bytes:
    """Return a ``ShapeProto``; a buffer is shown as what it holds."""
    if isinstance(shape, TupleShape):
        return wire.message({2: _TYPES["tuple"], 4: [_shape(part) for part in shape.elements]})
    if isinstance(shape, BufferShape):
        return _shape(shape.element)
    assert isinstance(shape, ArrayShape)
    head = wire.message({2: _TYPES[shape.dtype.name], 3: shape.dimensions})
    if not shape.dtype.is_array_type:
        return head
    layout = shape.actual_layout
    tiles = [wire.message({1: tile}) for tile in layout.tiles]
    own = wire.message({1: layout.minor_to_major, 6: tiles, 7: layout.element_size_bits, 8: layout.memory_space})
    return head + wire.message({6: shape.dynamic or [False] * shape.rank, 5: own})


def _place(module: Module, buffers: Sequence[Buffer], ids: dict[str, int]) -> tuple[list[_Placed], list[bytes]]:
    """Return the buffers with the arrays that they hold, and instructions for what is none: scratch of kernels."""
    free = {
        instruction.name: list(_leaves(instruction.shape))
        for computation in module.computations
        for instruction in computation
    }
    placed: list[_Placed] = []
    scratch: list[bytes] = []
    for serial, buffer in enumerate(buffers, start=1):
        fitting = next((leaf for leaf in free.get(buffer.name, ()) if physical_bytes(leaf[1]) == buffer.n_bytes), None)
        if fitting is None:
            # XProf ends its process over a buffer of an instruction that is not there.
            one = _Placed(serial, buffer, _id(_SCRATCH_NUMBER, len(scratch)), ())
            scratch.append(_bytes_of(buffer, one.instruction))
        else:
            free[buffer.name].remove(fitting)
            one = _Placed(serial, buffer, ids[buffer.name], fitting[0])
        placed.append(one)
    return placed, scratch


def _scratch(instructions: list[bytes]) -> bytes:
    """Return a computation of scratch and its schedule, as fields of a ``HloModuleProto``."""
    numbers = [_id(_SCRATCH_NUMBER, place) for place in range(len(instructions))]
    computation = wire.message({1: _SCRATCH, 5: _SCRATCH_NUMBER, 2: instructions, 6: numbers[-1]})
    sequence = wire.message({1: _SCRATCH_NUMBER, 2: wire.message({1: numbers})})
    return wire.message({3: computation, 7: wire.message({1: [sequence]})})


def _bytes_of(buffer: Buffer, number: int) -> bytes:
    """Return an instruction that stands for plain bytes."""
    shape = wire.message({2: _TYPES["u8"], 3: [buffer.n_bytes], 6: [False], 5: wire.message({1: [0]})})
    return wire.message({1: f"{buffer.name}.scratch", 2: "custom-call", 3: shape, 28: _SCRATCH, 35: number})


def _leaves(shape: Shape, index: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], ArrayShape]]:
    """Yield the arrays of a shape with their places in it."""
    if isinstance(shape, TupleShape):
        for place, element in enumerate(shape.elements):
            yield from _leaves(element, (*index, place))
    elif isinstance(shape, ArrayShape):
        yield index, shape


def _assignment(placed: Sequence[_Placed]) -> bytes:
    """Return a ``BufferAssignmentProto``: what lasts through the run by itself, the rest in a heap per memory."""
    by_colour: dict[int, list[_Placed]] = defaultdict(list)
    allocations: list[bytes] = []
    for one in placed:
        if one.buffer.kind in _WHOLE:
            allocations.append(_allocation(len(allocations), [one], one.buffer.n_bytes))
        else:
            by_colour[_COLOURS[one.buffer.space]].append(one)
    traces = []
    for inside in by_colour.values():
        traces.append(_trace(inside, len(allocations)))
        heap = [one.buffer for one in inside]
        size = max(heap_bytes(heap), peak_bytes(stretches(heap)))
        allocations.append(_allocation(len(allocations), inside, size))
    return wire.message({1: [_logical_buffer(one) for one in placed], 3: allocations, 4: traces})


def _logical_buffer(one: _Placed) -> bytes:
    """Return a ``LogicalBufferProto``."""
    place = wire.message({2: one.buffer.name, 3: one.place, 4: one.instruction})
    return wire.message({1: one.number, 2: one.buffer.n_bytes, 3: place, 4: _COLOURS[one.buffer.space]})


def _allocation(index: int, inside: Sequence[_Placed], size: int) -> bytes:
    """Return a ``BufferAllocationProto``."""
    first = inside[0].buffer
    flag = {_WHOLE[first.kind]: 1} if first.kind in _WHOLE else {}
    assigned = [wire.message({1: one.number, 2: one.buffer.offset_bytes or 0, 3: one.buffer.n_bytes}) for one in inside]
    return wire.message({1: index, 2: size} | flag | {8: _COLOURS[first.space], 9: assigned})


def _trace(inside: Sequence[_Placed], allocation: int) -> bytes:
    """Return a ``HeapSimulatorTrace``: what is allocated and freed, in schedule order."""
    allocate, free = 0, 1
    # A buffer is free only behind its last user, before what begins there.
    events = [(one.buffer.first, allocate, one) for one in inside]
    events += [(one.buffer.last + 1, free, one) for one in inside]
    events.sort(key=lambda event: (event[0], -event[1]))
    found = [wire.message({1: kind, 2: one.number, 4: one.buffer.name}) for _, kind, one in events]
    return wire.message({1: found, 2: 1, 3: allocation})
