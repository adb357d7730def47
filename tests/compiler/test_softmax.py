"""Pass 4: which softmaxes divide behind the product that takes them. Source: programs compiled ahead of time."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.programs import compiled
from tpusim.pipeline.stages import execute

TEXT = """HloModule attention

larger { a = bf16[] parameter(0)  b = bf16[] parameter(1)  ROOT c = bf16[] maximum(a, b) }
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
multiply { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] multiply(a, b) }

ENTRY main {
  q = bf16[4,128,64] parameter(0)
  k = bf16[4,128,64] parameter(1)
  v = bf16[4,128,32] parameter(2)
  s = bf16[4,128,128] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={2}
  x = bf16[4,128,128] negate(s)
  low = bf16[] constant(-inf)
  most = bf16[4,128] reduce(x, low), dimensions={2}, to_apply=larger
  scores = f32[4,128,128] convert(x)
  largest = f32[4,128] convert(most)
  wide = f32[4,128,128] broadcast(largest), dimensions={0,1}
  less = f32[4,128,128] subtract(scores, wide)
  y = f32[4,128,128] exponential(less)
  zero = f32[] constant(0)
  total = f32[4,128] reduce(y, zero), dimensions={2}, to_apply=add
  totals = f32[4,128,128] broadcast(total), dimensions={0,1}
  quotient = f32[4,128,128] divide(y, totals)
  share = bf16[4,128,128] convert(quotient)
  ROOT out = bf16[4,128,32] dot(share, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={1}
}
"""


def divides_behind(text, chip="v5e"):
    """Return whether a program divides what the product makes, and not what it takes."""
    (divided,) = [
        one for one in compiled(text, chip, stop_after="softmax").entry if one.opcode in ("divide", "multiply")
    ]
    return divided.shape.dimensions == (4, 128, 32)


@pytest.mark.parametrize(("chip", "expected"), [("v5e", True), ("v5p", True), ("v6e", True), ("v4", False)])
def test_shares_of_a_plain_product_are_made_behind_it(chip, expected):
    """As the kernel of the TPU compiler does, which there is not for v4."""
    assert divides_behind(TEXT, chip) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x = bf16[4,128,128] negate(s)", "x = bf16[4,128,128] abs(s)"),
        ("ROOT out", "kept = bf16[4,128,128] negate(share)\n  ROOT out"),
        ("rhs_contracting_dims={1}", "rhs_contracting_dims={1}, operand_precision={highest,highest}"),
    ],
)
def test_what_changes_nothing(old, new):
    """How the scores are made, a use that nobody asks for, and how exact the product is."""
    assert divides_behind(TEXT.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dimensions={2}, to_apply=add", "dimensions={1}, to_apply=add"),
        ("reduce(y, zero)", "reduce(scores, zero)"),
        ("y = f32[4,128,128] exponential(less)", "y = f32[4,128,128] tanh(less)"),
        ("scores = f32[4,128,128] convert(x)", "scores = f32[4,128,128] parameter(3)"),
        ("largest = f32[4,128] convert(most)", "largest = f32[4,128] broadcast(zero), dimensions={}"),
        (
            "total = f32[4,128] reduce(y, zero), dimensions={2}, to_apply=add",
            "total = f32[4,128] reduce(y, zero), dimensions={2}, to_apply=multiply",
        ),
        ("share = bf16[4,128,128] convert(quotient)", "share = s8[4,128,128] convert(quotient)"),
        ("bf16[", "f16["),
        ("broadcast(total), dimensions={0,1}", "broadcast(total), dimensions={0,2}"),
    ],
)
def test_other_shares_are_made_before_the_product(old, new):
    """Sums of other things or other rows, products, no exponentials, scores of 32 bits, other types, nothing less."""
    text = (
        TEXT.replace(old, new)
        .replace("zero = f32[] constant(0)\n", "")
        .replace("  q = ", "  zero = f32[] constant(0)\n  q = ")
    )
    if "s8[" in new:
        text = text.replace("ROOT out = bf16", "ROOT out = s32").replace("v = bf16", "v = s8")
    assert not divides_behind(text)


def test_stacks_of_scores_as_a_product_leaves_them_are_divided_before():
    """They are another kernel's."""
    assert not divides_behind(TEXT.replace("x = bf16[4,128,128] negate(s)", "").replace("(x", "(s"))


def test_the_values_are_those_of_the_program_but_for_rounding():
    """What is rounded to 16 bits is not the shares but the exponentials, and what is divided."""
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=size).astype("f") for size in ((4, 128, 64), (4, 128, 64), (4, 128, 32))]
    inputs[0] /= 8
    given, made = (
        np.asarray(execute(compiled(TEXT, stop_after=step), inputs, precision="exact"), "f")
        for step in ("inline", "softmax")
    )
    assert np.abs(given - made).max() < 2**-7 * np.abs(given).max()
    assert not np.array_equal(given, made)
