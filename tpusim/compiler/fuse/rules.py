"""What a kernel may make, and which kernels do the same.

Source: XLA, InstructionFusion and MultiOutputFusion, by idea; which kernels the TPU compiler makes, from programs
compiled ahead of time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from tpusim.compiler.fuse.group import LOOPS_OVER, Group
from tpusim.compiler.fuse.moved import NEAR, takes_moved, turns_registers, turns_rows
from tpusim.compiler.host.moves import is_on_host
from tpusim.compiler.softmax.rows import goes_along_lanes, has_long_rows, has_much_to_compute, is_row_window
from tpusim.draft import Node
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import WORD_BITS
from tpusim.ir.ops import (
    ELEMENTWISE,
    ENDS_KERNELS,
    EXPENSIVE,
    FUSES_INTO_USERS,
    HAS_EFFECTS,
    KEEPS_TILES,
    PRODUCTS,
    REARRANGES,
    RELAYOUTS,
    RESHAPES,
    SLICES,
)
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.dtype import DType
from tpusim.shapes.shape import ArrayShape

_TOO_LONG = "its rows are too long for the kernel of a product"

LOOPS = ELEMENTWISE - {"map"} | {"reduce"}
"""Kernels that end with one of these go through the elements of what they read."""

MADE_AGAIN = FUSES_INTO_USERS - EXPENSIVE - RESHAPES - SLICES
"""What is cheap to make again in each kernel that uses it, of all that those read."""

_FEW_BITS = 8
"""Of elements of a product that are computed as wider ones before it."""

_PARTIAL_REDUCE = "PartialReduce"
"""The custom call that makes less of approximate top-k's candidates: in one kernel with the product that it reads."""


def product_behind(node: Node) -> Node | None:
    """Return the product that would be in the kernel of a node if that began one, None if there is none."""
    return next(products_behind(node), None)


def products_behind(node: Node) -> Iterator[Node]:
    """Yield the products of which one would be in the kernel of a node if that began one, of what is near."""
    return (one for one in islice(made_for(node, KEEPS_TILES), NEAR) if one.opcode in PRODUCTS)


def has_product(group: Group) -> bool:
    """Return whether a kernel has a product, or one would be in it."""
    return group.product is not None or any(map(product_behind, group.outputs))


def is_of_row(node: Node) -> bool:
    """Return whether a row window is made for this node alone: one kernel makes both, of what it has in registers."""
    return any(map(is_row_window, made_for(node, FUSES_INTO_USERS)))


def is_cut_from_edges(node: Node) -> bool:
    """Return whether a node is made of parts of what edges are put on: a stencil, whose parts are shifted."""
    made = made_for(node, FUSES_INTO_USERS)
    return any(one.opcode == "slice" and puts_edges_on(one.operands[0]) for one in made)


def puts_edges_on(node: Node) -> bool:
    """Return whether a node is an array with something before or behind it, and nothing between its elements."""
    return node.opcode == "pad" and not any(part.interior for part in node.attributes["padding"])


def made_for(node: Node, through: Collection[str]) -> Iterator[Node]:
    """Yield what is made for a node alone; behind these what is made for those alone that have some opcodes."""
    private, todo = {node}, [node]
    while todo:
        for operand in todo.pop().operands:
            if operand not in private and private.issuperset(operand.users):
                yield operand
                if operand.opcode in through:
                    private.add(operand)
                    todo.append(operand)


def is_kernel(node: Node) -> bool:
    """Return whether a node is work that a kernel can do."""
    if reduces_partly(node):
        return True
    if node.opcode in HAS_EFFECTS or (not isinstance(node.shape, ArrayShape) and node.opcode != "reduce"):
        return False
    if node.is_small and all(operand.is_small for operand in node.operands):
        return False
    if is_on_host(node):
        return False
    return node.opcode in FUSES_INTO_USERS | ENDS_KERNELS or scatters_onto_number(node)


def reduces_partly(node: Node) -> bool:
    """Return whether a node makes less of the candidates of an approximate top-k."""
    return node.attributes.get("custom_call_target") == _PARTIAL_REDUCE


def scatters_onto_number(node: Node) -> bool:
    """Return whether what a scatter puts its rows onto is one number everywhere, with which its kernel begins.

    Source: six of six such scatters compiled ahead of time for v5e (libtpu 0.0.52).
    """
    if node.opcode != "scatter" or len(node.operands) != 3:
        return False
    target = node.operands[0]
    return (
        target.opcode == "broadcast" and target.operands[0].opcode == "constant" and not target.operands[0].array.rank
    )


def is_only(opcode: str, group: Group) -> bool:
    """Return whether all results of a kernel are of one opcode."""
    return group.made == {opcode}


def writes_over(group: Group, other: Group) -> bool:
    """Return whether a kernel updates in place what another one reads."""
    return not group.targets.isdisjoint(other.reads)


class MatrixUnit(NamedTuple):
    """What decides which kernels have a product: the chip, and which products may be made in the kernel of another one.

    ``pairs`` has these with that one: see ``pairs``.
    """

    chip: Chip
    pairs: Mapping[Node, Node]


def refusal(node: Node, group: Group, unit: MatrixUnit) -> str:
    """Return the rule by which a kernel may not make a node that it uses; empty if it may."""
    if why := _why_alone(node):
        return why
    if not group.has_room_for(node):
        return "its kernel would read and leave too many arrays"
    users = _users_behind_bitcasts(node, group)
    # An update in place leaves its target where it is, and is made before the target changes if it is made of it.
    updates = [user for user in users if user.opcode == "dynamic-update-slice"]
    if any(user.operands[0] is node or _is_made_of(node, user.operands[0]) for user in updates):
        return "it is updated in place, or made of what is"
    if any(map(writes_parts_of_tiles, updates)):
        return "it is written to a part of each tile, by a kernel of its own"
    if why := _why_read(node, users, group):
        return why
    if node.opcode in PRODUCTS:
        return _refused_product(node, group, unit)
    if why := _why_left_by_product(node, users, group, unit.chip):
        return why
    if node.opcode == "reduce-window" and not (
        all(user.opcode in KEEPS_TILES for user in users) and is_row_window(node)
    ):
        return "its windows reach over more than a row"
    return ""


def _why_left_by_product(node: Node, users: Sequence[Node], group: Group, chip: Chip) -> str:
    """Return why the kernel of rows reads what is made of a product; empty if it need not.

    Of rows along the lanes the product itself is stored: see ``_refused_product``.
    """
    tall = [user for user in users if _goes_along_sublanes(user)]
    product = product_behind(node) if tall else None
    if product and any(has_long_rows(window, product) for window in tall):
        return _TOO_LONG
    # Another product that it is made of may be in the kernel of the rows all the same.
    if product and any(map(has_much_to_compute, tall)) and _take_moved(products_behind(node), chip):
        return "the kernel of the product makes it, as rows are long for what they are made of"
    if _takes_turned(node) and product_behind(node) and _is_for_columns(node, group):
        return "the kernel of the product makes it, with what was turned for that"
    return ""


def _take_moved(products: Iterable[Node], chip: Chip) -> bool:
    return all(takes_moved(product, chip) for product in products)


def _takes_turned(node: Node) -> bool:
    """Return whether a node of few bits takes an array that was turned, perhaps spread.

    Source: 15 attentions compiled ahead of time for v5e (libtpu 0.0.52), with a bias or a mask. Before scores are
    widened the kernel of their product adds or selects what was turned for that; behind, the kernel of the rows does.
    """
    if node.opcode not in ELEMENTWISE or node.array.dtype.bits >= WORD_BITS:
        return False
    taken = (one.operands[0] if one.opcode == "broadcast" else one for one in (one.source for one in node.operands))
    return any(one.opcode == "copy" and not turns_registers(one) for one in (one.source for one in taken))


def _goes_along_sublanes(node: Node) -> bool:
    """Return whether a node is a window over rows that lie along the sublanes."""
    return is_row_window(node) and not goes_along_lanes(node)


def _is_for_columns(node: Node, group: Group) -> bool:
    """Return whether a kernel makes a node, and little more, for rows that lie along the sublanes."""
    todo, seen = [node], {node}
    while todo and len(seen) < NEAR:
        users = [user for user in todo.pop().users if user in group.nodes and user not in seen]
        if any(map(_goes_along_sublanes, users)):
            return True
        seen.update(users)
        todo += users
    return False


def _why_alone(node: Node) -> str:
    """Return why a node is made in no kernel that uses it; empty if it may be."""
    if node.opcode not in FUSES_INTO_USERS:
        return f"a {node.opcode} ends its kernel"
    # In programs compiled ahead of time 72 of 72 such pads are kernels, and of 486 others 29.
    if node.opcode == "pad" and not puts_edges_on(node):
        return "it puts its elements apart, which a kernel does by itself"
    return ""


def _why_read(node: Node, users: Sequence[Node], group: Group) -> str:
    """Return why some of a kernel takes a node from memory, whatever makes it; empty if it need not."""
    if any(user.opcode == "scatter" and node in user.operands[1:] for user in users):
        return "rows are scattered from memory"
    if node.opcode == "copy" and not turns_registers(node) and has_product(group):
        return "the kernel of a product takes what lies as it wants it"
    if _is_computed(node) and any(turns_rows(user, node) for user in users):
        return "a product turns its rows, and reads them from memory for that"
    if _is_computed_in_few_bits(node) and _goes_into_product(node, group):
        return "a product takes in few bits what was computed in more, and reads it"
    # What is moved to other places is not computed on the way.
    moves = (user for user in users if user.opcode in REARRANGES and not _ends_with_tiles(node, user, group))
    if any(not _moves_with(node, user) for user in moves) or node.opcode in RESHAPES:
        return "its elements go to other places, and are read from memory for that"
    return ""


def _is_computed(node: Node) -> bool:
    """Return whether a node is more than what makes wider elements of narrow ones in memory."""
    if node.opcode != "convert":
        return node.opcode in ELEMENTWISE
    (operand,) = node.operands
    return operand.opcode in ELEMENTWISE or operand.array.dtype.bits > node.array.dtype.bits


def _is_computed_in_few_bits(node: Node) -> bool:
    """Return whether a node makes bytes of what is computed in wider elements.

    Source: 23 products of s8 or u8 compiled ahead of time for v5e (libtpu 0.0.52). In 14 something is computed in bf16,
    f32 or s32 and converted: a kernel of its own does both. In the others what is converted lies in memory, or all is
    computed in bytes: the kernel of the product does that.
    """
    if node.opcode != "convert" or node.array.dtype.bits > _FEW_BITS:
        return False
    (operand,) = node.operands
    return operand.opcode in ELEMENTWISE and operand.array.dtype.bits > _FEW_BITS


def _goes_into_product(node: Node, group: Group) -> bool:
    """Return whether a kernel would make a node for a product."""
    todo, seen = [node], {node}
    while todo:
        users = [user for user in todo.pop().users if user in group.nodes and user not in seen]
        if any(user.opcode in PRODUCTS for user in users):
            return True
        seen.update(users)
        todo += users
    return False


def writes_parts_of_tiles(update: Node) -> bool:
    """Return whether an update in place writes one number of a dimension that lies in tiles.

    In programs compiled ahead of time for v5e (libtpu 0.0.52) all 70 of these are kernels by themselves, and two of 319
    others that write one number of a dimension.
    """
    if update.opcode != "dynamic-update-slice":
        return False
    sizes = zip(update.operands[1].array.dimensions, update.array.dimensions, strict=True)
    single = {d for d, (size, whole) in enumerate(sizes) if size == 1 < whole}
    order = update.array.actual_layout.minor_to_major
    return len(order) > 1 and not single.isdisjoint(order[:2])


def _refused_product(product: Node, group: Group, unit: MatrixUnit) -> str:
    if group.product is not None:
        return "" if unit.pairs.get(product) is group.product else "the kernel has a product already"
    windows = [node for node in group.nodes if is_row_window(node)]
    if windows and takes_moved(product, unit.chip):
        return "it takes what it moves itself, and so makes no rows"
    if any(has_long_rows(window, product) for window in windows):
        return _TOO_LONG
    return "" if goes_along(product, group, KEEPS_TILES) else "what follows the product does not go through its tiles"


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
    """Return whether what moves elements may take them from a node.

    A row, for one, is cut out and turned at once. Of what is computed element by element, for one slice alone, no more
    is made than is cut out; for several, or with strides, all of it is. Edges are put on as parts are cut out.

    Source: eleven programs compiled ahead of time for v5e (libtpu 0.0.52); 87 pads of 27 others, of which none that
    slices take is stored, but for those that put elements apart; 116 pads that dynamic slices take, all in their
    kernels.
    """
    if puts_edges_on(node) and user.opcode in SLICES:
        return True
    if user.opcode in SLICES and node.opcode in LOOPS - {"reduce"}:
        return len(node.users) == 1 and all(part.stride == 1 for part in user.attributes.get("slice", ()))
    return node.opcode == "bitcast" or (node.opcode in SLICES and user.opcode in RESHAPES and not _turns(node, user))


def _ends_with_tiles(node: Node, move: Node, group: Group) -> bool:
    """Return whether a kernel stores what it computes for that alone, whole tiles of it at other places.

    Source: 22 kernels compiled ahead of time for v5e (libtpu 0.0.52), nine of them with such an end; where rows come to
    lie elsewhere in tiles, or more is made of what is moved, it is read from memory.
    """
    if node.opcode not in ELEMENTWISE or len(node.users) > 1 or move.opcode not in RELAYOUTS - RESHAPES:
        return False
    end = move
    while end not in group.outputs:
        if len(end.users) != 1 or next(iter(end.users)).opcode != "bitcast":
            return False
        (end,) = end.users
    return _keeps_tiles(move)


def _keeps_tiles(move: Node) -> bool:
    """Return whether a copy or a transpose leaves what lies in tiles where it lies in them."""
    before, after = move.operands[0].array, move.array
    taken = move.attributes.get("dimensions", range(after.rank))
    inner = tuple(taken[d] for d in after.actual_layout.minor_to_major[:2])
    return inner == before.actual_layout.minor_to_major[:2] and before.actual_layout.tiles == after.actual_layout.tiles


def _turns(node: Node, reshape: Node) -> bool:
    """Return whether a reshape splits or joins dimensions and puts other elements beside each other.

    What is cut out is stored before it is turned so, but for dimensions of one element that are left out on the way.

    Source: weights of products that are split, cut out of those of all layers, in 16 programs compiled as above.
    """
    before, after = (one.array.large_dimensions for one in (node, reshape))
    are_alike = [node.array.dimensions[d] for d in before] == [reshape.array.dimensions[d] for d in after]
    return not are_alike and _has_rows(node) != _has_rows(reshape)


def _has_rows(node: Node) -> bool:
    """Return whether elements that follow each other lie beside each other: those of the last dimension."""
    large = node.array.large_dimensions
    return next((d for d in node.array.actual_layout.minor_to_major if d in large), None) == max(large, default=None)


def is_loop(group: Group) -> bool:
    """Return whether every result of a kernel is computed element by element, or summed up."""
    return group.made <= LOOPS


def computed_type(group: Group) -> DType | None:
    """Return the type in which a kernel computes its results, whatever it converts them to; None if they are several.

    Source: pairs of kernels in programs compiled ahead of time, of one type, of two, and of one that is converted.
    """
    found = {node.operands[0] if node.opcode == "convert" else node for node in group.outputs}
    types = {node.shape.dtype if isinstance(node.shape, ArrayShape) else None for node in found}
    return types.pop() if len(types) == 1 else None


def goes_along(read: Node, group: Group, through: Collection[str]) -> bool:
    """Return whether everything that a kernel makes of a node goes through its elements as they come."""
    todo, seen = [read], {read}
    while todo:
        for user in todo.pop().users:
            if user not in group.nodes or user in seen:
                continue
            if user.opcode not in through and not reduces_partly(user):
                return False
            seen.add(user)
            # A reduction is an output.
            if user.opcode not in LOOPS_OVER:
                todo.append(user)
    return True


def read_bytes(nodes: Iterable[Node]) -> dict[Node, int]:
    """Return what each node reads where all that is cheap before it is made again."""
    found: dict[Node, int] = {}
    for node in nodes:
        whole = physical_bytes(node.shape)
        if node.opcode in SLICES:
            found[node] = whole
            continue
        n_bytes = sum(min(physical_bytes(o.shape), found[o]) for o in node.operands if not o.is_small)
        found[node] = n_bytes if node.opcode in MADE_AGAIN else max(n_bytes, whole)
    return found


def largest_read(nodes: Iterable[Node]) -> dict[Node, int]:
    """Return the elements of the largest array that each node reads where all that is cheap before it is made again."""
    found: dict[Node, int] = {}
    for node in nodes:
        found[node] = max((_elements_read(operand, found) for operand in node.operands), default=0)
    return found


def _elements_read(operand: Node, found: dict[Node, int]) -> int:
    """Return the elements of what is read for an operand, or of the operand, if it is not made again."""
    if operand.is_small or not isinstance(operand.shape, ArrayShape):
        return 0
    is_made = operand.opcode in MADE_AGAIN
    return found[operand] if is_made else operand.array.element_count
