"""Numbers of 16 bits are computed with in 32 inside of a kernel."""

from __future__ import annotations

from collections import Counter

import ml_dtypes
import numpy as np
import pytest

from tpusim.compiler.passes import compile_module
from tpusim.compiler.target import Target
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import check, execute
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

TEXT = """HloModule test

ENTRY main {
  x = bf16[8,128] parameter(0)
  y = bf16[8,128] parameter(1)
  s = bf16[8,128] add(x, y)
  p = bf16[8,128] multiply(s, s)
  f = f32[8,128] convert(p)
  ROOT out = (bf16[8,128], f32[8,128]) tuple(p, f)
}
"""


@pytest.mark.parametrize("chip", ["v5e", "v6e"])
def test_nothing_is_rounded_inside_a_kernel(chip):
    """On chips with bf16 in their vector unit too; three conversions: of both arguments and of one result."""
    module = compile_module(parse_module(SourceText("test", TEXT)), Target(load_chip(chip)))
    (kernel,) = (i for i in module.entry.instructions if i.opcode == "fusion")
    body = module[kernel.called_computations[0]]
    opcodes = Counter(i.opcode for i in body.instructions)
    assert opcodes["convert"] == 3
    assert all(i.shape.dtype.name != "bf16" for i in body.instructions if i.opcode in ("add", "multiply"))
    x, y = np.random.default_rng(7).standard_normal((2, 8, 128)).astype(ml_dtypes.bfloat16)
    narrow, wide = execute(module, {"in0": x, "in1": y}, precision="exact", chip=chip)
    expected = (x.astype(np.float32) + y.astype(np.float32)) ** 2
    assert (wide == expected).all()
    assert (narrow == expected.astype(ml_dtypes.bfloat16)).all()


def widened(entry):
    """Return a program of an entry's lines, and what the compiler makes of it."""
    module = parse_module(SourceText("test", f"HloModule test\n{ADD}\nENTRY main {{\n{entry}\n}}\n"))
    return module, compile_module(module, Target(load_chip("v5e")))


ADD = "add { a = bf16[] parameter(0)  b = bf16[] parameter(1)  ROOT c = bf16[] add(a, b) }"


def test_sizes_that_are_known_at_run_time_are_kept():
    """Rows beyond the fifth are no part of the sum."""
    module, made = widened("""
    x = bf16[8,128] parameter(0)
    n = s32[] parameter(1)
    d = bf16[<=8,128] set-dimension-size(x, n), dimensions={0}
    y = bf16[<=8,128] multiply(d, d)
    z = bf16[] constant(0)
    ROOT r = bf16[128] reduce(y, z), dimensions={0}, to_apply=add
    """)
    inputs = {"in0": np.full((8, 128), 3, ml_dtypes.bfloat16), "in1": np.int32(5)}
    for each in (module, made):
        assert (execute(each, inputs, precision="exact", chip="v5e") == 45).all()


@pytest.mark.parametrize("dtype", ["s16", "bf16"])
def test_random_bits_are_as_many_as_those_of_what_they_round(dtype):
    """They round bf16, not f32."""
    module, made = widened(f"""
    x = bf16[8,128] parameter(0)
    n = u16[8,128] parameter(1)
    y = bf16[8,128] add(x, x)
    ROOT r = {dtype}[8,128] stochastic-convert(y, n)
    """)
    draw = np.random.default_rng(7)
    x = draw.standard_normal((8, 128)).astype(ml_dtypes.bfloat16)
    inputs = {"in0": x, "in1": draw.integers(0, 2**16, (8, 128)).astype(np.uint16)}
    whole, kernels = (execute(each, inputs, precision="exact", chip="v5e") for each in (module, made))
    assert (whole == kernels).all()
    assert check(made) == []
