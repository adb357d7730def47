"""A fabric as data: chips and switches as numbered nodes, and links between them, each with a rate of its own."""

from __future__ import annotations

import msgspec


class Graph(msgspec.Struct, frozen=True, dict=True):
    """Links between the chips of a slice, which are the first ``chips`` of its ``nodes``; the others are switches.

    A link goes one way: its number is its place in ``links``. ``rates`` are in rates of a chip's link
    (``ici.link_bytes_per_second``), one for each.
    """

    chips: int
    nodes: int
    links: tuple[tuple[int, int], ...]
    rates: tuple[float, ...]
