"""Which arrays of a draft lie in host memory: from what is moved there, through loops and updates in place."""

from __future__ import annotations

from collections.abc import Iterable

from tpusim.allocation.liveness import Liveness, Nodes
from tpusim.draft import Draft, Node
from tpusim.semantics.host_memory import ARGUMENT_SPACES, TO_DEVICE, TO_HOST, move_of, stated_spaces
from tpusim.shapes.layout import HOST_SPACE
from tpusim.shapes.shape import ArrayShape

Part = tuple[int, ...]
"""The value of one part of a shape, as for ``tpusim.allocation``."""


class Held:
    """What lies in host memory: ``parts`` are by name the values of every instruction.

    ``with_copies`` are copies of what lies there in host memory as well, where some are that nobody asked for.

    Source: XLA, HostOffloader: what is moved to the host is there from then on, through tuples, loops and updates in
    place, until it is moved to the device.
    """

    def __init__(self, draft: Draft, *, with_copies: bool = False) -> None:
        self._homes: set[int] = set()
        self.parts: dict[str, Nodes] = {}
        nodes = [node for graph in draft.running() for node in graph.order()]
        begun = {*host_arguments(draft), *(node for node in nodes if is_to_host(node))}
        begun |= {node for node in nodes if node.opcode == "dynamic-update-slice" and is_to_host(node.operands[1])}
        # Most programs have nothing there.
        if not begun:
            return
        self._liveness = Liveness(draft.write(), 1)
        for frame in self._liveness.frames:
            for name, parts in frame.values.items():
                for one, other in zip(self.parts.setdefault(name, parts), parts, strict=True):
                    self._liveness.join(one, other)
        self._enter(begun)
        if not with_copies:
            return
        copies = [node for node in nodes if node.opcode == "copy"]
        while found := [node for node in copies if self.holds(node.operands[0]) and not self.holds(node)]:
            self._enter(found)

    def _enter(self, nodes: Iterable[Node]) -> None:
        self._homes |= {self._liveness.buffer(*self.parts[node.name][0]) for node in nodes if node.name in self.parts}

    @property
    def is_empty(self) -> bool:
        """Whether nothing lies in host memory."""
        return not self._homes

    def has(self, part: Part) -> bool:
        """Return whether a value lies in host memory."""
        return len(part) == 1 and self._liveness.buffer(*part) in self._homes

    def holds(self, node: Node) -> bool:
        """Return whether an array lies in host memory."""
        return isinstance(node.shape, ArrayShape) and node.name in self.parts and self.has(self.parts[node.name][0])


def host_arguments(draft: Draft) -> list[Node]:
    """Return the arguments of the program that are in host memory."""
    parameters = draft.entry.parameters
    spaces = stated_spaces(draft.attributes, ARGUMENT_SPACES, len(parameters))
    return [node for node in parameters if spaces and spaces[int(str(node.immediate))] == HOST_SPACE]


def is_to_host(node: Node) -> bool:
    """Return whether a node moves an array to host memory."""
    return node.opcode == "custom-call" and move_of(node.attributes) == TO_HOST


def is_to_device(node: Node) -> bool:
    """Return whether a node moves an array to the memory of the device."""
    return node.opcode == "custom-call" and move_of(node.attributes) == TO_DEVICE
