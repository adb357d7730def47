"""Short ways to write the instructions that rules are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod

from tpusim.compiler.target import Target
from tpusim.draft import Graph, Node
from tpusim.ir.attributes import (
    ComputationName,
    PaddingDimension,
    SliceDimension,
    Symbol,
    Window,
    WindowDimension,
)
from tpusim.ir.module import Literal
from tpusim.semantics.infer.elementwise import COMPONENTS
from tpusim.shapes.dtype import DTYPES, DType
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape


class Build:
    """New instructions of a graph, in place of the one that they are ``like``.

    ``parts`` are the two parts of complex arrays of the graph that are known, for all its instructions.
    """

    def __init__(
        self, graph: Graph, like: Node, target: Target, parts: dict[Node, tuple[Node, Node]] | None = None
    ) -> None:
        self.graph = graph
        self.like = like
        self.target = target
        self.parts = {} if parts is None else parts

    def _add(self, opcode: str, shape: ArrayShape, operands: Iterable[Node], **attributes: object) -> Node:
        return self.graph.add(opcode, shape, operands, attributes, like=self.like)

    def constant(self, number: float | str, dtype: DType) -> Node:
        """Return a scalar; a text is taken as it is."""
        return self.graph.add("constant", ArrayShape(dtype), immediate=Literal(_text(number, dtype)))

    def splat(self, number: float | str, like: Node) -> Node:
        """Return an array like another one that has this number everywhere."""
        scalar = self.constant(number, like.array.dtype)
        return self.broadcast(scalar, like.array.dimensions, ()) if like.array.rank else scalar

    def iota(self, dtype: str, sizes: Sequence[int], along: int) -> Node:
        """Return an array of the numbers of its own elements along a dimension."""
        return self._add("iota", ArrayShape(DTYPES[dtype], tuple(sizes)), (), iota_dimension=along)

    def broadcast(self, node: Node, sizes: Sequence[int], dimensions: Sequence[int]) -> Node:
        """Return an array of these sizes whose ``dimensions`` are those of ``node``."""
        return self._add("broadcast", ArrayShape(node.array.dtype, tuple(sizes)), [node], dimensions=tuple(dimensions))

    def apply(self, opcode: str, *operands: Node) -> Node:
        """Return an operation on the elements of arrays of one type and size."""
        return self._add(opcode, _plain(operands[-1]), operands)

    def compare(self, direction: str, one: Node, other: Node) -> Node:
        """Return where a comparison of two arrays holds."""
        shape = ArrayShape(DTYPES["pred"], one.array.dimensions)
        return self._add("compare", shape, [one, other], direction=Symbol(direction))

    def convert(self, node: Node, dtype: str, opcode: str = "convert") -> Node:
        """Return the same numbers (or with ``bitcast-convert`` the same bits) as another type."""
        return self._add(opcode, ArrayShape(DTYPES[dtype], node.array.dimensions), [node])

    def reshape(self, node: Node, *sizes: int) -> Node:
        """Return the same elements in another shape."""
        assert prod(sizes) == node.array.element_count
        return self._add("reshape", ArrayShape(node.array.dtype, sizes), [node])

    def transpose(self, node: Node, *order: int) -> Node:
        """Return an array whose dimension ``i`` is ``order[i]`` of ``node``."""
        shape = ArrayShape(node.array.dtype, tuple(node.array.dimensions[d] for d in order))
        return self._add("transpose", shape, [node], dimensions=order)

    def swapped(self, node: Node, one: int, other: int) -> Node:
        """Return an array with two of its dimensions exchanged."""
        order = list(range(node.array.rank))
        order[one], order[other] = order[other], order[one]
        return node if one == other else self.transpose(node, *order)

    def turned(self, node: Node, order: Sequence[int]) -> Node:
        """Return an array whose dimension ``i`` is ``order[i]`` of ``node``, which may be in that order."""
        return node if list(order) == list(range(node.array.rank)) else self.transpose(node, *order)

    def complex(self, real: Node, imaginary: Node) -> Node:
        """Return complex numbers of two parts."""
        return self._add("complex", ArrayShape(DTYPES["c64"], real.array.dimensions), [real, imaginary])

    def part(self, node: Node, opcode: str) -> Node:
        """Return the part of complex numbers that ``opcode`` takes."""
        return self._add(opcode, ArrayShape(DTYPES[COMPONENTS[node.array.dtype.name]], node.array.dimensions), [node])

    def reverse(self, node: Node, along: int) -> Node:
        """Return an array with one dimension turned round."""
        return self._add("reverse", _plain(node), [node], dimensions=(along,))

    def concatenate(self, nodes: Sequence[Node], along: int) -> Node:
        """Return arrays one behind the other along a dimension."""
        sizes = list(nodes[0].array.dimensions)
        sizes[along] = sum(node.array.dimensions[along] for node in nodes)
        return self._add("concatenate", ArrayShape(nodes[0].array.dtype, tuple(sizes)), nodes, dimensions=(along,))

    def dot(self, one: Node, other: Node, contracted: tuple[int, int], batch: int = 0, precision: str = "") -> Node:
        """Return a product over one dimension of each side, for every element of the first ``batch`` dimensions."""
        kept = (
            node.array.dimensions[:at] + node.array.dimensions[at + 1 :]
            for node, at in zip((one, other), contracted, strict=True)
        )
        left, right = kept
        named: dict[str, object] = {
            f"{side}_contracting_dims": (at,) for side, at in zip(("lhs", "rhs"), contracted, strict=True)
        }
        if batch:
            named |= {f"{side}_batch_dims": tuple(range(batch)) for side in ("lhs", "rhs")}
        if precision:
            named["operand_precision"] = (Symbol(precision), Symbol(precision))
        return self._add("dot", ArrayShape(one.array.dtype, left + right[batch:]), [one, other], **named)

    def slice(self, node: Node, along: int, start: int, limit: int) -> Node:
        """Return a part of an array along one dimension; a part of a part is taken of the whole."""
        sizes = list(node.array.dimensions)
        sizes[along] = limit - start
        whole, parts = node, [SliceDimension(0, size) for size in node.array.dimensions]
        if node.opcode == "slice" and all(part.stride == 1 for part in node.attributes["slice"]):
            (whole,), parts = node.operands, list(node.attributes["slice"])
        parts[along] = SliceDimension(parts[along].start + start, parts[along].start + limit)
        return self._add("slice", ArrayShape(node.array.dtype, tuple(sizes)), [whole], slice=tuple(parts))

    def pad(self, node: Node, value: Node, low_high: dict[int, tuple[int, int]]) -> Node:
        """Return an array with so many times ``value`` before and behind it, by dimension."""
        around = [low_high.get(d, (0, 0)) for d in range(node.array.rank)]
        sizes = tuple(size + sum(more) for size, more in zip(node.array.dimensions, around, strict=True))
        padding = tuple(PaddingDimension(*more) for more in around)
        return self._add("pad", ArrayShape(node.array.dtype, sizes), [node, value], padding=padding)

    def window(self, node: Node, start: Node, along: WindowDimension, region: str) -> Node:
        """Return a ``reduce-window`` over the last dimension with the computation ``region``."""
        *outer, last = node.array.dimensions
        last += along.pad_low + along.pad_high - along.size + 1
        window = Window((*(WindowDimension(1) for _ in outer), along))
        shape = ArrayShape(node.array.dtype, (*outer, last))
        return self._add("reduce-window", shape, [node, start], window=window, to_apply=ComputationName(region))

    def update(self, node: Node, part: Node, starts: Mapping[int, int | Node]) -> Node:
        """Return an array with a part put in that begins at these places of its dimensions, and elsewhere at 0."""
        return self._add("dynamic-update-slice", _plain(node), [node, part, *self._places(node, starts)])

    def dynamic_slice(self, node: Node, starts: Mapping[int, int | Node], sizes: Sequence[int]) -> Node:
        """Return the part of an array of these sizes that begins at these places, and elsewhere at 0."""
        shape = ArrayShape(node.array.dtype, tuple(sizes))
        operands = [node, *self._places(node, starts)]
        return self._add("dynamic-slice", shape, operands, dynamic_slice_sizes=tuple(sizes))

    def _places(self, node: Node, starts: Mapping[int, int | Node]) -> Iterator[Node]:
        for along in range(node.array.rank):
            place = starts.get(along, 0)
            yield self.constant(place, DTYPES["s32"]) if isinstance(place, int) else place

    def scatter(self, operands: Sequence[Node], region: str) -> Node:
        """Return a row onto which numbers are put, each at one place."""
        named: dict[str, object] = {"update_window_dims": (), "inserted_window_dims": (0,)}
        named |= {"scatter_dims_to_operand_dims": (0,), "index_vector_dim": 1, "to_apply": ComputationName(region)}
        return self._add("scatter", _plain(operands[0]), operands, **named)

    def call(self, target: str, node: Node) -> Node:
        """Return what a custom call makes of an array of the same type and sizes."""
        return self._add("custom-call", _plain(node), [node], custom_call_target=target)

    def call_for(self, target: str, node: Node, *shapes: ArrayShape) -> list[Node]:
        """Return the several arrays that a custom call makes of one."""
        shape, named = TupleShape(shapes), {"custom_call_target": target}
        made = self.graph.add("custom-call", shape, [node], named, like=self.like)
        return [self.element(made, number) for number in range(len(shapes))]

    def rows(self, node: Node, numbers: Node) -> Node:
        """Return rows of each matrix, or elements of each vector, of a batch in the order that ``numbers`` say.

        They lie along the last dimension of ``numbers``, behind those of the batch, and that dimension of ``node``.
        """
        along, own = numbers.array.rank - 1, node.array.dimensions
        batch = tuple(range(along))
        named: dict[str, object] = {"operand_batching_dims": batch, "start_indices_batching_dims": batch}
        return self._add(
            "gather",
            ArrayShape(node.array.dtype, (*numbers.array.dimensions, *own[along + 1 :])),
            [node, numbers],
            offset_dims=tuple(range(along + 1, len(own))),
            collapsed_slice_dims=(along,),
            start_index_map=(along,),
            index_vector_dim=along + 1,
            slice_sizes=(*[1] * (along + 1), *own[along + 1 :]),
            **(named if batch else {}),
        )

    def reduce(self, node: Node, start: Node, along: Sequence[int], opcode: str) -> Node:
        """Return some dimensions combined by an operation."""
        return self.combined(node, start, along, self.graph.draft.region(opcode, node.array.dtype))

    def combined(self, node: Node, start: Node, along: Sequence[int], region: str) -> Node:
        """Return some dimensions combined by a computation."""
        sizes = tuple(size for d, size in enumerate(node.array.dimensions) if d not in along)
        shape = ArrayShape(node.array.dtype, sizes)
        return self._add("reduce", shape, [node, start], dimensions=tuple(along), to_apply=ComputationName(region))

    def loop(
        self, trips: int, first: Sequence[Node], step: Callable[[Build, Node, list[Node]], Sequence[Node]]
    ) -> list[Node]:
        """Return what becomes of some arrays in so many trips of a loop.

        ``step`` writes a trip: it is given a ``Build`` of the loop's body, the trip's number and the arrays.
        """
        shape = TupleShape((ArrayShape(DTYPES["s32"]), *map(_plain, first)))
        body, condition = (self._graph(f"{name}_of_loop", [shape]) for name in ("body", "condition"))
        inner, test = (Build(graph, self.like, self.target) for graph in (body, condition))
        number, *arrays = (inner.element(body.parameters[0], at) for at in range(len(shape.elements)))
        following = inner.apply("add", number, inner.constant(1, DTYPES["s32"]))
        body.root = body.add("tuple", shape, [following, *step(inner, number, arrays)])
        counted = test.element(condition.parameters[0], 0)
        condition.root = test.compare("LT", counted, test.constant(trips, DTYPES["s32"]))
        start = self.graph.add("tuple", shape, [self.constant(0, DTYPES["s32"]), *first])
        called = {"condition": ComputationName(condition.name), "body": ComputationName(body.name)}
        made = self.graph.add("while", shape, [start], called, like=self.like)
        return [self.element(made, at) for at in range(1, len(shape.elements))]

    def _graph(self, name: str, parameters: Sequence[Shape]) -> Graph:
        """Return a new computation with these parameters."""
        draft = self.graph.draft
        graph = Graph(draft, draft.fresh(name))
        draft.graphs[graph.name] = graph
        graph.parameters = [graph.add("parameter", shape, immediate=at) for at, shape in enumerate(parameters)]
        return graph

    def element(self, node: Node, index: int) -> Node:
        """Return an element of a tuple."""
        assert isinstance(node.shape, TupleShape)
        return self.graph.add("get-tuple-element", node.shape.elements[index], [node], {"index": index})


def _plain(node: Node) -> ArrayShape:
    return ArrayShape(node.array.dtype, node.array.dimensions)


def _text(number: float | str, dtype: DType) -> str:
    """Return a number as text from which its type reads it back."""
    if isinstance(number, str):
        return number
    if dtype.is_integer:
        return str(int(number))
    return f"{number:.{_DIGITS if dtype.bits <= _SINGLE else _DIGITS_OF_DOUBLE}g}"


_SINGLE = 32
"""Bits of the floats that nine digits tell apart."""

_DIGITS = 9
_DIGITS_OF_DOUBLE = 17
