"""Pass 0: what ``jax.shard_map`` wraps becomes the program of one device, as partitioning leaves it.

Inside of it a front end has written what each device does; around it arrays are whole, and two custom calls lead from
one to the other. Where they lead from parameters, to results, or from one such region to the next of the same sharding,
each device has its part already: the calls go, and parameters and results are parts. Of what is made of constants
alone every device has all, and takes its part by its number. Everything else would need what a partitioner does, and is
refused.

Source: Shardy, ManualComputationOp; XLA, Shardy round trip (``GlobalToLocalShape``, ``LocalToGlobalShape``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.errors import UnsupportedError
from tpusim.ir.attributes import ComputationLayout
from tpusim.ir.custom_calls import INWARD, OUTWARD
from tpusim.limits import DEVICES
from tpusim.semantics.infer.control import frontend_attributes
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape

_MESH = re.compile(r"#sdy\.mesh<\[([^\]]*)\]")
_AXIS = re.compile(r'"([^"]+)"=(\d+)')
_MANUAL_AXES = re.compile(r"manual_axes\{([^}]*)\}")
_AXIS_NAME = re.compile(r'"([^"]+)"')
_DIMENSION = re.compile(r"\{([^{}:]*)\}")
_SHARDING = re.compile(r"<@[^<>]*>")

U32 = DTYPES["u32"]

_ADVICE = (
    "put jax.shard_map around the whole function, with the shardings of its arguments, or have XLA partition it "
    "(tpusim.jax.lower_for on a mesh of CPU devices, or compile_for)"
)


def localise(draft: Draft, target: Target) -> None:
    """Make a program with manual regions that of one device; leave one for one device, or cut up already, as it is.

    Arguments alone keep their shardings: of what is made anew they would say something else.

    Raises UnsupportedError for arrays that devices share and that are computed with outside of regions.
    """
    _enter_regions(draft, target)
    arguments = set(draft.entry.parameters)
    for graph in draft.reachable():
        for node in graph.order():
            if "sharding" in node.attributes and node not in arguments:
                node.attributes = {key: value for key, value in node.attributes.items() if key != "sharding"}


def _enter_regions(draft: Draft, target: Target) -> None:
    entry = draft.entry
    crossings = [node for node in entry.order() if _target_of(node) in (INWARD, OUTWARD)]
    if crossings:
        _cross(draft, target, entry, crossings)
    if draft.attributes.get("num_partitions", 1) > 1 and not crossings:
        return
    for graph in draft.reachable():
        for node in graph.order():
            if "devices=" in str(node.attributes.get("sharding", "")):
                raise _refused(node, "no region takes it")


def _cross(draft: Draft, target: Target, entry: Graph, crossings: list[Node]) -> None:
    """Take the crossings out of the entry, whose parameters and results become parts."""
    axes = _axes(draft)
    # Each size alone has been looked at; what they come to is far more.
    if fault := DEVICES.fault(prod(axes.values())):
        raise UnsupportedError(f"{crossings[0].name}: {fault} in its mesh")
    held: dict[Node, str] = {}
    for node in crossings:
        _check_axes(node, axes)
        for position, result in _results(node):
            sharding = _shardings(node)[position]
            operand = node.operands[position]
            if _target_of(node) == OUTWARD:
                _leave(entry, operand, result, sharding, held)
            elif operand.shape != result.shape and _is_constant(operand):
                operand = _part(Build(entry, result, target), operand, result, sharding, axes)
            else:
                _enter(operand, result, sharding, held)
            entry.replace(result, operand)
    entry.forget(crossings)
    if entry.root.opcode == "tuple":
        entry.root.shape = TupleShape(elements=tuple(operand.shape for operand in entry.root.operands))
    layout = ComputationLayout(tuple(parameter.shape for parameter in entry.parameters), entry.root.shape)
    draft.attributes |= {"entry_computation_layout": layout, "num_partitions": prod(axes.values())}


def _enter(operand: Node, result: Node, sharding: str, held: dict[Node, str]) -> None:
    """Let an array come in as the part of it that a device has: a parameter's, or one that left another region."""
    if operand.opcode == "parameter" and operand not in held and operand.shape != result.shape:
        stated = _SHARDING.findall(_text(operand))
        others = [user for user in operand.users if _target_of(user) != INWARD]
        if others or stated not in ([], [sharding]):
            raise _refused(operand, f"{others[0].name} uses all of it" if others else f"it comes as {stated[0]}")
        held[operand] = sharding
        operand.shape = result.shape
        for name in ("sharding", "frontend_attributes"):
            operand.attributes = {key: value for key, value in operand.attributes.items() if key != name}
    if operand.shape != result.shape or held.get(operand, sharding) != sharding:
        raise _refused(operand, f"a region takes it as {sharding}")


def _is_constant(operand: Node) -> bool:
    """Return whether an array is made of constants alone."""
    todo, seen = [operand], {operand}
    while todo:
        node = todo.pop()
        if node.opcode == "parameter" or _target_of(node) or node.called:
            return False
        todo += [each for each in node.operands if each not in seen]
        seen.update(node.operands)
    return True


def _part(build: Build, operand: Node, result: Node, sharding: str, axes: dict[str, int]) -> Node:
    """Return a device's part of an array that every device has: its place is that of the device along the axes."""
    sizes, number = result.array.dimensions, build.graph.add("partition-id", ArrayShape(U32))
    along = [_AXIS_NAME.findall(dimension) for dimension in _DIMENSION.findall(sharding)]
    if len(along) != len(sizes) or any(name not in axes for names in along for name in names):
        raise _refused(operand, f"a region takes it as {sharding}")
    starts = {}
    for d, names in enumerate(along):
        place = build.constant(0, U32)
        for name in names:
            inner = prod(list(axes.values())[list(axes).index(name) + 1 :])
            own = build.apply(
                "remainder", build.apply("divide", number, build.constant(inner, U32)), build.constant(axes[name], U32)
            )
            place = build.apply("add", build.apply("multiply", place, build.constant(axes[name], U32)), own)
        starts[d] = build.apply("multiply", place, build.constant(sizes[d], U32))
    return build.dynamic_slice(operand, starts, sizes)


def _leave(entry: Graph, operand: Node, result: Node, sharding: str, held: dict[Node, str]) -> None:
    """Let a device's part of an array go on as this part: to the result, or to another region."""
    if operand.shape == result.shape:
        return
    for user in result.users:
        is_result = user is entry.root and user.opcode == "tuple"
        if not is_result and _target_of(user) != INWARD:
            raise _refused(result, f"{user.name} uses all of it")
    held[operand] = sharding


def _results(node: Node) -> Iterator[tuple[int, Node]]:
    """Return the results of a crossing, each with the number of the operand that it stands for."""
    if not isinstance(node.shape, TupleShape):
        yield 0, node
        return
    for user in list(node.users):
        yield int(user.attributes["index"]), user


def _refused(node: Node, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"{node.name}: expected a part of {_plain(node.shape)} on each device, but {why}: {_ADVICE}"
    )


def _plain(shape: Shape) -> str:
    return str(shape).partition("{")[0]


def _target_of(node: Node) -> str:
    return str(node.attributes.get("custom_call_target", ""))


def _text(node: Node) -> str:
    return " ".join(frontend_attributes(node.attributes).values())


def _shardings(node: Node) -> list[str]:
    """Return how each operand of a crossing is sharded, in Shardy's words."""
    found = _SHARDING.findall(_text(node))
    if len(found) != len(node.operands):
        raise _refused(node, f"it says as its shardings {_text(node) or 'nothing'}")
    return found


def _axes(draft: Draft) -> dict[str, int]:
    """Return the axes of the mesh and how many devices each has."""
    stated = " ".join(frontend_attributes(draft.attributes).values())
    meshes = [{name: DEVICES.number(size) for name, size in _AXIS.findall(mesh)} for mesh in _MESH.findall(stated)]
    return max(meshes, key=lambda mesh: prod(mesh.values()), default={})


def _check_axes(node: Node, axes: dict[str, int]) -> None:
    """Refuse a region that leaves an axis of the mesh to a partitioner."""
    manual = set(re.findall(r'"([^"]+)"', "".join(_MANUAL_AXES.findall(_text(node)))))
    left = [name for name, size in axes.items() if size > 1 and name not in manual]
    if left:
        raise _refused(node, f"the region says nothing of the mesh's axis {left[0]!r}")
