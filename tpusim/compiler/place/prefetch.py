"""Arrays that come into fast memory before they are read: asynchronous copies beside kernels that leave HBM idle.

A copy begins so many kernels ahead that what these leave of HBM's bandwidth suffices for it, as long as there is room
from there to the last kernel that reads it. For what several kernels would wait for it need not suffice: they would
read it several times. What is fetched across programs has come in during the run before: a first run waits for it.

Source: XLA, memory space assignment: prefetches by the cost of the kernels between, and one across programs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice

from tpusim.compiler.place.borders import Border
from tpusim.compiler.place.lives import Home, Lives
from tpusim.compiler.place.room import Room
from tpusim.compiler.place.spaces import in_space, match_fusion
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.ops import CONTROL_FLOW, VIEWS
from tpusim.semantics.infer.types import U32
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.layout import SYNC_FLAG_SPACE
from tpusim.shapes.shape import ArrayShape, TupleShape

MOST_KERNELS_AHEAD = 16
"""So far ahead a copy begins at most; in programs compiled ahead of time it is 1 to 10 kernels."""


def prefetch(
    draft: Draft,
    target: Target,
    lives: Lives,
    room: Room,
    moved: set[Home],
    borders: list[Border],
    *,
    argument: Node | None,
) -> None:
    """Let copies at the ``borders`` of loops run beside kernels, and fetch what kernels would wait for: one
    ``argument`` across programs.
    """
    for graph in draft.running():
        line = _Line(graph, target, lives, room, moved)
        for border in borders:
            if border.graph is graph:
                line.start_early(border)
        if argument and graph is draft.entry:
            line.fetch_across_programs(argument)
        # Room is taken at one place of the schedule.
        if lives.visits[graph.name] == 1:
            line.fetch_ahead()
        line.schedule()


class _Line:
    """The nodes of a graph in their order. HBM could move ``could[i]`` bytes while node i computes, has to move
    ``must[i]`` for it, and has ``lent[i]`` to copies beside it.
    """

    def __init__(self, graph: Graph, target: Target, lives: Lives, room: Room, moved: set[Home]) -> None:
        self.graph = graph
        self.target = target
        self.lives = lives
        self.room = room
        self.moved = moved
        self.nodes = graph.order()
        self.at = {node: number for number, node in enumerate(self.nodes)}
        self.could = [0.0] * len(self.nodes)
        self.must = [0.0] * len(self.nodes)
        self.lent = [0.0] * len(self.nodes)
        # Where what has been asked for is used: a weight may be of thousands of kernels.
        self.used: dict[Node, list[int]] = {}
        # What comes before a node, and what comes no more.
        self.before: dict[Node, list[Node]] = {}
        self.gone: set[Node] = set()
        for number, node in enumerate(self.nodes):
            kernel = lives.kernels.get(node.name)
            if kernel is not None:
                self.could[number] = kernel.compute_seconds * target.hbm_rate
                self.must[number] = sum(move.n_bytes for move in kernel.moves if move.home not in moved)

    def start_early(self, border: Border) -> None:
        """Let the copy at a border begin as early as is of use, and end where it stood."""
        copy, operand = border.copy, border.copy.operands[0]
        end = begin = self.at[copy]
        if border.leaves:
            begin = self._made(operand)
            self._lend(self._size(operand), begin, end)
        elif not border.is_after:
            begin, _ = self._begin(operand, end)
            self._take(operand, begin, end, end - 1)
        done = self._insert(operand, copy.array, begin, end)
        self.graph.replace(copy, done)
        self.gone.add(copy)
        # Under the name that kernels know it by it may be fetched again.
        done.name, self.at[done] = copy.name, end

    def fetch_across_programs(self, argument: Node) -> None:
        """Fetch an argument, whose room is held for it, as the program begins."""
        begin, readers = len(self.graph.parameters), sorted(self.at[user] for user in argument.users)
        self._fetch(argument, begin, readers, {"cross_program_prefetch_index": 0})
        self._note(argument, readers[0], "comes in as the program begins", is_done=True)

    def fetch_ahead(self) -> None:
        """Fetch what kernels read of HBM and would wait for."""
        for number in range(len(self.nodes)):
            for operand in self._waited_for(number):
                begin, is_hidden = self._begin(operand, number)
                readers = self._readers(operand, number)
                # What several kernels would wait for is better read once, also beside one that leaves HBM no time.
                beside = sum(max(self.could[at], self.must[at]) for at in range(begin, number))
                is_beside = beside >= self._size(operand)
                is_enough = is_hidden or (is_beside and self._saved(operand, readers) > self._size(operand))
                has_room = is_enough and readers[:1] == [number]
                if has_room:
                    self._take(operand, begin, number, readers[-1])
                    self._fetch(operand, begin, readers)
                why = "has no room until it is read" if is_enough else "has too little idle time of HBM before that"
                self._note(operand, number, "comes in beside earlier kernels" if has_room else why, is_done=has_room)

    def schedule(self) -> None:
        """Give the graph its schedule, with what has come to it."""
        found: dict[Node, None] = {}

        def enter(node: Node) -> None:
            # What only names an array follows what makes it, if a copy wants it earlier than it stood.
            for operand in node.operands:
                if operand not in found:
                    enter(operand)
            found[node] = None

        for node in self.nodes:
            for other in (*self.before.get(node, ()), node):
                if other not in self.gone and other not in found:
                    enter(other)
        self.graph.sequence = list(found)

    def _note(self, operand: Node, number: int, why: str, *, is_done: bool) -> None:
        maker = operand.operands[0] if operand.opcode == "get-tuple-element" else operand
        user, size = self.nodes[number].name, self._size(operand)
        self.target.note("prefetch", is_done=is_done, reason=why, name=maker.name, user=user, n_bytes=size)

    # What is worth it.

    def _waited_for(self, number: int) -> Iterator[Node]:
        """Yield the arrays that a kernel reads whole from HBM, if it takes longer to read than to compute."""
        for operand in dict.fromkeys(self.nodes[number].operands):
            if not isinstance(operand.shape, ArrayShape) or operand.is_small:
                continue
            # What has been fetched before may have been enough.
            if self.must[number] > self.could[number] and self._read(number, operand) >= self._size(operand):
                yield operand

    def _read(self, number: int, operand: Node) -> float:
        """Return the bytes that a kernel reads of an operand in HBM; 0 if it writes to the same place."""
        kernel = self.lives.kernels.get(self.nodes[number].name)
        move = kernel.reads.get(operand.name) if kernel else None
        return 0.0 if move is None or move.home in self.moved else move.n_bytes

    def _saved(self, operand: Node, readers: Sequence[int]) -> float:
        """Return the bytes that kernels would wait for if they read an operand from HBM."""
        return sum(min(self._read(n, operand), max(0.0, self.must[n] - self.could[n])) for n in readers)

    def _readers(self, operand: Node, first: int) -> list[int]:
        """Return the kernels from number ``first`` on that read an operand, as far as there is room for it."""
        found: list[int] = []
        position = self._position(first)
        if operand not in self.used:
            self.used[operand] = sorted(self.at[user] for user in operand.users if user in self.at)
        used = self.used[operand]
        for number in islice(used, bisect_left(used, first), None):
            if not self._read(number, operand):
                continue
            if not self.room.has(position, self._position(number), self._size(operand)):
                break
            found.append(number)
            position = self._position(number) + 1
        return found

    # Room and time.

    def _size(self, operand: Node) -> int:
        return physical_bytes(operand.shape)

    def _position(self, number: int) -> int:
        return self.lives.positions[self.nodes[number].name]

    def _idle(self, number: int) -> float:
        """Return the bytes that HBM could move beside a kernel."""
        return max(0.0, self.could[number] - self.must[number] - self.lent[number])

    def _begin(self, operand: Node, end: int) -> tuple[int, bool]:
        """Return before which node a copy is to begin that ends before ``end``, and whether that is early enough."""
        earliest, needed, ahead = self._made(operand), self._size(operand) + self.target.latency_bytes, 0
        begin = end
        while needed > 0 and begin > earliest and ahead < MOST_KERNELS_AHEAD:
            number = begin - 1
            position = self._position(number)
            is_kernel = self.nodes[number].name in self.lives.kernels
            if self.nodes[number].opcode in CONTROL_FLOW or not self.room.has(position, position, self._size(operand)):
                break
            needed -= self._idle(number)
            ahead += is_kernel
            begin = number
        return begin, needed <= 0

    def _made(self, operand: Node) -> int:
        """Return the number of the first node after an array is there."""
        source = operand.source
        while source.opcode == "get-tuple-element":
            source = source.operands[0].source
        # A permute runs beside the core up to where its result is first used.
        there = self._first_use(source) if source.opcode == "collective-permute" else self.at[source] + 1
        return max(there, len(self.graph.parameters))

    def _first_use(self, node: Node) -> int:
        """Return the number of the first node that uses an array, or a view of it."""
        todo, first = list(node.users), len(self.nodes)
        while todo:
            user = todo.pop()
            if user.opcode in VIEWS or user.opcode == "get-tuple-element":
                todo += user.users
            else:
                first = min(first, self.at.get(user, first))
        return first

    def _take(self, operand: Node, begin: int, end: int, last: int) -> None:
        """Take the room of a copy from node ``begin`` to ``last``, and of HBM's time before ``end``."""
        size = self._size(operand)
        taken = self.room.take([(self._position(begin), self._position(last), size)])
        assert taken, operand
        self._lend(size, begin, end)

    def _lend(self, size: int, begin: int, end: int) -> None:
        """Take HBM's idle time before node ``end`` for so many bytes."""
        needed = float(size)
        for number in reversed(range(begin, end)):
            lent = min(needed, self._idle(number))
            self.lent[number] += lent
            needed -= lent

    # Copies.

    def _fetch(
        self, operand: Node, begin: int, readers: Sequence[int], attributes: dict[str, object] | None = None
    ) -> None:
        """Let kernels read an operand in fast memory."""
        fast = in_space(operand.array, self.target.fast_space)
        done = self._insert(operand, fast, begin, readers[0], attributes)
        self.used.pop(operand, None)
        for number in readers:
            reader = self.nodes[number]
            self.must[number] -= self._read(number, operand)
            reader.replace_operand(operand, done)
            if reader.opcode == "fusion":
                match_fusion(reader, self.graph.draft)

    def _insert(
        self, operand: Node, target: ArrayShape, begin: int, end: int, attributes: dict[str, object] | None = None
    ) -> Node:
        """Return the end, before node ``end``, of a copy that begins before node ``begin``."""
        shape = TupleShape((target, operand.array, in_space(U32, SYNC_FLAG_SPACE)))
        start = self.graph.add("copy-start", shape, [operand], attributes)
        done = self.graph.add("copy-done", target, [start])
        self.before.setdefault(self.nodes[begin], []).insert(0, start)
        self.before.setdefault(self.nodes[end], []).append(done)
        return done
