"""Scalars of a kernel in all steps of its grid at once.

Indices, conditions and trip counts follow from the step by a few operations on integers. Each is an array that
broadcasts against the grid, with an extent of 1 along dimensions that it does not depend on: a condition on two of four
dimensions costs what those two have, and no step is looked at by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tpusim.ir.mosaic import Function, Operation


class Scalar(NamedTuple):
    """A number in all steps of a grid; where it ``is_known`` to nobody, the numbers only tell different ones apart."""

    numbers: np.ndarray[Any, Any]
    is_known: bool = True


UNKNOWN = Scalar(np.zeros((), np.int64), is_known=False)

_CASTS = ("extui", "extsi", "trunci", "index_cast", "index_castui")
_OPERANDS = {"select": 3} | dict.fromkeys(_CASTS, 1)
"""Of operations that do not have two."""

_BY_NAME: dict[str, Callable[..., Any]] = {
    "addi": np.add,
    "subi": np.subtract,
    "muli": np.multiply,
    "andi": np.bitwise_and,
    "ori": np.bitwise_or,
    "xori": np.bitwise_xor,
    "maxsi": np.maximum,
    "minsi": np.minimum,
    "maxui": np.maximum,
    "minui": np.minimum,
    "shli": np.left_shift,
    "shrsi": np.right_shift,
    "shrui": np.right_shift,
    "select": np.where,
    # Towards zero, as MLIR divides; fmod has the sign of what is divided.
    "divsi": lambda left, right: np.trunc(left / np.where(right == 0, 1, right)).astype(np.int64),
    "divui": lambda left, right: left // np.where(right == 0, 1, right),
    "floordivsi": lambda left, right: left // np.where(right == 0, 1, right),
    "ceildivsi": lambda left, right: -(-left // np.where(right == 0, 1, right)),
    "remsi": lambda left, right: np.fmod(left, np.where(right == 0, 1, right)),
    "remui": lambda left, right: np.fmod(left, np.where(right == 0, 1, right)),
    **dict.fromkeys(_CASTS, lambda value: value),
}
"""The operations of the dialect ``arith`` on integers."""

# In the order of MLIR's numbers; unsigned ones as signed, since indices are not negative.
_COMPARISONS = (np.equal, np.not_equal, *(np.less, np.less_equal, np.greater, np.greater_equal) * 2)


def computed(operation: Operation, operands: Sequence[Scalar]) -> Scalar:
    """Return the scalar that an operation makes; of what is not computed here nothing is known."""
    dialect, _, name = operation.name.partition(".")
    if name == "constant":
        value = operation.attributes.get("value")
        return Scalar(np.asarray(int(value), np.int64)) if isinstance(value, int) else UNKNOWN
    function = _BY_NAME.get(name)
    if name == "cmpi":
        function = _COMPARISONS[int(operation.attributes["predicate"])]
    if dialect != "arith" or function is None:
        return UNKNOWN
    numbers = [operand.numbers for operand in operands]
    if len(numbers) != _OPERANDS.get(name, 2):
        raise ValueError(f"{operation.name} with {len(numbers)} operands")
    if name == "select":
        numbers[0] = numbers[0].astype(bool)
    return Scalar(np.asarray(function(*numbers)).astype(np.int64), all(operand.is_known for operand in operands))


def loaded(reference: int, indices: Sequence[Scalar], contents: np.ndarray[Any, Any] | None) -> Scalar:
    """Return an element of an array of scalars: its value if the program has it, else a number that stands for it."""
    numbers = [index.numbers for index in indices]
    if contents is not None and len(numbers) == contents.ndim and all(index.is_known for index in indices):
        bounded = [np.clip(n, 0, size - 1) for n, size in zip(numbers, contents.shape, strict=True)]
        return Scalar(np.asarray(contents[tuple(bounded)]))
    # Elements at different places are taken to be different.
    place = np.asarray(reference + 1, np.int64)
    for number in numbers:
        place = place * 65_599 + number
    return Scalar(place, is_known=False)


def results_of(function: Function, arguments: Sequence[Scalar], contents: Mapping[int, Any]) -> list[Scalar]:
    """Return what a function of straight-line code returns; ``contents`` are arrays by the number of the argument."""
    known = dict(zip(function.block.arguments, arguments, strict=False))
    for operation in function.block.operations:
        operands = [known.get(number, UNKNOWN) for number in operation.operands]
        if operation.name == "func.return":
            return operands
        if operation.name == "memref.load":
            reference = operation.operands[0]
            found = loaded(reference, operands[1:], contents.get(function.block.arguments.index(reference)))
        else:
            found = computed(operation, operands)
        known.update(dict.fromkeys(operation.results, found))
    return []
