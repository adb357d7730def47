"""Values of element-wise operations, of iota and of broadcast.

Most are one kernel per opcode and kind of element, in one table. All of them broadcast like NumPy, so that a scalar
computation runs on whole arrays. bf16, f16 and narrower floats compute in f32 and are rounded once per instruction.

Source: XLA, Operation Semantics.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tpusim.compiled import njit
from tpusim.errors import UnsupportedError
from tpusim.ir.module import Instruction
from tpusim.numerics.ops.convert import convert_values, flat
from tpusim.numerics.ops.linear_algebra import complex_of
from tpusim.numerics.ops.sorting import as_ordered
from tpusim.numerics.registry import FLOAT_KERNELS, Array, array_shape, compute_type, computes, element_type
from tpusim.numerics.scalar_computation import apply_lifted
from tpusim.numerics.site import Site
from tpusim.numerics.values import floats, integers
from tpusim.numerics.values.blocks import compute, flushes
from tpusim.numerics.values.relayout import word_type
from tpusim.shapes.dtype import DTYPES, DType, numpy_dtype

Type = np.dtype[Any]

# Opcode, kinds of elements (b truth, i signed, u unsigned, f float, c complex), kernel.
_ROWS: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    # NumPy where it means the same as XLA; own kernels where NaN, zeros, signs or overflow differ.
    ("abs", "iufc", np.absolute),
    ("acos", "fc", np.arccos),
    ("acosh", "fc", np.arccosh),
    # XLA's pred does not wrap: true plus true is true.
    ("add", "b", np.logical_or),
    ("add", "iufc", np.add),
    ("and", "biu", np.bitwise_and),
    ("asin", "fc", np.arcsin),
    ("asinh", "fc", np.arcsinh),
    ("atan2", "f", np.arctan2),
    ("atan2", "c", floats.complex_atan2),
    ("atanh", "fc", np.arctanh),
    ("cbrt", "f", np.cbrt),
    ("ceil", "f", np.ceil),
    ("clamp", "biu", lambda low, value, high: np.clip(value, low, high)),
    ("clamp", "f", floats.clamp),
    ("cosh", "fc", np.cosh),
    ("cosine", "fc", np.cos),
    ("divide", "iu", integers.divide),
    ("divide", "f", np.divide),
    ("divide", "c", floats.complex_divide),
    ("erf", "f", floats.erf),
    ("exponential", "fc", np.exp),
    ("exponential-minus-one", "f", np.expm1),
    ("exponential-minus-one", "c", floats.complex_exponential_minus_one),
    ("floor", "f", np.floor),
    ("is-finite", "f", np.isfinite),
    ("log", "fc", np.log),
    ("log-plus-one", "f", np.log1p),
    ("log-plus-one", "c", floats.complex_log_plus_one),
    ("logistic", "f", floats.logistic),
    ("logistic", "c", floats.complex_logistic),
    ("maximum", "biuc", np.maximum),
    ("maximum", "f", floats.maximum),
    ("minimum", "biuc", np.minimum),
    ("minimum", "f", floats.minimum),
    ("multiply", "b", np.logical_and),
    ("multiply", "iufc", np.multiply),
    ("negate", "iufc", np.negative),
    ("not", "biu", np.invert),
    ("or", "biu", np.bitwise_or),
    ("power", "iu", integers.power),
    ("power", "c", floats.complex_power),
    ("power", "f", floats.power),
    ("remainder", "iu", integers.remainder),
    ("remainder", "f", np.fmod),
    ("round-nearest-afz", "f", floats.round_away),
    ("round-nearest-even", "f", np.rint),
    ("rsqrt", "c", floats.complex_rsqrt),
    ("rsqrt", "f", floats.rsqrt),
    ("shift-left", "iu", np.left_shift),
    ("sign", "c", floats.complex_sign),
    ("sign", "iu", np.sign),
    ("sign", "f", floats.sign),
    ("sine", "fc", np.sin),
    ("sinh", "fc", np.sinh),
    ("sqrt", "fc", np.sqrt),
    ("subtract", "iufc", np.subtract),
    ("tan", "fc", np.tan),
    ("tanh", "fc", np.tanh),
    ("xor", "biu", np.bitwise_xor),
)
_KERNELS = {(opcode, kind): kernel for opcode, kinds, kernel in _ROWS for kind in kinds}
FLOAT_KERNELS.update({opcode: kernel for (opcode, kind), kernel in _KERNELS.items() if kind == "f"})

# What looks at bits takes all integers for signed or all for unsigned ones; a product takes them for what they are.
ON_BITS: dict[str, tuple[str, Callable[..., Any]]] = {
    "count-leading-zeros": ("u", integers.count_leading_zeros),
    "mulhi": ("", integers.multiply_high),
    "popcnt": ("u", lambda value, bits: np.bitwise_count(value)),
    # Zeros or signs come in; like XLA, NumPy takes an amount of the width or more as that.
    "shift-right-arithmetic": ("s", lambda value, amount, bits: value >> amount),
    "shift-right-logical": ("u", lambda value, amount, bits: value >> amount),
}
COMPARISONS = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}
"""Comparisons of two arrays by XLA's name of the direction."""


@computes(*sorted({row[0] for row in _ROWS}))
def elementwise(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return what the opcode's kernel gives; on ``precision`` of ``tpu``, results too small to be normal are zeros."""
    kernel = elementwise_kernel(instruction.opcode, operands[0].dtype)
    if kernel is None:
        raise _not_defined(instruction)
    flush = flushes(instruction.opcode, operands[0].dtype, site.settings)
    return compute(kernel, operands, element_type(instruction), flush=flush)


def _not_defined(instruction: Instruction) -> UnsupportedError:
    found = array_shape(instruction.shape).dtype
    return UnsupportedError(f"{instruction.name}: {instruction.opcode} is not defined on {found} elements in XLA")


def elementwise_kernel(opcode: str, dtype: Type) -> Callable[..., Any] | None:
    """Return the function of arrays that an opcode is on elements of a type; None where it is not defined on them."""
    return _KERNELS.get((opcode, compute_type(dtype).kind))


@computes(*ON_BITS)
def on_bits(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Count, shift or multiply the bits of integers, whatever their own type makes of the uppermost one."""
    dtype = array_shape(instruction.shape).dtype
    if not dtype.is_integer:
        raise _not_defined(instruction)
    return bits_of(instruction.opcode, operands, dtype)


def bits_of(opcode: str, operands: list[Any], result: DType) -> Array:
    """Return what an opcode that looks at the bits of integers gives, as elements of the type ``result``."""
    sign, kernel = ON_BITS[opcode]
    dtype = numpy_dtype(DTYPES[f"{sign}{result.bits}"] if sign else result)
    # A lifted computation may keep integers in wider ones.
    is_own = [operand.dtype.itemsize == dtype.itemsize for operand in operands]
    values = [each.view(dtype) if own else each.astype(dtype) for each, own in zip(operands, is_own, strict=True)]
    return compute(partial(kernel, bits=result.bits), values, dtype).view(numpy_dtype(result))


@computes("compare")
def compare(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Compare; ``type=TOTALORDER`` orders floats by their bits, otherwise NaN is unequal to all and -0 equals 0."""
    kernel = COMPARISONS[instruction.attributes["direction"]]
    if instruction.attributes.get("type") == "TOTALORDER":
        # Only then: mapping the bits costs a pass, and nearly all comparisons go without.
        operands = [as_ordered(operand, is_total=True) for operand in operands]
    return compute(kernel, operands, element_type(instruction))


@computes("select")
def select(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the elements of the second operand where the first is true, of the third elsewhere.

    A scalar predicate chooses one of them whole, tuples included.
    """
    predicate, chosen, other = operands
    if isinstance(chosen, tuple) or (predicate.ndim == 0 and chosen.shape == other.shape):
        return chosen if predicate else other
    return select_elements(predicate, chosen, other, element_type(instruction))


def select_elements(predicate: Array, chosen: Array, other: Array, dtype: Type) -> Array:
    """Return the elements of ``chosen`` where ``predicate`` is true, of ``other`` elsewhere, as a type."""
    # As words: moving bits keeps the payloads of NaNs, and one kernel serves all types of a width.
    words = [convert_values(values, dtype).view(word_type(dtype)) for values in (chosen, other)]
    return compute(_choose, [predicate, *words], word_type(dtype)).view(dtype)


def _choose(predicate: Array, chosen: Array, other: Array) -> Array:
    dimensions = np.broadcast_shapes(predicate.shape, chosen.shape, other.shape)
    result = np.empty(dimensions, chosen.dtype)
    one, two, three = (flat(np.broadcast_to(values, dimensions)) for values in (predicate, chosen, other))
    _choose_each(one, two, three, result.reshape(-1))
    return result


@njit(cache=True)
def _choose_each(predicate: Array, chosen: Array, other: Array, result: Array) -> None:
    """Choose element by element; without a jump, so that a mask without order costs no more than one with it."""
    for i in range(result.size):
        one, two = chosen[i], other[i]
        result[i] = one if predicate[i] else two


@computes("map")
def apply_map(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return what the computation gives for the elements of all operands at each place."""
    value = apply_lifted(site, instruction.attributes["to_apply"], operands)
    return np.broadcast_to(value, operands[0].shape)


# In one piece: a view would keep the other half in memory as well.
computes("real")(lambda site, instruction, operands: np.asarray(operands[0].real, order="C"))
computes("imag")(lambda site, instruction, operands: np.asarray(operands[0].imag, order="C"))
computes("complex")(lambda site, instruction, operands: complex_of(*operands))


@computes("iota")
def iota(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return each element's index in ``iota_dimension``, converted to the element type."""
    dimensions, axis = array_shape(instruction.shape).dimensions, instruction.attributes["iota_dimension"]
    column = convert_values(np.arange(dimensions[axis]), element_type(instruction))
    return np.broadcast_to(column.reshape(-1, *(1,) * (len(dimensions) - axis - 1)), dimensions)


@computes("broadcast")
def broadcast(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the operand repeated along the dimensions that ``dimensions`` does not name, as a view without a copy."""
    operand, wanted = operands[0], array_shape(instruction.shape).dimensions
    named = instruction.attributes.get("dimensions", ())
    if operand.shape == wanted and named == tuple(range(len(wanted))):
        return operand
    if list(named) != sorted(named):
        operand, named = operand.transpose(np.argsort(named)), tuple(sorted(named))
    sizes = dict(zip(named, operand.shape, strict=True))
    # A dynamic size is the operand's own, which the shape only bounds.
    whole = [sizes.get(axis, size) for axis, size in enumerate(wanted)]
    return np.broadcast_to(operand.reshape([sizes.get(axis, 1) for axis in range(len(wanted))]), whole)
