"""Two products in one kernel: which pairs there are, against programs compiled ahead of time, and what they take."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import tpusim
from tpusim.compiler.passes import compile_module
from tpusim.compiler.target import Target
from tpusim.hardware.load import load_chip
from tpusim.hardware.units import HBM
from tpusim.ir.ops import PLAIN_PRODUCTS
from tpusim.pipeline.stages import execute
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

ALONG = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def compiled(text, chip="v5e"):
    """Return what our compiler makes of a text for a chip."""
    return compile_module(parse_module(SourceText("test", text)), Target(load_chip(chip)))


def kernels(module):
    """Return the shapes that the products of each kernel make, kernel by kernel."""
    found = []
    for instruction in module.entry:
        inner = module[instruction.attributes["calls"]] if instruction.opcode == "fusion" else [instruction]
        made = [str(i.shape.dimensions[1]) for i in inner if i.opcode in PLAIN_PRODUCTS]
        found += [" ".join(made)] if made else []
    return found


def chain(rows, widths, dtype="bf16", between="maximum", precision=""):
    """Return a program of layers without biases: products by matrices of these widths, with a maximum between."""
    lines = [f"  x0 = {dtype}[{rows},{widths[0]}] parameter(0)", f"  k = {dtype}[] constant(0)"]
    for n, (width, new) in enumerate(pairwise(widths), start=1):
        shape = f"{dtype}[{rows},{new}]"
        lines += [
            f"  w{n} = {dtype}[{width},{new}] parameter({n})",
            f"  d{n} = {shape} dot(x{n - 1}, w{n}), {ALONG}{precision}",
            f"  z{n} = {shape} broadcast(k), dimensions={{}}",
            f"  x{n} = {shape} {between}(d{n}, z{n})",
        ]
    return "HloModule m\nENTRY e {\n" + "\n".join(lines) + f"\n  ROOT r = {shape} negate(d{n})\n}}\n"


@pytest.mark.parametrize(
    ("widths", "expected"),
    [
        ((128, 128, 128, 128), ["128 128", "128"]),
        ((128, 128, 128, 128, 128), ["128 128", "128 128"]),
        ((64, 128, 128, 128), ["128", "128 128"]),
        ((3, 128, 128), ["128 128"]),
        ((3, 128, 128, 128, 4), ["128", "128 128", "4"]),
        ((512, 64, 128, 64), ["64 128", "64"]),
        ((128, 64, 128, 64), ["64", "128 64"]),
        ((64, 64, 128, 128, 128), ["64 128", "128 128"]),
        ((128, 128, 256, 256), ["128", "256 256"]),
        ((256, 128, 64, 128), ["128 64", "128"]),
    ],
)
def test_of_a_chain_those_pair_first_that_compute_most(widths, expected):
    """Kernels of the TPU compiler (libtpu 0.0.52, v5e) for 262,144 rows."""
    assert kernels(compiled(chain(262_144, widths))) == expected


@pytest.mark.parametrize(
    ("sizes", "is_one"),
    [
        ((65_536, 256, 256, 256), True),
        ((65_536, 512, 512, 512), True),
        ((65_536, 1024, 256, 1024), True),
        ((65_536, 256, 1024, 256), True),
        ((65_536, 1024, 1024, 1024), False),
        ((65_536, 2048, 512, 2048), False),
        ((1024, 1024, 1024, 1024), False),
        ((1024, 512, 512, 512), True),
        ((4096, 2048, 256, 512), True),
        ((4096, 512, 2048, 1024), False),
    ],
)
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_a_pair_is_one_kernel_as_long_as_both_its_matrices_are_small(sizes, is_one, dtype):
    """As of the TPU compiler (libtpu 0.0.52, v5e)."""
    rows, *widths = sizes
    assert (len(kernels(compiled(chain(rows, widths, dtype)))) == 1) == is_one


def between(lines, result="bf16[65536,256]", second="dot(h, v)", contracted=ALONG):
    """Return two products with some lines between ``d`` and ``h``, all of 65,536 rows and 256 columns."""
    return f"""HloModule m
add {{ a = bf16[] parameter(0)  b = bf16[] parameter(1)  ROOT s = bf16[] add(a, b) }}
ENTRY e {{
  x = bf16[65536,256] parameter(0)
  w = bf16[256,256] parameter(1)
  v = bf16[256,256] parameter(2)
  y = bf16[65536,256] parameter(3)
  u = bf16[256,256] parameter(4)
  k = bf16[] constant(0)
  d = bf16[65536,256] dot(x, w), {ALONG}
  {lines}
  ROOT r = {result} {second}, {contracted}
}}
"""


OVER_ROWS = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param(between("h = bf16[65536,256] add(d, y)"), 1, id="a residual"),
        pytest.param(between("t = bf16[65536,256] tanh(d)  h = bf16[65536,256] multiply(d, t)"), 1, id="of two ways"),
        pytest.param(
            between(f"g = bf16[65536,256] dot(x, u), {ALONG}  h = bf16[65536,256] multiply(d, g)"), 2, id="one of two"
        ),
        pytest.param(
            between("h = bf16[65536,256] multiply(d, y)", "bf16[256,256]", "dot(x, h)", OVER_ROWS),
            1,
            id="the gradient of a matrix",
        ),
        pytest.param(
            between(
                "n = bf16[65536] reduce(d, k), dimensions={1}, to_apply=add  "
                "b = bf16[65536,256] broadcast(n), dimensions={0}  h = bf16[65536,256] subtract(d, b)"
            ),
            2,
            id="not with a sum of rows between",
        ),
        pytest.param(
            between(
                "m = bf16[65536,256] tanh(d)  h = bf16[64,1024,256] reshape(m)",
                "bf16[64,1024,256]",
                contracted="lhs_contracting_dims={2}, rhs_contracting_dims={0}",
            ),
            2,
            id="not with a reshape between",
        ),
        pytest.param(
            between("h = bf16[65536,256] tanh(d)", "bf16[256,256]", "dot(h, h)", OVER_ROWS), 2, id="not on both sides"
        ),
        pytest.param(
            between("h = bf16[65536,256] tanh(d)", second="dot(h, q)").replace(
                "  ROOT r", f"  q = bf16[256,256] dot(h, x), {OVER_ROWS}\n  ROOT r"
            ),
            3,
            id="not what two products take",
        ),
    ],
)
def test_only_element_wise_work_stands_between(text, count):
    """As in the kernels of the TPU compiler (libtpu 0.0.52, v5e) for these programs."""
    assert len(kernels(compiled(text))) == count


def heads(queries="16,256,128", keys="16,512,128", values="16,512,128", of_queries=0, of_keys=0):
    """Return scores of heads, their maximum with zero and the sum of values, arrays with heads in one dimension."""
    batch = f"lhs_batch_dims={{{of_queries}}}, rhs_batch_dims={{{of_keys}}}"
    heads_of_values = 0 if values.startswith("16") else 1
    last = f"lhs_batch_dims={{0}}, rhs_batch_dims={{{heads_of_values}}}"
    summed = f"lhs_contracting_dims={{2}}, rhs_contracting_dims={{{1 - heads_of_values}}}"
    return f"""HloModule m
ENTRY e {{
  q = bf16[{queries}] parameter(0)
  k = bf16[{keys}] parameter(1)
  v = bf16[{values}] parameter(2)
  z = bf16[] constant(0)
  s = bf16[16,256,512] dot(q, k), {batch}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
  b = bf16[16,256,512] broadcast(z), dimensions={{}}
  h = bf16[16,256,512] maximum(s, b)
  ROOT r = bf16[16,256,128] dot(h, v), {last}, {summed}
}}
"""


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param(heads(), 1, id="nothing"),
        pytest.param(heads(values="512,16,128"), 1, id="by the second"),
        pytest.param(heads(queries="256,16,128", of_queries=1), 2, id="by the first, of rows"),
        pytest.param(heads(keys="512,16,128", of_keys=1), 2, id="by the first, of columns"),
    ],
)
def test_a_product_that_moves_what_it_takes_feeds_no_other_in_a_kernel(text, count):
    """Heads are turned to the outside, as in the kernels of the TPU compiler (libtpu 0.0.52, v5e)."""
    assert len(kernels(compiled(text))) == count
    assert len(kernels(compiled(text, "v5p"))) == count


@pytest.mark.parametrize(("side", "cut", "count"), [("q", "", 2), ("q", ":2", 1), ("k", "", 1), ("v", "", 1)])
def test_a_product_that_goes_through_some_heads_of_its_first_operand_feeds_no_other(side, cut, count):
    """Those that follow each other: others are cut out, as in the kernels of the TPU compiler (libtpu 0.0.52, v5e)."""
    sizes = "256,128" if side == "q" else "512,128"
    number = "qkv".index(side)
    part = f"w = bf16[32,{sizes}] parameter({number})\n  {side} = bf16[16,{sizes}] slice(w)"
    part += f", slice={{[0:{32 if cut else 16}{cut}], [0:{sizes[:3]}], [0:128]}}"
    text = heads().replace(f"{side} = bf16[16,{sizes}] parameter({number})", part)
    assert len(kernels(compiled(text))) == count


def test_wide_arrays_are_fed_with_what_is_turned():
    """As on v6e (libtpu 0.0.52)."""
    assert len(kernels(compiled(heads(queries="256,16,128", of_queries=1), "v6e"))) == 1


def test_products_of_several_passes_are_kernels_by_themselves():
    """As of the TPU compiler."""
    made = compiled(chain(65_536, (256, 256, 256), "f32", precision=", operand_precision={highest,highest}"))
    assert kernels(made) == ["256", "256"]


def test_what_is_between_stays_on_the_chip():
    """The kernel moves what comes in and goes out, and its product is not cut where that would make the first again."""
    found = tpusim.lower(compiled(chain(262_144, (256, 256, 256))), "v5e")
    (kernel,) = [step for step in found.every_step if getattr(step, "product_flops", 0)]
    moved = sum(stream.total_bytes for stream in kernel.streams if stream.space == HBM)
    assert moved == pytest.approx(2 * 262_144 * 256 * 2, rel=0.01)
    assert kernel.product_flops == 2 * 2 * 262_144 * 256 * 256
    assert all(loop.over != "columns" for loop in kernel.loops)


def test_a_pair_computes_the_same():
    """Bit for bit."""
    text = chain(64, (32, 16, 8, 24), "f32")
    plain = parse_module(SourceText("m", text))
    inputs = [np.random.default_rng(1).standard_normal(p.shape.dimensions, "f4") for p in plain.entry.parameters]
    one, other = (execute(module, inputs) for module in (plain, compiled(text)))
    np.testing.assert_array_equal(one, other)


def test_what_a_product_leaves_for_another_is_stored_in_the_narrower_type():
    """With the bias and the maximum behind it, as the TPU compiler stores it: bf16 of an f32 product."""
    text = f"""HloModule m
ENTRY e {{
  x = f32[65536,1024] parameter(0)
  w = f32[1024,1024] parameter(1)
  b = f32[1024] parameter(2)
  d = f32[65536,1024] dot(x, w), {ALONG}
  c = f32[65536,1024] broadcast(b), dimensions={{1}}
  s = f32[65536,1024] add(d, c)
  k = f32[] constant(0)
  z = f32[65536,1024] broadcast(k), dimensions={{}}
  m = f32[65536,1024] maximum(s, z)
  ROOT r = f32[65536,1024] dot(m, w), {ALONG}
}}
"""
    first, _ = [i for i in compiled(text).entry if i.opcode == "fusion"]
    assert first.shape.dtype.name == "bf16"
