"""Keys that are computed, with heads behind positions: what a product does with them itself, and what is done before.

Source: 40 products of such keys compiled ahead of time for v5e (libtpu 0.0.52).
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.programs import compiled
from tpusim.pipeline.stages import execute
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

WHOLE = "bf16[2,256,8,128]"
HALF = "bf16[2,256,8,64]"
MADE = {
    "computed": f"k = {WHOLE} maximum(x, x)",
    "cut out": f"k = {WHOLE} slice(x), slice={{[0:2],[256:512],[0:8],[0:128]}}",
    "turned round": f"k = {WHOLE} reverse(x), dimensions={{1}}",
}
JOINED = {
    "positions": f"k = {WHOLE} concatenate(x, x), dimensions={{1}}",
    "halves": f"""a = {HALF} slice(x), slice={{[0:2],[0:256],[0:8],[0:64]}}
  b = {HALF} negate(a)
  k = {WHOLE} concatenate(b, a), dimensions={{3}}""",
    "room": f"""z = bf16[] constant(0)
  k = {WHOLE} pad(x, z), padding=0_0x0_128x0_0x0_0""",
}


POSITIONS = {"cut out": 512, "positions": 128, "room": 128}
"""Of the argument, where they are not as many as those of the keys."""


def scores(made, dtype="bf16", positions=256):
    """Return the text of a product of queries with keys that are made of an argument."""
    return f"""HloModule scores

ENTRY main {{
  q = bf16[2,8,4,128] parameter(0)
  x = {dtype}[2,{positions},8,128] parameter(1)
  {made}
  ROOT s = bf16[2,8,4,256] dot(q, k), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,2}}, lhs_contracting_dims={{3}},
    rhs_contracting_dims={{3}}
}}
"""


def of_product(module):
    """Return the opcodes in the kernel of a module's product, and the types of the keys that it reads."""
    (kernel,) = [
        i
        for i in module.entry
        if i.opcode == "dot" or (i.opcode == "fusion" and "dot" in module[i.attributes["calls"]].opcodes)
    ]
    opcodes = module[kernel.attributes["calls"]].opcodes if kernel.opcode == "fusion" else {"dot"}
    shapes = [module.entry[name].shape for name in kernel.operands]
    return opcodes, {shape.dtype.name for shape in shapes if 8 in shape.dimensions[2:3]}


@pytest.mark.parametrize("case", MADE)
def test_a_product_lays_out_anew_what_a_kernel_makes_for_it(case):
    """The lanes stay as they are, so that it moves whole rows on the way."""
    module = compiled(scores(MADE[case], positions=POSITIONS.get(case, 256)))
    assert "copy" not in [i.opcode for i in module.entry]
    opcodes, _ = of_product(module)
    assert opcodes >= {"copy", "dot"}


@pytest.mark.parametrize("dtype", ["s4", "u4", "s8", "u8", "pred", "f8e4m3fn", "f8e5m2", "s16", "f16", "s32", "f32"])
def test_a_product_converts_bytes_itself_as_they_lie(dtype):
    """What is wider is converted by a kernel before it."""
    opcodes, read = of_product(compiled(scores(f"k = {WHOLE} convert(x)", dtype)))
    is_narrow = dtype not in {"s16", "f16", "s32", "f32"}
    assert ("convert" in opcodes, read) == (is_narrow, {dtype if is_narrow else "bf16"})
    assert "copy" in opcodes


def test_bytes_with_other_lanes_are_laid_out_anew_by_a_kernel():
    """A product moves no elements from lane to lane."""
    text = scores(f"k = {WHOLE} convert(x)", "s8").replace("rhs_contracting_dims={3}", "rhs_contracting_dims={1}")
    text = text.replace("q = bf16[2,8,4,128]", "q = bf16[8,128,4,256]").replace("[2,8,4,256] dot", "[8,128,4,2] dot")
    text = text.replace("lhs_batch_dims={0,1}, rhs_batch_dims={0,2}", "lhs_batch_dims={0,1}, rhs_batch_dims={2,3}")
    opcodes, _ = of_product(compiled(text))
    assert "copy" not in opcodes


@pytest.mark.parametrize("case", JOINED)
def test_what_a_product_puts_together_lies_as_it_wants_it_from_the_start(case):
    """What is computed of an argument is computed of a copy of it."""
    module = compiled(scores(JOINED[case], positions=POSITIONS.get(case, 256)))
    opcodes, _ = of_product(module)
    assert ("pad" if case == "room" else "concatenate") in opcodes
    (copy,) = [i for i in module.entry if i.opcode == "copy"]
    assert [module.entry[name].opcode for name in copy.operands] == ["parameter"]


@pytest.mark.parametrize("case", [*MADE, *JOINED, "of bytes"])
def test_scores_are_those_of_the_program(case):
    """Bit for bit: nothing but places changes."""
    made, dtype = {**MADE, **JOINED}.get(case, f"k = {WHOLE} convert(x)"), "s8" if case == "of bytes" else "bf16"
    text = scores(made, dtype, POSITIONS.get(case, 256))
    given = parse_module(SourceText("test", text))
    generator = np.random.default_rng(0)
    types = ["f4", "i1" if case == "of bytes" else "f4"]
    sizes = [parameter.shape.dimensions for parameter in given.entry.parameters]
    inputs = [generator.integers(-4, 5, size).astype(kind) for size, kind in zip(sizes, types, strict=True)]
    one, other = (execute(module, inputs, chip="v5e") for module in (given, compiled(text)))
    np.testing.assert_array_equal(one, other)
