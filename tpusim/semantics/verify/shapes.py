"""Whether every instruction has the shape that its operands and attributes imply."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tpusim.errors import ProgramError
from tpusim.ir.ops import (
    APPLIES_TO_ELEMENTS,
    CALLERS,
    CONVERTS_NOTHING,
    KEEPS_LAYOUT,
    MIXES_FLOATS,
    PASSES_ON,
    WRITTEN_OUT,
)
from tpusim.semantics.infer.rules import find_rule
from tpusim.semantics.infer.site import Site
from tpusim.semantics.infer.types import alike, is_unbounded, plain
from tpusim.semantics.verify.layouts import check_callers, check_order, laid_out_alike
from tpusim.semantics.verify.view import Call, Finding, View, at, checks, named
from tpusim.shapes.layout import validate_layout
from tpusim.shapes.shape import ArrayShape, Shape, compatible, leaves


@checks
def _check_shapes(view: View) -> Iterator[Finding]:
    """Compare stated with inferred shapes, the dynamic kind of dimensions left out, and layouts in a schedule."""
    # Compiled programs say the same a hundred times.
    known: set[tuple[object, ...]] = set()
    form_of = view.module.likeness.form
    for computation in view.computations:
        for instruction in computation.instructions:
            # A third of all: they have the shapes that they say.
            if instruction.opcode in WRITTEN_OUT or (form := form_of(computation, instruction)) in known:
                continue
            operands = [computation[name].shape for name in instruction.operands]
            found = list(_check_instruction(view, Call(computation, instruction), operands))
            # Whether an update in place is right depends on where it stands.
            if not found and instruction.opcode != "dynamic-update-slice":
                known.add(form)
            yield from found


def _check_instruction(view: View, call: Call, operands: Sequence[Shape]) -> Iterator[Finding]:
    instruction, is_laid_out = call.instruction, view.module.is_scheduled
    if is_laid_out and instruction.opcode in KEEPS_LAYOUT:
        yield from check_order(call, operands)
    site = Site(instruction, operands, view.module)
    try:
        inferred = find_rule(instruction.opcode)(site)
    except ProgramError as error:
        yield named(error, call)
        return
    if is_laid_out and instruction.opcode in CALLERS:
        yield from check_callers(view, call)
    if instruction.shape is not inferred and instruction.shape != inferred:
        yield from _check_stated(view, call, inferred)
    if not view.mixed_precision and operands:
        yield from check_precision(site, call)


def _check_stated(view: View, call: Call, inferred: Shape) -> Iterator[Finding]:
    stated, passes_on = call.instruction.shape, call.instruction.opcode in PASSES_ON
    # Where floats of several precisions may meet, what only hands a value on still converts nothing.
    mixes = view.mixed_precision and call.instruction.opcode not in CONVERTS_NOTHING
    if not (alike if mixes else compatible)(stated, inferred):
        yield at(call, "shape_c2", f"{plain(stated)} for {plain(inferred)}")
    elif view.module.is_scheduled:
        # A copy that runs beside goes to another memory; what is updated inside a fusion lies in none.
        updates = call.instruction.opcode == "dynamic-update-slice" and call.computation.name not in view.fused
        is_copied = call.instruction.opcode == "copy-start"
        if (passes_on or updates or is_copied) and not laid_out_alike(stated, inferred, only_order=is_copied):
            yield at(call, "layout_c5", f"{stated} for {inferred}")


def check_precision(site: Site, call: Call) -> Iterator[Finding]:
    """Check that floats among the operands are of one type, and of the type that a reducing computation takes."""
    # Most operations take the same shape twice, and those that do not rarely mix floats.
    if site.opcode not in MIXES_FLOATS and any(shape is not site.operands[0] for shape in site.operands):
        arrays = [array for shape in site.operands for array in leaves(shape)]
        if len({array.dtype.name for array in arrays if array.dtype.is_float}) > 1:
            yield at(call, "precision_c1", ", ".join(map(plain, site.operands)))
    if site.opcode in APPLIES_TO_ELEMENTS:
        for parameter, operand in zip(site.signature("to_apply").parameters, site.arrays(), strict=True):
            if not isinstance(parameter, ArrayShape) or parameter.dtype != operand.dtype:
                yield at(call, "precision_c2", f"{plain(parameter)} for {plain(operand)}")


@checks
def _check_written_shapes(view: View) -> Iterator[Finding]:
    """Check each shape of the text once: bounds of dynamic dimensions, layouts."""
    for call in view.shapes.values():
        shape = call.instruction.shape
        if is_unbounded(shape):
            yield at(call, "shape_c3", plain(shape))
        for array in leaves(shape):
            if array.layout is not None:
                try:
                    validate_layout(array.layout, array.rank)
                except ProgramError as error:
                    yield at(call, "shape_c4", error.message)
