"""Switches of so many ports in place of a torus: chips on leaves, leaves on one switch above.

PYTHONPATH=examples tpusim run traces/gpt2_train_fsdp.v5p_4x4x4.hlo.txt.gz --topology v5p:4x4x4 \
        --plugin switch_fabric -o ici.model=switch_fabric:Switches -o ici.settings.ports=16
"""

from __future__ import annotations

from tpusim.models import Chip, Graph, Torus


class Switches:
    """Leaves of ``ports`` chips each; the way from a leaf up is ``up`` times that of one chip."""

    def __init__(self, *, ports: int = 64, up: float = 1.0) -> None:
        if ports < 1 or up <= 0:
            raise ValueError(f"expected ports from 1 and a rate above 0, found {ports} and {up}")
        self.ports = ports
        self.up = up

    def links(self, torus: Torus, chip: Chip) -> Graph:
        """Return chips, then leaves, then the switch above, with two links for every wire: one each way."""
        chips = torus.chip_count
        leaves = -(-chips // self.ports)
        top = chips + leaves
        # A chip puts all of its links into its way to the leaf.
        wires = [(number, chips + number // self.ports, float(chip.ici.links)) for number in range(chips)]
        if leaves > 1:
            wires += [(chips + leaf, top, self.up * chip.ici.links) for leaf in range(leaves)]
        ends = [(a, b) for one, other, _ in wires for a, b in ((one, other), (other, one))]
        return Graph(chips, top + (leaves > 1), tuple(ends), tuple(rate for *_, rate in wires for _ in range(2)))
