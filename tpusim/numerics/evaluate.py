"""Walks a module and computes the value of every instruction, on one device or on several in step.

Each device is a generator that stops where it has to wait for others; this file passes values between them. Values are
dropped after their last use, so that memory holds only what is alive.
"""

from __future__ import annotations

from collections.abc import Generator
from types import GeneratorType
from typing import Any

import numpy as np

from tpusim.errors import ProgramError, SimulationError, TpusimError, UnsupportedError
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import OPERATIONS, Category, long_form
from tpusim.nesting import on_one_stack
from tpusim.numerics.calls import with_calls_opened
from tpusim.numerics.chains import Unit, compute_chain, units_of
from tpusim.numerics.cores import on_all_cores
from tpusim.numerics.ops.dynamic import fit_together
from tpusim.numerics.registry import RULES, array_shape
from tpusim.numerics.site import Device, Meet, Run, Settings, Site
from tpusim.shapes.dtype import numpy_dtype
from tpusim.shapes.shape import ArrayShape, Shape

Activity = Generator[Any, Any, Any]


def evaluate(module: Module, arguments: list[list[Any]], settings: Settings, devices: list[Device]) -> list[Any]:
    """Return what the entry computation of ``module`` returns on each device, given each device's arguments.

    Raises UnsupportedError for an opcode without a numeric rule, SimulationError if the devices wait for each other for
    ever.
    """
    pairs = zip(devices, arguments, strict=True)
    # Generators rather than threads: devices take turns in one order, so that every run gives the same values.
    activities = [run_computation(module, module.entry, values, settings, device) for device, values in pairs]
    # What overflows is infinite, and what is not defined is NaN, without a word.
    with np.errstate(all="ignore"), on_all_cores():
        return _in_step(activities)


def run_computation(
    module: Module, computation: Computation, arguments: list[Any], settings: Settings, device: Device
) -> Activity:
    """Compute one computation and those that it calls; yields a ``Meet`` wherever the device has to wait for others."""

    def begin(wish: Any) -> Activity | None:
        if not isinstance(wish, Run):
            return None
        return activity(module[wish.computation], wish.arguments)

    def activity(computation: Computation, values: list[Any]) -> Activity:
        return _compute(Site(module, with_calls_opened(module, computation), settings, device, tuple(values)))

    return on_one_stack(begin, activity(computation, arguments))


def _compute(site: Site) -> Activity:
    """Compute the instructions of one computation; yields what their rules wish for."""
    computation, values = site.computation, dict[str, Any]()
    for unit in units_of(computation):
        instruction = unit.members[-1]
        if instruction.opcode == "parameter":
            values[instruction.name] = site.arguments[instruction.immediate]  # type: ignore[index]
        else:
            operands = [values[name] for name in unit.operands]
            try:
                value = _value(site, unit, operands)
                done = (yield from value) if isinstance(value, GeneratorType) else value
                values[instruction.name] = _as_declared(done, instruction.shape)
            # Where a run was begun it is known what to say of it.
            except MemoryError:
                raise
            except Exception as error:
                raise _with_place(site, instruction, error) from error
        # Without this, all activations of a model would be held at once.
        for name in unit.last_used:
            del values[name]
    return values[computation.root_name]


def _value(site: Site, unit: Unit, operands: list[Any]) -> Any:
    """Return what the rule of an instruction gives, or the value of a chain."""
    instruction = unit.members[-1]
    if len(unit.members) > 1:
        return compute_chain(site, unit, operands)
    return rule_of(instruction)(site, instruction, _cut_to_size(site, instruction, operands))


def _with_place(site: Site, instruction: Instruction, error: Exception) -> Exception:
    """Return the error to raise in place of one that an instruction ended in: where it stands, and what it was."""
    span = site.module.where(site.computation, instruction)
    if isinstance(error, TpusimError):
        # An error of an inner computation has its place already.
        return error if error.span is not None else type(error)(error.message, span)
    # No rule foresaw it, and the verifier has found nothing wrong with the module. What Python says is the cause.
    wanted = f"expected a value of {instruction.opcode!r} of {instruction.shape}"
    cause = type(error).__name__
    message = f"{instruction.name}: {wanted}, found none: its rule ended in {cause}, which is a fault of tpusim's"
    return UnsupportedError(message, span)


def _cut_to_size(site: Site, instruction: Instruction, operands: list[Any]) -> list[Any]:
    """Return the operands of an element-wise operation, or of a map, on dynamic sizes in sizes that fit together."""
    shape = instruction.shape
    is_dynamic = isinstance(shape, ArrayShape) and any(shape.dynamic)
    row = OPERATIONS.get(instruction.opcode) if is_dynamic else None
    if row is None or (row.category is not Category.ELEMENTWISE and instruction.opcode != "map"):
        return operands
    return fit_together(operands, [array_shape(site.operand(instruction, n).shape) for n in range(len(operands))])


def rule_of(instruction: Instruction) -> Any:
    """Return the numeric rule of an instruction; a short asynchronous form has the rule of the long one."""
    # Looked up as async-start, which finds the rule of the operation inside by itself.
    opcode = long_form(instruction.opcode)
    if opcode not in RULES:
        raise UnsupportedError(
            f"{instruction.name}: no numeric rule for {instruction.opcode!r}: its value is not computed"
        )
    return RULES[opcode]


def _as_declared(value: Any, shape: Shape) -> Any:
    """Return an array in the element type that its instruction declares."""
    if not isinstance(shape, ArrayShape) or not isinstance(value, np.ndarray | np.generic):
        return value
    # Indexing an array of rank 0 gives NumPy's scalar, which cannot be written to.
    array, wanted = np.asarray(value), numpy_dtype(shape.dtype)
    if array.shape != shape.dimensions and not any(shape.dynamic):
        # The verifier lets a bound stand for a size, as XLA's does; here the two differ.
        found = list(array.shape)
        raise ProgramError(f"expected a value of {shape}, found sizes {found}: state a dynamic size by its bound, <=n")
    # Compiled code mixes widths: it pads or selects between bf16 and f32, and the result's type decides.
    return array if array.dtype == wanted else array.astype(wanted)


def _in_step(activities: list[Activity]) -> list[Any]:
    """Drive all devices until they end; each goes on when all that it waits for have come to the same place."""
    results: dict[int, Any] = {}
    waiting: dict[int, Meet] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(activities)))
    while len(results) < len(activities):
        if not answers:
            raise SimulationError(_deadlock(waiting, results))
        # In the order of numbers: what devices draw or hand to the host does not depend on which devices met first.
        for number, answer in sorted(answers.items()):
            try:
                waiting[number] = activities[number].send(answer)
            except StopIteration as end:
                results[number] = end.value
        answers = _met(waiting)
        for number in answers:
            del waiting[number]
    return [results[number] for number in range(len(activities))]


def _met(waiting: dict[int, Meet]) -> dict[int, Any]:
    """Return, for each device whose members have all come, the values that they brought."""
    answers: dict[int, Any] = {}
    for number, meet in waiting.items():
        company = [waiting.get(member) for member in meet.members]
        # Waiting is not enough: a member may be at another collective, which has to end first.
        if all(other is not None and other.key == meet.key for other in company):
            answers[number] = {m: other.value for m, other in zip(meet.members, company, strict=True) if other}
    return answers


def _deadlock(waiting: dict[int, Meet], results: dict[int, Any]) -> str:
    """Return the error text: which device waits for which others, and where."""
    lines = []
    for number, meet in sorted(waiting.items()):
        absent = [m for m in meet.members if m not in waiting or waiting[m].key != meet.key]
        state = ", ".join(f"{m} ({'ended' if m in results else waiting[m].key})" for m in absent)
        lines.append(f"device {number} waits at {meet.key} for {state}")
    return "the devices wait for each other for ever: " + "; ".join(lines)
