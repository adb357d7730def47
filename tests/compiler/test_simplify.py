"""Pass 2: what says the same in fewer instructions. Source: XLA, AlgebraicSimplifier, HloCSE, TupleSimplifier."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiler.programs import LESS, SUM, compiled
from tpusim.pipeline.stages import check, execute
from tpusim.shapes.dtype import DTYPES, numpy_dtype
from tpusim.shapes.notation import parse_shape
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

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
    "a part at a known place": (
        "t = s32[2] constant({3, 5})  a = s32[1] slice(t), slice={[0:1]}  i = s32[] reshape(a)  "
        "zero = s32[] constant(0)  "
        "ROOT z = f32[2,8] dynamic-slice(x, i, zero), dynamic_slice_sizes={2,8}",
        "slice",
    ),
    "a part beyond the end": (
        "i = s32[] constant(9)  zero = s32[] constant(-4)  "
        "ROOT z = f32[2,4] dynamic-slice(x, i, zero), dynamic_slice_sizes={2,4}",
        "slice",
    ),
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
    "a part of a part": (
        "y = f32[6,8] slice(x), slice={[2:8], [0:8]}  ROOT z = f32[3,4] slice(y), slice={[1:4], [4:8]}",
        "slice",
    ),
    # XLA leaves these as they are.
    "every other one of every other": (
        "y = f32[4,8] slice(x), slice={[0:8:2], [0:8]}  ROOT z = f32[2,8] slice(y), slice={[0:4:2], [0:8]}",
        "slice slice",
    ),
    "some of every other": (
        "y = f32[4,8] slice(x), slice={[0:8:2], [0:8]}  ROOT z = f32[2,8] slice(y), slice={[1:3], [0:8]}",
        "slice slice",
    ),
    "a part of many of the same": (
        "y = f32[4,8,8] broadcast(x), dimensions={1,2}  ROOT z = f32[2,8,8] slice(y), slice={[1:4:2], [0:8], [0:8]}",
        "broadcast",
    ),
    "a part of what is spread": (
        "y = f32[4,8,8] broadcast(x), dimensions={1,2}  ROOT z = f32[4,2,8] slice(y), slice={[0:4], [1:6:3], [0:8]}",
        "slice broadcast",
    ),
    "a part of one number": (
        "one = f32[] constant(1)  y = f32[8,8] broadcast(one), dimensions={}  "
        "ROOT z = f32[2,8] slice(y), slice={[1:3], [0:8]}",
        "broadcast",
    ),
    "padded and cut": (
        "n = f32[] constant(2)  y = f32[11,8] pad(x, n), padding=1_2x0_0  "
        "ROOT z = f32[8,8] slice(y), slice={[1:9], [0:8]}",
        "",
    ),
    "padded between and cut": (
        "n = f32[] constant(2)  y = f32[25,8] pad(x, n), padding=1_2_2x0_0  "
        "ROOT z = f32[8,8] slice(y), slice={[1:23:3], [0:8]}",
        "",
    ),
    "inside of what is padded": (
        "n = f32[] constant(2)  y = f32[11,8] pad(x, n), padding=1_2x0_0  "
        "ROOT z = f32[4,8] slice(y), slice={[3:7], [0:8]}",
        "slice",
    ),
    "inside of what is cut by padding": (
        "n = f32[] constant(2)  y = f32[5,8] pad(x, n), padding=-1_-2x0_0  "
        "ROOT z = f32[3,8] slice(y), slice={[1:4], [0:8]}",
        "slice",
    ),
    "padding alone": (
        "n = f32[] constant(2)  y = f32[11,8] pad(x, n), padding=1_2x0_0  "
        "ROOT z = f32[2,8] slice(y), slice={[9:11], [0:8]}",
        "broadcast",
    ),
    "some of the padding": (
        "n = f32[] constant(2)  y = f32[11,8] pad(x, n), padding=1_2x0_0  "
        "ROOT z = f32[9,8] slice(y), slice={[0:9], [0:8]}",
        "pad slice",
    ),
    "some of the padding in place of elements": (
        "n = f32[] constant(2)  y = f32[11,8] pad(x, n), padding=1_2x0_0  "
        "ROOT z = f32[8,8] slice(y), slice={[2:10], [0:8]}",
        "pad slice",
    ),
    "padding between elements": (
        "n = f32[] constant(2)  y = f32[15,8] pad(x, n), padding=0_0_1x0_0  "
        "ROOT z = f32[8,8] slice(y), slice={[0:8], [0:8]}",
        "pad slice",
    ),
    "backwards twice": (
        "y = f32[8,8] reverse(x), dimensions={0,1}  ROOT z = f32[8,8] reverse(y), dimensions={1,0}",
        "",
    ),
    "backwards twice along one of two": (
        "y = f32[8,8] reverse(x), dimensions={0,1}  ROOT z = f32[8,8] reverse(y), dimensions={1}",
        "reverse",
    ),
    "one element backwards": (
        "y = f32[8,1,8] reshape(x)  ROOT z = f32[8,1,8] reverse(y), dimensions={1}",
        "reshape",
    ),
    "cut up and joined": (
        "y = f32[3,8] slice(x), slice={[0:3], [0:8]}  w = f32[5,8] slice(x), slice={[3:8], [0:8]}  "
        "ROOT z = f32[8,8] concatenate(y, w), dimensions={0}",
        "",
    ),
    "cut up and joined with others": (
        "t = f32[8,8] tanh(x)  y = f32[3,8] slice(x), slice={[0:3], [0:8]}  "
        "w = f32[2,8] slice(x), slice={[3:5], [0:8]}  "
        "v = f32[2,8] slice(x), slice={[6:8], [0:8]}  ROOT z = f32[15,8] concatenate(t, y, w, v), dimensions={0}",
        "tanh slice slice concatenate",
    ),
    "joined in another order": (
        "y = f32[3,8] slice(x), slice={[0:3], [0:8]}  w = f32[5,8] slice(x), slice={[3:8], [0:8]}  "
        "ROOT z = f32[8,8] concatenate(w, y), dimensions={0}",
        "slice slice concatenate",
    ),
    "joined across": (
        "y = f32[4,4] slice(x), slice={[0:4], [0:4]}  w = f32[4,4] slice(x), slice={[4:8], [4:8]}  "
        "ROOT z = f32[8,4] concatenate(y, w), dimensions={0}",
        "slice slice concatenate",
    ),
    "joined with gaps": (
        "y = f32[2,8] slice(x), slice={[0:4:2], [0:8]}  w = f32[2,8] slice(x), slice={[4:8:2], [0:8]}  "
        "ROOT z = f32[4,8] concatenate(y, w), dimensions={0}",
        "slice slice concatenate",
    ),
    "parts of two arrays": (
        "t = f32[8,8] tanh(x)  y = f32[3,8] slice(x), slice={[0:3], [0:8]}  "
        "w = f32[5,8] slice(t), slice={[3:8], [0:8]}  ROOT z = f32[8,8] concatenate(y, w), dimensions={0}",
        "slice tanh slice concatenate",
    ),
    "the last ones backwards": (
        "y = f32[8,8] reverse(x), dimensions={0}  ROOT z = f32[3,2] slice(y), slice={[1:7:2], [0:2]}",
        "slice reverse",
    ),
    "a part of one of two": (
        "y = f32[8,8] tanh(x)  w = f32[16,8] concatenate(x, y), dimensions={0}  "
        "ROOT z = f32[4,8] slice(w), slice={[10:14], [0:8]}",
        "tanh slice",
    ),
    "all of one of two": (
        "y = f32[8,8] tanh(x)  w = f32[16,8] concatenate(x, y), dimensions={0}  "
        "ROOT z = f32[8,8] slice(w), slice={[8:16], [0:8]}",
        "tanh",
    ),
    "a part of two of three": (
        "y = f32[8,8] tanh(x)  v = f32[8,8] sine(x)  w = f32[24,8] concatenate(v, x, y), dimensions={0}  "
        "ROOT z = f32[8,8] slice(w), slice={[10:18], [0:8]}",
        "tanh concatenate slice",
    ),
    "a part of both": (
        "y = f32[8,8] tanh(x)  w = f32[16,8] concatenate(x, y), dimensions={0}  "
        "ROOT z = f32[8,8] slice(w), slice={[4:12], [0:8]}",
        "tanh concatenate slice",
    ),
    "all of it from somewhere": (
        "n = s32[] constant(3)  ROOT z = f32[8,8] dynamic-slice(x, n, n), dynamic_slice_sizes={8,8}",
        "",
    ),
    "all of it from somewhere put in": (
        "n = s32[] constant(3)  y = f32[8,8] tanh(x)  ROOT z = f32[8,8] dynamic-update-slice(y, x, n, n)",
        "",
    ),
    "nothing put in": (
        "n = s32[] constant(3)  y = f32[8,0] slice(x), slice={[0:8], [3:3]}  "
        "ROOT z = f32[8,8] dynamic-update-slice(x, y, n, n)",
        "",
    ),
    "some of it put in": (
        "n = s32[] constant(3)  y = f32[8,4] slice(x), slice={[0:8], [3:7]}  "
        "ROOT z = f32[8,8] dynamic-update-slice(x, y, n, n)",
        "slice dynamic-update-slice",
    ),
    "sorted by ones": (
        "y = f32[8,8,1] reshape(x)  ROOT z = f32[8,8,1] sort(y), dimensions={2}, to_apply=less",
        "reshape",
    ),
    "products of one row": (
        "y = f32[1,8,8] reshape(x)  w = f32[8,1,8] reshape(x)  ROOT z = f32[1,8,1,8] dot(y, w), "
        "lhs_contracting_dims={2}, rhs_contracting_dims={0}",
        "dot reshape",
    ),
    "a stack of one": (
        "y = f32[1,8,8] reshape(x)  ROOT z = f32[1,8,8] dot(y, y), lhs_batch_dims={0}, lhs_contracting_dims={2}, "
        "rhs_batch_dims={0}, rhs_contracting_dims={1}",
        "dot reshape",
    ),
    "sums of one product": (
        "y = f32[64,1] reshape(x)  ROOT z = f32[64,64] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        "reshape dot",
    ),
    "a flat row": (
        "y = f32[1,8] slice(x), slice={[0:1], [0:8]}  w = f32[8] reshape(y)  d = f32[] dot(w, w), "
        "lhs_contracting_dims={0}, rhs_contracting_dims={0}  ROOT z = f32[8] broadcast(d), dimensions={}",
        "slice reshape dot broadcast",
    ),
    "sums beside one": (
        "y = f32[8,1,8] reshape(x)  o = f32[] constant(0)  ROOT z = f32[8,1] reduce(y, o), dimensions={2}, "
        "to_apply=sum",
        "reduce reshape",
    ),
    "sums of one": (
        "y = f32[8,1,8] reshape(x)  o = f32[] constant(0)  ROOT z = f32[8,8] reduce(y, o), dimensions={1}, "
        "to_apply=sum",
        "reshape reduce",
    ),
    "one turned": ("y = f32[8,1,8] reshape(x)  ROOT z = f32[1,8,8] transpose(y), dimensions={1,0,2}", "reshape"),
    "turned beside one": (
        "y = f32[8,1,8] reshape(x)  ROOT z = f32[8,1,8] transpose(y), dimensions={2,1,0}",
        "transpose reshape",
    ),
    "sorted": ("ROOT z = f32[8,8] sort(x), dimensions={1}, to_apply=less", "sort"),
    "known numbers": (
        "a = f32[] constant(2)  b = f32[] constant(3)  c = f32[] add(a, b)  w = f32[8,8] broadcast(c), dimensions={}  "
        "ROOT z = f32[8,8] add(x, w)",
        "broadcast add",
    ),
}


def program(body):
    """Return the text of a program with the lines of a rule."""
    lines = "\n  ".join(body.split("  "))
    return f"HloModule m\n\n{LESS}\n\n{SUM}\n\nENTRY e {{\n  x = f32[8,8] parameter(0)\n  {lines}\n}}\n"


@pytest.mark.parametrize("name", RULES)
def test_what_is_left(name):
    """Of each rule what it leaves, and beside some what looks alike and has to stay."""
    entry = compiled(program(RULES[name][0]), stop_after="simplify").entry
    assert [i.opcode for i in entry if i.opcode not in ("parameter", "constant")] == RULES[name][1].split()


def check_values(text, **inputs):
    """Assert that a program computes after the rules what it does before, bit for bit."""
    before, made = (compiled(text, stop_after=step) for step in ("inline", "simplify"))
    assert check(made) == []
    expected, found = (execute(each, inputs, precision="exact", chip="v5e") for each in (before, made))
    for one, other in zip(expected, found, strict=True):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


@pytest.mark.parametrize("name", RULES)
def test_what_is_left_has_the_values(name):
    """Bit for bit."""
    check_values(program(RULES[name][0]), in0=np.random.default_rng(0).normal(size=(8, 8)).astype("f"))


@pytest.mark.parametrize(("sizes", "along"), [((4, 1), 1), ((0, 5), 1), ((0, 5), 0)])
def test_several_arrays_of_one_element_are_in_order(sizes, along):
    """They come back as they were given."""
    shape = f"[{','.join(map(str, sizes))}]"
    text = f"""HloModule m

less {{ a = f32[] parameter(0)  b = f32[] parameter(1)  c = s32[] parameter(2)  d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT }}

ENTRY e {{ x = f32{shape} parameter(0)  y = s32{shape} parameter(1)
  s = (f32{shape}, s32{shape}) sort(x, y), dimensions={{{along}}}, to_apply=less
  i = s32{shape} get-tuple-element(s), index=1  v = f32{shape} get-tuple-element(s), index=0
  ROOT r = (s32{shape}, f32{shape}) tuple(i, v) }}
"""
    assert [i.opcode for i in compiled(text, stop_after="simplify").entry] == ["parameter", "parameter", "tuple"]
    numbers = np.arange(np.prod(sizes)).reshape(sizes)
    check_values(text, in0=numbers.astype("f"), in1=numbers.astype("i4"))


LAYERS = """HloModule m

ENTRY e {{
  x = f32[6,4,8] parameter(0)
  at = {index}[] parameter(1)
  none = {index}[] constant(0)
  two = f32[2,1,8] dynamic-slice(x, at, at, none), dynamic_slice_sizes={{2,1,8}}
  both = f32[2,8] reshape(two)
  a = f32[1,8] slice(both), slice={{[0:1], [0:8]}}
  b = f32[1,3] slice(both), slice={{[1:2], [2:5]}}
  ROOT r = (f32[1,8], f32[1,3]) tuple(a, b)
}}
"""


@pytest.mark.parametrize("at", [-9, 0, 3, 4, 5, 100])
def test_layers_that_are_cut_out_together_are_cut_out_one_by_one(at):
    """As libtpu has the layers of an unrolled scan; what begins too far on is moved back as a whole."""
    text = LAYERS.format(index="s32")
    made = [one.opcode for one in compiled(text, stop_after="simplify").entry]
    assert made.count("dynamic-slice") == 2
    assert "slice" not in made
    check_values(text, in0=np.arange(192).reshape(6, 4, 8).astype("f"), in1=np.int32(at))


def test_short_integers_hold_no_places_further_on():
    """The places of 100 layers and one are none of s8."""
    made = [one.opcode for one in compiled(LAYERS.format(index="s8"), stop_after="simplify").entry]
    assert made.count("dynamic-slice") == 1


MAYBE_WRITTEN = """HloModule m

ENTRY e {{
  c = f32[6,8] parameter(0)
  u = f32[2,3] parameter(1)
  at = s32[] parameter(2)
  p = pred[] parameter(3)
  other = f32[6,8] tanh(c)
  mask = pred[6,8] compare(c, other), direction=GT
  all = pred[6,8] broadcast(p), dimensions={{}}
  w = f32[6,8] dynamic-update-slice(c, u, at, at)
  s = f32[6,8] select({choice})
  ROOT r = (f32[6,8], f32[6,8]) tuple(s, {beside})
}}
"""


@pytest.mark.parametrize("at", [-9, 0, 3, 5])
@pytest.mark.parametrize("says", [False, True])
@pytest.mark.parametrize("choice", ["all, w, c", "all, c, w"])
def test_what_is_written_or_not_as_a_number_says_is_written_in_place(choice, says, at):
    """A part of the array is chosen from, not all of it; what would reach over the end is moved back as a whole."""
    text = MAYBE_WRITTEN.format(choice=choice, beside="other")
    made = compiled(text, stop_after="simplify").entry
    (written,) = (one for one in made if one.opcode == "dynamic-update-slice")
    assert written.name in made.root.operands
    (chosen,) = (one for one in made if one.opcode == "select")
    assert chosen.shape.dimensions == (2, 3)
    numbers = np.arange(48, dtype="f").reshape(6, 8)
    check_values(text, in0=numbers, in1=-numbers[:2, :3] - 1, in2=np.int32(at), in3=np.bool_(says))


@pytest.mark.parametrize(
    ("choice", "beside"), [("mask, w, c", "other"), ("all, w, other", "other"), ("all, w, c", "w")]
)
def test_what_is_chosen_one_by_one_or_kept_besides_is_chosen_from_all(choice, beside):
    """Or is another array than the one that is written into."""
    text = MAYBE_WRITTEN.format(choice=choice, beside=beside)
    (chosen,) = (one for one in compiled(text, stop_after="simplify").entry if one.opcode == "select")
    assert chosen.shape.dimensions == (6, 8)


TABLE = """HloModule m, num_partitions=4, replica_count=2

ENTRY e {{
  table = {dtype}[4] constant({{{numbers}}})
  device = u32[] {device}()
  one = {dtype}[1] dynamic-slice(table, device), dynamic_slice_sizes={{1}}
  ROOT r = {dtype}[] reshape(one)
}}
"""


@pytest.mark.parametrize(
    ("dtype", "device", "numbers", "left"),
    [
        ("s32", "partition-id", "0, 1, 2, 3", ["partition-id", "convert"]),
        ("u32", "partition-id", "0, 1, 2, 3", ["partition-id"]),
        ("s32", "partition-id", "0, 1, 0, 1", ["partition-id", "dynamic-slice", "reshape"]),
        ("s32", "replica-id", "0, 1, 2, 3", ["replica-id", "dynamic-slice", "reshape"]),
    ],
)
def test_a_table_of_the_numbers_of_devices_says_what_they_know(dtype, device, numbers, left):
    """As libtpu has them; where there are more numbers than devices, or others, they are looked up."""
    text = TABLE.format(dtype=dtype, device=device, numbers=numbers)
    before, made = (compiled(text, stop_after=step) for step in ("inline", "simplify"))
    assert [one.opcode for one in made.entry if one.opcode != "constant"] == left
    assert execute(made, [[]] * 8) == execute(before, [[]] * 8)


@st.composite
def parts(draw, size):
    """Draw the bounds of a part of so many elements, and how many it has."""
    start, limit = sorted(draw(st.tuples(*[st.integers(0, size)] * 2)))
    stride = draw(st.integers(1, 3))
    return f"[{start}:{limit}:{stride}]", len(range(start, limit, stride))


@settings(max_examples=60)
@given(st.data())
def test_parts_of_whatever_is_made_of_an_array_have_its_values(data):
    """Padded outwards, inwards and between, spread, turned round, or cut up; all of it is one of the numbers 1 to 6."""
    low, high, between = data.draw(st.tuples(st.integers(-3, 3), st.integers(-2, 3), st.integers(0, 2)))
    first, left = data.draw(parts(size := low + 6 + 5 * between + high))
    second, rest = data.draw(parts(left))
    cuts = sorted(data.draw(st.tuples(*[st.integers(0, left)] * 2)))
    pieces = list(pairwise([0, *cuts, left]))
    cut = "\n".join(f"c{at} = f32[{b - a}] slice(a), slice={{[{a}:{b}]}}" for at, (a, b) in enumerate(pieces))
    check_values(
        f"""HloModule m

ENTRY e {{ x = f32[6] parameter(0)  n = f32[] constant(-1)
  p = f32[{size}] pad(x, n), padding={low}_{high}_{between}  a = f32[{left}] slice(p), slice={{{first}}}
  b = f32[{rest}] slice(a), slice={{{second}}}  {cut}
  j = f32[{left}] concatenate(c0, c1, c2), dimensions={{0}}  r = f32[{left}] reverse(j), dimensions={{0}}
  w = f32[2,{left}] broadcast(r), dimensions={{1}}  q = f32[1,{rest}] slice(w), slice={{[1:2], {second}}}
  k = f32[{left}] concatenate(c0, c2, c1), dimensions={{0}}  o = f32[{rest}] slice(k), slice={{{second}}}
  ROOT t = (f32[{rest}], f32[{left}], f32[1,{rest}], f32[{rest}]) tuple(b, j, q, o) }}
""",
        in0=np.arange(1, 7, dtype="f"),
    )


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
    before, made = (compiled(text, stop_after=step) for step in ("inline", "simplify"))
    is_left_out = number == "1" or dtype in ("f64", "f32", "bf16", "f16", "f8e5m2", "f8e4m3", "f8e3m4")
    assert (made.entry.root.opcode == "parameter") == is_left_out
    x = np.float32([0, -0.0, 1, -2, np.inf, np.nan]).astype(numpy_dtype(DTYPES[dtype]))
    expected, found = (np.float64(execute(each, {"in0": x}, precision="exact", chip="v5e")) for each in (before, made))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[:4]), np.signbit(expected[:4]))


@pytest.mark.parametrize(
    ("opcode", "start", "made"), [("maximum", "-inf", "bf16"), ("minimum", "inf", "f32"), ("maximum", "0", "f32")]
)
def test_the_largest_is_found_before_numbers_are_made_wider(opcode, start, made):
    """As the TPU compiler has it, whose least is found after (libtpu 0.0.52); the value is the same."""
    text = f"""HloModule m
of_two {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] {opcode}(a, b) }}
ENTRY e {{
  x = bf16[64,256] parameter(0)
  w = f32[64,256] convert(x)
  k = f32[] constant({start})
  m = f32[64] reduce(w, k), dimensions={{1}}, to_apply=of_two
  ROOT r = f32[64] negate(m)
}}
"""
    plain, module = parse_module(SourceText("m", text)), compiled(text)
    found = [i.shape.dtype.name for c in module.computations for i in c if i.opcode == "reduce"]
    assert found == [made]
    inputs = [np.random.default_rng(1).standard_normal((64, 256), "f4").astype(numpy_dtype(DTYPES["bf16"]))]
    np.testing.assert_array_equal(*(execute(each, inputs) for each in (plain, module)))


@pytest.mark.parametrize(
    ("shapes", "order", "dims", "is_folded"),
    [
        (("f32[8,6]", "f32[6,8]"), "1,0", "lhs_contracting_dims={0}, rhs_contracting_dims={0}", True),
        (("f32[8,6]", "f32[6,8]"), "1,0", "lhs_contracting_dims={1}, rhs_contracting_dims={1}", True),
        (
            ("f32[8,6,4]", "f32[4,8,6]"),
            "2,0,1",
            "lhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_batch_dims={1}, rhs_contracting_dims={2}",
            True,
        ),
        (("f32[8,6,4]", "f32[6,8,4]"), "1,0,2", "lhs_contracting_dims={2}, rhs_contracting_dims={2}", False),
    ],
)
def test_dots_take_what_is_transposed_as_it_was(shapes, order, dims, is_folded):
    """By other dimensions (XLA, TransposeFolding), unless those of its own would change places."""
    before, after = shapes
    sizes = parse_shape(after).dimensions
    named = {part.split("=")[0]: part for part in dims.split(", ")}
    kept = [d for d in range(len(sizes)) if f"{{{d}}}" not in dims.partition("rhs")[0]]
    batch = [sizes[1]] if "lhs_batch_dims" in named else []
    made = ",".join(map(str, [*batch, *(2 * [sizes[d] for d in kept])]))
    text = f"""HloModule m
ENTRY e {{
  x = {before} parameter(0)
  w = {after} parameter(1)
  t = {after} transpose(x), dimensions={{{order}}}
  ROOT y = f32[{made}] dot(t, w), {dims}
}}
"""
    plain, module = parse_module(SourceText("m", text)), compiled(text, stop_after="simplify")
    assert any(i.opcode == "transpose" for i in module.entry) != is_folded
    inputs = [np.random.default_rng(1).standard_normal(p.shape.dimensions, "f4") for p in plain.entry.parameters]
    one, other = (execute(each, inputs, precision="exact") for each in (plain, module))
    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_the_largest_of_rows_whose_number_is_known_at_run_time_is_found_behind():
    """Rules count with the bounds."""
    text = """HloModule m
most { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }
ENTRY e {
  x = bf16[64,128] parameter(0)
  n = s32[] parameter(1)
  y = bf16[<=64,128] set-dimension-size(x, n), dimensions={0}
  w = f32[<=64,128] convert(y)
  k = f32[] constant(-inf)
  ROOT m = f32[<=64] reduce(w, k), dimensions={1}, to_apply=most
}
"""
    plain, module = parse_module(SourceText("m", text)), compiled(text)
    inputs = [np.ones((64, 128), numpy_dtype(DTYPES["bf16"])), np.int32(30)]
    one, other = (np.asarray(execute(each, inputs)) for each in (plain, module))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("count", "cuts"), [(1, ["1"]), (2, ["4"])])
def test_numbers_of_a_row_are_taken_of_the_row(count, cuts):
    """The row is cut out once, as libtpu 0.0.52 has it; a number alone is cut out by itself."""
    text = """HloModule m

ENTRY e {
  x = s32[16,4] parameter(0)
  i = s32[] parameter(1)
  zero = s32[] constant(0)
  row = s32[1,4] dynamic-slice(x, i, zero), dynamic_slice_sizes={1,4}
  flat = s32[4] reshape(row)
  a = s32[1] slice(flat), slice={[1:2]}
  b = s32[1] slice(flat), slice={[3:4]}
  ROOT t = (TYPES) tuple(NAMES)
}
"""
    names = ["a", "b"][:count]
    text = text.replace("TYPES", ", ".join(["s32[1]"] * count)).replace("NAMES", ", ".join(names))
    made = compiled(text, stop_after="simplify")
    found = [i.attributes["dynamic_slice_sizes"] for i in made.entry if i.opcode == "dynamic-slice"]
    assert [str(sizes[-1]) for sizes in found] == cuts
    check_values(text, in0=np.arange(64, dtype=np.int32).reshape(16, 4), in1=np.int32(7))
