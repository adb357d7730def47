"""The table of numeric rules: from an instruction and its operands' values to its value.

A value is a NumPy array (narrow types by ml_dtypes), a tuple of values, or ``TOKEN``. A rule is a function of the site,
the instruction and the list of operand values. A rule that runs other computations, or that has to wait for other
devices, is a generator: it yields what ``numerics.evaluate`` knows how to answer, and returns the value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpusim.ir.module import Instruction
from tpusim.numerics.site import Site
from tpusim.shapes.dtype import DTYPES, numpy_dtype
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape

Array = NDArray[Any]
Rule = Callable[[Site, Instruction, list[Any]], Any]

TOKEN = "token"
"""The value of every token: only that it exists says anything."""

RULES: dict[str, Rule] = {}
"""The numeric rule of every opcode that has one."""

FLOAT_KERNELS: dict[str, Callable[..., Any]] = {}
"""By opcode, the function of arrays that an element-wise operation is on real floats, f32 for narrower ones."""


def registrar(table: dict[str, Rule]) -> Callable[..., Callable[[Rule], Rule]]:
    """Return a decorator that enters a rule into ``table`` under the names that it is given."""

    def enters(*names: str) -> Callable[[Rule], Rule]:
        def register(function: Rule) -> Rule:
            table.update(dict.fromkeys(names, function))
            return function

        return register

    return enters


computes = registrar(RULES)
"""Enters the decorated function as the numeric rule of the opcodes that it is given."""


def element_type(instruction: Instruction) -> np.dtype[Any]:
    """Return the NumPy type of an instruction that returns an array."""
    return numpy_dtype(array_shape(instruction.shape).dtype)


def array_shape(shape: Shape) -> ArrayShape:
    """Return a shape that is known to be an array's."""
    # For the type checker: a module is verified before it is computed.
    assert isinstance(shape, ArrayShape)
    return shape


def zeros(shape: Shape) -> Any:
    """Return a value of a shape, all zeros."""
    if isinstance(shape, TupleShape):
        return tuple(zeros(element) for element in shape.elements)
    array = array_shape(shape)
    return np.zeros(array.dimensions, numpy_dtype(array.dtype)) if array.dtype.is_array_type else TOKEN


@cache
def compute_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which several steps on elements of ``dtype`` are computed before one rounding.

    Floats narrower than 32 bits take f32 and integers narrower than 8 bits a byte; all others are their own.
    """
    # Kept, as it is asked several times per instruction.
    if dtype in _IN_BYTES:
        return _IN_BYTES[dtype]
    is_wide = dtype.kind in "biuc" or dtype.name in ("float32", "float64")
    return dtype if is_wide else np.dtype(np.float32)


_IN_BYTES = {
    numpy_dtype(DTYPES[f"{sign}{bits}"]): np.dtype(byte)
    for bits in (1, 2, 4)
    for sign, byte in (("s", np.int8), ("u", np.uint8))
}
