"""Attributes that become values: windows, dimension labels, padding, slices, aliases, layouts of the entry."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tpusim.ir.attributes import (
    BufferDonor,
    ComputationLayout,
    ConvolutionLabels,
    OperandAlias,
    PaddingDimension,
    ParameterAlias,
    SliceDimension,
    Window,
    WindowDimension,
)
from tpusim.text.lexer import Lexer
from tpusim.text.lists import show_list, take_integers, take_list

# In the order in which XLA prints them, which is that of the fields of a window's dimension.
_WINDOW_DEFAULTS: dict[str, Any] = {
    "size": None,
    "stride": 1,
    "pad": (0, 0),
    "lhs_dilate": 1,
    "rhs_dilate": 1,
    "rhs_reversal": 0,
}
# 18 digits fit 64 bits for certain, and no array is that large; nor has one more dimensions than this.
_MOST_DIGITS = 18
_MOST_NUMBERS = 3000
# A training step hands on hundreds of weights, each an element of the result and a whole parameter.
_ORDINARY_ALIAS = re.compile(r"\{([0-9]{1,18})\}: \(([0-9]{1,18}), \{\}, (may|must)-alias\)")


def take_window(lexer: Lexer) -> Window:
    """Read ``{size=2x2 stride=1x1 pad=0_1x0_1 ...}``; fields in any order, all as long as ``size``."""
    start = lexer.start
    lexer.take("{", "'{'")
    fields: dict[str, list[Any]] = {}
    while lexer.kind != "}":
        name = lexer.take("attribute", "a field of a window or '}'")
        if name not in _WINDOW_DEFAULTS or name in fields:
            lexer.fail(f"expected each of {', '.join(_WINDOW_DEFAULTS)} at most once, found {name!r}", start)
        fields[name] = _take_pads(lexer) if name == "pad" else _take_sizes(lexer)
    lexer.advance()
    rank = len(fields.get("size", ()))
    if any(len(values) != rank for values in fields.values()):
        lexer.fail(f"every field of a window must have {rank} numbers, as 'size' has", start)
    columns = [fields.get(name, [default] * rank) for name, default in _WINDOW_DEFAULTS.items()]
    # XLA compares with 1: any other number means no reversal.
    rows = (
        WindowDimension(size, stride, pad[0], pad[1], lhs_dilate, rhs_dilate, turn == 1)
        for size, stride, pad, lhs_dilate, rhs_dilate, turn in zip(*columns, strict=True)
    )
    return Window(tuple(rows))


def show_window(window: Window) -> str:
    """Return a window as XLA prints it: fields that hold only their default are left out."""
    rows = [
        (d.size, d.stride, (d.pad_low, d.pad_high), d.lhs_dilate, d.rhs_dilate, int(d.reversal))
        for d in window.dimensions
    ]
    # Without dimensions there are no columns.
    fields = zip(_WINDOW_DEFAULTS.items(), zip(*rows, strict=True), strict=False)
    shown = (f"{name}={_show_numbers(values)}" for (name, default), values in fields if set(values) != {default})
    return "{" + " ".join(shown) + "}"


def take_labels(lexer: Lexer) -> ConvolutionLabels:
    """Read ``b01f_01io->b01f``; ``?`` marks dimensions of no role."""
    start = lexer.start
    text = lexer.take("labels", "dimension labels such as b01f_01io->b01f")
    inputs, output = text.split("->")
    # The lexer has made sure that there is one arrow and one underscore.
    lhs, rhs = inputs.split("_")
    counts = [_spatial_count(labels, roles) for labels, roles in ((lhs, "bf"), (rhs, "io"), (output, "bf"))]
    if None in counts or len(set(counts)) != 1:
        lexer.fail("each side must number the same spatial dimensions from 0 and name its others at most once", start)
    return ConvolutionLabels(lhs, rhs, output)


def take_padding(lexer: Lexer) -> tuple[PaddingDimension, ...]:
    """Read ``lo_hi`` or ``lo_hi_interior`` per dimension, joined by ``x``: nothing for a scalar, as XLA prints it."""
    if lexer.kind in (",", "}") or "\n" in lexer.text[lexer.previous_end : lexer.start]:
        return ()
    return tuple(PaddingDimension(*numbers) for numbers in _take_numbers(lexer, "padding", "padding such as 0_1x2_3_1"))


def show_padding(dimensions: tuple[PaddingDimension, ...]) -> str:
    """Return padding as XLA prints it: interiors for all dimensions or for none."""
    if any(d.interior for d in dimensions):
        return _show_numbers((d.low, d.high, d.interior) for d in dimensions)
    return _show_numbers((d.low, d.high) for d in dimensions)


def take_slice_dimension(lexer: Lexer) -> SliceDimension:
    """Read ``[start:limit]`` or ``[start:limit:stride]``."""
    start = lexer.start
    numbers = take_list(lexer, Lexer.take_integer, "[]", ":")
    if len(numbers) not in (2, 3):
        lexer.fail("expected [start:limit] or [start:limit:stride]", start)
    return SliceDimension(*numbers)


def show_slice(dimensions: tuple[SliceDimension, ...]) -> str:
    """Return ``{[0:4], [1:9]}`` as XLA prints it: strides for all dimensions as soon as one is not 1."""
    strided = any(d.stride != 1 for d in dimensions)
    parts = (f"[{d.start}:{d.limit}:{d.stride}]" if strided else f"[{d.start}:{d.limit}]" for d in dimensions)
    return "{" + ", ".join(parts) + "}"


def take_operand_alias(lexer: Lexer) -> OperandAlias:
    """Read one ``{0}: (1, {})``: part of the result, operand, part of the operand."""
    output_index = take_integers(lexer)
    lexer.take(":", "':'")
    alias = OperandAlias(output_index, *_take_part(lexer))
    lexer.take(")", "')'")
    return alias


def show_operand_aliases(aliases: tuple[OperandAlias, ...]) -> str:
    """Return ``{{0}: (1, {}), ...}``."""
    parts = (f"{show_list(a.output_index)}: ({a.operand}, {show_list(a.operand_index)})" for a in aliases)
    return "{" + ", ".join(parts) + "}"


def take_parameter_alias(lexer: Lexer) -> ParameterAlias:
    """Read one ``{0}: (1, {}, may-alias)``: part of the result, parameter, part of the parameter."""
    ordinary = _ORDINARY_ALIAS.match(lexer.text, lexer.start)
    if ordinary:
        lexer.jump(ordinary.end())
        return ParameterAlias((int(ordinary[1]),), int(ordinary[2]), (), ordinary[3] == "must")
    output_index = take_integers(lexer)
    lexer.take(":", "':'")
    parameter, parameter_index = _take_part(lexer)
    # XLA prints the word always, and takes this one where it is missing.
    kind = "may-alias"
    if lexer.accept(","):
        start = lexer.start
        kind = lexer.take_word("may-alias or must-alias")
        if kind not in ("may-alias", "must-alias"):
            lexer.fail(f"expected may-alias or must-alias, found {kind!r}", start)
    lexer.take(")", "')'")
    return ParameterAlias(output_index, parameter, parameter_index, kind == "must-alias")


# Lists of the module's first line have blanks inside, those of instructions have none.
def show_parameter_aliases(aliases: tuple[ParameterAlias, ...]) -> str:
    """Return ``{ {0}: (1, {}, may-alias), ... }``."""
    parts = (
        f"{show_list(a.output_index)}: ({a.parameter}, {show_list(a.parameter_index)},"
        f" {'must' if a.must_alias else 'may'}-alias)"
        for a in aliases
    )
    return f"{{ {', '.join(parts)} }}"


def take_buffer_donor(lexer: Lexer) -> BufferDonor:
    """Read one ``(0, {})``."""
    donor = BufferDonor(*_take_part(lexer))
    lexer.take(")", "')'")
    return donor


def show_buffer_donors(donors: tuple[BufferDonor, ...]) -> str:
    """Return ``{ (0, {}), ... }``."""
    return f"{{ {', '.join(f'({d.parameter}, {show_list(d.parameter_index)})' for d in donors)} }}"


def take_computation_layout(lexer: Lexer) -> ComputationLayout:
    """Read ``{(shapes)->shape}``."""
    lexer.take("{", "'{'")
    parameters = take_list(lexer, Lexer.take_shape, "()")
    lexer.take("->", "'->'")
    result = lexer.take_shape()
    lexer.take("}", "'}'")
    return ComputationLayout(parameters, result)


def show_computation_layout(layout: ComputationLayout) -> str:
    """Return ``{(shapes)->shape}``, every fifth parameter numbered as XLA does."""
    shapes = (f"/*index={i}*/{shape}" if i and i % 5 == 0 else str(shape) for i, shape in enumerate(layout.parameters))
    return f"{{({', '.join(shapes)})->{layout.result}}}"


def _take_part(lexer: Lexer) -> tuple[int, tuple[int, ...]]:
    """Read ``(1, {0}``, up to what may follow: the number of an operand or parameter, and the part of it."""
    lexer.take("(", "'('")
    number = lexer.take_integer()
    lexer.take(",", "','")
    return number, take_integers(lexer)


def _take_sizes(lexer: Lexer) -> list[int]:
    """Read ``2x3`` or ``2``."""
    if lexer.kind == "integer":
        return [lexer.take_integer()]
    return [size for (size,) in _take_numbers(lexer, "sizes", "sizes such as 2x3")]


def _take_pads(lexer: Lexer) -> list[tuple[int, ...]]:
    """Read ``0_1x2_3``."""
    start = lexer.start
    pads = _take_numbers(lexer, "padding", "padding such as 0_1x2_3")
    if any(len(pad) != 2 for pad in pads):
        lexer.fail("padding of a window is low_high, without an interior", start)
    return pads


def _take_numbers(lexer: Lexer, kind: str, what: str) -> list[tuple[int, ...]]:
    """Read ``2x3`` or ``0_1x2_3``: the numbers of each dimension, which must fit 64 bits."""
    start = lexer.start
    text = lexer.take(kind, what)
    rows = [part.split("_") for part in text.split("x")]
    if sum(map(len, rows)) > _MOST_NUMBERS or any(len(digits) > _MOST_DIGITS for row in rows for digits in row):
        lexer.fail(f"expected at most {_MOST_NUMBERS} numbers that fit 64 bits", start)
    return [tuple(map(int, row)) for row in rows]


def _show_numbers(values: Iterable[Any]) -> str:
    """Return numbers as ``2x3``, tuples of them as ``0_1x2_3``."""
    return "x".join("_".join(map(str, value)) if isinstance(value, tuple) else str(value) for value in values)


def _spatial_count(labels: str, roles: str) -> int | None:
    """Return how many spatial dimensions labels number from 0 on without a gap; None if they do not."""
    named = [label for label in labels if label != "?"]
    # A gap such as 02 would abort XLA's process.
    digits = sorted(label for label in named if label.isdecimal())
    if len(set(named)) != len(named) or any(label not in roles for label in named if not label.isdecimal()):
        return None
    return len(digits) if digits == [str(i) for i in range(len(digits))] else None
