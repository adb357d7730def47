"""A fabric as data: chips and switches as numbered nodes, and links between them, each with a rate of its own."""

from __future__ import annotations

from collections import defaultdict, deque
from functools import cached_property

import msgspec


class Graph(msgspec.Struct, frozen=True, dict=True):
    """Links between the chips of a slice, which are the first ``chips`` of its ``nodes``; the others are switches.

    A link goes one way, from node to node: its number is its place in ``links``. ``rates`` are multiples of the rate of
    a chip's link (``ici.link_bytes_per_second``), one for each.
    """

    chips: int
    nodes: int
    links: tuple[tuple[int, int], ...]
    rates: tuple[float, ...]

    @cached_property
    def leaving(self) -> tuple[tuple[int, ...], ...]:
        """The links that leave each node."""
        return self._by_end(0)

    @cached_property
    def _entering(self) -> tuple[tuple[int, ...], ...]:
        return self._by_end(1)

    @cached_property
    def _known(self) -> dict[int, dict[int, int]]:
        return {}

    def _by_end(self, end: int) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in range(self.nodes)]
        for number, link in enumerate(self.links):
            found[link[end]].append(number)
        return tuple(map(tuple, found))

    def distances(self, target: int) -> dict[int, int]:
        """Return by node the links on a shortest way to ``target``, for those from which one leads there."""
        if target in self._known:
            return self._known[target]
        found, waiting = {target: 0}, deque([target])
        while waiting:
            node = waiting.popleft()
            for number in self._entering[node]:
                before = self.links[number][0]
                if before not in found:
                    found[before] = found[node] + 1
                    waiting.append(before)
        self._known[target] = found
        return found

    def spread(self, source: int, target: int) -> dict[int, float]:
        """Return what each link carries of a byte that takes all shortest ways at once, more on faster links.

        Nothing where no way leads there.
        """
        far = self.distances(target)
        carried: dict[int, float] = {}
        here = {source: 1.0} if source in far else {}
        while here:
            after: dict[int, float] = defaultdict(float)
            for node, share in here.items():
                nearer = [number for number in self.leaving[node] if far.get(self.links[number][1]) == far[node] - 1]
                whole = sum(self.rates[number] for number in nearer)
                for number in nearer:
                    carried[number] = share * self.rates[number] / whole
                    after[self.links[number][1]] += carried[number]
            here = after
        return carried
