"""Whether every instruction has the shape that its operands and attributes imply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpusim.errors import ProgramError
from tpusim.ir.ops import PASSES_ON
from tpusim.semantics.infer.rules import find_rule
from tpusim.semantics.infer.site import Site
from tpusim.semantics.infer.types import alike, is_unbounded, plain
from tpusim.semantics.verify.layouts import laid_out_alike
from tpusim.semantics.verify.view import Call, Finding, View, at, checks
from tpusim.shapes.layout import validate_layout
from tpusim.shapes.shape import ArrayShape, Shape, compatible, leaves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpusim.ir.module import Computation
    from tpusim.semantics.infer.site import Rule

_MIXING = frozenset(
    "add-dependency after-all all-gather all-gather-done all-gather-start all-reduce all-reduce-done all-reduce-start"
    " async-done async-start async-update bitcast broadcast call collective-permute collective-permute-done"
    " collective-permute-start conditional constant convolution copy-done copy-start custom-call domain dot"
    " dynamic-reshape fusion get-tuple-element infeed opt-barrier outfeed parameter ragged-dot recv recv-done"
    " reduce-precision reduce-window reshape rng rng-bit-generator rng-get-and-update-state scaled-dot scan send"
    " send-done sort tuple while".split()
)
"""Opcodes whose operands may be floats of several precisions, as XLA's verifier has it."""

# Rules compare what their computations take up to precision; without mixed precision that is not enough.
_REDUCING = frozenset({"map", "reduce", "reduce-window"})


@checks
def _check_shapes(view: View) -> Iterator[Finding]:
    """Compare stated with inferred shapes, layouts and the dynamic kind of dimensions left out."""
    # Looked up once per opcode: the short forms of asynchronous operations are split by name each time.
    rules: dict[str, Rule] = {}
    for computation in view.module.computations:
        yield from _check_computation(view, computation, rules)


def _check_computation(view: View, computation: Computation, rules: dict[str, Rule]) -> Iterator[Finding]:
    """Apply the rules of the opcodes, looked up once each, to one computation."""
    module, shapes = view.module, {i.name: i.shape for i in computation.instructions}
    for instruction in computation.instructions:
        opcode = instruction.opcode
        rule = rules.get(opcode) or rules.setdefault(opcode, find_rule(opcode))
        operands = [shapes[name] for name in instruction.operands]
        site = Site(instruction, operands, module)
        try:
            inferred = rule(site)
        except ProgramError as error:
            error.message = f"{opcode!r} {instruction.name!r}: {error.message}"
            yield Finding(error, computation, instruction)
            continue
        stated = instruction.shape
        if stated is not inferred and stated != inferred:
            yield from _check_stated(view, Call(computation, instruction), inferred)
        if not view.mixed_precision and operands:
            yield from _check_precision(site, Call(computation, instruction))


def _check_stated(view: View, call: Call, inferred: Shape) -> Iterator[Finding]:
    """Compare the stated shape with what operands and attributes imply."""
    stated, passes_on = call.instruction.shape, call.instruction.opcode in PASSES_ON
    # Where floats of several precisions may meet, what only hands a value on still converts nothing.
    if not (alike if view.mixed_precision and not passes_on else compatible)(stated, inferred):
        yield at(call, "shape_c2", f"{plain(stated)} for {plain(inferred)}")
    elif view.module.is_scheduled:
        # A copy that runs beside goes to another memory; what is updated inside a fusion lies in none.
        updates = call.instruction.opcode == "dynamic-update-slice" and call.computation.name not in view.fused
        is_copied = call.instruction.opcode == "copy-start"
        if (passes_on or updates or is_copied) and not laid_out_alike(stated, inferred, only_order=is_copied):
            yield at(call, "layout_c5", f"{stated} for {inferred}")


def _check_precision(site: Site, call: Call) -> Iterator[Finding]:
    """Check that floats among the operands are of one type, and of the type that a reducing computation takes."""
    if site.opcode not in _MIXING and not _one_float(site.operands):
        yield at(call, "precision_c1", ", ".join(map(plain, site.operands)))
    if site.opcode in _REDUCING:
        signature = site.signature("to_apply")
        assert signature is not None
        for parameter, operand in zip(signature.parameters, site.arrays(), strict=True):
            if not isinstance(parameter, ArrayShape) or parameter.dtype != operand.dtype:
                yield at(call, "precision_c2", f"{plain(parameter)} for {plain(operand)}")


def _one_float(shapes: Sequence[Shape]) -> bool:
    """Whether all floats in these shapes are of one type."""
    first = shapes[0]
    # Most operations take twice the same, and those that do not rarely mix floats.
    if all(shape is first for shape in shapes):
        return True
    return len({array.dtype.name for shape in shapes for array in leaves(shape) if array.dtype.is_float}) < 2


@checks
def _check_written_shapes(view: View) -> Iterator[Finding]:
    """Check each shape of the text once: bounds of dynamic dimensions, layouts."""
    seen: set[int] = set()
    for computation in view.module.computations:
        for instruction in computation.instructions:
            shape = instruction.shape
            # The parser keeps one object per text, so that this finds nearly all.
            if id(shape) not in seen:
                seen.add(id(shape))
                yield from _check_written_shape(Call(computation, instruction))


def _check_written_shape(call: Call) -> Iterator[Finding]:
    """Check one shape."""
    shape = call.instruction.shape
    if is_unbounded(shape):
        yield at(call, "shape_c3", plain(shape))
    for array in leaves(shape):
        if array.layout is not None:
            try:
                validate_layout(array.layout, array.rank)
            except ProgramError as error:
                yield at(call, "shape_c4", error.message)
