"""The buffers of a program: how large, where, and from when to when they live."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate
from typing import Literal

import msgspec

from tpusim.program.work import MemorySpace

BufferKind = Literal["argument", "output", "temporary", "constant"]


class Buffer(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """One allocation. It lives from position ``first`` to ``last`` (inclusive) in the order of the entry's
    instructions.

    What a called computation needs on top is one buffer that lives while its caller runs.
    """

    name: str
    n_bytes: int
    space: MemorySpace
    kind: BufferKind
    first: int
    last: int


def peak_bytes(buffers: Iterable[Buffer]) -> int:
    """Return the most bytes that are alive at any one position."""
    changes: dict[int, int] = defaultdict(int)
    for buffer in buffers:
        changes[buffer.first] += buffer.n_bytes
        # An instruction needs operands and result at once: a buffer is free only behind its last user.
        changes[buffer.last + 1] -= buffer.n_bytes
    return max(accumulate(changes[position] for position in sorted(changes)), default=0)
