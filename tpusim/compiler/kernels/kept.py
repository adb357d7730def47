"""Which memory must stay as it is: the caller's, that of constants, and what is read afterwards."""

from __future__ import annotations

from collections.abc import Collection

from tpusim.compiler.kernels.places import Home, Order, home_of
from tpusim.draft import Draft, Graph, Node
from tpusim.hardware.units import MemorySpace
from tpusim.ir.attributes import BufferDonor, ParameterAlias
from tpusim.semantics.infer.types import indexed_leaves, subshape
from tpusim.semantics.memory_spaces import space_of
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import ArrayShape


class Kept:
    """Answers which memory must stay as it is; ``bodies`` are those of loops, whose state is theirs."""

    def __init__(self, order: Order, bodies: Collection[Graph]) -> None:
        self._order = order
        self._bodies = bodies
        aliases, donors = given_away(order.draft)
        self._given_away = donors | set(aliases.values())

    def readers_before(self, graph: Graph, array: Node, node: Node) -> list[Node] | None:
        """Return what reads an array beside a node that is to write over it, None if something does so behind it."""
        number, home = self._order.of(graph), home_of(self._order, array)
        if home == home_of(self._order, graph.root):
            return None
        readers = [reader for reader in self._order.readers(graph, home) if reader is not node]
        return None if any(number[reader] > number[node] for reader in readers) else readers

    def is_callers(self, graph: Graph, home: Home) -> bool:
        """Return whether an array is an argument of the program that the caller has not given away."""
        is_argument = graph is self._order.draft.entry and home.node.opcode == "parameter"
        return is_argument and self._given_away.isdisjoint((home, Home(home.node)))

    def holds(self, graph: Graph, array: Node) -> bool:
        """Return whether the memory of an array has to stay as it is, whatever the graph still reads."""
        home = home_of(self._order, array)
        # Of a tuple in a tuple nobody knows who else has its elements.
        if home.node.opcode == "get-tuple-element":
            return True
        if home.node.opcode != "parameter":
            return home.node.opcode == "constant"
        if graph is self._order.draft.entry:
            return self.is_callers(graph, home)
        # What a branch is not given to write over all that comes after it may read.
        return graph not in self._bodies and home not in self._order.given_to.get(graph, {})


def given_away(draft: Draft) -> tuple[dict[int, Home], set[Home]]:
    """Return by result where the caller wants it, and beside that which arguments it gives away for whatever use.

    Results and arguments in tuples in tuples are left where they are.
    """
    arguments = {node.immediate: node for node in draft.entry.parameters}
    aliases: dict[int, Home] = {}
    for alias in draft.attributes.get("input_output_alias", ()):
        if alias.parameter in arguments and max(len(alias.output_index), len(alias.parameter_index)) < 2:
            at = alias.output_index[0] if alias.output_index else 0
            aliases[at] = Home(arguments[alias.parameter], *alias.parameter_index)
    donors = [donor for donor in draft.attributes.get("buffer_donor", ()) if donor.parameter in arguments]
    given = {Home(arguments[one.parameter], *one.parameter_index) for one in donors if len(one.parameter_index) < 2}
    return aliases, given - set(aliases.values())


def pair_donors(draft: Draft) -> None:
    """Let results lie in arguments that are given away for whatever use and have as many bytes, first in first.

    Which argument a result is made of does not count: what is read there too late is copied, as for any alias.

    Source: XLA, OptimizeInputOutputBufferAlias; headers of programs compiled for v5e, which pair arrays of other sizes.
    """
    stated, donors = draft.attributes.get("input_output_alias", ()), draft.attributes.get("buffer_donor", ())
    shapes = {node.immediate: node.shape for node in draft.entry.parameters}
    fitting: dict[tuple[MemorySpace, int], list[BufferDonor]] = {}
    for donor in sorted(donors, key=lambda donor: (donor.parameter, donor.parameter_index)):
        given = subshape(shapes[donor.parameter], donor.parameter_index) if donor.parameter in shapes else None
        if isinstance(given, ArrayShape):
            fitting.setdefault(_room_of(given), []).append(donor)
    taken = {alias.output_index for alias in stated}
    found: dict[BufferDonor, ParameterAlias] = {}
    for index, result in indexed_leaves(draft.entry.root.shape):
        left = fitting.get(_room_of(result)) if isinstance(result, ArrayShape) and index not in taken else None
        if left:
            donor = left.pop(0)
            found[donor] = ParameterAlias(index, donor.parameter, donor.parameter_index)
    if found:
        unused = tuple(donor for donor in draft.attributes.pop("buffer_donor") if donor not in found)
        aliases = sorted((*stated, *found.values()), key=lambda alias: alias.output_index)
        draft.attributes |= {"input_output_alias": tuple(aliases)} | ({"buffer_donor": unused} if unused else {})


def _room_of(array: ArrayShape) -> tuple[MemorySpace, int]:
    return space_of(array), physical_bytes(array)
