"""Windows from what the document's arguments say: sizes, strides, padding by name or by edge, dilations.

Source: XLA, Operation Semantics, and ``MakePadding`` of its client library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tpusim.errors import ProgramError
from tpusim.ir.attributes import Window, WindowDimension
from tpusim.semantics.windows import dilated

Padding: TypeAlias = str | Sequence[Sequence[int]]
"""``SAME``, ``VALID``, or (low, high) per dimension."""

Counts: TypeAlias = Sequence[int] | None
"""One number per dimension; None is 1 for each."""


def make_window(
    base_sizes: Sequence[int],
    window_sizes: Sequence[int],
    strides: Counts,
    padding: Padding,
    dilations: tuple[Counts, Counts] = (None, None),
    reversal: Sequence[bool] | None = None,
) -> Window:
    """Return a window over a base of ``base_sizes``, all in elements; ``dilations`` are those of base and window.

    Raises ProgramError unless every list has one entry per dimension.
    """
    rank = len(window_sizes)
    steps, lhs_dilate, rhs_dilate = (
        list(counts) if counts is not None and len(counts) else [1] * rank for counts in (strides, *dilations)
    )
    # SAME pads for what a window reaches over, holes between its elements included.
    reach = list(map(dilated, window_sizes, rhs_dilate))
    edges = _edges(padding, list(map(dilated, base_sizes, lhs_dilate)), reach, steps)
    turned = list(reversal) if reversal is not None else [False] * rank
    # Lengths are compared last, so that one message says which list is short.
    columns = (window_sizes, steps, edges, lhs_dilate, rhs_dilate, turned)
    if any(len(column) != rank for column in columns):
        raise ProgramError(f"expected {rank} numbers each for strides, padding, dilations, found {columns[1:]}")
    rows = zip(*columns, strict=True)
    return Window(tuple(WindowDimension(n, s, e[0], e[1], ld, rd, t) for n, s, e, ld, rd, t in rows))


def _edges(
    padding: Padding, base: Sequence[int], window: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, ...]]:
    """Return (low, high) per dimension, of base and window as the dilations have left them."""
    if not isinstance(padding, str):
        return [tuple(edge) for edge in padding]
    # The document's Padding::kSame and kValid are as good.
    name = padding.upper().removeprefix("K")
    if name not in ("SAME", "VALID"):
        raise ProgramError(f"expected padding SAME, VALID or (low, high) per dimension, found {padding!r}")
    if name == "VALID":
        return [(0, 0)] * len(window)
    # As many as make ceil(base / stride) windows fit; with large strides the last elements are left over.
    sizes = zip(base, window, strides, strict=False)
    # A stride that is none is refused with the window.
    totals = (max((-(-size // (stride or 1)) - 1) * stride + reach - size, 0) for size, reach, stride in sizes)
    # The odd element goes to the high edge.
    return [(total // 2, total - total // 2) for total in totals]
