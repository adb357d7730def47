"""How a kernel that was written by hand goes through its grid: what ``Kernel.classes`` leaves out, for pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import numpy as np


class Grid(msgspec.Struct, frozen=True):
    """The steps of a kernel in their order, the last dimension fastest.

    ``bounds`` and ``semantics`` are those of the grid's dimensions. ``order`` has one number a step: that of its class
    among the kernel's. ``blocks`` are the shapes of what the kernel's first streams move at once.
    """

    bounds: tuple[int, ...]
    semantics: tuple[str, ...]
    order: np.ndarray[Any, Any]
    blocks: tuple[tuple[int, ...], ...]
