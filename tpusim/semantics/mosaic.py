"""What operations of MLIR in the body of a Pallas kernel mean, where an opcode of HLO means the same.

Source: MLIR, dialects ``arith`` and ``math``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tpusim.ir.mosaic import Operation


def _by_opcode(text: str) -> dict[str, str]:
    rows = (row.split() for row in text.strip().splitlines())
    return {name: opcode for opcode, *names in rows for name in names}


OPCODES: Final = _by_opcode(
    """
    abs math.absf math.absi
    add arith.addf arith.addi
    and arith.andi
    atan2 math.atan2
    cbrt math.cbrt
    ceil math.ceil
    cosh math.cosh
    cosine math.cos
    count-leading-zeros math.ctlz
    divide arith.divf arith.divsi arith.divui
    erf math.erf
    exponential math.exp
    exponential-minus-one math.expm1
    floor math.floor
    is-finite math.isfinite
    log math.log
    log-plus-one math.log1p
    maximum arith.maximumf arith.maxsi arith.maxui
    minimum arith.minimumf arith.minsi arith.minui
    multiply arith.mulf arith.muli
    negate arith.negf
    or arith.ori
    popcnt math.ctpop
    power math.powf math.ipowi
    remainder arith.remf arith.remsi arith.remui
    round-nearest-afz math.round
    round-nearest-even math.roundeven
    rsqrt math.rsqrt
    shift-left arith.shli
    shift-right-arithmetic arith.shrsi
    shift-right-logical arith.shrui
    sine math.sin
    sinh math.sinh
    sqrt math.sqrt
    subtract arith.subf arith.subi
    tan math.tan
    tanh math.tanh
    xor arith.xori
    """
)
"""Opcodes of HLO by the operations that mean the same on each element."""

UNSIGNED: Final = frozenset(
    "arith.divui arith.extui arith.maxui arith.minui arith.remui arith.uitofp tpu.uitofp".split()
)
"""Operations that take integers for unsigned ones; MLIR's integers have no sign of their own."""

PRODUCTS: Final = ("tpu.matmul", "vector.contract")
"""Products of two vectors, added to a third."""

REDUCTIONS: Final = ("vector.multi_reduction", "tpu.all_reduce", "tpu.reduce_index", "vector.reduction")
"""What combines elements of one vector."""


def reduced_axes(operation: Operation, rank: int) -> frozenset[int]:
    """Return the axes that a reduction of a value of some rank combines; the last where it names none.

    Raises ValueError for a value without axes.
    """
    if not rank:
        raise ValueError("a reduction of a value without axes")
    named = operation.attributes
    stated = named.get("reduction_dims", named.get("dim", named.get("axis", rank - 1)))
    return frozenset(int(axis) % rank for axis in (stated if isinstance(stated, tuple | list) else (stated,)))


def dot_lists(stated: str) -> list[tuple[int, ...]]:
    """Return the lists of ``dot_dimension_numbers``: contracting, free, output pairs, batch (JAX, dialect ``tpu``)."""
    return [tuple(map(int, text.split(","))) if text.strip() else () for text in re.findall(r"\[([^\]]*)\]", stated)]


def contract_maps(maps: Sequence[str]) -> list[list[str]]:
    """Return the dimensions that ``indexing_maps`` name of both operands and the result (MLIR, dialect ``vector``)."""
    return [re.findall(r"d\d+", text.partition("->")[2]) for text in maps]


def product_axes(operation: Operation) -> list[tuple[int, int]]:
    """Return of each axis of a product the operand that it comes from, 0 or 1, and its axis there."""
    says = operation.attributes
    if "indexing_maps" in says:
        lhs, rhs, result = contract_maps(says["indexing_maps"])
        return [(0, lhs.index(name)) if name in lhs else (1, rhs.index(name)) for name in result]
    if says.get("dimension_numbers") is None:
        return [(0, 1 if says.get("transpose_lhs") else 0), (1, 0 if says.get("transpose_rhs") else 1)]
    order = dot_lists(says["dimension_numbers"])[4]
    return list(zip(order[::2], order[1::2], strict=True))
