"""Pass 5: convolutions of few images: the columns of each are cut into stretches that are images of their own.

A batch of one to seven fills no registers. Eight stretches of each image do, each with those columns of its neighbours
that its windows reach into. What follows element by element, further convolutions, and sums over all columns stay in
that form. Columns behind the last one are masked where they would count.

Source: XLA, SpaceToBatchConverter; which convolutions, from 70 of them compiled ahead of time for v5e (libtpu 0.0.52).
Other chips are taken to do alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.simplify.rules import starts_from_nothing
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Graph, Node
from tpusim.ir.attributes import ConvolutionLabels, Window, WindowDimension
from tpusim.ir.module import Literal
from tpusim.ir.ops import ELEMENTWISE
from tpusim.semantics.marks import ASKED_FLOPS, with_mark
from tpusim.semantics.products import convolution_flops
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape

_STRETCHES = 8
_MOST_IMAGES = 7
_FEWEST_COLUMNS = 14
"""Images of 14 columns are cut, of 13 not, whatever the window."""


class _Form(NamedTuple):
    """Which dimensions of an array are its images and their columns, and into stretches of how many it is cut."""

    images: int
    along: int
    columns: int

    def order(self, rank: int) -> list[int]:
        """Return the array's dimensions as they stand when it is cut.

        Images and columns go before the dimension in front of the columns, their rows.
        """
        rest = [d for d in range(rank) if d not in (self.images, self.along)]
        first = rest.index(self.along - 1) if self.along - 1 in rest else 0
        return [*rest[:first], self.images, self.along, *rest[first:]]

    def at(self, rank: int) -> int:
        """Return where the stretches stand then, before their columns."""
        return self.order(rank).index(self.images)


class _Cut(NamedTuple):
    """An array that is cut."""

    node: Node
    form: _Form

    @property
    def at(self) -> int:
        """The dimension of the stretches, which stands before that of their columns."""
        return self.form.at(self.node.array.rank)


def cut_images(draft: Draft, target: Target) -> None:
    """Cut the images of small batches wherever they are convolved."""
    for graph in draft.reachable():
        _Graph(graph, target).run()


class _Graph:
    """A graph, and what has been cut of its arrays."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self.graph = graph
        self.target = target
        self.cuts: dict[Node, _Cut] = {}

    def run(self) -> None:
        for node in self.graph.order():
            if node.is_dynamic:
                continue
            if node.opcode == "convolution":
                self._convolve(node)
            elif node.opcode in ELEMENTWISE:
                self._follow(node)
            elif node.opcode == "reduce" and node.operands[0] in self.cuts:
                self._reduce(node, self.cuts[node.operands[0]])
        for node, cut in self.cuts.items():
            others = [user for user in node.users if user not in self.cuts]
            if others or node is self.graph.root:
                whole = self._whole(node, cut)
                for user in others:
                    user.replace_operand(node, whole)
                if node is self.graph.root:
                    self.graph.root = whole

    def _follow(self, node: Node) -> None:
        """Cut the result of an operation on elements if all its operands are cut alike, or the same everywhere."""
        cut = [operand for operand in node.operands if operand in self.cuts]
        forms = {self.cuts[operand].form for operand in cut}
        # What takes bits for those of another type may have another dimension.
        if len(forms) != 1 or any(operand.array.dimensions != node.array.dimensions for operand in cut):
            return
        (form,) = forms
        operands = [self._like(operand, form, node) for operand in node.operands]
        if None not in operands:
            made = self.graph.clone(node, [operand for operand in operands if operand])
            made.shape = ArrayShape(node.array.dtype, self._sizes(node, form))
            self.cuts[node] = _Cut(made, form)

    def _like(self, operand: Node, form: _Form, user: Node) -> Node | None:
        """Return an operand in the form of others, None if it has elements of its own for every image or column."""
        if operand in self.cuts:
            return self.cuts[operand].node
        if not operand.array.rank:
            return operand
        if operand.opcode != "broadcast" or {form.images, form.along} & set(operand.attributes["dimensions"]):
            return None
        order = form.order(operand.array.rank)
        places = [order.index(d) for d in operand.attributes["dimensions"]]
        return Build(self.graph, user, self.target).broadcast(operand.operands[0], self._sizes(operand, form), places)

    def _sizes(self, node: Node, form: _Form) -> tuple[int, ...]:
        sizes = list(node.array.dimensions)
        sizes[form.images] *= _STRETCHES
        sizes[form.along] = form.columns
        return tuple(sizes[d] for d in form.order(len(sizes)))

    def _convolve(self, node: Node) -> None:
        """Cut the result of a convolution of few images, or of one that is cut itself."""
        labels, (image, kernel) = node.attributes["dim_labels"], node.operands
        windows = node.attributes["window"].dimensions
        if not windows or node.attributes.get("batch_group_count", 1) != 1:
            return
        window, last = windows[-1], str(len(windows) - 1)
        if window.lhs_dilate != 1 or min(window.pad_low, window.pad_high) < 0:
            return
        more, results = (window.size - 1) * window.rhs_dilate, node.array.dimensions[labels.output.index(last)]
        whole = _Form(labels.lhs.index("b"), labels.lhs.index(last), 0)
        build, cut = Build(self.graph, node, self.target), self.cuts.get(image)
        if cut is not None and _goes_on(cut.form, whole, window, more, results):
            columns, at = cut.form.columns, cut.at
            masked = self._masked(build, image, cut, build.constant(0, image.array.dtype))
            given = _with_neighbours(build, masked, at, window.pad_low, more - window.pad_low)
        elif _is_worth_it(image, whole, more):
            padded = image.array.dimensions[whole.along] + window.pad_low + window.pad_high
            columns = -(-padded // (_STRETCHES * window.stride)) * window.stride
            at = whole.at(image.array.rank)
            given = _with_neighbours(build, _stretched(build, image, whole, window.pad_low, columns), at, 0, more)
        else:
            return
        form = _Form(labels.output.index("b"), labels.output.index(last), columns // window.stride)
        attributes = dict(node.attributes)
        inner = WindowDimension(window.size, window.stride, rhs_dilate=window.rhs_dilate, reversal=window.reversal)
        attributes["window"] = Window((*windows[:-1], inner))
        attributes["dim_labels"] = ConvolutionLabels(
            _in_order(labels.lhs, whole), labels.rhs, _in_order(labels.output, form)
        )
        shape = ArrayShape(node.array.dtype, self._sizes(node, form))
        asked = convolution_flops(node.attributes, image.array, kernel.array, node.array)
        # Padding that is stored as columns of an image looks like one.
        if asked < convolution_flops(attributes, given.array, kernel.array, shape):
            attributes = with_mark(attributes, ASKED_FLOPS, f"{asked:.0f}")
        self.cuts[node] = _Cut(self.graph.add("convolution", shape, [given, kernel], attributes, like=node), form)

    def _reduce(self, node: Node, cut: _Cut) -> None:
        """Combine the columns of a cut array where they lie, and all dimensions that are combined with them."""
        array, start = node.operands[0], node.operands[-1]
        gone, images = node.attributes["dimensions"], array.array.dimensions[cut.form.images]
        is_whole = cut.form.along in gone and (images == 1 or cut.form.images in gone)
        if len(node.operands) != 2 or not is_whole or not starts_from_nothing(self.graph, node):
            return
        build, order = Build(self.graph, node, self.target), cut.form.order(array.array.rank)
        # The stretches of a single image are combined also where that stays.
        left = [d for d in order if d not in gone and d != cut.form.images]
        along = [at for at, d in enumerate(order) if d not in left]
        made = build.combined(self._masked(build, array, cut, start), start, along, node.attributes["to_apply"])
        turned = build.turned(made, [left.index(d) for d in sorted(left)])
        whole = build.reshape(turned, *node.array.dimensions) if turned.array.rank < node.array.rank else turned
        self.graph.replace(node, whole)

    def _masked(self, build: Build, node: Node, cut: _Cut, number: Node) -> Node:
        """Return what is cut with a number behind the last column."""
        columns, valid = cut.form.columns, node.array.dimensions[cut.form.along]
        if columns * _STRETCHES == valid:
            return cut.node
        rows = [[at * columns + column < valid for column in range(columns)] for at in range(_STRETCHES)]
        images = node.array.dimensions[cut.form.images]
        shape = ArrayShape(DTYPES["pred"], (images * _STRETCHES, columns))
        mask = self.graph.add("constant", shape, immediate=Literal(_matrix_text(rows * images)))
        there = build.broadcast(mask, cut.node.array.dimensions, (cut.at, cut.at + 1))
        numbers = build.broadcast(number, cut.node.array.dimensions, ())
        return build.apply("select", there, cut.node, numbers)

    def _whole(self, node: Node, cut: _Cut) -> Node:
        """Return the array that is cut as it was."""
        build, form, at = Build(self.graph, node, self.target), cut.form, cut.at
        sizes = list(cut.node.array.dimensions)
        sizes[at : at + 2] = node.array.dimensions[form.images], _STRETCHES * form.columns
        joined = build.reshape(cut.node, *sizes)
        valid = build.slice(joined, at + 1, 0, node.array.dimensions[form.along])
        order = form.order(len(sizes))
        return build.turned(valid, [order.index(d) for d in range(len(order))])


def _is_worth_it(image: Node, form: _Form, more: int) -> bool:
    """Return whether few images have enough columns, and each stretch those that its neighbour's windows reach into."""
    images, columns = image.array.dimensions[form.images], image.array.dimensions[form.along]
    return images <= _MOST_IMAGES and columns >= _FEWEST_COLUMNS and more <= -(-columns // _STRETCHES)


def _goes_on(form: _Form, whole: _Form, window: WindowDimension, more: int, results: int) -> bool:
    """Return whether a convolution of what is cut, had it the dimensions of the ``whole``, is cut alike."""
    if form[:2] != whole[:2] or form.columns % window.stride or window.pad_low > more:
        return False
    has_columns = max(window.pad_low, more - window.pad_low) <= form.columns
    return has_columns and results <= _STRETCHES * form.columns // window.stride


def _stretched(build: Build, image: Node, form: _Form, pad_low: int, columns: int) -> Node:
    """Return images of which each is eight stretches of so many columns, with zeros around."""
    turned = build.turned(image, form.order(image.array.rank))
    sizes = list(turned.array.dimensions)
    at = form.at(len(sizes))
    pad_high = _STRETCHES * columns - sizes[at + 1] - pad_low
    padded = build.pad(turned, build.constant(0, image.array.dtype), {at + 1: (pad_low, pad_high)})
    sizes[at : at + 2] = sizes[at] * _STRETCHES, columns
    return build.reshape(padded, *sizes)


def _with_neighbours(build: Build, node: Node, at: int, before: int, behind: int) -> Node:
    """Return stretches, dimension ``at``, with so many columns of those before and behind each; of none at the ends."""
    if not before and not behind:
        return node
    sizes = list(node.array.dimensions)
    stretches, columns = sizes[at : at + 2]
    apart = build.reshape(node, *sizes[:at], stretches // _STRETCHES, _STRETCHES, *sizes[at + 1 :])
    zero = build.constant(0, node.array.dtype)
    parts = [apart]
    if before:
        ends = build.slice(build.slice(apart, at + 1, 0, _STRETCHES - 1), at + 2, columns - before, columns)
        parts.insert(0, build.pad(ends, zero, {at + 1: (1, 0)}))
    if behind:
        begins = build.slice(build.slice(apart, at + 1, 1, _STRETCHES), at + 2, 0, behind)
        parts.append(build.pad(begins, zero, {at + 1: (0, 1)}))
    sizes[at + 1] = before + columns + behind
    return build.reshape(build.concatenate(parts, at + 2), *sizes)


def _in_order(labels: str, form: _Form) -> str:
    return "".join(labels[d] for d in form.order(len(labels)))


def _matrix_text(rows: Sequence[Sequence[bool]]) -> str:
    """Return truths as HLO text has a matrix of them."""
    return "{ " + ", ".join("{ " + ", ".join(str(int(one)) for one in row) + " }" for row in rows) + " }"
