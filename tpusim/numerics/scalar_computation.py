"""Scalar computations (of reductions, scatters, sorts, maps) on whole arrays at once.

Element-wise rules broadcast, so that a computation of scalars whose parameters are given arrays computes all elements
in one walk: it is *lifted*. The usual computations of two parameters are known by their one opcode.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import GeneratorType
from typing import Any

import numpy as np

from tpusim.allocation.forwarding import branch_names
from tpusim.errors import SimulationError
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import COMBINES, PRODUCTS, REARRANGES
from tpusim.numerics.evaluate import rule_of, run_computation
from tpusim.numerics.registry import Rule, element_type
from tpusim.numerics.site import Run, Site
from tpusim.semantics.combining import REPLACE, sole_opcode
from tpusim.shapes.dtype import numpy_dtype
from tpusim.shapes.shape import ArrayShape, TupleShape, leaves

# Truth values add like or and multiply like and, and false comes before true.
_OF_TRUTH_VALUES = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and", "xor": "xor"}


def binary_opcode(module: Module, name: str) -> str | None:
    """Return the opcode that a computation applies to its two parameters, if that is all that it does.

    One of ``add multiply maximum minimum and or xor``, or ``REPLACE``; on ``pred`` always one of ``and or xor`` or
    ``REPLACE``. ``None`` for every other computation.
    """
    opcode, root = sole_opcode(module.by_name, name), module[name].root
    if opcode not in COMBINES:
        return opcode if opcode == REPLACE else None
    is_truth = isinstance(root.shape, ArrayShape) and root.shape.dtype.is_pred
    return _OF_TRUTH_VALUES.get(opcode, opcode) if is_truth else opcode


def apply_lifted(site: Site, name: str, arrays: Sequence[Any]) -> Any:
    """Return what the computation gives for every element of ``arrays``, one array per parameter.

    The arrays broadcast against each other. The value is an array or, if the computation returns one, a tuple of them;
    its dimensions are those of the arrays or, where it does not depend on all of them, something that broadcasts to
    these.
    """
    computation = site.module[name]
    inner = Site(site.module, computation, site.settings, site.device)
    # Broadcasts and slices of scalars change nothing; those of arrays would meet one dimension too many, and products
    # of lifted scalars would be products of matrices.
    has_arrays = any(shape.rank for instruction in computation for shape in leaves(instruction.shape))
    if has_arrays or not PRODUCTS.isdisjoint(computation.opcodes):
        return _one_by_one(inner, arrays)
    return _walk(inner, arrays)


def lifted_list(site: Site, name: str, arrays: Sequence[Any]) -> list[Any]:
    """Return ``apply_lifted`` as a list, with one array if the computation returns no tuple."""
    value = apply_lifted(site, name, arrays)
    return list(value) if isinstance(value, tuple) else [value]


def lifted_part(site: Site, name: str, part: str, arrays: Sequence[Any]) -> Any:
    """Return the value of one instruction of a scalar computation, named ``part``, lifted as in ``apply_lifted``."""
    whole = site.module[name]
    # Instructions stand after their operands, so one way back finds all that are needed.
    needed = {part}
    for instruction in reversed(whole.instructions):
        if instruction.name in needed:
            needed.update(instruction.operands)
    kept = tuple(instruction for instruction in whole if instruction.name in needed)
    return _walk(Site(site.module, Computation(name, kept, part), site.settings, site.device), arrays)


def _walk(site: Site, arguments: Sequence[Any]) -> Any:
    values: dict[str, Any] = {}
    for instruction in site.computation:
        if instruction.opcode == "parameter":
            values[instruction.name] = arguments[instruction.immediate]  # type: ignore[index]
        else:
            rule = _LIFTED.get(instruction.opcode, _plain)
            values[instruction.name] = rule(site, instruction, [values[name] for name in instruction.operands])
    return values[site.computation.root_name]


def _plain(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Apply the rule of the opcode; a rule that calls a computation gets it lifted as well."""
    value = rule_of(instruction)(site, instruction, operands)
    return _finish(site, value) if isinstance(value, GeneratorType) else value


def _finish(site: Site, activity: Any) -> Any:
    """Run a rule that is a generator and wishes for nothing but computations."""
    answer: Any = None
    while True:
        try:
            wish = activity.send(answer)
        except StopIteration as end:
            return end.value
        if not isinstance(wish, Run):
            raise SimulationError(f"{site.computation.name!r} must not wait for other devices: {wish}")
        answer = apply_lifted(site, wish.computation, wish.arguments)


def _bitcast(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    return np.ascontiguousarray(operands[0]).view(element_type(instruction)).reshape(np.shape(operands[0]))


def _conditional(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Compute each branch that an element asks for, and take from it the elements that do."""
    names, chosen = branch_names(instruction), operands[0]
    if chosen.dtype.kind == "b":
        chosen = np.where(chosen, 0, 1)
    chosen = np.where((chosen < 0) | (chosen >= len(names)), len(names) - 1, chosen)
    # A branch that no element asks for must not run: it may never end.
    value: Any = None
    for number, name in enumerate(names):
        asked = chosen == number
        if asked.any():
            branch = apply_lifted(site, name, [operands[1 + number]])
            value = branch if value is None else select_values(asked, branch, value)
    return value if value is not None else apply_lifted(site, names[-1], [operands[len(names)]])


def _while(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Run the body until no element wants to go on; those that have ended keep their state."""
    state, trips = operands[0], 0
    condition, body = instruction.attributes["condition"], instruction.attributes["body"]
    work = site.device.work
    each = work.of(condition, body)
    while (alive := np.asarray(apply_lifted(site, condition, [state]))).any():
        if trips == site.settings.max_iterations:
            raise SimulationError(f"{instruction.name!r} has not ended after {trips:,} iterations (--max-iterations)")
        work.spend(each, repr(instruction.name))
        # All elements run on until the last one ends, so its work on the others is thrown away.
        state = select_values(alive, apply_lifted(site, body, [state]), state)
        trips += 1
    return state


# How instructions among scalars compute on arrays where the rule of their opcode would follow shapes.
_LIFTED: dict[str, Rule] = {
    "bitcast": _bitcast,
    "conditional": _conditional,
    "map": lambda site, instruction, operands: apply_lifted(site, instruction.attributes["to_apply"], operands),
    "while": _while,
    # On a scalar there is nothing to reorder.
    **dict.fromkeys(REARRANGES, lambda site, instruction, operands: operands[0]),
}


def select_values(mask: Any, chosen: Any, other: Any) -> Any:
    """Return the elements of ``chosen`` where ``mask`` holds and of ``other`` elsewhere, in tuples part by part."""
    if isinstance(chosen, tuple):
        return tuple(select_values(mask, one, two) for one, two in zip(chosen, other, strict=True))
    return np.where(mask, chosen, other)


def _one_by_one(site: Site, arrays: Sequence[Any]) -> Any:
    # A table that the computation looks up, say, keeps it from taking whole arrays for its scalars. Such computations
    # are rare and their arrays small.
    wide = np.broadcast_arrays(*arrays)
    shape, root = wide[0].shape, site.computation.root
    site.device.work.apply(site.computation.name, prod(shape))
    results = [np.empty(shape, numpy_dtype(leaf.dtype)) for leaf in leaves(root.shape)]
    for index in np.ndindex(shape):
        scalars = [array[(*index, ...)] for array in wide]
        activity = run_computation(site.module, site.computation, scalars, site.settings, site.device)
        value = _finish(site, activity)
        for result, part in zip(results, value if isinstance(value, tuple) else (value,), strict=True):
            result[index] = part
    return tuple(results) if isinstance(root.shape, TupleShape) else results[0]
