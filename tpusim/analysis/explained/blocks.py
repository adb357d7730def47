"""A hand-written kernel with larger blocks, beside what it has."""

from __future__ import annotations

import msgspec


class TriedBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks of a kernel: by operand and result their ``bounds``, the ``grid`` that is left, and the time by itself.

    ``counts`` are the kernel's own steps along each dimension that one of these is, all 1 for its own blocks.
    """

    counts: tuple[int, ...]
    grid: tuple[int, ...]
    bounds: tuple[tuple[str, tuple[int, ...]], ...]
    vmem_bytes: float
    alone_ps: int
