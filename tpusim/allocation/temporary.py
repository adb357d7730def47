"""The memory that a computation needs for a while: a program may visit one again and again, but it is walked once.

What is nested in it is not gone through again. All that is kept of that is how much it needed at once, apart only where
something outside of it begins or ends meanwhile: a program as deep as it is long would else take the square of its
length.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from tpusim.allocation.heap import aligned, alignment_bytes
from tpusim.hardware.units import MemorySpace
from tpusim.nesting import walk_nested
from tpusim.program.buffers import Stretch, alive_bytes, peak_bytes

if TYPE_CHECKING:
    from tpusim.allocation.liveness import Nodes, Value

    Needs: TypeAlias = dict[MemorySpace, list[Stretch]]


class Visited(msgspec.Struct, eq=False):
    """A visit to a computation: where its arguments and result lay, and what was made on the way.

    ``made`` and ``scratch`` are numbers of values and of scratch, those of the visits ``inside`` among them.
    """

    arguments: Sequence[Nodes]
    result: Nodes
    made: range
    scratch: range
    inside: list[Visited]
    needs: Needs | None = None


def temporary_bytes(visited: Visited, values: Sequence[Value], scratch: Sequence[Value]) -> dict[MemorySpace, int]:
    """Return the most bytes of each memory that a computation needed at once beside its arguments and result."""
    needs = walk_nested(partial(_needs, values, scratch), visited)
    return {space: peak_bytes(stretches) for space, stretches in needs.items()}


def _needs(values: Sequence[Value], scratch: Sequence[Value], visited: Visited) -> Generator[Visited, Needs, Needs]:
    """Return from when to when a computation needed how much of each memory."""
    if visited.needs is not None:
        return visited.needs
    found: Needs = defaultdict(list)
    for inner in visited.inside:
        for space, stretches in (yield inner).items():
            found[space] += stretches
    own = [values[number] for number in _own(visited)]
    # What stands for others, or is written over them, has no memory of its own; constants are there before.
    own = [v for v in own if not (v.is_phi or v.is_update or v.instruction.opcode == "constant")]
    own += [scratch[number] for number in _without(visited.scratch, [inner.scratch for inner in visited.inside])]
    for value in own:
        found[value.space].append((value.first, value.last, aligned(value.n_bytes, alignment_bytes(value.space))))
    begin = [values[number].first for part in visited.result for number in part]
    end = [values[number].last + 1 for nodes in visited.arguments for part in nodes for number in part]
    visited.needs = {space: _cut(stretches, begin + end) for space, stretches in found.items()}
    return visited.needs


def _own(visited: Visited) -> Iterator[int]:
    """Yield the numbers of the values that a visit had to itself, not in one inside it; its result is its caller's."""
    result = {number for part in visited.result for number in part}
    handed_out = (n for inner in visited.inside for part in inner.result for n in part if n in inner.made)
    numbers = chain(_without(visited.made, [inner.made for inner in visited.inside]), dict.fromkeys(handed_out))
    return (number for number in numbers if number not in result)


def _without(whole: range, parts: Iterable[range]) -> Iterator[int]:
    """Yield the numbers of a range that lie in none of some parts of it, which follow each other."""
    begin = whole.start
    for part in parts:
        yield from range(begin, part.start)
        begin = part.stop
    yield from range(begin, whole.stop)


def _cut(stretches: Iterable[Stretch], places: Iterable[int]) -> list[Stretch]:
    """Return one stretch for what some need together between two places, with the most that they need at once."""
    alive = alive_bytes(stretches)
    positions, n_bytes = list(alive), list(alive.values())
    first, end = positions[0], positions[-1]
    found = []
    for begin, next_begin in pairwise((first, *sorted({place for place in places if first < place < end}), end)):
        within = slice(bisect_right(positions, begin) - 1, bisect_left(positions, next_begin))
        found.append((begin, next_begin - 1, max(n_bytes[within])))
    return found
