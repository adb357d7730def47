"""Attributes that become values: windows, dimension labels, padding, slices, aliases, layouts of the entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from tpusim.text.lists import show_integers, take_integers, take_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tpusim.shapes.shape import Shape
    from tpusim.text.lexer import Lexer

# In the order in which XLA prints them.
_WINDOW_FIELDS = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")
# 18 digits fit 64 bits for certain, and no array is that large; nor has one more dimensions than this.
_MOST_DIGITS = 18
_MOST_NUMBERS = 3000


def take_window(lexer: Lexer) -> Window:
    """Read ``{size=2x2 stride=1x1 pad=0_1x0_1 ...}``; fields in any order, all as long as ``size``."""
    start = lexer.start
    lexer.take("{", "'{'")
    fields: dict[str, list[tuple[int, ...]]] = {}
    while lexer.kind != "}":
        name = lexer.take("attribute", "a field of a window or '}'")
        if name not in _WINDOW_FIELDS or name in fields:
            lexer.fail(f"expected each of {', '.join(_WINDOW_FIELDS)} at most once, found {name!r}", start)
        fields[name] = _take_pads(lexer) if name == "pad" else [(n,) for n in _take_sizes(lexer)]
    lexer.take("}", "'}'")
    rank = len(fields.get("size", ()))
    if any(len(values) != rank for values in fields.values()):
        lexer.fail(f"every field of a window must have {rank} numbers, as 'size' has", start)
    return Window(tuple(_window_dimension({name: fields[name][i] for name in fields}) for i in range(rank)))


def show_window(window: Window) -> str:
    """Return a window as XLA prints it: fields that hold only their default are left out."""
    dimensions = window.dimensions
    fields = [("size", [str(d.size) for d in dimensions])] if dimensions else []
    if any(d.stride != 1 for d in dimensions):
        fields.append(("stride", [str(d.stride) for d in dimensions]))
    if any(d.pad_low or d.pad_high for d in dimensions):
        fields.append(("pad", [f"{d.pad_low}_{d.pad_high}" for d in dimensions]))
    if any(d.lhs_dilate != 1 for d in dimensions):
        fields.append(("lhs_dilate", [str(d.lhs_dilate) for d in dimensions]))
    if any(d.rhs_dilate != 1 for d in dimensions):
        fields.append(("rhs_dilate", [str(d.rhs_dilate) for d in dimensions]))
    if any(d.reversal for d in dimensions):
        fields.append(("rhs_reversal", [str(int(d.reversal)) for d in dimensions]))
    return "{" + " ".join(f"{name}={'x'.join(values)}" for name, values in fields) + "}"


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


def show_labels(labels: ConvolutionLabels) -> str:
    """Return ``b01f_01io->b01f``."""
    return f"{labels.lhs}_{labels.rhs}->{labels.output}"


def take_padding(lexer: Lexer) -> tuple[PaddingDimension, ...]:
    """Read ``lo_hi`` or ``lo_hi_interior`` per dimension, joined by ``x``."""
    start = lexer.start
    text = lexer.take("padding", "padding such as 0_1x2_3_1")
    _refuse_long_numbers(lexer, text, start)
    return tuple(PaddingDimension(*map(int, part.split("_"))) for part in text.split("x"))


def show_padding(dimensions: tuple[PaddingDimension, ...]) -> str:
    """Return padding as XLA prints it: interiors for all dimensions or for none."""
    if any(d.interior for d in dimensions):
        return "x".join(f"{d.low}_{d.high}_{d.interior}" for d in dimensions)
    return "x".join(f"{d.low}_{d.high}" for d in dimensions)


def take_slice(lexer: Lexer) -> tuple[SliceDimension, ...]:
    """Read ``{[0:4], [1:9:2]}``."""
    return take_list(lexer, _slice_dimension)


def show_slice(dimensions: tuple[SliceDimension, ...]) -> str:
    """Return a slice as XLA prints it: strides for all dimensions or for none."""
    # XLA prints strides for all dimensions as soon as one is not 1.
    strided = any(d.stride != 1 for d in dimensions)
    parts = (f"[{d.start}:{d.limit}:{d.stride}]" if strided else f"[{d.start}:{d.limit}]" for d in dimensions)
    return "{" + ", ".join(parts) + "}"


def take_operand_aliases(lexer: Lexer) -> tuple[OperandAlias, ...]:
    """Read ``{{0}: (1, {}), ...}``: part of the result, operand, part of the operand."""
    return take_list(lexer, _operand_alias)


def show_operand_aliases(aliases: tuple[OperandAlias, ...]) -> str:
    """Return ``{{0}: (1, {}), ...}``."""
    return _braced(f"{show_integers(a.output_index)}: ({a.operand}, {show_integers(a.operand_index)})" for a in aliases)


def take_parameter_aliases(lexer: Lexer) -> tuple[ParameterAlias, ...]:
    """Read ``{ {0}: (1, {}, may-alias), ... }``: part of the result, parameter, part of the parameter."""
    return take_list(lexer, _parameter_alias)


def show_parameter_aliases(aliases: tuple[ParameterAlias, ...]) -> str:
    """Return ``{ {0}: (1, {}, may-alias), ... }``."""
    parts = (
        f"{show_integers(a.output_index)}: ({a.parameter}, {show_integers(a.parameter_index)},"
        f" {'must' if a.must_alias else 'may'}-alias)"
        for a in aliases
    )
    return _spaced(parts)


def take_buffer_donors(lexer: Lexer) -> tuple[BufferDonor, ...]:
    """Read ``{ (0, {}), ... }``."""
    return take_list(lexer, _buffer_donor)


def show_buffer_donors(donors: tuple[BufferDonor, ...]) -> str:
    """Return ``{ (0, {}), ... }``."""
    return _spaced(f"({d.parameter}, {show_integers(d.parameter_index)})" for d in donors)


def take_computation_layout(lexer: Lexer, take_shape: Callable[[Lexer], Shape]) -> ComputationLayout:
    """Read ``{(shapes)->shape}``."""
    lexer.take("{", "'{'")
    parameters = take_list(lexer, take_shape, "()")
    lexer.take("->", "'->'")
    result = take_shape(lexer)
    lexer.take("}", "'}'")
    return ComputationLayout(parameters, result)


def _operand_alias(lexer: Lexer) -> OperandAlias:
    """Read one ``{0}: (1, {})``."""
    output_index = take_integers(lexer)
    lexer.take(":", "':'")
    lexer.take("(", "'('")
    operand = lexer.take_integer()
    lexer.take(",", "','")
    alias = OperandAlias(output_index, operand, take_integers(lexer))
    lexer.take(")", "')'")
    return alias


def _parameter_alias(lexer: Lexer) -> ParameterAlias:
    """Read one ``{0}: (1, {}, may-alias)``; the last word may be left out."""
    output_index = take_integers(lexer)
    lexer.take(":", "':'")
    lexer.take("(", "'('")
    parameter = lexer.take_integer()
    lexer.take(",", "','")
    parameter_index = take_integers(lexer)
    # XLA prints the word always, and takes this one where it is missing.
    kind = "may-alias"
    if lexer.accept(","):
        start = lexer.start
        kind = lexer.take_word("may-alias or must-alias")
        if kind not in ("may-alias", "must-alias"):
            lexer.fail(f"expected may-alias or must-alias, found {kind!r}", start)
    lexer.take(")", "')'")
    return ParameterAlias(output_index, parameter, parameter_index, kind == "must-alias")


def _buffer_donor(lexer: Lexer) -> BufferDonor:
    """Read one ``(0, {})``."""
    lexer.take("(", "'('")
    parameter = lexer.take_integer()
    lexer.take(",", "','")
    donor = BufferDonor(parameter, take_integers(lexer))
    lexer.take(")", "')'")
    return donor


def _slice_dimension(lexer: Lexer) -> SliceDimension:
    """Read ``[start:limit]`` or ``[start:limit:stride]``."""
    start = lexer.start
    numbers = take_list(lexer, lambda lexer: lexer.take_integer(), "[]", ":")
    if len(numbers) not in (2, 3):
        lexer.fail("expected [start:limit] or [start:limit:stride]", start)
    return SliceDimension(*numbers)


def _take_sizes(lexer: Lexer) -> list[int]:
    """Read ``2x3`` or ``2``."""
    if lexer.kind == "integer":
        return [lexer.take_integer()]
    start = lexer.start
    text = lexer.take("sizes", "sizes such as 2x3")
    _refuse_long_numbers(lexer, text, start)
    return [int(part) for part in text.split("x")]


def _take_pads(lexer: Lexer) -> list[tuple[int, ...]]:
    """Read ``0_1x2_3``."""
    start = lexer.start
    text = lexer.take("padding", "padding such as 0_1x2_3")
    _refuse_long_numbers(lexer, text, start)
    pads = [tuple(map(int, part.split("_"))) for part in text.split("x")]
    if any(len(pad) != 2 for pad in pads):
        lexer.fail("padding of a window is low_high, without an interior", start)
    return pads


def _refuse_long_numbers(lexer: Lexer, text: str, start: int) -> None:
    """Refuse sizes of more digits than 64 bits hold, or of more dimensions than arrays have."""
    numbers = text.replace("_", "x").split("x")
    if len(numbers) > _MOST_NUMBERS or max(map(len, numbers)) > _MOST_DIGITS:
        lexer.fail(f"expected at most {_MOST_NUMBERS} numbers that fit 64 bits", start)


def _window_dimension(fields: dict[str, tuple[int, ...]]) -> WindowDimension:
    """Put one dimension of a window together from its fields."""
    low, high = fields.get("pad", (0, 0))
    return WindowDimension(
        size=fields["size"][0],
        stride=fields.get("stride", (1,))[0],
        pad_low=low,
        pad_high=high,
        lhs_dilate=fields.get("lhs_dilate", (1,))[0],
        rhs_dilate=fields.get("rhs_dilate", (1,))[0],
        # XLA compares with 1: any other number means no reversal.
        reversal=fields.get("rhs_reversal", (0,))[0] == 1,
    )


def _spatial_count(labels: str, roles: str) -> int | None:
    """Return how many spatial dimensions labels number from 0 on without a gap; None if they do not."""
    named = [label for label in labels if label != "?"]
    # A gap such as 02 would abort XLA's process.
    digits = sorted(label for label in named if label.isdecimal())
    if len(set(named)) != len(named) or any(label not in roles for label in named if not label.isdecimal()):
        return None
    return len(digits) if digits == [str(i) for i in range(len(digits))] else None


def _braced(parts: Iterable[str]) -> str:
    """Return parts in braces."""
    return "{" + ", ".join(parts) + "}"


# Lists of the module's first line have blanks inside, those of instructions have none.
def _spaced(parts: Iterable[str]) -> str:
    """Return parts in braces with a space inside."""
    return "{ " + ", ".join(parts) + " }"
