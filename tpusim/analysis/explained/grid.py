"""The steps of a hand-written kernel: which blocks come and go with each, and when some of them run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import numpy as np

AROUND = 3
"""Steps that an excerpt has."""


LANES = ("in", "compute", "out")
"""What goes on beside each other in a pipeline of steps."""


class GridWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One operand or result: ``new`` says of each step whether its block is another one than the step's before.

    ``block`` is its shape, ``seconds`` what one of them takes to move, 0 for what stays in VMEM.
    """

    name: str
    is_output: bool
    space: str
    block: tuple[int, ...]
    block_bytes: float
    seconds: float
    new: np.ndarray[Any, Any]


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A bar of a lane of the pipeline, from ``begin`` to ``end`` in seconds.

    ``window`` is the number of what moves; None for what a step computes, and for what a memory takes to answer.
    """

    lane: str
    step: int
    begin: float
    end: float
    window: int | None = None


class KernelGrid(msgspec.Struct, frozen=True, kw_only=True):
    """A hand-written kernel, step by step.

    ``order`` has the class of each step, ``cycles`` what a step of each class computes, ``skipped`` which classes run
    nothing of what others do. ``excerpts`` are the first steps, some of the middle, and the last ones, or all of them
    where they are few.
    """

    name: str
    chip: str
    cores: int
    bounds: tuple[int, ...]
    semantics: tuple[str, ...]
    order: np.ndarray[Any, Any]
    cycles: tuple[float, ...]
    skipped: tuple[bool, ...]
    windows: tuple[GridWindow, ...]
    alone_ps: int
    excerpts: tuple[tuple[Span, ...], ...]
