"""Pass 7: instructions are joined to kernels, so that what one makes for another stays in registers.

Consumers come first. A producer joins the kernels of all its users if it may; one that several kernels would make anew
does so only if that moves no more bytes than storing it. Otherwise it stays an output, of the kernel of a user that
goes through the same elements where there is one. A kernel is made around one product at most, which another one may
feed and which may be followed by element-wise work, row windows and reductions; a reduction ends a kernel. Kernels that
go through the elements of the same array are made together, as are kernels with what they read of another one.

Source: XLA, InstructionFusion and MultiOutputFusion, by idea; which kernels the TPU compiler makes, from programs
compiled ahead of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from tpusim.compiler.fuse.group import Group, Spans, elements_of
from tpusim.compiler.fuse.pairs import paired
from tpusim.compiler.fuse.rules import (
    LOOPS,
    MADE_AGAIN,
    MatrixUnit,
    computed_type,
    goes_along,
    has_product,
    is_cut_from_edges,
    is_kernel,
    is_loop,
    is_of_row,
    is_only,
    largest_read,
    product_behind,
    read_bytes,
    reduces_partly,
    refusal,
    writes_over,
    writes_parts_of_tiles,
)
from tpusim.compiler.softmax.rows import is_row_window
from tpusim.compiler.target import Target
from tpusim.cost.operations.table import operation_cost, words_computed
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.attributes import ComputationName, Symbol
from tpusim.ir.ops import (
    ELEMENTWISE,
    ENDS_KERNELS,
    EXPENSIVE,
    KEEPS_TILES,
    LAID_OUT_FREELY,
    REARRANGES,
    RESHAPES,
    SIBLINGS,
    SLICES,
)
from tpusim.semantics.marks import with_apart
from tpusim.shapes.address import padded_element_count, physical_bytes
from tpusim.shapes.dtype import DType
from tpusim.shapes.shape import TupleShape

_MOST_AGAIN = 100
"""The most operations by which what reads an array is made again. Source: chains of 1 to 128 compiled ahead of time."""


def fuse(draft: Draft, target: Target) -> None:
    """Join the instructions of every computation that runs as a part of the program."""
    for graph in draft.running():
        _Fusion(graph, target).run()


class _Fusion:
    """The kernels of one graph: which groups each node is made in, and in which of them it is an output."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self.graph = graph
        self.target = target
        self.nodes = graph.order()
        self.number = {node: number for number, node in enumerate(self.nodes)}
        self.read_bytes = read_bytes(self.nodes)
        self.unit = MatrixUnit(target.chip, paired(self.nodes, target.chip))
        self.largest_read = largest_read(self.nodes)
        # Asked of each node for all that are made of it.
        self.own_bytes: dict[Node, float] = {}
        self.made_in: dict[Node, list[Group]] = {}
        self.owner: dict[Node, Group] = {}
        self.spans = Spans()
        # By kernel what it reads from memory and does not make, and why.
        self.apart: dict[Group, dict[Node, str]] = {}
        # Once all nodes are placed: what uses each kernel, and which one a kernel has gone into.
        self.followers: dict[Group, set[Node | Group]] = {}
        self.merged: dict[Node | Group, Group] = {}

    def run(self) -> None:
        for node in reversed(self.nodes):
            if is_kernel(node):
                self._place(node)
        self._merge_siblings()
        for node, group in list(self.owner.items()):
            self._leave_converted(node, group)
        self._emit()

    # Where a node is made.

    def _place(self, node: Node) -> None:
        """Decide in which kernels a node is made, and whether it is an output."""
        groups = self._groups_using(node)
        refusals = [refusal(node, group, self.unit) for group in groups]
        why = self._why_stored(node, groups, refusals)
        if groups and not why:
            for group in groups:
                group.join(node)
            self.made_in[node] = groups
            return
        joined = next((group for group in groups if self._can_leave(node, group, groups)), None)
        owner = joined or Group(node, self.number[node])
        again = [group for group, own in zip(groups, refusals, strict=True) if not own and self._saves(node, group)]
        self.made_in[node] = list(dict.fromkeys((owner, *again)))
        for group in self.made_in[node]:
            group.join(node)
        for group, own in zip(groups, refusals, strict=True):
            if group not in self.made_in[node]:
                self.apart.setdefault(group, {})[node] = own or why
        owner.leave(node, self.number[node])
        self.spans.add(owner.earliest, owner.number)
        self.owner[node] = owner

    def _groups_using(self, node: Node) -> list[Group]:
        found: dict[Group, None] = {}
        for user in node.users:
            found.update(dict.fromkeys(self.made_in.get(user, ())))
        return list(found)

    def _is_needed(self, node: Node) -> bool:
        """Return whether something that is no kernel uses a node, or the result is made of it."""
        return node is self.graph.root or any(user not in self.made_in for user in node.users)

    def _why_stored(self, node: Node, groups: Sequence[Group], refusals: Sequence[str]) -> str:
        """Return why a node is made once and stored, not in each of the kernels that use it; empty if it is not."""
        if self._is_needed(node):
            return "the result, or what is no kernel, needs it in memory"
        if any(refusals):
            return "another kernel reads it from memory"
        if self._is_left_by_product(node, groups):
            return "the product that it is made of would be more to store"
        if len(groups) > 1 and not self._pays_again(node, groups):
            return "to make it again in each kernel takes more than to store it"
        return ""

    def _is_left_by_product(self, node: Node, groups: Sequence[Group]) -> bool:
        """Return whether a node makes narrower what a product leaves in a kernel of its own, for another product."""
        if node.opcode != "convert" or physical_bytes(node.shape) >= physical_bytes(node.operands[0].shape):
            return False
        made = product_behind(node)
        return made is not None and all(group.product not in (None, self.unit.pairs.get(made)) for group in groups)

    def _pays_again(self, node: Node, groups: Sequence[Group]) -> bool:
        """Return whether making a node in each of some kernels takes no more time than making it once and storing it.

        What a kernel reads for something else costs nothing more. Time is counted in the bytes that HBM could move.
        """
        if node.opcode in EXPENSIVE or is_of_row(node) or is_cut_from_edges(node):
            return False
        n_bytes = physical_bytes(node.shape)
        # A kernel computes beside what it moves anyhow, two arrays of that size that it reads and one that it makes.
        # What reads none, as random bits, is made again for a product however long that takes: in 14 of 14 programs
        # compiled ahead of time, for up to eight products. Kernels without one are made together, with what they share.
        computed, reads_its_size = 0.0, self.largest_read[node] >= node.array.element_count
        is_for_product = any(map(has_product, groups))
        if reads_its_size or not is_for_product:
            computed = self._compute_bytes(node, (len(groups) + 3) * n_bytes) - 3 * n_bytes
        if reads_its_size and not is_for_product and self._is_long(node):
            return False
        own = [max(self._bytes_to_make(node, group), computed) for group in groups]
        product = product_behind(node)
        # Made once it is made where its product is, and written in place of that; nobody reads the product. Where both
        # move as much it is computed once: so 58 of 63 kernels around a product compiled ahead of time have it. A row
        # window, though, may be refused a product.
        spared = 2 * physical_bytes(product.shape) - n_bytes if product else 0
        again, once = sum(own), min(own) + len(groups) * n_bytes - spared
        if product and again == once:
            return any(is_row_window(made) for group in groups for made in group.nodes)
        return again <= once

    def _is_long(self, node: Node) -> bool:
        """Return whether a node is made by more operations than are done again, of a single array of its size.

        Random bits with which one is multiplied are, for one. Where several are read, what is behind them is not known
        yet: it may be stored.
        """
        elements, done, n_read, todo, seen = node.array.element_count, 0.0, 0, [node], {node}
        while todo and done <= _MOST_AGAIN and n_read <= 1:
            made = todo.pop()
            if made.opcode in ELEMENTWISE:
                done += words_computed(made.opcode, made.attributes, made.shape, [one.shape for one in made.operands])
            for operand in (one for one in made.operands if one not in seen):
                seen.add(operand)
                if operand.opcode in MADE_AGAIN:
                    todo.append(operand)
                else:
                    n_read += not operand.is_small and operand.array.element_count >= elements
        return done > _MOST_AGAIN and n_read <= 1

    def _saves(self, node: Node, group: Group) -> bool:
        """Return whether a kernel that makes a stored node again takes less time than one that reads it."""
        if node.opcode in EXPENSIVE or is_of_row(node) or product_behind(node):
            return False
        n_bytes = physical_bytes(node.shape)
        return self._bytes_to_make(node, group) < n_bytes and self._compute_bytes(node, 4 * n_bytes) < 4 * n_bytes

    def _compute_bytes(self, node: Node, most: float) -> float:
        """Return what HBM could move while a node and all that is made with it are computed; above ``most``, anything.

        Random bits, for one, take a hundred operations. Source: programs compiled ahead of time.
        """
        found, todo, seen = 0.0, [node], {node}
        while todo and found <= most:
            made = todo.pop()
            found += self._own_bytes(made)
            for operand in made.operands:
                if operand not in seen and operand.opcode in MADE_AGAIN:
                    seen.add(operand)
                    todo.append(operand)
        return found

    def _own_bytes(self, node: Node) -> float:
        """Return what HBM could move while a node alone is computed."""
        found = self.own_bytes.get(node)
        if found is None:
            shapes = [one.shape for one in node.operands]
            cost = operation_cost(self.target.chip, node.opcode, node.attributes, node.shape, shapes) or {}
            found = cost.get("vector", 0.0) * padded_element_count(node.array) * self.target.bytes_per_vector_op
            self.own_bytes[node] = found
        return found

    def _bytes_to_make(self, node: Node, group: Group) -> int:
        """Return what a kernel reads to make a node, beside what it uses already."""
        if node.opcode in SLICES:
            return physical_bytes(node.shape)
        unused = (operand for operand in node.operands if not group.uses(operand) and not operand.is_small)
        return sum(min(physical_bytes(operand.shape), self.read_bytes[operand]) for operand in unused)

    def _can_leave(self, node: Node, group: Group, groups: Sequence[Group]) -> bool:
        """Return whether a node may be one more output of a kernel that uses it."""
        if refusal(node, group, self.unit) or not group.has_room_for(node, is_result=True):
            return False
        if elements_of(node) != group.space or group.product is not None:
            return False
        if node.opcode in REARRANGES - {"copy"} or any(reduces_partly(made) for made in group.outputs):
            return False
        return not self._reaches([unit for unit in self._users_of(node) if unit is not group], group)

    def _users_of(self, *nodes: Node) -> Iterator[Node | Group]:
        """Yield the kernels that use one of some nodes, and the users that are no kernels."""
        for node in nodes:
            for user in node.users:
                yield from self.made_in.get(user, (user,))

    def _reaches(self, starts: Iterable[Node | Group], end: Group) -> bool:
        """Return whether what one of ``starts`` makes is needed for ``end``.

        Of what comes after the starts and what ``end`` needs, both of which may be most of a program, the lesser is
        gone through.
        """
        ahead: set[Node | Group] = set(starts)
        behind: set[Node | Group] = {end}
        if end in ahead:
            return True
        first = min(map(self._begin, ahead), default=end.number)
        forward, backward = list(ahead), list(behind)
        while forward and backward:
            later = self._after(forward.pop()) - ahead
            if not behind.isdisjoint(later):
                return True
            ahead |= later
            # What begins after it ends cannot lead to it, nor what ends before the first begins be led to.
            forward += [unit for unit in later if self.spans.of(self._begin(unit))[0] <= end.number]
            earlier = self._before(backward.pop()) - behind
            if not ahead.isdisjoint(earlier):
                return True
            behind |= earlier
            backward += [unit for unit in earlier if self.spans.of(self._end(unit))[1] >= first]
        return False

    def _begin(self, unit: Node | Group) -> int:
        return unit.earliest if isinstance(unit, Group) else self.number[unit]

    def _end(self, unit: Node | Group) -> int:
        return unit.number if isinstance(unit, Group) else self.number[unit]

    def _before(self, unit: Node | Group) -> set[Node | Group]:
        """Return what a kernel, or a node that is in none, takes from."""
        read = unit.operands if isinstance(unit, Node) else unit.reads - unit.nodes.keys()
        return {self.owner.get(node, node) for node in read}

    def _after(self, unit: Node | Group) -> set[Node | Group]:
        """Return what uses something that a kernel, or a node that is in none, makes."""
        if isinstance(unit, Node):
            return set(self._users_of(unit))
        found = self.followers.get(unit)
        if found is None:
            return set(self._users_of(*unit.outputs))
        if not self.merged.keys().isdisjoint(found):
            found = self.followers[unit] = {self._now(one) for one in found} - {unit}
        return found

    def _now(self, unit: Node | Group) -> Node | Group:
        while unit in self.merged:
            unit = self.merged[unit]
        return unit

    # Kernels that read the same.

    def _merge_siblings(self) -> None:
        """Make together what reads the same: loops over its elements, slices of the same sizes, and updates."""
        self.followers = {group: self._after(group) for group in dict.fromkeys(self.owner.values())}
        for node in (node for node in self.nodes if not node.is_small):
            for opcode in sorted(SIBLINGS):
                groups = [group for group in self._groups_using(node) if is_only(opcode, group)]
                if opcode == "dynamic-update-slice" and groups:
                    groups += [group for group in self._groups_using(node) if self._goes_with_updates(group)]
                self._merge_alike(node, groups)
            self._merge_loops(node)

    def _goes_with_updates(self, group: Group) -> bool:
        """Return whether a kernel sums up, or makes for updates alone, what it reads as they do.

        What loops that ``lax.scan`` makes compute of what they store as well is a kernel by itself, in 20 of 20 of them
        compiled ahead of time for v5e (libtpu 0.0.52); what they make and store is not.
        """
        after = self._after(group)
        return is_only("reduce", group) or (
            group.product is None
            and not is_only("dynamic-update-slice", group)
            and bool(after)
            and all(isinstance(unit, Group) and is_only("dynamic-update-slice", unit) for unit in after)
        )

    def _merge_loops(self, node: Node) -> None:
        """Make together what goes through the elements of a node as they come, and what makes the node."""
        if node.opcode in LAID_OUT_FREELY and all(operand.is_small for operand in node.operands):
            return
        owner = self.owner.get(node)
        # Most nodes are made in the one kernel that uses them: a chain of thousands would be gone along from each.
        if owner is None and len(self._groups_using(node)) < 2:
            return
        # What gives elements other places is a kernel by itself.
        if owner and owner.made <= RESHAPES:
            owner = None
        if owner and not is_only("reduce", owner):
            # What is made is summed up in whatever type.
            self._merge_alike(node, [owner, *(group for group in self._loops_over(node) if is_only("reduce", group))])
        loops = self._loops_over(node)
        if owner and owner not in loops and (owner.product or is_loop(owner)):
            loops.insert(0, owner)
        self._merge_alike(node, loops, by_type=True)

    def _loops_over(self, node: Node) -> list[Group]:
        """Return the kernels without a product that go through a node as it comes."""
        return [
            group
            for group in self._groups_using(node)
            if is_loop(group)
            and group.product is None
            and group.space == elements_of(node)
            and goes_along(node, group, KEEPS_TILES if is_only("reduce", group) else LOOPS)
        ]

    def _merge_alike(self, node: Node, groups: Sequence[Group], *, by_type: bool = False) -> None:
        """Make kernels of the same sizes, and perhaps type, that use a node together, as far as they may be."""
        firsts: dict[tuple[tuple[int, ...], DType | None], Group] = {}
        for group in groups:
            key = group.space, computed_type(group) if by_type else None
            first = firsts.setdefault(key, group)
            if first is group:
                continue
            if not first.has_room_beside(group):
                firsts[key] = group
            elif self._are_alike(first, group, node):
                self._merge(first, group)

    def _are_alike(self, first: Group, group: Group, read: Node) -> bool:
        """Return whether two kernels of the same sizes go through the same elements, and neither needs the other."""
        if is_only("reduce", group) and first.space != elements_of(read):
            return False
        # What needs a sum, or goes through what the other one makes in another order, waits until that is whole.
        made = [node for node in first.outputs if node is not read and group.uses(node)]
        if any(node.opcode in ENDS_KERNELS or not goes_along(node, group, LOOPS) for node in made):
            return False
        # Reductions of several arrays at once, as of values and their places, are kernels by themselves.
        if any(node.opcode == "reduce" and len(node.operands) > 2 for node in (*first.nodes, *group.nodes)):
            return False
        if writes_over(first, group) or writes_over(group, first):
            return False
        if any(map(writes_parts_of_tiles, (*first.outputs, *group.outputs))):
            return False
        # Nor can both write over the same array, or one over what the other leaves to others.
        left = {node for node in first.outputs if any(user not in group.nodes for user in node.users)}
        if not group.targets.isdisjoint(first.targets | left):
            return False
        after = self._after(first)
        # What needs a sum over an array to go through that goes through it once more.
        if group in after and first is not self.owner.get(read):
            return False
        others = after - {group, first}
        return group.product is None and not self._reaches([group], first) and not self._reaches(others, group)

    def _merge(self, first: Group, other: Group) -> None:
        first.merge(other)
        self.spans.add(first.earliest, first.number)
        self.followers[first] = (self._after(first) | self._after(other)) - {first, other}
        self.merged[other] = first
        self.apart.setdefault(first, {}).update(self.apart.pop(other, {}))
        for node in other.nodes:
            self.made_in[node] = list(dict.fromkeys(first if g is other else g for g in self.made_in[node]))
            if self.owner.get(node) is other:
                self.owner[node] = first
        other.nodes, other.outputs, other.made = {}, {}, set()
        for node in [one for one in first.outputs if self._is_made_for(one, first)]:
            del first.outputs[node], self.owner[node]
        first.made = {node.opcode for node in first.outputs}

    def _is_made_for(self, node: Node, group: Group) -> bool:
        """Return whether nothing but the kernel that makes a node uses it."""
        return node is not self.graph.root and bool(node.users) and set(self._users_of(node)) == {group}

    # Results that are read in a narrower type.

    def _leave_converted(self, node: Node, group: Group) -> None:
        """Let a kernel leave what it makes in the narrower type in which alone others read it.

        A softmax that is divided by its sums last leaves them in f32, and the exponentials in bf16.

        Source: XLA, MultiOutputFusion, by idea; seven programs compiled ahead of time for v5e (libtpu 0.0.52).
        """
        read = self._read_elsewhere(node, group)
        if node is self.graph.root or len(read) != 1 or read[0].opcode != "convert":
            return
        (converted,) = read
        if physical_bytes(converted.shape) >= physical_bytes(node.shape):
            return
        for other in list(self.made_in[converted]):
            if other is not group:
                self._drop(converted, other)
        group.join(converted)
        group.leave(converted, self.number[converted])
        self.made_in[converted], self.owner[converted] = [group], group
        del group.outputs[node], self.owner[node]
        group.made = {one.opcode for one in group.outputs}

    def _read_elsewhere(self, node: Node, group: Group) -> list[Node]:
        """Return what other kernels alone make of a kernel's result, behind all that the kernel makes of it as well."""
        found: dict[Node, None] = {}
        todo, seen = [node], {node}
        while todo:
            for user in todo.pop().users:
                made_in = self.made_in.get(user, [])
                if user in seen or made_in == [group]:
                    continue
                seen.add(user)
                if group in made_in and user not in self.owner:
                    todo.append(user)
                else:
                    found[user] = None
        return list(found)

    def _drop(self, node: Node, group: Group) -> None:
        """Let a kernel read a node instead of making it, and what it needs for that alone."""
        self.apart.setdefault(group, {})[node] = "what it is converted from would be more to store"
        for one in group.drop(node):
            self.made_in[one].remove(group)
        if not group.nodes:
            del self.apart[group]

    # From groups to fusions.

    def _emit(self) -> None:
        """Write every group of more than one node as a fusion."""
        stands_for: dict[Node, Node] = {}
        kernels: dict[Group, Node] = {}
        for unit in self._units():
            members = [unit] if isinstance(unit, Node) else sorted(unit.nodes, key=self.number.__getitem__)
            kernel = members[0]
            if isinstance(unit, Group) and len(members) > 1:
                kernel = self._fusion(members, unit, stands_for)
            else:
                kernel.take([stands_for.get(operand, operand) for operand in kernel.operands])
            if isinstance(unit, Group):
                kernels[unit] = kernel
        self.graph.root = stands_for.get(self.graph.root, self.graph.root)
        self._note(kernels)

    def _note(self, kernels: dict[Group, Node]) -> None:
        """Note what is made in the kernels that use it, and what is not, and say the latter of each kernel."""
        for node, groups in self.made_in.items():
            if node not in self.owner and groups:
                how = "made in the kernel that uses it" if len(groups) == 1 else "made again in each that uses it"
                size, user = physical_bytes(node.shape), kernels[groups[0]].name
                self.target.note("fuse", is_done=True, reason=how, name=node.name, user=user, n_bytes=size)
        for group, apart in self.apart.items():
            kernel, read = (
                kernels[group],
                {node: why for node, why in apart.items() if self.owner.get(node, group) is not group},
            )
            for node, why in read.items():
                name, size = kernels[self.owner[node]].name, physical_bytes(node.shape)
                self.target.note("fuse", is_done=False, reason=why, name=name, user=kernel.name, n_bytes=size)
            if read:
                rules = {kernels[self.owner[node]].name: why for node, why in read.items()}
                kernel.attributes = with_apart(kernel.attributes, rules)

    def _units(self) -> Iterator[Node | Group]:
        """Yield kernels and single nodes, each after what it needs, otherwise in the order of the graph."""
        unit_of: dict[Node, Node | Group] = {node: self.owner.get(node, node) for node in self.nodes}
        units: dict[Node | Group, int] = {}
        for node in self.nodes:
            if node in self.owner or node not in self.made_in:
                unit = unit_of[node]
                units[unit] = max(units.get(unit, 0), self.number[node])
        waiting: dict[Node | Group, int] = {}
        users: dict[Node | Group, list[Node | Group]] = {}
        for unit in units:
            needed = {unit_of[operand] for operand in self._read_by(unit)}
            waiting[unit] = len(needed)
            for other in needed:
                users.setdefault(other, []).append(unit)
        ready = [(units[unit], id(unit), unit) for unit, count in waiting.items() if not count]
        heapify(ready)
        while ready:
            _, _, unit = heappop(ready)
            yield unit
            for user in users.get(unit, ()):
                waiting[user] -= 1
                if not waiting[user]:
                    heappush(ready, (units[user], id(user), user))
        assert not any(waiting.values()), f"kernels of {self.graph.name} need each other"

    def _read_by(self, unit: Node | Group) -> dict[Node, None]:
        """Return what a unit takes from others, in the order of its members."""
        if isinstance(unit, Node):
            return dict.fromkeys(unit.operands)
        members = sorted(unit.nodes, key=self.number.__getitem__)
        found = dict.fromkeys(operand for node in members for operand in node.operands if operand not in unit.nodes)
        return {node: None for node in found if node.opcode != "constant" or not node.is_small}

    def _fusion(self, members: list[Node], group: Group, stands_for: dict[Node, Node]) -> Node:
        """Return a kernel's fusion, and enter what stands for each of its outputs."""
        inner = Graph(self.graph.draft, self.graph.draft.fresh("fused_computation"))
        self.graph.draft.graphs[inner.name] = inner
        made: dict[Node, Node] = {}
        outside = list(self._read_by(group))
        for number, node in enumerate(outside):
            given = stands_for.get(node, node)
            made[node] = inner.add("parameter", given.shape, immediate=number, name=f"param_{number}")
            inner.parameters.append(made[node])
        for node in members:
            for operand in node.operands:
                if operand not in made:
                    made[operand] = inner.clone(operand, [])
            made[node] = inner.clone(node, [made[operand] for operand in node.operands])
        outputs = sorted(group.outputs, key=self.number.__getitem__)
        results = [made[node] for node in outputs]
        shape = TupleShape(tuple(node.shape for node in results))
        inner.root = results[0] if len(results) == 1 else inner.add("tuple", shape, results)
        named = {
            "kind": Symbol("kOutput" if group.product else "kCustom" if group.made == {"scatter"} else "kLoop"),
            "calls": ComputationName(inner.name),
        }
        operands = [stands_for.get(node, node) for node in outside]
        like = group.product or outputs[-1]
        fusion = self.graph.add("fusion", inner.root.shape, operands, named, like=like)
        for number, node in enumerate(outputs):
            stands_for[node] = (
                self.graph.add("get-tuple-element", node.shape, [fusion], {"index": number})
                if len(outputs) > 1
                else fusion
            )
        return fusion
