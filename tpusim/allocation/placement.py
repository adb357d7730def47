"""Places in memory: which values share one, which reuse an output's, and where the rest lie in their heaps."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain

import msgspec

from tpusim.allocation.heap import Block, Interval, aligned, alignment_bytes, place_largest_first, place_to_fit
from tpusim.allocation.homes import Homes
from tpusim.allocation.liveness import Liveness, Value
from tpusim.hardware.units import HBM, MemorySpace
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import CONTROL_FLOW, PRODUCTS, REDUCTIONS
from tpusim.program.buffers import BufferKind, peak_bytes
from tpusim.shapes.shape import ArrayShape

# The attributes of instructions whose computations are scheduled, in the order of XLA's lists of callees.
_CALLEES = ("to_apply", "body", "condition", "branch_computations", "true_computation", "false_computation")

KINDS: dict[str, BufferKind] = {"parameter": "argument", "constant": "constant"}


class Place(msgspec.Struct, eq=False):
    """A place in the making: the values that lie there, or the scratch of one kernel."""

    values: Sequence[Value]
    kind: BufferKind
    n_bytes: int
    space: MemorySpace
    intervals: tuple[Interval, ...]
    offset_bytes: int | None = None
    # The output's place in which a temporary lies.
    home: Place | None = None
    # Places that lie in it before it is whole, and where.
    pieces: list[tuple[int, Place]] = []
    is_piece: bool = False

    @property
    def needs_heap(self) -> bool:
        """Whether it needs an offset of its own in a heap."""
        return self.kind in ("temporary", "scratch") and not self.home and not self.is_piece

    @property
    def within(self) -> str:
        """The name of what lies in its home at last, empty for one that has none."""
        return self.home.values[-1].instruction.name if self.home else ""

    @property
    def block(self) -> Block:
        """What a heap has to hold."""
        # A place is kept between its values, so that the next finds it where the one before left it.
        pieces = tuple((offset, piece.block) for offset, piece in self.pieces)
        return Block(self.n_bytes, self.intervals[0][0], self.intervals[-1][1], pieces, self.values[0].last)

    @property
    def lives(self) -> tuple[Interval, ...]:
        """When it holds something: what is no temporary is there from its first value to its last."""
        if self.kind in ("temporary", "scratch"):
            return self.intervals
        return ((self.intervals[0][0], self.intervals[-1][1]),)

    @property
    def is_scalar(self) -> bool:
        """Whether the scalar core makes what it holds, and keeps it: a loop's counter, a condition."""
        shape, opcode = self.values[0].shape, self.values[0].instruction.opcode
        # What combines arrays is a kernel, also where one number comes of it.
        return isinstance(shape, ArrayShape) and not shape.rank and opcode not in REDUCTIONS | PRODUCTS | {"fusion"}


def place_of(values: Sequence[Value], kind: BufferKind, n_bytes: int) -> Place:
    """Return the place that values share, as large as the largest of them."""
    first = values[0]
    intervals: tuple[Interval, ...] = ((first.first, first.last),)
    # Most places have one value.
    if len(values) > 1:
        intervals = united([(value.first, value.last) for value in values])
    return Place(values, kind, n_bytes, first.space, intervals)


def united(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return intervals in order, those that touch or overlap as one."""
    found: list[Interval] = []
    for first, last in sorted(intervals):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def lay_side_by_side(places: Iterable[Place]) -> None:
    """Let places whose values are joined be pieces of the place of the joined value.

    Not in HBM, where the compiler joins nothing: its heap is filled in the order of the schedule.
    """
    in_heap = [place for place in places if place.needs_heap and place.space != HBM]
    found = {id(value): place for place in in_heap for value in place.values}
    for value in [value for place in in_heap for value in place.values if value.joins]:
        whole = found[id(value)]
        ends = accumulate(piece.n_bytes for piece in value.joins)
        for piece, end in zip(value.joins, ends, strict=True):
            part = found.get(id(piece))
            if part and not whole.is_piece and _may_be_piece(part, whole, piece):
                part.is_piece = True
                whole.pieces.append((end - piece.n_bytes, part))


def _may_be_piece(part: Place, whole: Place, value: Value) -> bool:
    """Return whether the place of ``value`` may lie within another: it holds no more, and is free to move."""
    is_free = part is not whole and not part.is_piece and not part.pieces
    return is_free and (part.space, part.n_bytes) == (whole.space, value.n_bytes)


def reuse_output_memory(places: Sequence[Place], order: Mapping[int, int]) -> None:
    """Let temporaries reuse the memory of outputs, and of arguments that outputs overwrite, while it is not in use.

    As in XLA the largest come first, and among equals they follow the ``order`` of instructions (by ``id``); each takes
    the smallest that has room.
    """

    def rank(place: Place) -> tuple[int, int]:
        return -place.n_bytes, min([order[id(value.instruction)] for value in place.values])

    ranked = sorted([place for place in places if _is_reusable(place)], key=rank)
    reusable: dict[MemorySpace, list[Place]] = {place.space: [] for place in ranked}
    for place in reversed(ranked):
        reusable[place.space].append(place)
    homes = {space: Homes([place.intervals for place in own]) for space, own in reusable.items()}
    # Mostly HBM alone has any: what lies in other memories need not be ordered.
    for place in sorted([place for place in places if place.space in reusable and place.needs_heap], key=rank):
        own = reusable[place.space]
        large_enough = bisect_left(own, place.n_bytes, key=lambda home: home.n_bytes)
        number = homes[place.space].first_free(place.intervals, large_enough)
        if number is not None:
            place.home = own[number]
            homes[place.space].take(number, place.intervals)


def _is_reusable(place: Place) -> bool:
    """Return whether a place is the program's to write: an output's, or an argument's that an output overwrites."""
    # Temporaries, which most are, are no results.
    return place.kind != "temporary" and any(v.is_result and v.instruction.opcode not in KINDS for v in place.values)


def fill_heap(places: Iterable[Place], space: MemorySpace, room_bytes: Callable[[], int] | None = None) -> int:
    """Give every place that needs one its offset in the heap of a memory, and return the size of the heap.

    A memory is planned as a whole, with the largest places first, unless the heap only has to fit where there is room.
    """
    members = [place for place in places if place.space == space and place.needs_heap]
    blocks, unit = [place.block for place in members], alignment_bytes(space)
    offsets = place_to_fit(blocks, unit, room_bytes) if room_bytes else place_largest_first(blocks, unit)
    for place, offset in zip(members, offsets, strict=True):
        place.offset_bytes = offset
        for within, piece in place.pieces:
            piece.offset_bytes = offset + within
    ends = (place.n_bytes + offset for place, offset in zip(members, offsets, strict=True))
    return aligned(max(ends, default=0), unit)


def counted_temp_bytes(
    heap_bytes: int, tables_bytes: int, places: Sequence[Place], liveness: Liveness, *, counts_unused: bool
) -> int:
    """Return a program's HBM temporaries as XLA's memory statistics count them.

    That is the heap and, where it ``counts_unused``, the part unused at its fullest once more; tuple tables are in use
    throughout. Scalars, which the scalar core keeps, and tables of values that lie elsewhere count as nothing. Each new
    value is in use while it, or a value that took its memory over, is alive; updates in place and values that stand for
    others are not counted again. (Found by comparing the compiler's heaps and live ranges with its statistics.)
    """
    in_heap = [place for place in places if place.space == HBM and place.needs_heap]
    if all(place.is_scalar for place in in_heap):
        return 0
    if not counts_unused:
        return heap_bytes
    until = liveness.memory_ends()
    made = [value for place in in_heap for value in place.values if not (value.is_phi or value.is_update)]
    made = [value for value in made if value.takes_over is None]
    used = peak_bytes((value.first, until.get(id(value), value.last), value.n_bytes) for value in made)
    return 2 * heap_bytes - used - tables_bytes


def module_order(module: Module) -> dict[int, int]:
    """Return, by the ``id`` of each instruction that is scheduled, where it stands in the order of XLA's passes.

    They walk operands before their users and computations before their callers.
    """
    in_order = chain.from_iterable(map(post_order, _computations(module)))
    return {id(instruction): place for place, instruction in enumerate(in_order)}


def _computations(module: Module) -> Iterator[Computation]:
    """Yield what the entry calls, and then itself, each computation once and after what it calls."""
    seen = {module.entry_name}
    waiting = [(module.entry, _called(module.entry))]
    while waiting:
        called = waiting[-1][1]
        name = next((name for name in called if name not in seen), "")
        if name:
            seen.add(name)
            waiting.append((module[name], _called(module[name])))
        else:
            yield waiting.pop()[0]


def _called(computation: Computation) -> Iterator[str]:
    for instruction in computation.instructions if computation.opcodes & CONTROL_FLOW else ():
        for attribute in _CALLEES if instruction.opcode in CONTROL_FLOW else ():
            named = instruction.attributes.get(attribute, ())
            yield from (named,) if isinstance(named, str) else named


def post_order(computation: Computation) -> Iterable[Instruction]:
    """Return a computation's instructions with operands before their users, depth first, from each without users."""
    by_name, found = computation.by_name, dict[str, Instruction]()
    for end in computation.instructions:
        waiting = [end] if end.name not in computation.used else []
        while waiting:
            top = waiting[-1]
            # The first operand is to be walked first, so it goes on top.
            for name in reversed(top.operands):
                if name not in found:
                    waiting.append(by_name[name])
            if waiting[-1] is top:
                # What two have waited for keeps its first place.
                found[waiting.pop().name] = top
    return found.values()
