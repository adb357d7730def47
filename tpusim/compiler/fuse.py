"""Pass 7: instructions are joined to kernels, so that what one makes for another stays in registers.

Consumers come first. A producer joins the kernels of all its users if it may; one that several kernels would make anew
does so only if that moves no more bytes than storing it. Otherwise it stays an output, of the kernel of a user that
goes through the same elements where there is one. A kernel has one product at most, which may be followed by
element-wise work, row windows and reductions; a reduction ends a kernel. Reductions that read the same array are made
together.

Source: XLA, InstructionFusion and MultiOutputFusion, by idea; which kernels the TPU compiler makes, from programs
compiled ahead of time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from tpusim.compiler.host.moves import is_on_host
from tpusim.compiler.row_window import goes_along_lanes, has_long_rows, is_row_window
from tpusim.compiler.target import Target
from tpusim.cost.operations.table import operation_cost
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.attributes import ComputationName, Symbol
from tpusim.ir.ops import (
    ENDS_KERNELS,
    EXPENSIVE,
    FUSES_INTO_USERS,
    HANDED_IN,
    HAS_EFFECTS,
    KEEPS_TILES,
    PRODUCTS,
    REARRANGES,
    RESHAPES,
    SIBLINGS,
    SLICES,
)
from tpusim.semantics.marks import with_apart
from tpusim.shapes.address import padded_element_count, physical_bytes
from tpusim.shapes.shape import ArrayShape, TupleShape

_LOOPS_OVER = {"custom-call": 0, "dynamic-update-slice": 1, "reduce": 0}
"""Opcodes whose loop goes over one of their operands, with its number."""

_TOO_LONG = "its rows are too long for the kernel of a product"

_PARTIAL_REDUCE = "PartialReduce"
"""The custom call that makes less of approximate top-k's candidates: in one kernel with the product that it reads."""


class Group:
    """Nodes that become one kernel.

    ``number`` is where the last of them stands in the order of the graph, ``earliest`` where the first output does.
    """

    __slots__ = ("earliest", "made", "nodes", "number", "outputs", "product", "reads", "space", "targets")

    def __init__(self, node: Node, number: int) -> None:
        self.nodes: dict[Node, None] = {}
        # What its nodes use, and what they update in place.
        self.reads: set[Node] = set()
        self.targets: set[Node] = set()
        self.outputs: dict[Node, None] = {}
        # The opcodes of its outputs.
        self.made: set[str] = set()
        self.number = self.earliest = number
        self.product: Node | None = None
        # The sizes that its loop goes over: those that a reduction takes in, of what is put in, or of the result.
        self.space = elements_of(node.operands[_LOOPS_OVER[node.opcode]] if node.opcode in _LOOPS_OVER else node)

    def uses(self, node: Node) -> bool:
        """Return whether something in this kernel uses a node."""
        return node in self.reads

    def join(self, node: Node) -> None:
        """Make a node in this kernel."""
        self.nodes[node] = None
        self.reads.update(node.operands)
        if node.opcode == "dynamic-update-slice":
            self.targets.add(node.operands[0])
        if node.opcode in PRODUCTS:
            self.product = node

    def leave(self, node: Node, number: int) -> None:
        """Let a node of this kernel, which stands at a number, be one of its results."""
        self.outputs[node] = None
        self.earliest = min(self.earliest, number)
        self.made.add(node.opcode)


def fuse(draft: Draft, target: Target) -> None:
    """Join the instructions of every computation that runs as a part of the program."""
    for graph in draft.running():
        _Fusion(graph, target).run()


def elements_of(node: Node) -> tuple[int, ...]:
    """Return the sizes of a node's array, those of 1 left out."""
    return tuple(size for size in node.array.dimensions if size != 1) if isinstance(node.shape, ArrayShape) else ()


class _Fusion:
    """The kernels of one graph: which groups each node is made in, and in which of them it is an output."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self.graph = graph
        self.target = target
        self.nodes = graph.order()
        self.number = {node: number for number, node in enumerate(self.nodes)}
        self.read_bytes = _read_bytes(self.nodes)
        self.made_in: dict[Node, list[Group]] = {}
        self.owner: dict[Node, Group] = {}
        # By kernel what it reads from memory and does not make, and why.
        self.apart: dict[Group, dict[Node, str]] = {}
        # Once all nodes are placed: what uses each kernel, and which one a kernel has gone into.
        self.followers: dict[Group, set[Node | Group]] = {}
        self.merged: dict[Node | Group, Group] = {}

    def run(self) -> None:
        for node in reversed(self.nodes):
            if _is_kernel(node):
                self._place(node)
        self._merge_siblings()
        self._emit()

    # Where a node is made.

    def _place(self, node: Node) -> None:
        """Decide in which kernels a node is made, and whether it is an output."""
        groups = self._groups_using(node)
        refusals = [_refusal(node, group) for group in groups]
        why = self._why_stored(node, groups, refusals)
        if groups and not why:
            for group in groups:
                group.join(node)
            self.made_in[node] = groups
            return
        for group, own in zip(groups, refusals, strict=True):
            self.apart.setdefault(group, {})[node] = own or why
        joined = next((group for group in groups if self._can_leave(node, group, groups)), None)
        group = joined or Group(node, self.number[node])
        group.join(node)
        group.leave(node, self.number[node])
        self.made_in[node] = [group]
        self.owner[node] = group

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
        if len(groups) > 1 and not self._pays_again(node, groups):
            return "to make it again in each kernel takes more than to store it"
        return ""

    def _pays_again(self, node: Node, groups: Sequence[Group]) -> bool:
        """Return whether making a node in each of some kernels takes no more time than making it once and storing it.

        What a kernel reads for something else costs nothing more. Time is counted in the bytes that HBM could move.
        """
        if node.opcode in EXPENSIVE or _is_of_row(node):
            return False
        n_bytes = physical_bytes(node.shape)
        # A kernel computes beside what it moves anyhow, two arrays of that size that it reads and one that it makes.
        computed = self._compute_bytes(node, (len(groups) + 3) * n_bytes) - 3 * n_bytes
        own = [max(self._bytes_to_make(node, group), computed) for group in groups]
        product = _product_behind(node)
        # Made once it is made where its product is, and written in place of that; nobody reads the product.
        spared = 2 * physical_bytes(product.shape) - n_bytes if product else 0
        return sum(own) <= min(own) + len(groups) * n_bytes - spared

    def _compute_bytes(self, node: Node, most: float) -> float:
        """Return what HBM could move while a node and all that is made with it are computed; above ``most``, anything.

        Random bits, for one, take a hundred operations. Source: programs compiled ahead of time.
        """
        rate = self.target.bytes_per_vector_op
        chip = self.target.chip
        found, todo, seen = 0.0, [node], {node}
        while todo and found <= most:
            made = todo.pop()
            cost = operation_cost(chip, made.opcode, made.attributes, made.shape, [one.shape for one in made.operands])
            found += (cost or {}).get("vector", 0.0) * padded_element_count(made.array) * rate
            for operand in made.operands:
                if operand not in seen and operand.opcode in FUSES_INTO_USERS - EXPENSIVE - RESHAPES - SLICES:
                    seen.add(operand)
                    todo.append(operand)
        return found

    def _bytes_to_make(self, node: Node, group: Group) -> int:
        """Return what a kernel reads to make a node, beside what it uses already."""
        if node.opcode in SLICES:
            return physical_bytes(node.shape)
        unused = (operand for operand in node.operands if not group.uses(operand) and not operand.is_small)
        return sum(min(physical_bytes(operand.shape), self.read_bytes[operand]) for operand in unused)

    def _can_leave(self, node: Node, group: Group, groups: Sequence[Group]) -> bool:
        """Return whether a node may be one more output of a kernel that uses it."""
        if _refusal(node, group) or elements_of(node) != group.space or group.product is not None:
            return False
        if node.opcode in REARRANGES - {"copy"} or any(_reduces_partly(made) for made in group.outputs):
            return False
        return not self._reaches([unit for unit in self._users_of(node) if unit is not group], group)

    def _users_of(self, *nodes: Node) -> Iterator[Node | Group]:
        """Yield the kernels that use one of some nodes, and the users that are no kernels."""
        for node in nodes:
            for user in node.users:
                yield from self.made_in.get(user, (user,))

    def _reaches(self, starts: Iterable[Node | Group], end: Group) -> bool:
        """Return whether what one of ``starts`` makes is needed for ``end``."""
        todo = list(starts)
        seen = set(todo)
        while todo:
            unit = todo.pop()
            if unit is end:
                return True
            # What begins after it ends cannot lead to it.
            if (unit.earliest if isinstance(unit, Group) else self.number[unit]) > end.number:
                continue
            later = self._after(unit) - seen
            seen |= later
            todo.extend(later)
        return False

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
        """Make reductions of a large array together, and slices of it of the same sizes."""
        self.followers = {group: self._after(group) for group in dict.fromkeys(self.owner.values())}
        for node in (node for node in self.nodes if not node.is_small):
            for opcode in sorted(SIBLINGS):
                groups = [group for group in self._groups_using(node) if _only(opcode, group)]
                # Reductions of what a kernel makes join it too.
                owner = self.owner.get(node)
                if opcode == "reduce" and owner and not _only("reduce", owner):
                    groups.insert(0, owner)
                if opcode == "dynamic-update-slice" and groups:
                    groups += [
                        group for group in self._groups_using(node) if not _only(opcode, group) and not group.product
                    ]
                first_of: dict[tuple[int, ...], Group] = {}
                for group in groups:
                    first = first_of.setdefault(group.space, group)
                    if first is not group and self._are_alike(first, group, node):
                        self._merge(first, group)

    def _are_alike(self, first: Group, group: Group, read: Node) -> bool:
        """Return whether two kernels of the same sizes go through the same elements, and neither needs the other."""
        if _only("reduce", group) and first.space != elements_of(read):
            return False
        # Reductions of several arrays at once, as of values and their places, are kernels by themselves.
        if any(node.opcode == "reduce" and len(node.operands) > 2 for node in (*first.nodes, *group.nodes)):
            return False
        if _writes_over(first, group) or _writes_over(group, first):
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
        first.nodes.update(other.nodes)
        first.reads |= other.reads
        first.targets |= other.targets
        first.outputs.update(other.outputs)
        first.made |= other.made
        first.number = max(first.number, other.number)
        first.earliest = min(first.earliest, other.earliest)
        self.followers[first] = (self._after(first) | self._after(other)) - {first, other}
        self.merged[other] = first
        self.apart.setdefault(first, {}).update(self.apart.pop(other, {}))
        for node in other.nodes:
            self.made_in[node] = list(dict.fromkeys(first if g is other else g for g in self.made_in[node]))
            if self.owner.get(node) is other:
                self.owner[node] = first
        other.nodes, other.outputs, other.made = {}, {}, set()

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
            kernel, read = kernels[group], {node: why for node, why in apart.items() if self.owner[node] is not group}
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
            "kind": Symbol("kOutput" if group.product else "kLoop"),
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


def _product_behind(node: Node) -> Node | None:
    """Return the product that would be in the kernel of a node if that began one, None if there is none."""
    return next((one for one in _made_for(node, KEEPS_TILES) if one.opcode in PRODUCTS), None)


def _is_of_row(node: Node) -> bool:
    """Return whether a row window is made for this node alone: one kernel makes both, of what it has in registers."""
    return any(map(is_row_window, _made_for(node, FUSES_INTO_USERS)))


def _made_for(node: Node, through: Collection[str]) -> Iterator[Node]:
    """Yield what is made for a node alone; behind these what is made for those alone that have some opcodes."""
    private, todo = {node}, [node]
    while todo:
        for operand in todo.pop().operands:
            if operand not in private and private.issuperset(operand.users):
                yield operand
                if operand.opcode in through:
                    private.add(operand)
                    todo.append(operand)


def _is_kernel(node: Node) -> bool:
    """Return whether a node is work that a kernel can do."""
    if _reduces_partly(node):
        return True
    if node.opcode in HAS_EFFECTS or (not isinstance(node.shape, ArrayShape) and node.opcode != "reduce"):
        return False
    if node.is_small and all(operand.is_small for operand in node.operands):
        return False
    if is_on_host(node):
        return False
    return node.opcode in FUSES_INTO_USERS | ENDS_KERNELS


def _reduces_partly(node: Node) -> bool:
    return node.attributes.get("custom_call_target") == _PARTIAL_REDUCE


def _only(opcode: str, group: Group) -> bool:
    """Return whether all results of a kernel are of one opcode."""
    return group.made == {opcode}


def _writes_over(group: Group, other: Group) -> bool:
    """Return whether a kernel updates in place what another one reads."""
    return not group.targets.isdisjoint(other.reads)


def _refusal(node: Node, group: Group) -> str:
    """Return the rule by which a kernel may not make a node that it uses; empty if it may."""
    if node.opcode not in FUSES_INTO_USERS:
        return f"a {node.opcode} ends its kernel"
    # In programs compiled ahead of time 72 of 72 such pads are kernels, and of 486 others 29.
    if node.opcode == "pad" and any(part.interior for part in node.attributes["padding"]):
        return "it puts its elements apart, which a kernel does by itself"
    users = _users_behind_bitcasts(node, group)
    if node.opcode == "copy" and any(user.opcode in PRODUCTS for user in users) and not _turns_registers(node):
        return "a product takes what lies as it wants it"
    # An update in place leaves its target where it is, and is made before the target changes if it is made of it.
    updates = [user for user in users if user.opcode == "dynamic-update-slice"]
    if any(user.operands[0] is node or _is_made_of(node, user.operands[0]) for user in updates):
        return "it is updated in place, or made of what is"
    # What is moved to other places is read from memory, not computed on the way.
    if any(user.opcode in REARRANGES and not _moves_with(node, user) for user in users) or node.opcode in RESHAPES:
        return "its elements go to other places, and are read from memory for that"
    if node.opcode in PRODUCTS:
        return _refused_product(node, group)
    # Of rows along the lanes the product itself is stored, below.
    tall = [user for user in users if is_row_window(user) and not goes_along_lanes(user)]
    product = _product_behind(node) if tall else None
    if product and any(has_long_rows(window, product) for window in tall):
        return _TOO_LONG
    if node.opcode == "reduce-window" and not (
        all(user.opcode in KEEPS_TILES for user in users) and is_row_window(node)
    ):
        return "its windows reach over more than a row"
    return ""


def _refused_product(product: Node, group: Group) -> str:
    if group.product is not None:
        return "the kernel has a product already"
    windows = [node for node in group.nodes if is_row_window(node)]
    if windows and any(map(_is_moved, product.operands)):
        return "it takes what it moves itself, and so makes no rows"
    if any(has_long_rows(window, product) for window in windows):
        return _TOO_LONG
    return "" if _follows_product(product, group) else "what follows the product does not go through its tiles"


def _is_made_of(node: Node, read: Node) -> bool:
    """Return whether a kernel that makes a node, and what could be made with it, reads another one."""
    todo, seen = [node], {node}
    while todo:
        for operand in todo.pop().operands:
            if operand is read:
                return True
            if operand not in seen and operand.opcode in FUSES_INTO_USERS - PRODUCTS:
                seen.add(operand)
                todo.append(operand)
    return False


def _users_behind_bitcasts(node: Node, group: Group) -> list[Node]:
    """Return what uses a node in a kernel, under whatever name."""
    found = []
    for user in node.users:
        if user in group.nodes:
            found += [user, *(_users_behind_bitcasts(user, group) if user.opcode == "bitcast" else ())]
    return found


def _moves_with(node: Node, user: Node) -> bool:
    """Return whether what moves elements may take them from a node: a row, for one, is cut out and turned at once."""
    return node.opcode == "bitcast" or (node.opcode in SLICES and user.opcode in RESHAPES)


def _follows_product(product: Node, group: Group) -> bool:
    """Return whether everything that a kernel makes of a product goes through its elements as they come."""
    todo, seen = [product], {product}
    while todo:
        for user in todo.pop().users:
            if user not in group.nodes or user in seen:
                continue
            if user.opcode not in KEEPS_TILES and not _reduces_partly(user):
                return False
            seen.add(user)
            # A reduction is an output.
            if user.opcode not in _LOOPS_OVER:
                todo.append(user)
    return True


def _is_moved(operand: Node) -> bool:
    """Return whether a product moves what it takes by itself: cuts it out, repeats it, or lays it out anew."""
    source = operand.source
    return source.opcode in SLICES | {"broadcast"} or (source.opcode == "copy" and _turns_registers(source))


def _turns_registers(copy: Node) -> bool:
    """Return whether a copy only lays out anew what is there, along another dimension than that of the lanes.

    Of copies before products in programs compiled ahead of time (v3 to v7x, several versions of libtpu) all 106 that
    leave the lanes as they are are made in the kernel of the product, and none of 36 others.
    """
    (operand,) = copy.operands
    lanes = {node.array.actual_layout.minor_to_major[:1] for node in (copy, operand)}
    return len(lanes) == 1 and operand.source.opcode in HANDED_IN


def _read_bytes(nodes: Iterable[Node]) -> dict[Node, int]:
    """Return what each node reads where all that is cheap before it is made again."""
    found: dict[Node, int] = {}
    for node in nodes:
        whole = physical_bytes(node.shape)
        if node.opcode in SLICES:
            found[node] = whole
            continue
        n_bytes = sum(min(physical_bytes(o.shape), found[o]) for o in node.operands if not o.is_small)
        can_join = node.opcode in FUSES_INTO_USERS - EXPENSIVE - RESHAPES
        found[node] = n_bytes if can_join else max(n_bytes, whole)
    return found
