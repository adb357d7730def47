"""What an element of a result is made of: by opcode, the box of each operand behind a box of the result.

An opcode without a rule of its own is element-wise if its row says so; of any other each element of the result may
need all of every operand.

Source: XLA, Operation Semantics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tpusim.ir.attributes import ConvolutionLabels, Window, WindowDimension, sorted_along
from tpusim.ir.module import Instruction
from tpusim.ir.ops import ELEMENTWISE
from tpusim.semantics.demand.regions import Box, Span, common_span, whole_box
from tpusim.semantics.demand.reshapes import bitcast_groups, box_behind, reshape_groups
from tpusim.shapes.shape import ArrayShape

Boxes = list[Box | None]
Rule = Callable[[Instruction, Box, Sequence[ArrayShape]], Boxes]

_RULES: dict[str, Rule] = {}


def boxes_behind(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    """Return, for each operand (arrays of these shapes), the box that ``box`` of the result needs; None for nothing.

    ``box`` is of one of the results if there are several, which then have the same shape.
    """
    rule = _RULES.get(instruction.opcode, _each if instruction.opcode in ELEMENTWISE else None)
    found = rule(instruction, box, operands) if rule else []
    # Of operands that a rule does not speak of (starting values, indices, scalars) everything is needed.
    return [*found, *map(whole_box, operands[len(found) :])]


def _rule(*opcodes: str) -> Callable[[Rule], Rule]:
    def enter(function: Rule) -> Rule:
        _RULES.update(dict.fromkeys(opcodes, function))
        return function

    return enter


@_rule("copy", "map", "add-dependency", "opt-barrier", "parameter")
def _each(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    """Elements stand where those of the result do; a scalar is for all of them."""
    return [box if shape.rank == len(box.spans) else whole_box(shape) for shape in operands]


@_rule("bitcast-convert")
def _bitcast_convert(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    """Elements stand where those of the result do, but for a last dimension of parts of one wider element."""
    (shape,) = operands
    inside = shape.dimensions[len(box.spans) :]
    return [box.moved((*box.spans, *map(Span, inside))[: shape.rank], prod(inside))]


@_rule("bitcast", "reshape", "dynamic-reshape")
def _reshape(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    """The same elements, counted otherwise."""
    source, result = operands[0], instruction.shape
    assert isinstance(result, ArrayShape)
    # Under a bitcast padding may change the number of elements.
    if source.element_count != result.element_count:
        return []
    groups = bitcast_groups if instruction.opcode == "bitcast" else reshape_groups
    return [box_behind(box, groups(source, result), source, result)]


@_rule("transpose")
def _transpose(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    """Dimension ``i`` of the result is ``dimensions[i]`` of the operand."""
    by_operand = dict(zip(instruction.attributes["dimensions"], box.spans, strict=True))
    return [box.moved(by_operand[d] for d in range(len(box.spans)))]


@_rule("broadcast")
def _broadcast(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    """Dimension ``i`` of the operand is ``dimensions[i]`` of the result."""
    return [box.moved(box.spans[d] for d in instruction.attributes.get("dimensions", ()))]


@_rule("reverse")
def _reverse(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    """The first element of a turned dimension is the operand's last."""
    spans = list(box.spans)
    for d in instruction.attributes["dimensions"]:
        span = spans[d]
        if span.start is not None:
            spans[d] = Span(span.count, operands[0].dimensions[d] - span.start - span.reach, span.step)
    return [box.moved(spans)]


@_rule("slice")
def _slice(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    """Element ``i`` is the operand's ``start + i * stride``."""
    spans = []
    for span, cut in zip(box.spans, instruction.attributes["slice"], strict=True):
        start = None if span.start is None else cut.start + span.start * cut.stride
        spans.append(Span(span.count, start, span.step * cut.stride))
    return [box.moved(spans)]


@_rule("dynamic-slice")
def _dynamic_slice(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    """As many elements, at a place that values decide, but for dimensions that are taken whole."""
    sizes, spans = instruction.attributes["dynamic_slice_sizes"], []
    for span, size, full in zip(box.spans, sizes, operands[0].dimensions, strict=True):
        # XLA clamps the start so that the slice lies inside: a whole dimension begins at 0.
        spans.append(span if size == full else Span(span.count, None, span.step))
    return [box.moved(spans)]


@_rule("pad")
def _pad(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    """Element ``i`` of the operand stands at ``low + i * (interior + 1)``."""
    spans = []
    for span, edge, size in zip(box.spans, instruction.attributes["padding"], operands[0].dimensions, strict=True):
        gap = edge.interior + 1
        if span.start is None:
            # Anywhere in the result there are at most so many elements between the padding.
            spans.append(_unplaced(min(size, span.count, (span.reach - 1) // gap + 1), size, max(1, span.step // gap)))
            continue
        met = common_span(span, Span(size, edge.low, gap))
        spans.append(Span(met.count, ((met.start or 0) - edge.low) // gap, max(1, met.step // gap)))
    return [box.moved(spans)]


def _unplaced(count: int, size: int, step: int = 1) -> Span:
    """Return so many indices at an unknown place, or all if there are no more."""
    return Span(size) if count >= size else Span(count, None, step)


@_rule("concatenate")
def _concatenate(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    (dimension,) = instruction.attributes["dimensions"]
    found: Boxes = []
    offset, span = 0, box.spans[dimension]
    for shape in operands:
        size = shape.dimensions[dimension]
        part = _unplaced(min(size, span.count), size, span.step)
        if span.start is not None and size:
            met = common_span(span, Span(size, offset))
            part = Span(met.count, (met.start or 0) - offset, met.step)
        found.append(box.moved((*box.spans[:dimension], part, *box.spans[dimension + 1 :])) if part.count else None)
        offset += size
    return found


@_rule("reduce")
def _reduce(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    """All of the reduced dimensions."""
    reduced, count = set(instruction.attributes["dimensions"]), len(operands) // 2
    sizes, kept = operands[0].dimensions, iter(box.spans)
    spans = tuple(Span(size) if d in reduced else next(kept) for d, size in enumerate(sizes))
    return [box.moved(spans, prod(sizes[d] for d in reduced))] * count


@_rule("sort")
def _sort(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    sizes = operands[0].dimensions
    if not sizes:
        return [box] * len(operands)
    dimension = sorted_along(instruction.attributes, len(sizes))
    spans = (*box.spans[:dimension], Span(sizes[dimension]), *box.spans[dimension + 1 :])
    return [box.moved(spans, sizes[dimension])] * len(operands)


@_rule("reduce-window")
def _reduce_window(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    """What the windows of the results cover."""
    window, count = instruction.attributes["window"].dimensions, len(operands) // 2
    sizes = operands[0].dimensions
    spans = [_covered(*each) for each in zip(box.spans, window, sizes, strict=True)]
    return [box.moved(spans, prod(w.size for w in window))] * count


def _covered(span: Span, window: WindowDimension, size: int) -> Span:
    """Return the indices between the first and the last that windows at the positions ``span`` touch (the halo too)."""
    reach = (span.reach - 1) * window.stride + (window.size - 1) * window.rhs_dilate + 1
    if span.start is None:
        return _unplaced(min(size, -(-reach // window.lhs_dilate)), size)
    first = span.start * window.stride - window.pad_low
    low = max(0, -(-first // window.lhs_dilate))
    high = min(size - 1, (first + reach - 1) // window.lhs_dilate)
    return Span(max(0, high - low + 1), low)


@_rule("convolution")
def _convolution(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    """The features and window positions that the result's batch, features and positions meet."""
    labels: ConvolutionLabels = instruction.attributes["dim_labels"]
    window = instruction.attributes.get("window", Window()).dimensions
    out = dict(zip(labels.output, box.spans, strict=True))
    left, right = operands[:2]
    spans = {d: Span(size) for d, size in zip(labels.lhs, left.dimensions, strict=True)}
    spans |= {d: _covered(out[d], window[int(d)], spans[d].count) for d in labels.lhs if d.isdigit()}
    if instruction.attributes.get("batch_group_count", 1) == 1:
        spans["b"] = out["b"]
    kernel = {d: Span(size) for d, size in zip(labels.rhs, right.dimensions, strict=True)} | {"o": out["f"]}
    sizes = dict(zip(labels.lhs, left.dimensions, strict=True))
    kernel |= {
        d: _tapped(out[d], window[int(d)], kernel[d].count) for d in labels.rhs if sizes.get(d) == 1 and d in out
    }
    return [_product([spans[d] for d in labels.lhs]), _product([kernel[d] for d in labels.rhs])]


def _tapped(span: Span, window: WindowDimension, size: int) -> Span:
    """Return the kernel positions with which windows at the positions ``span`` meet the only element of an input."""
    if span.start is None:
        return Span(size)
    first, last = (window.pad_low - place * window.stride for place in (span.start, span.start + span.reach - 1))
    low, high = max(0, -(-last // window.rhs_dilate)), min(size - 1, first // window.rhs_dilate)
    count = max(0, high - low + 1)
    return Span(count, size - 1 - high if window.reversal and count else low)


def _product(spans: Sequence[Span]) -> Box:
    """Return the box of all elements of some spans."""
    return Box(tuple(spans), prod(span.count for span in spans))


@_rule("dot")
def _dot(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    """The batch, then the rows of the left and the columns of the right; all of what is contracted."""
    found: Boxes = []
    batches = len(instruction.attributes.get("lhs_batch_dims", ()))
    free = iter(box.spans[batches:])
    for side, shape in zip(("lhs", "rhs"), operands, strict=False):
        batch = dict(zip(instruction.attributes.get(f"{side}_batch_dims", ()), box.spans, strict=False))
        contracted = set(instruction.attributes.get(f"{side}_contracting_dims", ()))
        sizes = enumerate(shape.dimensions)
        found.append(_product([batch.get(d) or (Span(n) if d in contracted else next(free)) for d, n in sizes]))
    return found


@_rule("gather")
def _gather(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    """One row for each index, at places that values decide. Rows taken more than once are fetched once."""
    attributes, (source, indices) = instruction.attributes, operands
    offsets = attributes["offset_dims"]
    batch = iter([span for d, span in enumerate(box.spans) if d not in offsets])
    taken = [
        Span(size) if d == attributes["index_vector_dim"] else next(batch) for d, size in enumerate(indices.dimensions)
    ]
    rows = prod(span.count for d, span in enumerate(taken) if d != attributes["index_vector_dim"])
    dropped = {*attributes["collapsed_slice_dims"], *attributes.get("operand_batching_dims", ())}
    moved = {*attributes["start_index_map"], *attributes.get("operand_batching_dims", ())}
    inside = iter([box.spans[d] for d in offsets])
    spans, row = [], 1
    for d, size in enumerate(source.dimensions):
        span = Span(1) if d in dropped else next(inside)
        row *= span.count
        fixed = d not in moved or attributes["slice_sizes"][d] == size
        spans.append(span if fixed else _unplaced(min(size, rows * span.count), size))
    most = min(rows * row, prod(span.count for span in spans))
    return [Box(tuple(spans), most, max(1, rows)), _product(taken)]


@_rule("dynamic-update-slice")
def _dynamic_update_slice(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    """What is around the update, and of the update as much as fits."""
    sizes = operands[1].dimensions
    update = box.moved(_unplaced(min(span.count, n), n, span.step) for span, n in zip(box.spans, sizes, strict=True))
    return [box, update]


@_rule("scatter")
def _scatter(instruction: Instruction, box: Box, operands: Sequence[ArrayShape]) -> Boxes:
    """The operands' elements stand where the results' do; which updates meet them values decide."""
    return [box] * (len(operands) // 2)
