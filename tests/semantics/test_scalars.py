"""Scalars against the values room and against XLA, over random programs."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.numerics.oracle import run_ours, run_xla
from tpusim.semantics.scalars import Scalars
from tpusim.shapes.dtype import DTYPES, numpy_dtype
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

INTEGERS = ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"]
FLOATS = ["bf16", "f16", "f32", "f64"]
ARITHMETIC = "add subtract multiply divide remainder maximum minimum".split()
ON_INTEGERS = [*ARITHMETIC, *"and or xor shift-left shift-right-arithmetic shift-right-logical".split()]
ON_TRUTH = "and or xor add multiply maximum minimum".split()
UNARY = {"i": ["abs", "negate", "not"], "f": ["negate", "abs", "floor", "ceil", "round-nearest-even"]}
UNARY["b"] = ["not", "copy"]


def kind_of(name):
    """Return i, f or b."""
    return "b" if name == "pred" else "f" if name in FLOATS else "i"


def operation(draw, values, number):
    """Return the name, type and text of one more instruction on some of the values that are there."""
    name, dtype = draw(st.sampled_from(values))
    alike = [other for other, its in values if its == dtype]
    other = draw(st.sampled_from(alike))
    form = draw(st.sampled_from(["binary", "binary", "unary", "convert", "convert", "compare", "select", "bits"]))
    result = dtype
    if form == "binary":
        opcodes = {"i": ON_INTEGERS, "f": ARITHMETIC, "b": ON_TRUTH}[kind_of(dtype)]
        text = f"{draw(st.sampled_from(opcodes))}({name}, {other})"
    elif form == "unary":
        # XLA's text form takes any, StableHLO no unsigned ones.
        opcodes = [opcode for opcode in UNARY[kind_of(dtype)] if opcode != "abs" or dtype[0] != "u"]
        text = f"{draw(st.sampled_from(opcodes))}({name})"
    elif form == "compare":
        direction, result = draw(st.sampled_from("EQ NE LT LE GT GE".split())), "pred"
        total = ", type=TOTALORDER" if kind_of(dtype) == "f" and draw(st.booleans()) else ""
        text = f"compare({name}, {other}), direction={direction}{total}"
    elif form == "select":
        truths = [value for value, its in values if its == "pred"]
        text = f"select({draw(st.sampled_from(truths))}, {name}, {other})"
    elif form == "bits" and kind_of(dtype) == "i":
        wide = [t for t in INTEGERS if DTYPES[t].bits == DTYPES[dtype].bits]
        result = draw(st.sampled_from(wide))
        text = f"bitcast-convert({name})"
    else:
        result = draw(st.sampled_from([*INTEGERS, *FLOATS, "pred"]))
        text = f"convert({name})"
    return f"v{number}", result, text


@st.composite
def programs(draw):
    """Return the text of a program of scalars whose values are all returned, and its inputs."""
    types = [*draw(st.lists(st.sampled_from([*INTEGERS, *FLOATS]), min_size=1, max_size=3)), "pred"]
    values, inputs, lines = [], [], []
    for number, dtype in enumerate(types):
        values.append((f"p{number}", dtype))
        lines.append(f"  p{number} = {dtype}[] parameter({number})")
        array = numpy_dtype(DTYPES[dtype])
        if kind_of(dtype) == "i":
            limits = np.iinfo(array)
            edges = st.sampled_from([0, 1, 2, limits.min, limits.max, limits.max - 1])
            inputs.append(np.array(draw(st.one_of(edges, st.integers(limits.min, limits.max))), array))
        elif kind_of(dtype) == "f":
            number = draw(st.one_of(st.sampled_from([0.0, -0.0, 0.5, 2.5, -7.9, 200.0]), st.floats(width=16)))
            inputs.append(np.array(number, array))
        else:
            inputs.append(np.array(draw(st.booleans())))
    for number in range(draw(st.integers(1, 8))):
        name, dtype, text = operation(draw, values, number)
        values.append((name, dtype))
        lines.append(f"  {name} = {dtype}[] {text}")
    names, shapes = (", ".join(part) for part in ([n for n, _ in values], [f"{t}[]" for _, t in values]))
    lines.append(f"  ROOT r = ({shapes}) tuple({names})")
    return "\n".join(["HloModule m", "ENTRY e {", *lines, "}"]), inputs


def computed(text, inputs):
    """Return all scalars of a program, in the order of its root."""
    module = parse_module(SourceText("m.hlo", text))
    state = {number: value.item() for number, value in enumerate(inputs)}
    scalars = Scalars(module, module.entry, state)
    return [scalars.value(name) for name in module.entry.root.operands]


def assert_same(found, expected):
    """Assert that numbers are those of arrays, the sign of zeros and NaN for NaN included."""
    for one, two in zip(found, expected, strict=True):
        other = two.item()
        assert type(one) is type(other)
        assert one == other or (one != one and other != other), (one, other)
        assert one != 0 or isinstance(one, int) or math.copysign(1, one) == math.copysign(1, other)


@pytest.mark.slow
@given(programs())
@settings(max_examples=150, deadline=None)
def test_scalars_are_those_of_the_values_room(program):
    """Every integer, float and truth type through random instructions: the same number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same(computed(*program), run_ours(*program))


@pytest.mark.slow
@given(programs())
@settings(max_examples=40, deadline=None)
def test_scalars_are_xlas(program):
    """And XLA's own, on the CPU."""
    assert_same(computed(*program), run_xla(*program))


def test_what_is_not_known_is_not_asked_for():
    """A select takes the value that it chooses; the other one may be unknown."""
    text = "HloModule m\nENTRY e {\n  p = s32[] parameter(0)\n  c = pred[] constant(true)\n  k = s32[] constant(3)\n"
    module = parse_module(SourceText("m.hlo", text + "  ROOT s = s32[] select(c, k, p)\n}"))
    assert Scalars(module, module.entry, {}).get("s") == 3
    assert Scalars(module, module.entry, {}).get("p") is None


CASES = {
    "s8[] convert(f32[] 200)": 127,
    "s8[] convert(f32[] 7.9)": 7,
    "s8[] convert(f32[] -7.9)": -7,
    "u8[] convert(f32[] -1)": 0,
    "s32[] convert(f32[] nan)": 0,
    "s32[] convert(f64[] inf)": 2**31 - 1,
    "s64[] convert(f64[] 1e19)": 2**63 - 1,
    "s8[] convert(s32[] 200)": -56,
    "u16[] convert(s32[] -1)": 2**16 - 1,
    "pred[] convert(f32[] nan)": True,
    "bf16[] convert(f32[] 257)": 256.0,
    "bf16[] convert(f32[] 259)": 260.0,
    "f16[] convert(f32[] 65520)": math.inf,
    "f32[] convert(f64[] 1e300)": math.inf,
    "s8[] add(s8[] 127, s8[] 1)": -128,
    "u8[] subtract(u8[] 0, u8[] 1)": 255,
    "s8[] negate(s8[] -128)": -128,
    "s8[] divide(s8[] -128, s8[] -1)": -128,
    "s8[] divide(s8[] -7, s8[] 2)": -3,
    "s32[] divide(s32[] 7, s32[] 0)": -1,
    "u32[] divide(u32[] 7, u32[] 0)": 2**32 - 1,
    "s32[] remainder(s32[] -7, s32[] 3)": -1,
    "s32[] remainder(s32[] 7, s32[] 0)": 7,
    "f32[] divide(f32[] -1, f32[] 0)": -math.inf,
    "s8[] shift-left(s8[] 1, s8[] 7)": -128,
    "s8[] shift-left(s8[] 1, s8[] 8)": 0,
    "s8[] shift-right-arithmetic(s8[] -2, s8[] 100)": -1,
    "s8[] shift-right-arithmetic(s8[] -128, s8[] 1)": -64,
    "s8[] shift-right-logical(s8[] -1, s8[] 1)": 127,
    "s8[] shift-right-logical(s8[] -1, s8[] -1)": 0,
    "u8[] shift-right-arithmetic(u8[] 128, u8[] 1)": 192,
    "s32[] clamp(s32[] 5, s32[] 1, s32[] 3)": 3,
    "f32[] add(f32[] 16777216, f32[] 1)": 16777216.0,
    "f32[] round-nearest-even(f32[] 2.5)": 2.0,
    "pred[] add(pred[] true, pred[] true)": True,
    "pred[] not(pred[] true)": False,
    "f32[] maximum(f32[] nan, f32[] 1)": math.nan,
    "f32[] maximum(f32[] -0, f32[] 0)": 0.0,
    "f32[] minimum(f32[] 0, f32[] -0)": -0.0,
    "f32[] ceil(f32[] -0.5)": -0.0,
    "f32[] floor(f32[] -inf)": -math.inf,
    "f32[] remainder(f32[] -7.5, f32[] 2)": -1.5,
    "f32[] remainder(f32[] 7, f32[] 0)": math.nan,
    "f32[] remainder(f32[] inf, f32[] 2)": math.nan,
    "f32[] remainder(f32[] 7, f32[] inf)": 7.0,
    "pred[] is-finite(f32[] inf)": False,
    "u8[] bitcast-convert(s8[] -1)": 255,
    "bf16[] convert(f32[] 3.4e38)": math.inf,
    "s32[] copy(s32[] -0)": 0,
    "s4[] convert(s32[] 8)": -8,
}
"""One instruction on constants, and what comes out."""


@pytest.mark.parametrize("case", CASES)
def test_one_instruction(case):
    """Wrapping, saturating, rounding, and division by zero, by the operation semantics."""
    result, opcode, operands = case.rstrip(")").replace("(", " ", 1).split(" ", 2)
    constants = (operand.split() for operand in operands.split(", "))
    lines = [f"  c{n} = {dtype} constant({value})" for n, (dtype, value) in enumerate(constants)]
    names = ", ".join(f"c{number}" for number in range(len(lines)))
    lines += [f"  v = {result} {opcode}({names})", f"  ROOT t = ({result}) tuple(v)"]
    (found,) = computed("\n".join(["HloModule m", "ENTRY e {", *lines, "}"]), [])
    # Unlike ``==`` this tells -0 from 0, True from 1, and knows NaN again.
    assert repr(found) == repr(CASES[case])


@pytest.mark.parametrize(
    ("value", "type_name", "expected"), [(2**24 + 1, "f32", 2.0**24), (2**54 + 2**30 + 1, "f32", 2.0**54 + 2.0**31)]
)
def test_large_integers_round_once(value, type_name, expected):
    """From s64 to f32 directly: by way of f64 a number just above a tie would become the tie."""
    text = f"HloModule m\nENTRY e {{\n  c = s64[] constant({value})\n  ROOT v = {type_name}[] convert(c)\n}}"
    module = parse_module(SourceText("m.hlo", text))
    assert Scalars(module, module.entry, {}).value("v") == expected == np.int64(value).astype(np.float32)


SOURCES = """HloModule m

inner { a = s32[] parameter(0)  b = s32[] parameter(1)  ROOT s = s32[] subtract(a, b) }

ENTRY e {
  p = (s32[], f32[8]) parameter(0)
  first = s32[] get-tuple-element(p), index=0
  array = f32[8] get-tuple-element(p), index=1
  id = u32[] partition-id()
  own = s32[] convert(id)
  table = s32[4] constant({10, 20, 30, 40})
  cut = s32[1] dynamic-slice(table, own), dynamic_slice_sizes={1}
  looked_up = s32[] reshape(cut)
  cut_there = s32[1] slice(table), slice={[2:3]}
  stated = s32[] reshape(cut_there)
  cut_whole = s32[1] slice(cut), slice={[0:1]}
  columns = s32[2,2] constant({{1, 2}, {3, 4}})
  cut_across = s32[1,1] slice(columns), slice={[1:2], [0:1]}
  wide = s64[2] constant({5, 6})
  halves = s32[4] bitcast(wide)
  of_half = s32[1] slice(halves), slice={[2:3]}
  ones = f32[2] constant({1, 2})
  bits_of_ones = s32[2] bitcast(ones)
  of_bits = s32[1] slice(bits_of_ones), slice={[0:1]}
  zeros = f32[2] constant({-0, 1})
  of_zeros = f32[1] slice(zeros), slice={[0:1]}
  same = s32[4] bitcast(table)
  of_same = s32[1] slice(same), slice={[1:2]}
  called = s32[] call(first, own), to_apply=inner
  fused = s32[] fusion(called, first), kind=kLoop, calls=inner
  made = (s32[], s32[]) tuple(called, fused)
  copied = (s32[], s32[]) copy(made)
  element = s32[] get-tuple-element(copied), index=1
  small = f8e4m3fn[] constant(1)
  left_out = s32[] constant({...})
  zero = f32[] constant(0)
  less = f32[] constant(-0)
  equal = pred[] compare(less, zero), direction=LT
  ordered = pred[] compare(less, zero), direction=LT, type=TOTALORDER
  root = f32[] sqrt(zero)
  bits = s32[] bitcast-convert(zero)
  ROOT r = s32[] copy(element)
}"""


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("first", 7),
        ("array", None),
        ("looked_up", 40),
        ("stated", 30),
        ("cut_whole", 40),
        ("cut_across", None),
        ("of_half", None),
        ("of_bits", None),
        ("of_zeros", None),
        ("of_same", 20),
        ("called", 7 - 5),
        ("fused", 2 - 7),
        ("element", -5),
        ("small", None),
        ("left_out", None),
        ("equal", False),
        ("ordered", True),
        ("root", None),
        ("bits", None),
        ("r", -5),
    ],
)
def test_a_scalar_comes_from_where_its_operands_do(name, number):
    """On partition 5 with a 7 in the tuple: through tuples, tables, calls and fusions; None for what is not known."""
    module = parse_module(SourceText("m.hlo", SOURCES))
    assert Scalars(module, module.entry, {0: 7, "partition-id": 5}).get(name) == number


def test_a_chain_too_long_is_not_known():
    """A thousand sums one after the other end in an answer and no recursion error."""
    lines = [f"  v{n + 1} = s32[] add(v{n}, v{n})" for n in range(1000)]
    text = "\n".join(
        ["HloModule m", "ENTRY e {", "  v0 = s32[] constant(1)", *lines, "  ROOT r = s32[] copy(v1000)", "}"]
    )
    module = parse_module(SourceText("m.hlo", text))
    scalars = Scalars(module, module.entry, {})
    assert (scalars.get("r"), scalars.get("v20")) == (None, 2**20)


def chain(length, calls=0):
    """Return the scalars of so many sums one after the other, inside so many calls."""
    lines = [f"v{n + 1} = s32[] add(v{n}, v0)" for n in range(length)]
    inner = "c0 { v0 = s32[] parameter(0) " + " ".join(lines) + f" ROOT r = s32[] copy(v{length}) }}"
    outer = [f"c{n + 1} {{ p = s32[] parameter(0) ROOT r = s32[] call(p), to_apply=c{n} }}" for n in range(calls)]
    entry = f"ENTRY e {{ one = s32[] constant(1) ROOT r = s32[] call(one), to_apply=c{calls} }}"
    module = parse_module(SourceText("m.hlo", "\n".join(["HloModule m", inner, *outer, entry])))
    return Scalars(module, module.entry, {})


def test_calls_count_as_deep_as_what_they_compute():
    """Of a chain that is just not too long a call more around it is."""
    longest = next(length for length in range(250, 0, -1) if chain(length).get("r") is not None)
    assert longest > 150
    assert chain(longest, 1).get("r") is None
    assert chain(longest - 10, 10).get("r") == longest - 10 + 1
    assert chain(longest - 10, 11).get("r") is None


@pytest.mark.parametrize(("deep", "known"), [(200, True), (201, False)])
def test_two_hundred_values_deep_is_known(deep, known):
    """From a value down to a constant, both counted."""
    lines = [f"v{n + 1} = s32[] add(v{n}, v{n})" for n in range(1, deep)]
    text = f"HloModule m\nENTRY e {{ v1 = s32[] constant(0) {' '.join(lines)} ROOT r = s32[] copy(v{deep}) }}"
    module = parse_module(SourceText("m.hlo", text))
    assert Scalars(module, module.entry, {}).get(f"v{deep}") == (0 if known else None)
