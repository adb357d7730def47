"""The links of one slice: a mesh or torus of chips, plain or twisted, and the ways through it.

Chips are numbered with the first axis fastest. A link goes one way from a chip to a neighbour: its number is the chip's
times twice the axes, plus twice the axis, plus 1 if it goes down the axis.
"""

from __future__ import annotations

from functools import cache, cached_property
from itertools import product
from math import prod
from operator import add, sub

import msgspec


class Torus(msgspec.Struct, frozen=True, dict=True):
    """Chips along each axis and which axes close to a ring.

    With a ``twist`` the ends of the short axes meet their beginnings shifted by so many chips along the long ones
    (Jouppi et al., ISCA 2023, twisted tori).
    """

    sizes: tuple[int, ...]
    wraps: tuple[bool, ...]
    twist: int = 0

    @cached_property
    def chip_count(self) -> int:
        """Chips in the slice."""
        return prod(self.sizes)

    @cached_property
    def link_count(self) -> int:
        """Numbers of links, those that a mesh lacks at its rim included."""
        return self.chip_count * 2 * len(self.sizes)

    # Asked for with every chip of every route.
    @cached_property
    def strides(self) -> tuple[int, ...]:
        """How far apart the numbers of neighbours along each axis are."""
        return tuple(prod(self.sizes[:axis]) for axis in range(len(self.sizes)))

    # A large pod asks for the same chips, links and displacements again and again: for every group of every collective.
    @cached_property
    def _coordinates(self) -> dict[int, tuple[int, ...]]:
        return {}

    @cached_property
    def _ends(self) -> dict[int, int]:
        return {}

    @cached_property
    def _ways(self) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
        return {}

    def coordinates(self, chip: int) -> tuple[int, ...]:
        """Return the place of a chip along each axis."""
        found = self._coordinates.get(chip)
        if found is None:
            found = tuple(chip // stride % size for stride, size in zip(self.strides, self.sizes, strict=True))
            self._coordinates[chip] = found
        return found

    def number(self, coordinates: tuple[int, ...]) -> int:
        """Return the number of the chip at ``coordinates``."""
        return sum(place * stride for place, stride in zip(coordinates, self.strides, strict=True))

    def link(self, chip: int, axis: int, down: bool) -> int:
        """Return the number of the link that leaves a chip along an axis, up or ``down``."""
        return (chip * len(self.sizes) + axis) * 2 + down

    def shift(self, axis: int) -> tuple[int, ...]:
        """Return by how much one turn round an axis moves every coordinate."""
        if not self.twist or self.sizes[axis] != self.twist:
            return (0,) * len(self.sizes)
        return tuple(self.twist if size != self.twist else 0 for size in self.sizes)

    def step(self, coordinates: tuple[int, ...], axis: int, down: bool) -> tuple[int, ...]:
        """Return the neighbour of a chip along an axis."""
        moved = list(coordinates)
        moved[axis] += -1 if down else 1
        if 0 <= moved[axis] < self.sizes[axis]:
            return tuple(moved)
        moved[axis] %= self.sizes[axis]
        shifted = zip(moved, self.shift(axis), self.sizes, strict=True)
        return tuple((place + (-by if down else by)) % size for place, by, size in shifted)

    def displacements(self, source: int, target: int) -> list[tuple[int, ...]]:
        """Return the shortest ways as steps along each axis; up comes first where both ways round are as long."""
        plain = tuple(map(sub, self.coordinates(target), self.coordinates(source)))
        if plain not in self._ways:
            self._ways[plain] = self._shortest_ways(plain)
        return self._ways[plain]

    def _shortest_ways(self, plain: tuple[int, ...]) -> list[tuple[int, ...]]:
        if not self.twist:
            axes = zip(plain, self.sizes, self.wraps, strict=True)
            return list(product(*(_shortest(steps, size, wraps) for steps, size, wraps in axes)))
        return list(_twisted_ways(self, self._reduced(plain)))

    def _reduced(self, plain: tuple[int, ...]) -> tuple[int, ...]:
        """Return a displacement that leads to the same chip and lies within the sizes: as many as there are chips."""
        way = plain
        # Short axes first: their turns move what lies along the long ones.
        for axis in sorted(range(len(way)), key=lambda axis: self.sizes[axis]):
            way = self.rounded(way, tuple(-(way[axis] // self.sizes[axis]) * (axis == a) for a in range(len(way))))
        return way

    @cached_property
    def circuits(self) -> tuple[tuple[int, ...], ...]:
        """The displacements of up to two turns round each axis, all of which lead back to the same chip."""
        # Two turns of short axes can undo one of a long axis.
        turns = [range(-2, 3) if wraps else (0,) for wraps in self.wraps]
        return tuple(self.rounded((0,) * len(self.sizes), times) for times in product(*turns))

    def rounded(self, plain: tuple[int, ...], times: tuple[int, ...]) -> tuple[int, ...]:
        """Return a displacement with so many more turns round each axis, which leads to the same chip."""
        way = list(plain)
        for axis, turns in enumerate(times):
            way[axis] += turns * self.sizes[axis]
            for other, by in enumerate(self.shift(axis)):
                way[other] -= turns * by
        return tuple(way)

    def route(self, source: int, way: tuple[int, ...]) -> list[int]:
        """Return the links on the way from a chip, one axis after the other."""
        links, chip = [], source
        for axis, steps in enumerate(way):
            for _ in range(abs(steps)):
                link = self.link(chip, axis, steps < 0)
                if link not in self._ends:
                    self._ends[link] = self.number(self.step(self.coordinates(chip), axis, steps < 0))
                links.append(link)
                chip = self._ends[link]
        return links

    def distance(self, source: int, target: int) -> int:
        """Return the number of links between two chips."""
        return sum(map(abs, self.displacements(source, target)[0]))

    def ring(self, chips: tuple[int, ...]) -> tuple[int, ...]:
        """Return the chips of a block in an order in which neighbours are near, the last and the first too.

        In a block with an axis of even length every step is one link, as in the comb that JAX uses for 4x4 (jax,
        mesh_utils). Chips that form no block come as they are given.
        """
        places = [sorted(set(line)) for line in zip(*map(self.coordinates, chips), strict=True)]
        if prod(map(len, places)) != len(chips):
            return chips
        # The axis of even length leads: teeth out and back, and home along the comb's spine.
        axes = sorted((a for a, line in enumerate(places) if len(line) > 1), key=lambda a: len(places[a]) % 2)
        if not axes:
            return chips
        first, rest = axes[0], axes[1:]
        corner = [line[0] for line in places]
        spine = [self._at(corner, {first: place}) for place in reversed(places[first])]
        teeth = _snake([places[axis] for axis in rest])[1:]
        if not teeth:
            return tuple(reversed(spine))
        ring = []
        for row, place in enumerate(places[first]):
            for tooth in teeth if row % 2 == 0 else reversed(teeth):
                ring.append(self._at(corner, {first: place} | dict(zip(rest, tooth, strict=True))))
        return tuple(ring + spine)

    def _at(self, corner: list[int], moved: dict[int, int]) -> int:
        """Return the chip at a corner with some of its coordinates replaced."""
        return self.number(tuple(moved.get(axis, place) for axis, place in enumerate(corner)))


# A twisted torus looks the same from every chip, so what was found for one pair serves all that lie alike.
@cache
def _twisted_ways(torus: Torus, plain: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the shortest ways to where a displacement leads on a twisted torus."""
    ways = {tuple(map(add, plain, circuit)) for circuit in torus.circuits}
    lengths = {way: sum(map(abs, way)) for way in ways}
    least = min(lengths.values())
    # Sorted, since sets have no order of their own: the same way is taken on every host.
    return tuple(sorted((way for way, length in lengths.items() if length == least), reverse=True))


def _shortest(steps: int, size: int, wraps: bool) -> tuple[int, ...]:
    """Return the shortest ways along one axis: both where they are as long, up first."""
    if not wraps:
        return (steps,)
    up = steps % size
    return (up, up - size) if 2 * up == size else (min(up, up - size, key=abs),)


def _snake(lines: list[list[int]]) -> list[tuple[int, ...]]:
    """Return all places of a block in an order in which each is next to the one before."""
    if not lines:
        return [()]
    inner = _snake(lines[1:])
    return [(place, *rest) for row, place in enumerate(lines[0]) for rest in (inner if row % 2 == 0 else inner[::-1])]
