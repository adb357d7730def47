"""How products are computed: the matrix unit's bf16 passes with f32 sums over blocks of its depth, or plain IEEE.

Which pieces of the operands the passes multiply is what ``semantics.precision`` says. Products of two bf16 numbers are
exact in f32; their sums round in f32.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tpusim.ir.module import Instruction
from tpusim.numerics.cores import Index, cuts, deal
from tpusim.numerics.ops.convert import BFLOAT16, FLOAT32, convert_values, from_float32, to_float32
from tpusim.numerics.registry import Array, array_shape
from tpusim.numerics.site import Settings, Site
from tpusim.semantics.precision import Passes, product_passes
from tpusim.semantics.products import PRODUCT_ROLES
from tpusim.shapes.dtype import DType, numpy_dtype

Contract = Callable[["Arithmetic", Array, Array], Array]
_Part = tuple[Index, slice, slice]

_EXACT_BYTE_SUMS = 256
"""So many products of two bytes add up exactly in f32: 256 * 255 * 255 < 2**24."""

_MOST_SIDE, _LEAST_SIDE = 1024, 256
"""Of a product at most so many rows and columns are computed at a time, for which all stays in the cache; fewer than so
many of the longer side are not worth what BLAS does before it multiplies."""

_PARTS, _PART_PRODUCTS = 16, 1 << 25
"""A product is cut into so many parts for threads if each has so many multiplications: about a millisecond."""

_KERNEL_SIDE = 16
"""BLAS's kernels compute so many rows or columns at a time."""

_LARGE_PRODUCT = 1 << 20
"""From so many multiplications on, BLAS packs both matrices first (OpenBLAS: beyond 100 * 100 * 100)."""


@dataclass(frozen=True)
class Arithmetic:
    """How one product is computed.

    Operands are converted to ``working``; sums are f32 (or ``working``) within ``depth`` contracted elements (0: all of
    them) and ``sums`` beyond. ``passes`` name the bf16 parts to multiply; without any the operands go in whole.
    """

    working: np.dtype[Any]
    sums: np.dtype[Any]
    result: np.dtype[Any]
    depth: int = 0
    passes: tuple[tuple[int, int], ...] = ()


def choose_arithmetic(site: Site, instruction: Instruction) -> Arithmetic:
    """Return how an instruction multiplies its two sides: integers wrap, predicates take ``or`` of ``and``."""
    roles = PRODUCT_ROLES[instruction.opcode]
    operands = [site.operand(instruction, position) for position in (roles.lhs, roles.rhs)]
    lhs, rhs, result = [array_shape(each.shape).dtype for each in (*operands, instruction)]
    return arithmetic_of(site.settings, product_passes(instruction, lhs, rhs), lhs, rhs, result)


def arithmetic_of(settings: Settings, passes: Passes, lhs: DType, rhs: DType, result_type: DType) -> Arithmetic:
    """Return how operands of two element types are multiplied to a third, in some ``passes`` if they are floats."""
    types, result = (lhs, rhs, result_type), numpy_dtype(result_type)
    # Integers never go through bf16: the matrix unit has paths of their own for them.
    if not any(t.is_float or t.is_complex for t in types):
        if lhs.is_pred or max(lhs.bits, rhs.bits) > 8:
            return Arithmetic(result, result, result)
        # BLAS knows no integers, but f32 holds short sums of byte products without any error.
        return Arithmetic(FLOAT32, np.dtype(np.int64 if result.itemsize == 8 else np.int32), result, _EXACT_BYTE_SUMS)
    is_double = any(t.name in ("f64", "c128") for t in types)
    is_complex = any(t.is_complex for t in types)
    working = np.result_type(np.float64 if is_double else np.float32, np.complex64 if is_complex else np.float32)
    if settings.precision != "tpu" or is_double:
        return Arithmetic(working, working, result)
    return Arithmetic(working, working, result, settings.array_depth, passes)


def in_passes(arithmetic: Arithmetic, lhs: Array, rhs: Array, contract: Contract) -> Array:
    """Return the product that ``contract`` makes, in the passes that the arithmetic asks for, rounded once at the end.

    ``contract`` is given the arithmetic and two operands of its ``working`` type; it has to sum with ``matmul``.
    """
    with np.errstate(all="ignore"):
        if arithmetic.working.kind == "c" and arithmetic.passes:
            total = _complex_passes(arithmetic, lhs, rhs, contract)
        elif arithmetic.passes:
            total = _real_passes(arithmetic, lhs, rhs, contract)
        else:
            total = contract(arithmetic, _converted(lhs, arithmetic.working), _converted(rhs, arithmetic.working))
        return convert_values(total, arithmetic.result)


def _complex_passes(arithmetic: Arithmetic, lhs: Array, rhs: Array, contract: Contract) -> Array:
    """Return a complex product as the four real ones that the matrix unit can make."""
    real, imaginary = (lhs.real, rhs.real), (lhs.imag, rhs.imag)
    # (a + bi)(c + di) = ac - bd + (ad + bc)i
    ac, bd, ad, bc = (
        _real_passes(arithmetic, left, right, contract)
        for left, right in (real, imaginary, (real[0], imaginary[1]), (imaginary[0], real[1]))
    )
    total = np.empty(ac.shape, arithmetic.working)
    # Part by part: times 1j, a number has a real part as well, which is NaN of an infinity and +0 of most others.
    np.subtract(ac, bd, out=total.real)
    np.add(ad, bc, out=total.imag)
    return total


def _real_passes(arithmetic: Arithmetic, lhs: Array, rhs: Array, contract: Contract) -> Array:
    """Return the sum of the passes over the bf16 parts of two real operands."""
    lhs_parts = _parts(lhs, 1 + max(i for i, _ in arithmetic.passes))
    rhs_parts = _parts(rhs, 1 + max(j for _, j in arithmetic.passes))
    (i, j), *corrections = arithmetic.passes
    total = contract(arithmetic, lhs_parts[i], rhs_parts[j])
    if corrections:
        # Small terms first, so that they are not lost one by one beside the large one.
        small = sum(contract(arithmetic, lhs_parts[i], rhs_parts[j]) for i, j in reversed(corrections))
        # An infinity times a part that is zero must not make a NaN of a product that is infinite, nor nothing +0 of -0.
        total += np.where(np.isfinite(small) & (small != 0), small, -0.0)
    return total


def _parts(array: Array, count: int) -> list[Array]:
    """Return the parts of an operand; bf16 itself stays narrow until it is multiplied."""
    return [array] if array.dtype == BFLOAT16 else bf16_parts(array, count)


def bf16_parts(array: Array, count: int) -> list[Array]:
    """Return ``count`` f32 arrays of bf16 values, each the rounding of what those before it left of ``array``."""
    rest = to_float32(array) if array.dtype.itemsize == 2 else _converted(array, FLOAT32)
    # A byte, or bf16 itself, has nothing to round.
    if array.dtype.itemsize == 1 or array.dtype == BFLOAT16:
        return [rest]
    parts: list[Array] = []
    while len(parts) < count:
        if parts:
            rest = np.where(np.isfinite(parts[-1]), rest - parts[-1], np.float32(0))
        parts.append(to_float32(from_float32(rest, BFLOAT16)))
    return parts


def _converted(array: Array, dtype: np.dtype[Any]) -> Array:
    array = np.asarray(array)
    if array.dtype == FLOAT32 and dtype == BFLOAT16:
        return from_float32(array, dtype)
    return array.astype(dtype, copy=False)


def product_type(arithmetic: Arithmetic) -> np.dtype[Any]:
    """Return the type that ``matmul`` gives: that of sums, f32 in passes, or the result's where one pass is all."""
    # Complex operands come in parts, to be added up.
    is_all = len(arithmetic.passes) == 1 and (arithmetic.working, arithmetic.result) == (FLOAT32, BFLOAT16)
    return arithmetic.result if is_all else _sums_type(arithmetic)


def _sums_type(arithmetic: Arithmetic) -> np.dtype[Any]:
    return FLOAT32 if arithmetic.passes else arithmetic.sums


def matmul(arithmetic: Arithmetic, lhs: Array, rhs: Array) -> Array:
    """Return ``lhs[..., m, k] @ rhs[..., k, n]``, summed block by block of ``arithmetic.depth``.

    Leading dimensions broadcast. Operands may be bf16. The result has the ``product_type``.
    """
    lead, dtype = np.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2]), product_type(arithmetic)
    height, width = lhs.shape[-2], rhs.shape[-1]
    parts = _parts_of(lead, height, width, lhs.shape[-1])
    if len(parts) == 1:
        return _converted(_summed(arithmetic, lhs, rhs), dtype)
    total = np.empty((*lead, height, width), dtype)

    def take(parts: Iterator[_Part]) -> None:
        held: tuple[Any, Any] = None, None
        for batches, rows, columns in parts:
            if held[0] != (batches, rows):
                held = (batches, rows), _for_blas(_batches(lhs, batches, len(lead))[..., rows, :])
            right = _batches(rhs, batches, len(lead))[..., columns]
            total[(*batches, ..., rows, columns)] = _converted(_summed(arithmetic, held[1], right), dtype)

    deal(take, parts)
    return total


def _parts_of(lead: tuple[int, ...], height: int, width: int, depth: int) -> list[_Part]:
    """Return which batches, rows and columns of a product are computed at a time, in an order that keeps the rows.

    That follows from the sizes alone: how a product is cut can change its last bits.
    """
    across, down = max(1, -(-width // _MOST_SIDE)), max(1, -(-height // _MOST_SIDE))
    wanted = worthwhile_parts(prod((*lead, height, width, depth)))
    while prod(lead) * across * down < wanted and max(width // across, height // down) >= 2 * _LEAST_SIDE:
        if width * down > height * across:
            across *= 2
        else:
            down *= 2
    batches = cuts(lead, max(1, _PART_PRODUCTS // max(1, height * width * depth)))
    return list(itertools.product(batches, _stretches(height, down), _stretches(width, across)))


def worthwhile_parts(products: int) -> int:
    """Return into how many parts, a power of two, to cut so many multiplications for threads."""
    return 1 << max(1, min(_PARTS, products // _PART_PRODUCTS)).bit_length() - 1


def _stretches(size: int, count: int) -> list[slice]:
    """Return at most so many stretches of about one length, which kernels fill but for the last one."""
    step = max(1, -(-size // (count * _KERNEL_SIDE)) * _KERNEL_SIDE)
    return [slice(start, start + step) for start in range(0, size, step)]


def _batches(array: Array, batches: Index, n_lead: int) -> Array:
    """Return some batches of matrices whose leading dimensions broadcast to ``n_lead`` ones."""
    sizes = (1,) * (n_lead + 2 - array.ndim) + array.shape
    # A dimension of size 1 stands for any stretch of another, and for any one index of it.
    all_of_one = [slice(None) if isinstance(index, slice) else 0 for index in batches]
    chosen = [index if n > 1 else one for n, index, one in zip(sizes, batches, all_of_one, strict=False)]
    return array.reshape(sizes)[tuple(chosen)]


def product(arithmetic: Arithmetic, lhs: Array, rhs: Array) -> Array:
    """Return ``matmul``, but of a depth of 1 the products as they are: sums begin with +0 and have no other zero."""
    if lhs.shape[-1] != 1:
        return matmul(arithmetic, lhs, rhs)
    left, right = (to_float32(side) if side.dtype == BFLOAT16 else side for side in (lhs, rhs))
    return _converted(left * right, product_type(arithmetic))


def _summed(arithmetic: Arithmetic, lhs: Array, rhs: Array) -> Array:
    """Return the product of matrices, all of it in one piece."""
    contracted = lhs.shape[-1]
    depth = arithmetic.depth or max(1, contracted)
    sums = _sums_type(arithmetic)
    height, width = lhs.shape[-2], rhs.shape[-1]
    lhs, rhs = _sides(lhs, rhs, contracted % depth or depth)
    block = np.matmul(lhs[..., :depth], rhs[..., :depth, :])
    total = block.astype(sums, copy=False)
    # One array for all further blocks: fresh memory for each would cost more than the sums.
    scratch = np.empty_like(block) if contracted > depth else block
    for start in range(depth, contracted, depth):
        np.matmul(lhs[..., start : start + depth], rhs[..., start : start + depth, :], out=scratch)
        total += scratch.astype(sums, copy=False)
    return np.ascontiguousarray(total[..., :height, :width])


def _sides(lhs: Array, rhs: Array, depth: int) -> tuple[Array, Array]:
    """Return matrices that BLAS sums up in one order, and so to the same bits, however they lie in memory.

    It does where it packs them first. What is small some processors take as it lies; so it is brought into rows. What
    is a single row or column all of them do; so it is taken twice.
    """
    lhs, rhs = _for_blas(lhs), _for_blas(rhs)
    height, width = lhs.shape[-2], rhs.shape[-1]
    if max(2, height) * max(2, width) * depth < _LARGE_PRODUCT:
        return _in_rows(lhs), _in_rows(rhs)
    lhs = np.repeat(lhs, 2, -2) if height == 1 else lhs
    rhs = np.repeat(rhs, 2, -1) if width == 1 else rhs
    # Of an array and its own transpose NumPy has BLAS compute one half, in another order.
    return lhs, rhs.copy() if np.may_share_memory(lhs, rhs) else rhs


def _in_rows(array: Array) -> Array:
    return array if array.strides[-1] == array.itemsize else np.ascontiguousarray(array)


def _for_blas(array: Array) -> Array:
    """Return the matrices, bf16 as f32, with rows or columns in one piece: NumPy hands no others to BLAS."""
    rows, columns = array.strides[-2:]
    item, height, width = array.dtype.itemsize, *array.shape[-2:]
    in_rows = columns == item and rows >= item * width
    in_columns = rows == item and columns >= item * height
    if array.dtype == BFLOAT16:
        return to_float32(array) if in_rows or not in_columns else to_float32(array.swapaxes(-1, -2)).swapaxes(-1, -2)
    return array if in_rows or in_columns or prod(array.shape) == 0 else np.ascontiguousarray(array)
