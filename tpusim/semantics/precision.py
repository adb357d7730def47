"""How many passes of the matrix unit a product takes: which pieces of its two operands are multiplied.

The unit multiplies bf16. An f32 operand falls into up to three pieces of bf16, each the rounding of what those before
it left; an f16 into two. How many of them count each operand says by its ``operand_precision`` (default 1, high 2,
highest 3), or an ``algorithm`` for both. Pieces meet as long as their product is as large as one that the larger of
the two counts asks for: 1 x 1 pieces take one pass, 2 x 2 three, 3 x 3 six, 3 x 2 five, 3 x 1 three.

Integers are exact and ask no precision: they fall into bytes, and what lies above the 32nd bit of a sum is lost.

A product of f64 is a loop over pieces of bf16, whatever it asks for, and one of complex numbers three of their parts.

Source: JAX documentation, ``jax.lax.Precision`` and ``DotAlgorithmPreset``; counts for unequal pieces, f16 and integers
are those of the TPU compiler (libtpu 0.0.52), whose ``estimated_cycles`` for v5e rise by one pass's at each.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import product
from typing import Any, Final, Protocol

from tpusim.shapes.dtype import DType
from tpusim.shapes.shape import Shape, leaves

Passes = tuple[tuple[int, int], ...]

_BY_PRECISION = {"default": 1, "high": 2, "highest": 3}
"""How many bf16 pieces of an operand each word asks for."""

PIECES_BY_ALGORITHM: Final = {
    "dot_any_f8_any_f8_f32": 1,
    "dot_any_f8_any_f8_f32_fast_accum": 1,
    "dot_f16_f16_f16": 2,
    "dot_f16_f16_f32": 2,
    "dot_bf16_bf16_bf16": 1,
    "dot_bf16_bf16_f32": 1,
    "dot_bf16_bf16_f32_x3": 2,
    "dot_bf16_bf16_f32_x6": 3,
    "dot_bf16_bf16_f32_x9": 3,
    "dot_tf32_tf32_f32": 2,
    "dot_tf32_tf32_f32_x3": 3,
    "dot_f32_f32_f32": 3,
    "dot_f64_f64_f64": 3,
}
"""The fewest bf16 pieces of each operand that keep the mantissas which a dot's ``algorithm`` promises."""

PASSES_OF_DOUBLES: Final = 16 * 3
"""An f64 falls into four pairs of pieces: each pair meets each, in three products as A. Karatsuba has them."""

PRODUCTS_OF_PARTS: Final = 3
"""Products of real matrices that one of complex ones consists of (C. F. Gauss)."""

_ALL_PAIRS = "dot_bf16_bf16_f32_x9"
_BYTES_OF_A_SUM = 4


class Stated(Protocol):
    """A product: an instruction of a module, or a node of a draft."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What it states, its precision among it."""

    @property
    def shape(self) -> Shape:
        """The shape of its result."""


def product_passes(instruction: Stated, lhs: DType, rhs: DType) -> Passes:
    """Return which piece of the left operand meets which of the right in each pass, the largest product first.

    Pieces are numbered from the most significant, but those of integers from the least. The passes are at least one.
    """
    algorithm = instruction.attributes.get("algorithm", "unset")
    # An algorithm is a promise; a precision only a wish.
    if algorithm != "unset":
        asked = (PIECES_BY_ALGORITHM[algorithm],) * 2
    else:
        words = (*instruction.attributes.get("operand_precision", ()), "default", "default")
        asked = (_BY_PRECISION[words[0]], _BY_PRECISION[words[1]])
    if not any(dtype.is_float or dtype.is_complex for dtype in (lhs, rhs)):
        return _pairs(-(-lhs.bits // 8), -(-rhs.bits // 8), _BYTES_OF_A_SUM)
    pieces = min(asked[0], _piece_count(lhs)), min(asked[1], _piece_count(rhs))
    return _pairs(*pieces, sum(pieces) if algorithm == _ALL_PAIRS else max(pieces))


def pass_count(instruction: Stated, lhs: DType, rhs: DType) -> int:
    """Return how many passes a product takes, of complex numbers those of all their parts.

    Source: programs of the TPU compiler (libtpu 0.0.52) for products of f64, c64 and c128 at each precision.
    """
    made = {leaf.dtype.name for leaf in leaves(instruction.shape)}
    is_double = bool({"f64", "c128"} & {lhs.name, rhs.name, *made})
    passes = PASSES_OF_DOUBLES if is_double else len(product_passes(instruction, lhs, rhs))
    return passes * PRODUCTS_OF_PARTS if lhs.is_complex or rhs.is_complex else passes


def passes_of(word: str, dtype: DType) -> int:
    """Return the passes of a product whose operands have one type and ask for a precision: default, high, highest."""
    pieces = min(_BY_PRECISION[word], _piece_count(dtype)) if dtype.is_float else -(-dtype.bits // 8)
    return len(_pairs(pieces, pieces, pieces))


def passes_between(word: str, lhs: DType, rhs: DType) -> Passes:
    """Return the passes of a product of floats of two types that ask for one precision: default, high, highest."""
    pieces = [min(_BY_PRECISION[word], _piece_count(dtype)) for dtype in (lhs, rhs)]
    return _pairs(*pieces, max(pieces))


def _piece_count(dtype: DType) -> int:
    """Return into how many bf16 pieces that are not all zero a value of the type can fall."""
    if dtype.name == "bf16" or dtype.bits <= 8:
        return 1
    return 2 if dtype.name == "f16" else 3


@lru_cache(maxsize=64)
def _pairs(lhs_count: int, rhs_count: int, orders: int) -> Passes:
    pairs = (pair for pair in product(range(lhs_count), range(rhs_count)) if sum(pair) < orders)
    return tuple(sorted(pairs, key=lambda pair: (sum(pair), abs(pair[0] - pair[1]), pair[0])))
