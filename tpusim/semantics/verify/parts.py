"""Whether the parts of a module fit: fusions, the entry's layout, aliases, donors, threads, layout constraints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tpusim.ir.attributes import ComputationLayout, OperandAlias, ParameterAlias
from tpusim.ir.module import Computation, Module
from tpusim.ir.ops import CALLS, HAS_EFFECTS, OPERATIONS, async_parts, collective_kind
from tpusim.semantics.infer.control import frontend_attributes
from tpusim.semantics.infer.site import broken
from tpusim.semantics.infer.types import is_array, parts, plain, subshape
from tpusim.semantics.verify.layouts import laid_out_alike
from tpusim.semantics.verify.view import Call, Finding, View, at, checks
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import BufferShape, Shape, TupleShape, compatible

# Without async-start: to go to another thread is what that is for. Of calls XLA asks it only by an option.
_SAME_THREAD = CALLS - {"async-start"} - {"call"}
_HEADER = {"alias": "input_output_alias", "donor": "buffer_donor", "layout": "entry_computation_layout"}
_ALL_REDUCES = frozenset(name for name in OPERATIONS if collective_kind(name) == "all-reduce")


@checks
def _check_fusions(view: View) -> Iterator[Finding]:
    """Check that fused computations are whole: one caller, all values used, the root by none."""
    if view.module.entry_name in view.fused:
        yield Finding(broken("module_c1", repr(view.module.entry_name)), view.module.entry)
    for name in sorted(view.shared & view.fused):
        callers = view.callers[name]
        yield at(callers[1], "fusion_c3", f"{len(callers)} calls of {name!r}")
    for computation in view.computations:
        if computation.name in view.fused:
            yield from _check_fused(computation)


def _check_fused(computation: Computation) -> Iterator[Finding]:
    used = computation.used
    if computation.root_name in used:
        user, _ = computation.users[computation.root_name][0]
        yield at(Call(computation, computation.root), "fusion_c4", f"{user.name!r} using it")
    # Nearly always all values but the root are used.
    elif len(used) == len(computation.instructions) - 1:
        return
    for instruction in computation.instructions:
        acts = instruction.opcode in HAS_EFFECTS or instruction.attributes.get("custom_call_has_side_effect")
        if instruction.name not in used and instruction.name != computation.root_name and not acts:
            yield at(Call(computation, instruction), "fusion_c5", "no user")


@checks
def _check_threads(view: View) -> Iterator[Finding]:
    """Check that loops, branches and fusions run on the thread of their caller."""
    # True of most modules, and much cheaper than a walk over all instructions.
    if all(computation.execution_thread == "main" for computation in view.module.computations):
        return
    for call in view.all_of(_SAME_THREAD):
        for name in call.instruction.called_computations:
            thread = view.module[name].execution_thread
            if thread != call.computation.execution_thread:
                yield at(call, "computation_c4", f"{thread!r} and {call.computation.execution_thread!r}")


@checks
def _check_entry_layout(view: View) -> Iterator[Finding]:
    """Check the shapes in which the host hands data over; before a schedule, layouts may differ from those inside."""
    entry, layout = view.module.entry, entry_layout(view.module)
    if len(layout.parameters) != len(entry.parameters):
        yield _of_header("layout_c1", f"{len(layout.parameters)} for {len(entry.parameters)}")
        return
    ends = [(i, shape, "layout_c2") for i, shape in zip(entry.parameters, layout.parameters, strict=True)]
    for instruction, shape, label in (*ends, (entry.root, layout.result, "layout_c3")):
        # Only the order is agreed with the host: tiles are no part of it, memory spaces are decided later.
        is_laid_out = not view.module.is_scheduled or laid_out_alike(instruction.shape, shape, only_order=True)
        if not compatible(instruction.shape, shape) or not is_laid_out:
            yield at(Call(entry, instruction), label, f"{shape} for {instruction.shape}")


def entry_layout(module: Module) -> ComputationLayout:
    """Return ``entry_computation_layout``, or what it is where it is not written: the entry's own shapes."""
    stated = module.attributes.get("entry_computation_layout")
    if isinstance(stated, ComputationLayout):
        return stated
    entry = module.entry
    return ComputationLayout(tuple(parameter.shape for parameter in entry.parameters), entry.root.shape)


@checks
def _check_module_aliases(view: View) -> Iterator[Finding]:
    layout, taken = entry_layout(view.module), set()
    for alias in view.module.attributes.get("input_output_alias", ()):
        place = (alias.parameter, alias.parameter_index)
        if not 0 <= alias.parameter < len(layout.parameters):
            yield _of_header("alias_c1", f"parameter {alias.parameter} of {len(layout.parameters)}")
            continue
        if place in taken:
            yield _of_header("alias_c3", f"parameter {alias.parameter} at {alias.parameter_index} twice")
        taken.add(place)
        yield from _check_alias(alias, layout)
    for donor in view.module.attributes.get("buffer_donor", ()):
        is_known = 0 <= donor.parameter < len(layout.parameters)
        part = subshape(layout.parameters[donor.parameter], donor.parameter_index) if is_known else None
        if part is None or not is_array(part):
            yield _of_header("donor_c1", f"parameter {donor.parameter} at {donor.parameter_index}")
        if (donor.parameter, donor.parameter_index) in taken:
            yield _of_header("donor_c2", f"parameter {donor.parameter} at {donor.parameter_index}")


def _of_header(label: str, found: object) -> Finding:
    """Return the finding that an attribute of the module's first line, told by the label, breaks a constraint."""
    return Finding(broken(label, found), attribute=_HEADER[label.partition("_")[0]])


def _check_alias(alias: ParameterAlias, layout: ComputationLayout) -> Iterator[Finding]:
    """Check that both ends of an alias are arrays of one size, and alike if they must share a buffer."""
    given = subshape(layout.parameters[alias.parameter], alias.parameter_index)
    result = subshape(layout.result, alias.output_index)
    if given is None or result is None or not is_array(given) or not is_array(result):
        yield _of_header("alias_c2", f"{alias.output_index} and {alias.parameter_index}")
    # With layouts and memory spaces: one buffer cannot have two.
    elif alias.must_alias and given != result:
        yield _of_header("alias_c4", f"{given} and {result}")
    elif physical_bytes(given) != physical_bytes(result):
        yield _of_header("alias_c8", f"{given} and {result}")


@checks
def _check_operand_aliases(view: View) -> Iterator[Finding]:
    for call in view.calling:
        aliases: tuple[OperandAlias, ...] = call.instruction.attributes.get("output_to_operand_aliasing", ())
        if not aliases:
            continue
        operands, result = _aliased_shapes(view, call)
        # A custom call may write its result into a larger buffer on purpose, and then says so.
        unchecked = "xla_skip_custom_call_alias_shape_check" in frontend_attributes(call.instruction.attributes)
        for alias in aliases:
            if not 0 <= alias.operand < len(operands):
                yield at(call, "alias_c5", f"operand {alias.operand} of {len(operands)}")
                continue
            given = subshape(operands[alias.operand], alias.operand_index)
            taken = subshape(result, alias.output_index)
            if given is None or taken is None:
                yield at(call, "alias_c6", f"{alias.output_index} and {alias.operand_index}")
            elif not unchecked and not compatible(_unbuffered(given), _unbuffered(taken)):
                yield at(call, "alias_c7", f"{plain(taken)} for {plain(given)}")


def _aliased_shapes(view: View, call: Call) -> tuple[Sequence[Shape], Shape]:
    """Return what aliases speak of: operands and result, of the operation inside a start if that has aliases itself."""
    instruction = call.instruction
    operands = [call.computation.by_name[name].shape for name in instruction.operands]
    if instruction.opcode == "async-start":
        # Operands may come later, by updates.
        operands = [parameter.shape for parameter in view.module[instruction.attributes["calls"]].parameters]
    pair = async_parts(instruction.opcode)
    inside = pair is not None and OPERATIONS[pair[0]].allows("output_to_operand_aliasing")
    is_start = inside and isinstance(instruction.shape, TupleShape)
    return operands, parts(instruction.shape)[1] if is_start else instruction.shape


def _unbuffered(shape: Shape) -> Shape:
    """Return what is in a buffer, in tuples too; anything else itself."""
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(map(_unbuffered, shape.elements)))
    return shape.element if isinstance(shape, BufferShape) else shape


@checks
def _check_all_reduce_layouts(view: View) -> Iterator[Finding]:
    first: bool | None = None
    for call in view.all_of(_ALL_REDUCES):
        constrained = bool(call.instruction.attributes.get("constrain_layout", False))
        first = constrained if first is None else first
        if constrained != first:
            yield at(call, "all_reduce_c2", str(constrained).lower())
