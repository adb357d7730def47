"""Slices of a pod by the names that users know: ``v5e:4x4``, ``v5p-128``, ``v5litepod-16``, ``tpu7x:4x4x4*2``.

A slice is a mesh of chips; ``*2`` are two such slices joined by the data-centre network. A name with a number counts
what the chip's file says (cores or chips), and means the shape that Google Cloud gives by default: as nearly a square
or a cube as it can be. Devices are numbered as JAX's are, by coordinates: the first axis fastest, the devices of a chip
together. (``jax.devices()`` lists those of several hosts host by host, in another order than their numbers':
``Pod.by_host``.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

import msgspec

from tpusim.errors import ConfigError
from tpusim.hardware.chip import Chip
from tpusim.hardware.fabric import Graph
from tpusim.hardware.load import load_chip
from tpusim.hardware.torus import Torus
from tpusim.limits import CHIPS, DEVICES

# As texts, which are compiled where one is asked for: most runs name no slice.
# JAX names a topology v5e:2x4; file names use an underscore, as not all file systems take a colon.
_NOTATION = (
    r"(?:(?P<chip>[A-Za-z][\w-]*?)[:_])?(?P<sizes>\d+(?:x\d+)*)(?P<twist>_twisted|_untwisted)?(?:\*(?P<slices>\d+))?"
)
_NUMBERED = r"(?P<chip>[A-Za-z]\w*?)-(?P<count>\d+)(?:\*(?P<slices>\d+))?"

RING_CHIPS = 16
"""Up to so many chips JAX lays a one-dimensional mesh of devices along a ring of neighbours (jax, mesh_utils)."""


class Topology(msgspec.Struct, frozen=True):
    """Chips along each axis of a slice, as in ``v5e:2x4``; ``chip`` may be left out.

    ``twist`` is ``twisted`` or ``untwisted`` where the name says so; ``slices`` such slices work together.
    """

    sizes: tuple[int, ...]
    chip: str = ""
    slices: int = 1
    twist: str = ""

    @property
    def chip_count(self) -> int:
        """Chips in all slices."""
        return prod(self.sizes) * self.slices

    def __str__(self) -> str:
        """Return the notation that ``parse_topology`` reads."""
        sizes = "x".join(map(str, self.sizes)) + (f"_{self.twist}" if self.twist else "")
        return (f"{self.chip}:" if self.chip else "") + sizes + (f"*{self.slices}" if self.slices > 1 else "")


class Place(msgspec.Struct, frozen=True):
    """Where a device sits: the slice, the chip's coordinates in it, and which of the chip's devices it is."""

    slice_number: int
    coordinates: tuple[int, ...]
    on_chip: int


class Detour(msgspec.Struct, frozen=True):
    """The ways round a link that is down: what each link of them carries of a byte, and how many follow each other."""

    carried: tuple[tuple[int, float], ...]
    links: int


class Pod(msgspec.Struct, frozen=True):
    """Slices of one chip with their links.

    ``host_sizes`` are the chips along each axis that hang on one host; ``order`` lists the chips of a slice as its
    devices are numbered. Chips stand as in ``torus``, and are joined by its links or by those of a ``graph``.
    ``detours`` are by the number of a link that is down, ``link_factors`` by that of one whose rate is another.
    """

    chip: str
    torus: Torus
    slices: int
    devices_per_chip: int
    host_sizes: tuple[int, ...]
    order: tuple[int, ...]
    graph: Graph | None = None
    detours: dict[int, Detour] = {}
    link_factors: dict[int, float] = {}

    @property
    def link_count(self) -> int:
        """Numbers of links in a slice."""
        return self.torus.link_count if self.graph is None else len(self.graph.links)

    def named_link(self, number: int) -> tuple[int, str]:
        """Return the chip that a link of a slice leaves, and how: up or down an axis (``-1``), or to a node (``>9``).

        Switches are numbered behind the chips of all slices.
        """
        in_slice, link = divmod(number, self.link_count)
        if self.graph is None:
            chip, which = divmod(link, 2 * len(self.torus.sizes))
            return in_slice * self.torus.chip_count + chip, f"{'-' if which % 2 else '+'}{which // 2}"
        source, target = (self._node(in_slice, node) for node in self.graph.links[link])
        return source, f">{target}"

    def _node(self, in_slice: int, node: int) -> int:
        """Return the number in the pod of a node of a slice."""
        chips = len(self.order)
        if node < chips or self.graph is None:
            return in_slice * chips + node
        return self.slices * chips + in_slice * (self.graph.nodes - chips) + node - chips

    @property
    def device_count(self) -> int:
        """Devices in all slices."""
        return len(self.order) * self.slices * self.devices_per_chip

    @property
    def chip_count(self) -> int:
        """Chips in all slices."""
        return len(self.order) * self.slices

    @property
    def device_order(self) -> str:
        """How devices are numbered: as ``listed`` by coordinates, or along a ``ring`` of neighbours."""
        return "listed" if list(self.order) == sorted(self.order) else "ring"

    def chip_of(self, device: int) -> int:
        """Return the number of a device's chip: slices one after the other, chips within by coordinates."""
        slice_number, place = divmod(device // self.devices_per_chip, len(self.order))
        return slice_number * len(self.order) + self.order[place]

    def place_of(self, device: int) -> Place:
        """Return where a device sits."""
        slice_number, chip = divmod(self.chip_of(device), len(self.order))
        return Place(slice_number, self.torus.coordinates(chip), device % self.devices_per_chip)

    @property
    def by_host(self) -> tuple[int, ...]:
        """The devices as ``jax.devices()`` lists them: host by host, those of a host by number."""
        return tuple(sorted(range(self.device_count), key=lambda device: (self.host_of(device), device)))

    def host_of(self, device: int) -> int:
        """Return the number of the host that a device hangs on, slices one after the other."""
        place = self.place_of(device)
        number, hosts = 0, 1
        for coordinate, size, per_host in zip(place.coordinates, self.torus.sizes, self.host_sizes, strict=True):
            number += coordinate // per_host * hosts
            hosts *= -(-size // per_host)
        return place.slice_number * hosts + number


def as_topology(topology: Topology | str | None) -> Topology | None:
    """Return a slice that is given as one, or by its name; None where none is given.

    Raises ConfigError for anything else.
    """
    if topology is None or isinstance(topology, Topology):
        return topology
    if not isinstance(topology, str):
        raise ConfigError(f"topology: expected a slice such as 'v5e:2x4', found {topology!r:.80}")
    return parse_topology(topology)


def parse_topology(text: str) -> Topology:
    """Return the slice that ``v5e:2x4``, ``v5e_2x4``, ``2x4``, ``v5p-128`` or ``v4:4x4x8_untwisted*2`` names.

    Raises ConfigError for anything else.
    """
    if numbered := re.fullmatch(_NUMBERED, text.strip()):
        name = numbered["chip"]
        chip = load_chip(name)
        chips, rest = divmod(CHIPS.number(numbered["count"]), chip.pod.counted_per_chip)
        if not chips or rest:
            raise ConfigError(f"topology: {name} counts {chip.pod.counted_per_chip} of each chip, found {text!r}")
        _require(CHIPS.fault(chips))
        return _bounded(Topology(default_sizes(chips, chip), name, CHIPS.number(numbered["slices"] or "1")))
    match = re.fullmatch(_NOTATION, text.strip())
    sizes = tuple(map(CHIPS.number, match["sizes"].split("x"))) if match else ()
    slices = CHIPS.number(match["slices"] or "1") if match else 1
    if match is None or not all(sizes) or not slices:
        raise ConfigError(
            f"topology: expected chips along each axis such as v5e:2x4 or 4x4x4, or a name such as v5p-128, "
            f"found {text!r}"
        )
    return _bounded(Topology(sizes, match["chip"] or "", slices, (match["twist"] or "").lstrip("_")))


def _bounded(topology: Topology) -> Topology:
    _require(CHIPS.fault(topology.chip_count))
    return topology


def _require(fault: str) -> None:
    if fault:
        raise ConfigError(f"topology: {fault}")


def default_sizes(chips: int, chip: Chip) -> tuple[int, ...]:
    """Return the shape of so many chips that Google Cloud gives by default: short axes first, cut as evenly as can be.

    ``v4-8`` is 2x2x1: what does not leave a host needs no third axis.
    """
    axes = max(1, chip.ici.dimensions)
    best = min(_factorings(chips, axes), key=lambda sizes: (sum(sizes), sizes))
    return tuple(size for size in best if size > 1) + (1,) * best.count(1)


def _factorings(number: int, parts: int, least: int = 1) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (number,)
        return
    for factor in range(least, int(number ** (1 / parts) + 1e-9) + 1):
        if number % factor == 0:
            for rest in _factorings(number // factor, parts - 1, factor):
                yield (factor, *rest)


def make_pod(topology: Topology, chip: Chip, *, along_ring: bool = False) -> Pod:
    """Return the slices of ``topology`` with the links that the chip has; raise ConfigError if it cannot form them.

    ``along_ring`` numbers the chips of a small slice along a ring of neighbours, as JAX does for meshes of one axis.
    """
    axes = max(1, chip.ici.dimensions)
    if len(topology.sizes) > axes:
        raise ConfigError(f"topology: {chip.name} has links along {axes} axes, found {topology}")
    if prod(topology.sizes) > chip.pod.chips:
        raise ConfigError(f"topology: a slice of {chip.name} has at most {chip.pod.chips} chips, found {topology}")
    _require(DEVICES.fault(topology.chip_count * chip.devices_per_chip))
    sizes = topology.sizes + (1,) * (axes - len(topology.sizes))
    torus = Torus(sizes, wraps_of(sizes, chip.ici.wrap), _twist(topology, sizes, chip))
    order = tuple(range(prod(sizes)))
    return Pod(
        chip=chip.name,
        torus=torus,
        slices=topology.slices,
        devices_per_chip=chip.devices_per_chip,
        host_sizes=(*map(int, chip.pod.host.split("x")), *(1,) * axes)[:axes],
        order=torus.ring(order) if along_ring and len(order) <= RING_CHIPS else order,
    )


def wraps_of(sizes: tuple[int, ...], rule: str) -> tuple[bool, ...]:
    """Return which axes close to a ring, by the chip's rule: see ``Ici.wrap``."""
    # Two chips are joined by one link: a second one round the back would be the same neighbour again.
    if rule == "cube4":
        return tuple(size > 2 and all(other % 4 == 0 for other in sizes) for size in sizes)
    return tuple(size > 2 and (rule == "always" or size == 16) for size in sizes)


def _twist(topology: Topology, sizes: tuple[int, ...], chip: Chip) -> int:
    """Return by how many chips the long axes shift where a short one closes: 0 for a plain torus.

    A torus of n x n x 2n or n x 2n x 2n chips is twisted unless the name says otherwise (Google Cloud, TPU v4).
    """
    short, long = min(sizes), max(sizes)
    fits = len(sizes) == 3 and long == 2 * short and set(sizes) == {short, long} and short % 4 == 0
    if topology.twist == "twisted" and not (fits and chip.pod.twists):
        raise ConfigError(f"topology: expected n x n x 2n or n x 2n x 2n chips of v4 or v5p to twist, found {topology}")
    return short if fits and chip.pod.twists and topology.twist != "untwisted" else 0
