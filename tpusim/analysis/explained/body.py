"""A hand-written kernel from the inside: its steps by kind, what holds each up, and the lines of its code."""

from __future__ import annotations

import msgspec

BLOCKS = "blocks"
"""What holds a step up that computes less long than its blocks take to come and go."""

BETWEEN = "between"
"""The scalar core's turn of the grid, and what it takes to ask for blocks."""


class StepKind(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of a grid that do the same: ``name`` says what for, ``where`` at which end of which dimensions they are.

    All ``steps`` take ``time_ps`` on their cores. One of them, on the mean, is held up for ``held_cycles``, which are
    the cycles that it takes: by the unit that is busiest at a time, by the ``chain`` of operations that wait for each
    other, by its ``blocks``. Units are busy for ``busy_cycles`` of that, with these ``operations``.
    """

    name: str
    where: tuple[str, ...]
    steps: int
    time_ps: int
    held_cycles: dict[str, float]
    busy_cycles: dict[str, float]
    operations: dict[str, float]
    in_bytes: float
    out_bytes: float

    @property
    def cycles(self) -> float:
        """What one of them takes."""
        return sum(self.held_cycles.values())


class CodeTime(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the kernel's source: what it holds up of the whole run of the kernel on a core, in cycles.

    ``operations`` are those on it, the longest first; ``source`` is empty where the body does not say.
    """

    source: str
    operations: tuple[str, ...]
    held_cycles: dict[str, float]
    share: float


class ChainLink(msgspec.Struct, frozen=True, kw_only=True):
    """One of the operations that wait for each other, in their order, and the cycles that its result takes."""

    source: str
    operation: str
    cycles: float


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel's steps and code, what takes most first; ``chain`` is that of a step of the first kind.

    ``least_ps`` is what each unit and memory is busy for in all: no order of the same work takes less than the longest.
    ``rest_ps`` is what the kernel takes besides: its launch, the first blocks in and the last ones out, and where it
    ``copies_itself`` what it waits for these.
    """

    kinds: tuple[StepKind, ...]
    lines: tuple[CodeTime, ...]
    chain: tuple[ChainLink, ...]
    least_ps: dict[str, int]
    rest_ps: int
    copies_itself: bool
