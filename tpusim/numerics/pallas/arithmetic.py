"""Operations on each element: ``arith``, ``math`` and those of ``tpu`` that are like them.

What an opcode of HLO does as well is computed by its rule's own function.

Source: MLIR, dialects ``arith`` and ``math``; JAX, dialect ``tpu`` of Mosaic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tpusim.numerics.ops.convert import as_bits_of, convert_values, stochastic_float
from tpusim.numerics.ops.elementwise import COMPARISONS, ON_BITS, bits_of, elementwise_kernel, select_elements
from tpusim.numerics.pallas.table import Function, Where, dtype_of, element_of, operation, scalar, unsigned
from tpusim.numerics.registry import Array
from tpusim.numerics.values import integers
from tpusim.numerics.values.blocks import compute, flushes
from tpusim.semantics.mosaic import OPCODES, UNSIGNED
from tpusim.shapes.dtype import numpy_dtype

_ON_BITS = frozenset(name for name, opcode in OPCODES.items() if opcode in ON_BITS)


@operation(*sorted(OPCODES.keys() - _ON_BITS))
def _elementwise(where: Where) -> Function:
    """Compute what the opcode of the same meaning computes."""
    name = where.operation.name
    opcode, result = OPCODES[name], dtype_of(where.result())
    dtype = unsigned(dtype_of(where.operand())) if name in UNSIGNED else dtype_of(where.operand())
    kernel = elementwise_kernel(opcode, dtype)
    if kernel is None:
        raise where.unsupported(f"not defined on elements of type {where.operand().element}")
    if name in UNSIGNED:
        return lambda *values: kernel(*(value.view(dtype) for value in values)).view(result)
    if where.result().kind == "scalar" and result.kind in "biu":
        # Indices and counters: most operations of a body, for which the function itself is enough.
        return kernel
    flush = flushes(opcode, dtype, where.settings)
    return lambda *values: compute(kernel, values, result, flush=flush)


@operation(*_ON_BITS)
def _bits(where: Where) -> Function:
    """Count or shift bits."""
    opcode, result = OPCODES[where.operation.name], element_of(where.result().element)
    return lambda *values: bits_of(opcode, list(map(np.asarray, values)), result)


_ROWS: dict[str, Callable[..., Any]] = {
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
    "math.copysign": np.copysign,
    "math.exp2": np.exp2,
    "math.log2": np.log2,
    "math.log10": np.log10,
    "math.trunc": np.trunc,
    "math.fma": lambda left, right, added: left * right + added,
    "math.isnan": np.isnan,
    "math.isinf": np.isinf,
    # What is no number, or infinite.
    "tpu.weird": lambda value: ~np.isfinite(value),
    # The hardware's approximation is not published: the exact value, rounded, stands for it.
    "tpu.reciprocal": lambda value: 1 / value,
    "arith.floordivsi": lambda left, right: np.where(right == 0, -1, np.floor_divide(left, right)),
    "arith.ceildivsi": lambda left, right: np.where(right == 0, -1, -np.floor_divide(-left, right)),
    "math.fpowi": lambda base, exponent: np.power(base, exponent.astype(base.dtype)),
}


@operation(*_ROWS)
def _other(where: Where) -> Function:
    """Compute what no opcode of HLO means by itself."""
    kernel, result = _ROWS[where.operation.name], dtype_of(where.result())
    return lambda *values: compute(kernel, list(map(np.asarray, values)), result)


@operation("arith.mulsi_extended", "arith.mului_extended", "arith.addui_extended")
def _extended(where: Where) -> Function:
    """Return the low part of a product or sum and what does not fit into it: the high part, or the carry."""
    dtype, name = dtype_of(where.operand()), where.operation.name
    wide = dtype if name == "arith.mulsi_extended" else unsigned(dtype)

    def product(left: Any, right: Any) -> tuple[Any, Any]:
        high = integers.multiply_high(left.view(wide), right.view(wide), 8 * dtype.itemsize)
        return left * right, np.asarray(high).astype(wide).view(dtype)

    def total(left: Any, right: Any) -> tuple[Any, Any]:
        low = left.view(wide) + right.view(wide)
        return low.view(dtype), low < left.view(wide)

    return total if name == "arith.addui_extended" else product


# In the order of MLIR's numbers.
_INTEGER = ("EQ", "NE", "LT", "LE", "GT", "GE", "LT", "LE", "GT", "GE")
_FIRST_UNSIGNED = 6


@operation("arith.cmpi")
def _compare_integers(where: Where) -> Function:
    predicate = int(where.attributes["predicate"])
    kernel, dtype = COMPARISONS[_INTEGER[predicate]], unsigned(dtype_of(where.operand()))
    if predicate < _FIRST_UNSIGNED:
        return kernel
    return lambda left, right: kernel(left.view(dtype), right.view(dtype))


@operation("arith.cmpf")
def _compare_floats(where: Where) -> Function:
    """Compare; an ordered comparison is false of NaN, an unordered one true."""
    test, truth = _FLOAT_TESTS[int(where.attributes["predicate"])], np.dtype(np.bool_)
    return lambda left, right: compute(test, [np.asarray(left), np.asarray(right)], truth)


Test = Callable[..., Any]


def _not(kernel: Test) -> Test:
    return lambda left, right: ~kernel(left, right)


def _differ(left: Array, right: Array) -> Any:
    return (left < right) | (left > right)


def _are_numbers(left: Array, right: Array) -> Any:
    return (left == left) & (right == right)


def _never(left: Array, right: Array) -> Any:
    return np.zeros(np.broadcast_shapes(left.shape, right.shape), np.bool_)


_AS_THEY_ARE = (np.greater, np.greater_equal, np.less, np.less_equal)
_OPPOSITES = (np.less_equal, np.less, np.greater_equal, np.greater)
# In the order of MLIR's numbers. JAX writes its "not equal", which is true of NaN, as the ordered one.
_ORDERED: list[Test] = [_never, np.equal, *_AS_THEY_ARE, np.not_equal, _are_numbers]
# An unordered comparison is false where the opposite ordered one is true.
_FLOAT_TESTS = [*_ORDERED, *(_not(test) for test in (_differ, *_OPPOSITES, np.equal, _are_numbers, _never))]


@operation("arith.select")
def _select(where: Where) -> Function:
    dtype = dtype_of(where.result()) if where.result().kind != "memref" else None
    if where.operand().kind == "scalar" or dtype is None:
        return lambda predicate, chosen, other: chosen if predicate else other
    return lambda predicate, chosen, other: select_elements(predicate, chosen, other, dtype)


@operation("arith.constant")
def _constant(where: Where) -> Function:
    kind, value = where.result(), where.attributes.get("value")
    if value is None:
        raise where.unsupported("its elements are too many to be kept")
    dtype = dtype_of(kind)
    if isinstance(value, tuple):
        constant = np.array(value).astype(dtype).reshape(kind.dimensions)
    else:
        constant = scalar(value, dtype)
        if kind.kind == "vector":
            constant = np.broadcast_to(constant, kind.dimensions)
    return lambda: constant


@operation("arith.index_cast", "arith.index_castui", "arith.extf", "tpu.extf", "arith.truncf", "tpu.truncf")
@operation("arith.sitofp", "arith.uitofp", "arith.fptosi", "tpu.sitofp", "arith.extsi", "arith.extui")
@operation("arith.fptoui", "tpu.fptosi", "tpu.fptoui", "tpu.uitofp", "tpu.mask_cast")
def _convert(where: Where) -> Function:
    """Convert: to nearest even, or towards zero and no further than the ends of an integer type."""
    name, source, target = where.operation.name, dtype_of(where.operand()), dtype_of(where.result())
    # A set bit is -1 as a signed number.
    is_negative = source.kind == "b" and name in ("arith.extsi", "arith.sitofp", "tpu.sitofp")
    if name in UNSIGNED:
        source = unsigned(source)
    through = unsigned(target) if name.endswith("toui") else target
    rounds = "nearest" in str(where.attributes.get("rounding_mode", "")) and name.startswith("tpu.fpto")

    def converted(value: Any) -> Any:
        values = np.asarray(value).view(source)
        values = compute(np.rint, [values], np.dtype(np.float32)) if rounds else values
        result = convert_values(values, through).view(target)
        return -result if is_negative else result

    return converted


@operation("arith.trunci")
def _truncate(where: Where) -> Function:
    """Keep the low bits."""
    dtype = dtype_of(where.result())
    if dtype.kind == "b":
        return lambda value: (value & 1).astype(np.bool_)
    return lambda value: convert_values(np.asarray(value), dtype)


@operation("arith.bitcast")
def _bitcast(where: Where) -> Function:
    dtype = dtype_of(where.result())
    return lambda value: np.asarray(value).view(dtype)


@operation("tpu.assume_multiple", "tpu.relayout", "tpu.assume_layout")
def _same(where: Where) -> Function:
    """Return the operand: these say something about it, or place it otherwise in the registers."""
    return lambda value: value


@operation("tpu.pack_elementwise")
def _pack(where: Where) -> Function:
    """Return words of narrow elements, that of the first operand lowest."""
    narrow, wide = element_of(str(where.attributes["target_type"])), element_of(where.result().element)
    dtype = numpy_dtype(narrow)
    return lambda *values: as_bits_of(np.stack([convert_values(value, dtype) for value in values], -1), narrow, wide)


@operation("tpu.unpack_elementwise")
def _unpack(where: Where) -> Function:
    """Return one of the narrow elements of each word, widened."""
    narrow, wide = element_of(str(where.attributes["source_type"])), element_of(where.operand().element)
    at, result = int(where.attributes["index"]), dtype_of(where.result())
    return lambda value: convert_values(as_bits_of(value, wide, narrow)[..., at], result)


@operation("tpu.stochastic_convert")
def _stochastic(where: Where) -> Function:
    """Round by chance: up where the random number is below the part that is cut off."""
    result = dtype_of(where.result())
    return lambda value, random: stochastic_float(value, random.view(np.uint32), result)
