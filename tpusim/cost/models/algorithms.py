"""How collectives can be carried out: in the fabric's own way, or by messages of a textbook's algorithm.

Source: Thakur et al., Optimization of Collective Communication Operations in MPICH, 2005.
"""

from __future__ import annotations

from collections.abc import Sequence

from tpusim.cost.models.checked import rounds_fault
from tpusim.cost.models.protocols import CollectiveAlgorithm, Round
from tpusim.cost.models.registry import Registry
from tpusim.hardware.chip import Chip

ALGORITHMS: Registry[CollectiveAlgorithm] = Registry("ici.algorithm", rounds=rounds_fault)
"""By the name in a chip's file."""

EXCHANGE = "all-to-all"


def algorithm_of(chip: Chip) -> CollectiveAlgorithm:
    """Return how a chip carries out collectives."""
    return ALGORITHMS.named(chip.ici.algorithm, {})


@ALGORITHMS.enter("native")
class Native:
    """On a torus rings along all axes at once; on any other fabric one ring."""

    def rounds(self, kind: str, members: int) -> Sequence[Round] | None:
        """Return None: the torus has a way of its own."""
        return None


@ALGORITHMS.enter("direct")
class Direct:
    """Every member sends each other one its part at once."""

    def rounds(self, kind: str, members: int) -> Sequence[Round]:
        """Return one round of all pairs."""
        numbers = range(members)
        return (Round([(a, b, 1 / members) for a in numbers for b in numbers if a != b]),)


@ALGORITHMS.enter("ring")
class Ring:
    """Members pass on what they have got, both ways round; an exchange goes direct."""

    def rounds(self, kind: str, members: int) -> Sequence[Round]:
        """Return half as many rounds as there are other members, and one of halves where those are odd."""
        if kind == EXCHANGE:
            return Direct().rounds(kind, members)
        whole = Round(_neighbours(members, 1 / members), (members - 1) // 2)
        half = Round(_neighbours(members, 1 / (2 * members)), (members - 1) % 2)
        return [one for one in (whole, half) if one.times]


@ALGORITHMS.enter("halving")
class Halving:
    """Pairs swap all that they have, at twice the distance each time; for powers of two, else as a ring."""

    def rounds(self, kind: str, members: int) -> Sequence[Round]:
        """Return as many rounds as members can be halved."""
        if kind == EXCHANGE or members & (members - 1):
            return Ring().rounds(kind, members)
        distances = [1 << power for power in range(members.bit_length() - 1)]
        return [Round([(a, a ^ far, far / members) for a in range(members)]) for far in distances]


def _neighbours(members: int, share: float) -> list[tuple[int, int, float]]:
    """Return a message to each neighbour of every member of a ring."""
    return [(a, (a + way) % members, share) for way in (1, -1) for a in range(members)]
