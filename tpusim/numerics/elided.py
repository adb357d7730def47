"""Constants that the compiler's text leaves out (``{...}``), where their place in the program says what they were.

The TPU compiler makes two of its own for convolutions: a mask of what lies beyond an array's edge, which is not read,
and the group of each output feature, with which it spreads the kernel of a depthwise convolution over all features.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import COPIES, SAME_ELEMENTS
from tpusim.shapes.dtype import numpy_dtype
from tpusim.shapes.shape import ArrayShape

_PASSED_ON = SAME_ELEMENTS | COPIES


def guess_left_out(module: Module, computation: Computation, constant: Instruction) -> Any:
    """Return the value of a constant that is left out, with a warning; None for one of which nothing is known."""
    shape = constant.shape
    assert isinstance(shape, ArrayShape)
    if shape.dtype.is_pred and constant.metadata.op_name:
        # A mask of the program's own has lost its name with its instruction.
        warnings.warn(f"a constant {shape} is left out of the text: taken to be true everywhere", stacklevel=2)
        return np.ones(shape.dimensions, bool)
    counts = set(_group_counts(module, computation, constant.name))
    size, count = shape.element_count, next(iter(counts), 1)
    if shape.rank != 1 or len(counts) != 1 or size % count:
        return None
    warnings.warn(f"a constant {shape} is left out of the text: taken to number {count} groups", stacklevel=2)
    return (np.arange(size) // (size // count)).astype(numpy_dtype(shape.dtype))


def _group_counts(module: Module, computation: Computation, name: str) -> Iterator[int]:
    """Yield how many numbers a value is compared with wherever it is used, for equality, once spread over a kernel."""
    # A stack of our own: what it is passed on through may be longer than Python recurses.
    todo = [(computation, name)]
    while todo:
        home, value = todo.pop()
        for user, number in home.users.get(value, ()):
            if user.opcode in _PASSED_ON:
                todo.append((home, user.name))
            elif user.opcode == "fusion":
                called = module[user.called_computations[0]]
                todo.append((called, called.parameters[number].name))
            elif user.opcode == "broadcast":
                yield from _compared_with(home, user.name)


def _compared_with(computation: Computation, name: str) -> Iterator[int]:
    """Yield the length of the iota of each comparison for equality that an array takes part in."""
    for user, _ in computation.users.get(name, ()):
        if user.opcode == "compare" and user.attributes.get("direction") == "EQ":
            for other in computation.operands_of(user):
                if other.opcode == "iota" and isinstance(other.shape, ArrayShape):
                    yield other.shape.dimensions[other.attributes["iota_dimension"]]
