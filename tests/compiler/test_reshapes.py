"""Work between a split and what joins it again moves to the shape before (XLA, ReshapeMover, by idea)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tpusim
from tests.compiler.programs import compiled
from tpusim.pipeline.stages import execute
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

FOLDER = Path(__file__).parents[1] / "data" / "hlo" / "reshapes"
"""A group norm of JAX 0.10.2, and what libtpu 0.0.52 makes of it."""

REGIONS = """
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
most { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
"""
HEAD = """
  x = f32[6,10,24] parameter(0)
  zero = f32[] constant(0)
  seven = f32[] constant(7)
  low = f32[] constant(-inf)
  s = f32[6,10,4,6] reshape(x)
"""
GROUPS = """
  sums = f32[6,4] reduce(s, zero), dimensions={1,3}, to_apply=sum
  spread = f32[6,10,4,6] broadcast(sums), dimensions={0,2}
  away = f32[6,10,4,6] subtract(s, spread)
  squares = f32[6,10,4,6] multiply(away, away)
  tops = f32[6,4] reduce(squares, low), dimensions={1,3}, to_apply=most
  wide = f32[6,10,4,6] broadcast(tops), dimensions={0,2}
  part = f32[6,10,4,6] divide(away, wide)
  y = f32[6,10,24] reshape(part)
"""
CASES = {
    "norm": (GROUPS + "  ROOT r = f32[6,10,24] negate(y)", 0),
    "start of its own": ("  ROOT r = f32[4] reduce(s, seven), dimensions={0,1,3}, to_apply=sum", 1),
    "whole": (
        "  n = f32[6,10,4,6] negate(s)\n  ROOT r = f32[] reduce(n, seven), dimensions={0,1,2,3}, to_apply=sum",
        0,
    ),
    "returned": (GROUPS + "  ROOT r = (f32[6,10,24], f32[6,10,4,6]) tuple(y, away)", 2),
    "rows of groups": ("  ROOT r = f32[6,10,4] reduce(s, zero), dimensions={3}, to_apply=sum", 1),
    "turned": ("  t = f32[4,6,6,10] transpose(s), dimensions={2,3,0,1}\n  ROOT r = f32[4,6,6,10] negate(t)", 1),
}


def program(tail):
    """Return the text of a program that splits rows into groups."""
    return f"HloModule m\n{REGIONS}\nENTRY e {{{HEAD}{tail}\n}}\n"


def reshaped(module):
    """Return how many large arrays are split or joined."""
    return sum(i.opcode == "reshape" and i.shape.element_count == 6 * 10 * 24 for i in module.entry)


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_split_where_all_is_joined_again_or_summed_up(case):
    """And where something needs the groups themselves, or two sums would start twice, all stays as it is."""
    tail, count = CASES[case]
    assert reshaped(compiled(program(tail), stop_after="reshapes")) == count


@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_the_program(case):
    """Sums are taken in another order."""
    module = parse_module(SourceText("m.v5e.hlo.txt", program(CASES[case][0])))
    x = np.random.default_rng(0).standard_normal((6, 10, 24)).astype(np.float32)
    given, moved = (
        execute(module, [x], precision="exact", schedule=schedule, chip="v5e") for schedule in ("given", "compiled")
    )
    for one, other in zip(given, moved, strict=True) if isinstance(given, tuple) else [(given, moved)]:
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_a_group_norm_takes_what_it_takes_as_the_tpu_compiler_leaves_it():
    """Both simulated; there what is read three times is kept in fast memory."""
    ours = tpusim.simulate(FOLDER / "groupnorm.hlo.txt", "v5e")
    theirs = tpusim.simulate(FOLDER / "groupnorm.v5e.hlo.txt.gz")
    assert ours.timeline.total_ps == pytest.approx(theirs.timeline.total_ps, rel=0.3)
    assert ours.summary.memory.peak_hbm_bytes == pytest.approx(theirs.summary.memory.peak_hbm_bytes, rel=0.01)


def test_the_pixels_of_a_single_image_are_summed_up_at_once():
    """A dimension of one element that stays is no part of the next."""
    text = f"""HloModule m
    {REGIONS}
    ENTRY e {{
      x = f32[1,6,10,24] parameter(0)
      zero = f32[] constant(0)
      s = f32[1,6,10,4,6] reshape(x)
      ROOT r = f32[1,4] reduce(s, zero), dimensions={{1,2,4}}, to_apply=sum
    }}
    """
    sums = [i.shape.dimensions for i in compiled(text, stop_after="reshapes").entry if i.opcode == "reduce"]
    assert sums == [(1, 24), (1, 4)]


def split(rows, groups, columns, between, dtype="bf16"):
    """Return a program that splits rows into groups, and sums up what it makes of each."""
    shape = f"[{rows},{groups},{columns}]"
    first = f"  x = {dtype}[{rows},{groups * columns}] parameter(0)\n  zero = f32[] constant(0)\n"
    lines = f"  s = {dtype}{shape} reshape(x)\n  c = f32{shape} convert(s)\n  a = f32{shape} abs(c)\n"
    made = "a" if between == "abs" else "c"
    end = f"  ROOT r = f32[{rows},{groups}] reduce({made}, zero), dimensions={{2}}, to_apply=sum"
    return f"HloModule m\n{REGIONS}\nENTRY e {{\n{first}{lines}{end}\n}}\n"


@pytest.mark.parametrize(
    ("sizes", "between", "moved"),
    [
        ((8192, 32, 128), "abs", "f32"),
        ((8192, 32, 128), "convert", "f32"),
        ((2048, 32, 256), "abs", "f32"),
        ((2048, 32, 256), "convert", "bf16"),
        ((4096, 8, 512), "convert", "bf16"),
        ((4096, 32, 64), "abs", "bf16"),
        ((4096, 12, 128), "abs", "bf16"),
        ((4096, 16, 192), "abs", "bf16"),
    ],
)
def test_registers_go_to_other_places_in_the_type_and_kernel_of_the_tpu_compiler(sizes, between, moved):
    """What moves is what the TPU compiler's copy takes in (libtpu 0.0.52, v5e), and joins no other kernel."""
    module = compiled(split(*sizes, between))
    assert [i.shape.dtype.name for i in module.entry if i.opcode == "reshape"] == [moved]


@pytest.mark.parametrize("between", ["abs", "convert"])
def test_what_is_made_before_a_reshape_is_the_same(between):
    """Bit for bit."""
    plain = parse_module(SourceText("m", split(16, 8, 128, between, "f32")))
    inputs = [np.random.default_rng(1).standard_normal((16, 1024), "f4")]
    one, other = (execute(module, inputs) for module in (plain, compiled(split(16, 8, 128, between, "f32"))))
    np.testing.assert_array_equal(one, other)


def test_what_a_product_makes_is_split_before_anything_is_made_of_it():
    """The product can write what the reshape is to give."""
    text = split(8192, 32, 128, "abs").replace(
        "x = bf16[8192,4096] parameter(0)",
        "p = bf16[8192,256] parameter(0)  w = bf16[256,4096] parameter(1)\n"
        "  x = bf16[8192,4096] dot(p, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    )
    assert [i.shape.dtype.name for i in compiled(text).entry if i.opcode == "reshape"] == ["bf16"]


PRODUCTS = {
    "of a layer": ("s = f32[1,12,24] parameter(1)  w = f32[12,24] reshape(s)", "f32[6,5,2,3,4]"),
    "of rows": ("w = f32[12,24] parameter(1)", "f32[2,3,5,24]"),
    "of nothing reshaped": ("w = f32[12,24] parameter(1)", "f32[6,5,2,3,4]"),
    "with one element more": ("s = f32[1,12,24] parameter(1)  w = f32[12,24] reshape(s)", "f32[6,5,1,24]"),
    "joined": ("s = f32[1,12,24] parameter(1)  w = f32[12,24] reshape(s)", "f32[30,6,4]"),
}


def product(case):
    """Return the text of a program that splits or joins a product, and the shape of that."""
    weights, shape = PRODUCTS[case]
    rows = "r = f32[30,12] parameter(0)  x = f32[6,5,12] reshape(r)"
    rows = rows if case == "of rows" else "x = f32[6,5,12] parameter(0)"
    text = f"""  {rows}  {weights}
  y = f32[6,5,24] dot(x, w), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}
  z = {shape} reshape(y)  ROOT n = {shape} negate(z)"""
    return f"HloModule m\nENTRY e {{{text}\n}}\n", shape


@pytest.mark.parametrize("case", PRODUCTS)
def test_a_product_makes_what_it_is_split_into_if_it_takes_something_reshaped(case):
    """As of a layer's weights, which are cut out of all layers', and of rows that are split themselves."""
    text, shape = product(case)
    (dot,) = [i for i in compiled(text, stop_after="reshapes").entry if i.opcode == "dot"]
    is_split = dot.shape.dimensions == tuple(map(int, shape[4:-1].split(",")))
    assert is_split == (case in {"of a layer", "of rows"})


@pytest.mark.parametrize("case", PRODUCTS)
def test_a_split_product_has_its_values(case):
    """Each of them is the same sum."""
    text, _ = product(case)
    given = parse_module(SourceText("text", text))
    generator = np.random.default_rng(0)
    values = [generator.standard_normal(p.shape.dimensions).astype(np.float32) for p in given.entry.parameters]
    given, made = (execute(module, values, precision="exact", chip="v5e") for module in (given, compiled(text)))
    np.testing.assert_allclose(given, made, rtol=1e-5, atol=1e-5)


def test_a_product_that_sums_nothing_up_may_be_split():
    """A text need not say that it does not."""
    text = """HloModule m
ENTRY e {
  x = f32[16,8] parameter(0)
  y = f32[8,16] parameter(1)
  a = f32[128] reshape(x)
  d = f32[128,8,16] dot(a, y)
  ROOT r = f32[16,8,8,16] reshape(d)
}
"""
    given = parse_module(SourceText("text", text))
    values = [np.random.default_rng(0).standard_normal(p.shape.dimensions, "f4") for p in given.entry.parameters]
    one, other = (execute(module, values, precision="exact") for module in (given, compiled(text)))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shape", ["f32[0]", "f32[0,0,4]", "f32[3,0,4,8]", "f32[0,4,8]"])
def test_an_empty_product_is_split_into_anything(shape):
    """There is nothing to put in order."""
    text = f"""HloModule m

ENTRY e {{
  x = f32[0,24] parameter(0)
  w = f32[6,4,32] parameter(1)
  v = f32[24,32] reshape(w)
  d = f32[0,32] dot(x, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT s = {shape} reshape(d)
}}
"""
    assert str(compiled(text).entry.root.shape).startswith(shape)
