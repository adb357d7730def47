"""What element-wise operations on 64-bit and complex numbers take: those on words that the compiler makes of them.

A TPU computes in 32 bits. XLA's TPU compiler makes pairs of words of longer integers, sums of two f32 of f64, and pairs
of arrays of complex numbers; of how many operations on words one then consists is the table ``wide_ops.toml``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from tpusim.hardware.chip import Chip, OpCost
from tpusim.hardware.load import read_config
from tpusim.hardware.units import WORD_BITS
from tpusim.program.work import scaled
from tpusim.shapes.dtype import DTYPES, DType
from tpusim.shapes.shape import ArrayShape, Shape

Counts = Mapping[str, float]
"""Operations on words by opcode, per element."""


def wide_array(shapes: Iterable[Shape]) -> ArrayShape | None:
    """Return the first of the arrays with the longest elements, None if a word holds those of each."""
    found: ArrayShape | None = None
    for shape in shapes:
        if isinstance(shape, ArrayShape) and shape.dtype.bits > (found.dtype.bits if found else WORD_BITS):
            found = shape
    return found


def words_of(dtype: DType) -> float:
    """Return the words that an element takes while it is computed with: narrow types are widened to one."""
    return max(1.0, dtype.bits / WORD_BITS)


def operation_cost(
    chip: Chip, opcode: str, attributes: Mapping[str, Any], made: Shape, taken: Sequence[Shape]
) -> OpCost | None:
    """Return what an operation takes for as many elements as a register has places, with all words of each.

    None of what the table of operations does not have.
    """
    wide, cost = wide_array((made, *taken)), chip.vector_ops.ops.get(opcode)
    if wide is None or cost is None:
        return cost
    counts = _counts(wide.dtype.name, opcode, attributes, made, taken)
    words = words_of(made.dtype) if isinstance(made, ArrayShape) else 1.0
    return scaled(cost, words) if counts is None else _priced(counts, chip)


def words_computed(opcode: str, attributes: Mapping[str, Any], made: Shape, taken: Sequence[Shape]) -> float:
    """Return of how many operations on words an element-wise operation consists, per element."""
    wide = wide_array((made, *taken))
    if wide is None:
        return 1.0
    counts = _counts(wide.dtype.name, opcode, attributes, made, taken)
    return words_of(wide.dtype) if counts is None else sum(counts.values())


def cost_of_type(chip: Chip, opcode: str, element_type: str) -> OpCost:
    """Return what an operation of the table takes for one register's number of elements of a type."""
    dtype, cost = DTYPES[element_type], chip.vector_ops.ops[opcode]
    if dtype.bits <= WORD_BITS:
        return cost
    counts = _table().get(element_type, {}).get(opcode)
    return scaled(cost, words_of(dtype)) if counts is None else _priced(counts, chip)


def _counts(
    name: str, opcode: str, attributes: Mapping[str, Any], made: Shape, taken: Sequence[Shape]
) -> Counts | None:
    """Return the row of an operation whose longest elements are of the type of a name."""
    if opcode == "convert":
        (source,) = taken
        assert isinstance(source, ArrayShape)
        assert isinstance(made, ArrayShape)
        down = _table().get(source.dtype.name, {}).get(f"convert-to-{made.dtype.name}")
        return _table().get(made.dtype.name, {}).get(f"convert-from-{source.dtype.name}") if down is None else down
    rows = _table().get(name, {})
    return rows.get(f"{opcode}-{attributes.get('direction')}", rows.get(opcode))


def _priced(counts: Counts, chip: Chip) -> OpCost:
    """Return what so many operations on words take together."""
    total: OpCost = {}
    for opcode, count in counts.items():
        for unit, cost in chip.vector_ops.ops[opcode].items():
            total[unit] = total.get(unit, 0.0) + count * cost
    return total


@cache
def _table() -> dict[str, dict[str, dict[str, float]]]:
    """Return the rows by element type and opcode. The file is read when a program has such numbers, as few have."""
    return msgspec.convert(read_config("wide_ops.toml")["ops"], dict[str, dict[str, dict[str, float]]])
