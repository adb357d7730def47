"""Chains of element-wise operations: which there are, and that computing them at once does not show."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.numerics.oracle import run_ours
from tests.semantics.hlo import parse

# Importing it fills the table of what can be chained.
from tpusim.numerics import chains, execute  # noqa: F401
from tpusim.numerics.values import blocks, precision
from tpusim.numerics.values.precision import Arithmetic, matmul

BFLOAT16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)

NORM = """HloModule m
ENTRY e {
  x = bf16[6,50] parameter(0)
  scale = bf16[50] parameter(1)
  wide = f32[6,50] convert(x)
  squares = f32[6,50] multiply(wide, wide)
  small = f32[] constant(1e-38)
  tiny = f32[6,50] broadcast(small), dimensions={}
  scaled = f32[6,50] multiply(squares, tiny)
  narrow = bf16[6,50] convert(scaled)
  rows = bf16[6,50] broadcast(scale), dimensions={1}
  product = bf16[6,50] multiply(narrow, rows)
  ROOT sum = bf16[6,50] add(product, x)
}
"""

SHARED = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  twice = f32[4] add(x, x)
  more = f32[4] multiply(twice, x)
  whole = s32[4] convert(twice)
  ROOT both = (f32[4], s32[4]) tuple(more, whole)
}
"""


def _members(text: str) -> list[list[str]]:
    """Return the names in each unit of several instructions."""
    units = chains.units_of(parse(text).entry)
    return [[member.name for member in unit.members] for unit in units if len(unit.members) > 1]


def test_a_chain_is_what_has_no_users_elsewhere() -> None:
    """A value that a conversion to integers takes as well is written."""
    assert _members(NORM) == [["wide", "squares", "scaled", "narrow", "product", "sum"]]
    assert _members(SHARED) == []


@pytest.mark.parametrize("mode", ["tpu", "exact"])
@pytest.mark.parametrize("in_strips", [False, True])
@pytest.mark.parametrize("block", [7, 1 << 15])
def test_a_chain_computes_what_its_instructions_do_one_by_one(
    monkeypatch: pytest.MonkeyPatch, mode: str, block: int, in_strips: bool
) -> None:
    """To the bit, with results too small to be normal, NaN, infinities and zeros of both signs; alone by NumPy."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((6, 50)).astype(BFLOAT16)
    x[0, :6] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-20]
    inputs = [x, rng.standard_normal(50).astype(BFLOAT16)]
    for name in ("BLOCK_ELEMENTS", "STRIP_BLOCK_ELEMENTS", "STRIP_ELEMENTS"):
        monkeypatch.setattr(blocks, name, block)
    if not in_strips:
        monkeypatch.setattr(blocks, "program_of", lambda *_: None)
    at_once = run_ours(NORM, inputs, mode)[0]
    monkeypatch.setattr(blocks, "program_of", lambda *_: None)
    monkeypatch.setattr(chains, "_MOST_MEMBERS", 1)
    one_by_one = run_ours(NORM, inputs, mode)[0]
    np.testing.assert_array_equal(at_once.view(np.uint16), one_by_one.view(np.uint16))


@pytest.mark.parametrize("least_products", [1, 250, 1 << 30])
@pytest.mark.parametrize(
    "leads", [((), ()), ((2, 3), (2, 3)), ((2, 1), (1, 3)), ((3,), (2, 3)), ((1, 1), (1,)), ((0,), (0,))]
)
@pytest.mark.parametrize("sizes", [(7, 9, 11), (1, 300, 5), (5, 1, 1), (0, 3, 4), (4, 0, 3)])
def test_parts_of_products_do_not_show(
    monkeypatch: pytest.MonkeyPatch,
    sizes: tuple[int, int, int],
    leads: tuple[tuple[int, ...], tuple[int, ...]],
    least_products: int,
) -> None:
    """Small whole numbers, whose sums f32 holds: NumPy's integers know the product."""
    rng = np.random.default_rng(2)
    rows, depth, columns = sizes
    lhs, rhs = rng.integers(-8, 8, (*leads[0], rows, depth)), rng.integers(-8, 8, (*leads[1], columns, depth))
    for name, value in {"_MOST_SIDE": 4, "_LEAST_SIDE": 1, "_KERNEL_SIDE": 3, "_PART_PRODUCTS": least_products}.items():
        monkeypatch.setattr(precision, name, value)
    arithmetic = Arithmetic(F32, F32, F32, 128, ((0, 0),))
    for dtype in (BFLOAT16, F32):
        found = matmul(arithmetic, lhs.astype(dtype), rhs.astype(dtype).swapaxes(-1, -2))
        np.testing.assert_array_equal(found, lhs @ rhs.swapaxes(-1, -2))
