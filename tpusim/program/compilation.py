"""What compiling a program took and did: its passes, and what it consists of before and after."""

from __future__ import annotations

from typing import Any

import msgspec

from tpusim.program.steps import TileLoop


class PassFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One pass: the CPU time that it took, and the instructions, kernels and bytes of HBM that it left."""

    name: str
    cpu_seconds: float
    instructions: int
    kernels: int
    hbm_bytes: int


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What a program consists of.

    ``kernels`` are the instructions of the computations that run which do more than name a value; ``fusions`` those
    of them that are several instructions joined, ``multi_output`` the fusions with more than one result, and
    ``product_fusions`` those with a product inside. ``fast_results`` are the arrays that kernels leave in VMEM or CMEM,
    ``prefetches`` the asynchronous copies and slices, ``tiled`` the kernels whose tiles are stated. ``hbm_bytes`` are
    what kernels take and give in HBM, whole arrays and each loop once.
    """

    instructions: int
    kernels: int
    hbm_bytes: int
    fusions: int
    multi_output: int
    product_fusions: int
    fast_results: int
    prefetches: int
    tiled: int


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass did with an array, or did not do, and why: ``name`` is what makes the array, ``user`` what reads it.

    ``is_done`` says which of the two. ``n_bytes`` are those of the array.
    """

    pass_name: str
    is_done: bool
    reason: str
    name: str
    user: str = ""
    n_bytes: int = 0


class Compilation(msgspec.Struct, frozen=True, kw_only=True):
    """How a program was compiled for a chip, and what the passes noted for people to read."""

    program: str
    chip: str
    passes: tuple[PassFigures, ...]
    before: Contents
    after: Contents
    notes: tuple[Note, ...] = ()

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of all passes."""
        return sum(one.cpu_seconds for one in self.passes)


class TriedTiles(msgspec.Struct, frozen=True, kw_only=True):
    """One way to cut a kernel: its tiles, and what it then takes by itself. ``stated`` are bounds by key of a window.

    ``split`` is the loop that is shared out among cores, -1 for none.
    """

    tiles: int
    loops: tuple[TileLoop, ...]
    stated: dict[str, tuple[int, ...]]
    alone_ps: int
    split: int = -1

    @property
    def fields(self) -> dict[str, Any]:
        """What ``backend_config`` says of it; numbers are text there."""
        window = {key: [str(bound) for bound in bounds] for key, bounds in self.stated.items()}
        return {"window_config": window} | ({} if self.split < 0 else split_at(self.split))


def split_at(loop: int) -> dict[str, Any]:
    """Return what ``backend_config`` says of a kernel that cores share at one of its loops."""
    return {"megacore_config": {"megacore_split_dim": str(loop)}}
