"""Pass 2: what says the same in fewer instructions. Source: XLA, AlgebraicSimplifier, HloCSE, TupleSimplifier."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.programs import compiled
from tpusim.pipeline.stages import execute
from tpusim.shapes.dtype import DTYPES, numpy_dtype

RULES = {
    "reshape of a reshape": ("y = f32[64] reshape(x)  ROOT z = f32[4,16] reshape(y)", "reshape"),
    "there and back": ("y = f32[64] reshape(x)  ROOT z = f32[8,8] reshape(y)", ""),
    "turned twice": (
        "y = f32[8,8] transpose(x), dimensions={1,0}  ROOT z = f32[8,8] transpose(y), dimensions={1,0}",
        "",
    ),
    "broadcast of a broadcast": (
        "y = f32[8,8,2] broadcast(x), dimensions={0,1}  ROOT z = f32[3,8,8,2] broadcast(y), dimensions={1,2,3}",
        "broadcast",
    ),
    "widened and cut": ("h = bf16[8,8] convert(x)  w = f32[8,8] convert(h)  ROOT z = bf16[8,8] convert(w)", "convert"),
    "cut and widened": ("h = bf16[8,8] convert(x)  ROOT z = f32[8,8] convert(h)", "convert convert"),
    "cut where it is joined": (
        "y = f32[8,8] tanh(x)  w = f32[16,8] concatenate(x, y), dimensions={0}  ROOT z = bf16[16,8] convert(w)",
        "convert tanh convert concatenate",
    ),
    "widened where it is joined": (
        "y = f32[8,8] tanh(x)  w = f32[16,8] concatenate(x, y), dimensions={0}  ROOT z = f64[16,8] convert(w)",
        "tanh concatenate convert",
    ),
    "cut and kept": (
        "y = f32[8,8] tanh(x)  w = f32[16,8] concatenate(x, y), dimensions={0}  v = bf16[16,8] convert(w)  "
        "ROOT z = (bf16[16,8], f32[16,8]) tuple(v, w)",
        "tanh concatenate convert tuple",
    ),
    "all of it": ("ROOT z = f32[8,8] slice(x), slice={[0:8], [0:8]}", ""),
    "backwards": ("ROOT z = f32[8,8] reverse(x), dimensions={0}", "reverse"),
    "shifted": ("zero = f32[] constant(0)  ROOT z = f32[8,8] pad(x, zero), padding=1_-1x0_0", "pad"),
    "times one": (
        "one = f32[] constant(1)  ones = f32[8,8] broadcast(one), dimensions={}  ROOT z = f32[8,8] multiply(ones, x)",
        "",
    ),
    "one over it": (
        "one = f32[] constant(1)  ones = f32[8,8] broadcast(one), dimensions={}  ROOT z = f32[8,8] divide(ones, x)",
        "broadcast divide",
    ),
    "chosen everywhere": (
        "yes = pred[] constant(true)  all = pred[8,8] broadcast(yes), dimensions={}  y = f32[8,8] tanh(x)  "
        "ROOT z = f32[8,8] select(all, x, y)",
        "",
    ),
    "an element of a tuple": (
        "y = f32[8,8] tanh(x)  t = (f32[8,8], f32[8,8]) tuple(x, y)  ROOT z = f32[8,8] get-tuple-element(t), index=0",
        "",
    ),
    "the same twice": ("y = f32[8,8] tanh(x)  w = f32[8,8] tanh(x)  ROOT z = f32[8,8] add(y, w)", "tanh add"),
    "a dimension of one": (
        "y = f32[8,1,8] reshape(x)  w = f32[8,1,8] tanh(y)  ROOT z = f32[8,8] reshape(w)",
        "tanh",
    ),
    "known numbers": (
        "a = f32[] constant(2)  b = f32[] constant(3)  c = f32[] add(a, b)  w = f32[8,8] broadcast(c), dimensions={}  "
        "ROOT z = f32[8,8] add(x, w)",
        "broadcast add",
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_what_is_left(name):
    """Of each rule what it leaves, and beside some what looks alike and has to stay."""
    body, left = RULES[name]
    lines = "\n  ".join(body.split("  "))
    text = f"HloModule m\n\nENTRY e {{\n  x = f32[8,8] parameter(0)\n  {lines}\n}}\n"
    entry = compiled(text, stop_after="simplify").entry
    assert [i.opcode for i in entry if i.opcode not in ("parameter", "constant")] == left.split()


FLOATS = [name for name, dtype in DTYPES.items() if dtype.is_float]


@pytest.mark.parametrize(
    ("operation", "number"),
    [
        ("minimum(x, b)", "inf"),
        ("maximum(b, x)", "-inf"),
        ("multiply(b, x)", "1"),
        ("divide(x, b)", "1"),
    ],
)
@pytest.mark.parametrize("dtype", FLOATS)
def test_what_changes_nothing_is_left_out(dtype, operation, number):
    """Infinity of a type without one is NaN, and with that nothing stays as it is. Zeros keep their signs."""
    text = f"""HloModule m

ENTRY e {{
  x = {dtype}[6] parameter(0)
  k = {dtype}[] constant({number})
  b = {dtype}[6] broadcast(k), dimensions={{}}
  ROOT z = {dtype}[6] {operation}
}}
"""
    given, made = (compiled(text, stop_after=step) for step in ("inline", "simplify"))
    is_left_out = number == "1" or dtype in ("f64", "f32", "bf16", "f16", "f8e5m2", "f8e4m3", "f8e3m4")
    assert (made.entry.root.opcode == "parameter") == is_left_out
    x = np.float32([0, -0.0, 1, -2, np.inf, np.nan]).astype(numpy_dtype(DTYPES[dtype]))
    expected, found = (np.float64(execute(each, {"in0": x}, precision="exact", chip="v5e")) for each in (given, made))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[:4]), np.signbit(expected[:4]))
