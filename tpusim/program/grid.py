"""How a kernel that was written by hand goes through its grid, and its code: what ``Kernel`` has no room for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tpusim.program.work import Work

if TYPE_CHECKING:
    import numpy as np


class CodeLine(msgspec.Struct, frozen=True):
    """What one kind of ``operation`` on a line of the source does in a stage of a part of the kernel, whenever it runs.

    Of the part's longest chain of what waits for each other ``chain_cycles`` are here, and ``products`` ways through
    the arrays.
    """

    part: int
    stage: int
    source: str
    operation: str
    work: Work
    chain_cycles: float = 0.0
    products: int = 0


class Grid(msgspec.Struct, frozen=True):
    """The steps of a kernel in their order, the last dimension fastest.

    ``bounds`` and ``semantics`` are those of the grid's dimensions. ``order`` has one number a step: that of its class
    among the kernel's. ``blocks`` are the shapes of what the kernel's first streams move at once. ``code`` is in its
    order, part by part.
    """

    bounds: tuple[int, ...]
    semantics: tuple[str, ...]
    order: np.ndarray[Any, Any]
    blocks: tuple[tuple[int, ...], ...]
    code: tuple[CodeLine, ...]
