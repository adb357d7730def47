"""Which computations may combine neighbours first, so that an array is folded in halves and not one by one.

XLA leaves it open how they are grouped. What has another value for every grouping is folded from the left, so that two
texts of one program agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import finalize

import numpy as np

from tpusim.ir.module import Computation
from tpusim.ir.ops import SELECTS
from tpusim.numerics.registry import Array
from tpusim.numerics.scalar_computation import lifted_list
from tpusim.numerics.site import Site
from tpusim.semantics.scalars import integer_range, literal_number
from tpusim.shapes.dtype import DType, numpy_dtype
from tpusim.shapes.shape import ArrayShape, leaves

_FOUND: dict[tuple[int, bool], bool] = {}
"""By computation, and whether there are NaNs: whether it may."""

_MOST_TRIPLES = 2**15


def may_group(site: Site, name: str, arrays: Sequence[Array]) -> bool:
    """Return whether ``f(f(a, b), c)`` is ``f(a, f(b, c))``, bit for bit, as far as numbers of every kind show it.

    Many computations have another answer only for NaN: where none is in the arrays, none is tried.
    """
    computation = site.module[name]
    is_scalar = not any(shape.rank for instruction in computation for shape in leaves(instruction.shape))
    if not is_scalar or not computation.opcodes <= SELECTS:
        return False
    has_nan = any((array != array).any() for array in arrays)
    key = id(computation), has_nan
    if key not in _FOUND:
        _FOUND[key] = _is_associative(site, computation, has_nan)
        # Its number is then free for another.
        finalize(computation, _FOUND.pop, key)
    return _FOUND[key]


def _is_associative(site: Site, computation: Computation, has_nan: bool) -> bool:
    def combine(left: list[Array], right: list[Array]) -> list[Array]:
        return [np.broadcast_to(v, left[0].shape) for v in lifted_list(site, computation.name, [*left, *right])]

    types = [parameter.shape.dtype for parameter in computation.parameters if isinstance(parameter.shape, ArrayShape)]
    a, b, c = _triples([_numbers(computation, dtype, has_nan) for dtype in types[: len(types) // 2]])
    pairs = zip(combine(combine(a, b), c), combine(a, combine(b, c)), strict=True)
    return all(_are_same(one, other) for one, other in pairs)


def _triples(numbers: list[Array]) -> tuple[list[Array], list[Array], list[Array]]:
    """Return three times as many elements as a computation combines: all that there are, or many of them."""
    counts = [len(each) for each in numbers] * 3
    if np.prod(counts, dtype=float) <= _MOST_TRIPLES:
        chosen = np.indices(counts).reshape(len(counts), -1)
    else:
        draw = np.random.default_rng(0)
        chosen = np.stack([draw.integers(0, count, _MOST_TRIPLES) for count in counts])
    drawn = [each[places] for each, places in zip(numbers * 3, chosen, strict=True)]
    first, second = len(numbers), 2 * len(numbers)
    return drawn[:first], drawn[first:second], drawn[second:]


def _numbers(computation: Computation, dtype: DType, has_nan: bool) -> Array:
    """Return numbers of a type that computations tell apart: those that they name, zeros, ends, infinities and NaN."""
    named = [
        literal_number(i.immediate) for i in computation if i.opcode == "constant" and i.shape == ArrayShape(dtype)
    ]
    stated = [number for number in named if number is not None]
    if dtype.is_pred:
        return np.array([False, True])
    if dtype.is_integer:
        low, high = integer_range(dtype)
        return np.array(sorted({low, max(low, -1), 0, min(high, 1), min(high, 2), high, *stated}), numpy_dtype(dtype))
    usual = [0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan]
    numbers = np.array([*usual, *stated]).astype(numpy_dtype(dtype))
    return numbers if has_nan else numbers[numbers == numbers]


def _are_same(one: Array, other: Array) -> bool:
    """Return whether two rows of numbers have the same bits, any NaN being as good as another."""
    bits = [np.ascontiguousarray(each).view(np.uint8).reshape(len(each), -1) for each in (one, other)]
    return bool(((bits[0] == bits[1]).all(axis=1) | ((one != one) & (other != other))).all())
