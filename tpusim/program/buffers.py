"""The buffers of a program: how large, where, and from when to when they live."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, overload

import msgspec

from tpusim.hardware.units import MemorySpace

BufferKind = Literal["argument", "output", "temporary", "constant", "scratch"]
"""``scratch`` is what one kernel needs while it runs: the blocks that it works on and its spills."""


class Buffer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False, kw_only=True):
    """A piece of memory while it holds one value, or several that share it.

    It lives from position ``first`` to ``last`` (inclusive) of the program's ``schedule``. ``n_bytes`` is physical,
    ``unpadded_bytes`` what its elements would take without padding (0: not known). ``offset_bytes`` is its place in the
    heap of its memory space, None where it has none of its own: arguments, outputs and constants are allocated by
    themselves, and a temporary ``within`` an output lies in that output's memory and adds nothing. A loop's state that
    changes from trip to trip is several buffers in one place.
    """

    name: str
    n_bytes: int
    space: MemorySpace
    kind: BufferKind
    first: int
    last: int
    opcode: str = ""
    shape: str = ""
    unpadded_bytes: int = 0
    op_name: str = ""
    source: str = ""
    offset_bytes: int | None = None
    within: str = ""

    @property
    def expansion(self) -> float:
        """Physical bytes per unpadded byte; 1 where the latter are not known."""
        return self.n_bytes / self.unpadded_bytes if self.unpadded_bytes else 1.0

    @property
    def padding_bytes(self) -> int:
        """Bytes that hold no element."""
        return self.n_bytes - self.unpadded_bytes if self.unpadded_bytes else 0


class PlannedBuffers(Sequence[Buffer]):
    """The buffers of a program, made when one of them is looked at; else they are as a tuple of them.

    A run asks for their ``sizes`` alone, which have neither names nor what else is only shown, and places in HBM only.
    """

    def __init__(self, sizes: tuple[Buffer, ...], make: Callable[[], tuple[Buffer, ...]]) -> None:
        self.sizes = sizes
        self._make = make

    @cached_property
    def made(self) -> tuple[Buffer, ...]:
        """The buffers themselves."""
        return self._make()

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[Buffer]:
        return iter(self.made)

    @overload
    def __getitem__(self, place: int) -> Buffer: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Buffer, ...]: ...

    def __getitem__(self, place: int | slice) -> Buffer | tuple[Buffer, ...]:
        return self.made[place]

    def __eq__(self, other: object) -> bool:
        return self.made == (other.made if isinstance(other, PlannedBuffers) else other)

    def __hash__(self) -> int:
        return hash(self.made)

    def __repr__(self) -> str:
        return repr(self.made)

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self.made,)


def sizes_of(buffers: Sequence[Buffer]) -> Sequence[Buffer]:
    """Return buffers of which only sizes, lives and places in HBM are asked for, which takes less time."""
    return buffers.sizes if isinstance(buffers, PlannedBuffers) else buffers


Stretch = tuple[int, int, int]
"""First and last position (inclusive), and the bytes in use from the one to the other."""


def stretches(buffers: Iterable[Buffer]) -> Iterator[Stretch]:
    """Yield when each buffer needs how much memory; one within another needs none of its own."""
    for buffer in buffers:
        if not buffer.within:
            yield buffer.first, buffer.last, buffer.n_bytes


def alive_bytes(in_use: Iterable[Stretch]) -> dict[int, int]:
    """Return the bytes alive from each position at which they change, in order."""
    changes: dict[int, int] = defaultdict(int)
    for first, last, n_bytes in in_use:
        changes[first] += n_bytes
        # An instruction needs operands and result at once: a buffer is free only behind its last user.
        changes[last + 1] -= n_bytes
    order = sorted(changes)
    return dict(zip(order, accumulate(changes[position] for position in order), strict=True))


def peak_bytes(in_use: Iterable[Stretch]) -> int:
    """Return the most bytes that are alive at any one position."""
    return max(alive_bytes(in_use).values(), default=0)


def heap_bytes(buffers: Iterable[Buffer]) -> int:
    """Return the end of the highest buffer that has a place: the size of the heap, holes included."""
    return max((b.offset_bytes + b.n_bytes for b in buffers if b.offset_bytes is not None), default=0)
