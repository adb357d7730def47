"""What devices exchange as bf16, since nothing needs more of it.

The types are those of libtpu, of 50 such programs compiled ahead of time for v5e:2x2.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.programs import SUM, compiled
from tpusim.pipeline.stages import check, execute
from tpusim.shapes.dtype import DTYPES, numpy_dtype

GROUPS = "replica_groups={{0,1}}"
SENT = {
    "all-gather": f"all-gather(x), {GROUPS}, dimensions={{0}}",
    "all-to-all": f"all-to-all(x), {GROUPS}, dimensions={{0}}",
    "collective-permute": "collective-permute(x), source_target_pairs={{0,1}}",
}
RESULTS = {
    "becomes bf16": ("ROOT r = bf16[8,8] convert(y)", "bf16"),
    "is moved and becomes bf16": (
        "a = f32[4,2,8] reshape(y)  b = f32[2,4,8] transpose(a), dimensions={1,0,2}  ROOT r = bf16[2,4,8] convert(b)",
        "bf16",
    ),
    "is joined, padded and becomes bf16": (
        "w = f32[8,8] parameter(1)  j = f32[16,8] concatenate(w, y), dimensions={0}  n = f32[] constant(0.1)  "
        "b = f32[18,8] pad(j, n), padding=1_1x0_0  ROOT r = bf16[18,8] convert(b)",
        "bf16",
    ),
    "becomes bf16 in part and as a whole": (
        "s = f32[2,8] slice(y), slice={[1:3], [0:8]}  a = bf16[2,8] convert(s)  b = bf16[8,8] convert(y)  "
        "ROOT r = (bf16[2,8], bf16[8,8]) tuple(a, b)",
        "bf16",
    ),
    "is needed besides": (
        "a = bf16[8,8] convert(y)  b = f32[8,8] negate(y)  ROOT r = (bf16[8,8], f32[8,8]) tuple(a, b)",
        "f32",
    ),
    "is needed besides where it is moved": (
        "t = f32[8,8] transpose(y), dimensions={1,0}  a = bf16[8,8] convert(t)  b = f32[8,8] negate(y)  "
        "ROOT r = (bf16[8,8], f32[8,8]) tuple(a, b)",
        "f32",
    ),
    "is what the program returns": ("ROOT r = f32[8,8] copy(y)", "f32"),
    "is computed with first": ("a = f32[8,8] multiply(y, y)  ROOT r = bf16[8,8] convert(a)", "f32"),
    "becomes f16": ("ROOT r = f16[8,8] convert(y)", "f32"),
    "becomes s8": ("ROOT r = s8[8,8] convert(y)", "f32"),
}


def made_of(text, stop_after="narrow"):
    """Return the entry of a text's module as a pass leaves it, which computes what it did before bit for bit."""
    before, made = (compiled(text, stop_after=step, narrows=True) for step in ("inline", stop_after))
    assert check(made) == []
    rng, sizes = np.random.default_rng(5), [parameter.shape.dimensions for parameter in made.entry.parameters]
    inputs = [[rng.normal(size=each).astype("f") for each in sizes] for _ in range(2)]
    for one, other in zip(execute(before, inputs), execute(made, inputs), strict=True):
        both = ((each if isinstance(each, tuple) else (each,)) for each in (one, other))
        for ours, theirs in zip(*both, strict=True):
            assert (ours.dtype, ours.shape, ours.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes())
    return made.entry


@pytest.mark.parametrize("opcode", SENT)
@pytest.mark.parametrize("result", RESULTS)
def test_what_is_sent_only_to_become_bf16_is_sent_as_bf16(result, opcode):
    """Where f32 of it is needed, or another type is made of it, it is sent as it is."""
    lines, dtype = RESULTS[result]
    rows = 4 if opcode == "all-gather" else 8
    text = f"""HloModule m, replica_count=2

ENTRY e {{
  x = f32[{rows},8] parameter(0)
  y = f32[8,8] {SENT[opcode]}
  {lines.replace("  ", chr(10))}
}}
"""
    (sent,) = (one for one in made_of(text) if one.opcode == opcode)
    assert sent.shape.dtype.name == dtype


def summed(result, made="widened", region="add(a, b)"):
    """Return the types of what a sum over devices takes and gives whose result is used so, of one thing or another."""
    text = f"""HloModule m, replica_count=2

region {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] {region} }}

ENTRY e {{
  p = f32[8,8] parameter(0)
  o = f32[8,8] collective-permute(p), source_target_pairs={{{{0,1}},{{1,0}}}}
  h = bf16[8,8] convert(o)
  widened = f32[8,8] convert(h)
  scaled = f32[8,8] multiply(widened, widened)
  y = f32[8,8] all-reduce({made}), {GROUPS}, to_apply=region
  {RESULTS[result][0].replace("  ", chr(10))}
}}
"""
    entry = made_of(text, "narrow-sums")
    (found,) = (one for one in entry if one.opcode == "all-reduce")
    return [shape.dtype.name for shape in (entry[found.operands[0]].shape, found.shape)]


@pytest.mark.parametrize("result", RESULTS)
def test_sums_take_and_give_bf16_where_kernels_would_only_convert(result):
    """Whatever becomes of the sum it takes what was bf16; what another kernel makes of that stays f32."""
    # What a kernel moves as it converts it, it takes as f32.
    dtype = "bf16" if result == "becomes bf16" else "f32"
    assert summed(result) == ["bf16", dtype]
    assert summed(result, made="scaled") == ["f32", dtype]


SEVERAL = f"""HloModule m, replica_count=2

{SUM}

ENTRY e {{
  h = bf16[8,128] parameter(0)
  x = f32[16,128] parameter(1)
  w = f32[8,128] convert(h)
  a = f32[8,128] all-reduce(w), {GROUPS}, to_apply=sum
  b = f32[16,128] all-reduce(x), {GROUPS}, to_apply=sum
  c = bf16[8,128] convert(a)
  ROOT r = (bf16[8,128], f32[16,128]) tuple(c, b)
}}
"""


def test_several_sums_that_are_one_are_converted_each_for_itself():
    """The first takes and gives bf16, the second f32."""
    entry = made_of(SEVERAL, "narrow-sums")
    (found,) = (one for one in entry if one.opcode == "all-reduce")
    types = [
        [shape.dtype.name for shape in shapes]
        for shapes in ([entry[o].shape for o in found.operands], found.shape.elements)
    ]
    assert types == [["bf16", "f32"]] * 2


def test_what_is_combined_in_another_way_is_f32():
    """Nothing says that it would be rounded only once."""
    assert summed("becomes bf16", region="subtract(a, b)") == ["f32", "f32"]


ADDED_UP = """HloModule m, replica_count=2

sum {{ a = {dtype}[] parameter(0)  b = {dtype}[] parameter(1)  ROOT c = {dtype}[] {region} }}

body {{
  state = (s32[], {acc}[4,8], {dtype}[3,8,4]) parameter(0)
  n = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(n, one)
  before = {acc}[4,8] get-tuple-element(state), index=1
  x = {dtype}[3,8,4] get-tuple-element(state), index=2
  zero = s32[] constant(0)
  part = {dtype}[1,8,4] dynamic-slice(x, n, zero, zero), dynamic_slice_sizes={{1,8,4}}
  own = {dtype}[8,4] reshape(part)
  summed = {dtype}[8,4] all-reduce(own), replica_groups={{{{0,1}}}}, to_apply=sum
  {lines}
  ROOT out = (s32[], {acc}[4,8], {dtype}[3,8,4]) tuple(next, {after}, x)
}}

condition {{
  state = (s32[], {acc}[4,8], {dtype}[3,8,4]) parameter(0)
  n = s32[] get-tuple-element(state), index=0
  most = s32[] constant(3)
  ROOT less = pred[] compare(n, most), direction=LT
}}

ENTRY e {{
  x = {dtype}[3,8,4] parameter(0)
  given = {acc}[4,8] parameter(1)
  number = {acc}[] constant(0)
  zeros = {acc}[4,8] broadcast(number), dimensions={{}}
  first = s32[] constant(0)
  start = (s32[], {acc}[4,8], {dtype}[3,8,4]) tuple(first, {start}, x)
  end = (s32[], {acc}[4,8], {dtype}[3,8,4]) while(start), condition=condition, body=body
  result = {acc}[4,8] get-tuple-element(end), index=1
  ROOT r = ({acc}[4,8], {acc}[4,8]) tuple(result, given)
}}
"""
ADDS = "t = {dtype}[4,8] transpose(summed), dimensions={{1,0}}  w = {acc}[4,8] convert(t)  "
ADDED = {
    "from zeros": {"start": "zeros"},
    "from what is given": {},
    "as integers": {"dtype": "s32", "acc": "s32"},
    "in bf16": {"acc": "bf16"},
    "as s8 and in s32": {"dtype": "s8", "acc": "s32", "stays": True},
    "as a maximum": {"region": "maximum(a, b)", "stays": True},
    "scaled": {"lines": ADDS + "s = {acc}[4,8] add(w, w)  after = {acc}[4,8] add(before, s)", "stays": True},
    "and used": {
        "lines": ADDS + "after = {acc}[4,8] add(before, w)  u = {acc}[4,8] negate(after)",
        "after": "u",
        "stays": True,
    },
    "twice": {"lines": ADDS + "a = {acc}[4,8] add(before, w)  after = {acc}[4,8] add(a, w)", "stays": True},
    "to what is used": {
        "lines": ADDS + "a = {acc}[4,8] add(before, w)  after = {acc}[4,8] maximum(a, before)",
        "stays": True,
    },
}


@pytest.mark.parametrize("how", ADDED)
def test_what_a_loop_sums_only_to_add_it_up_is_summed_behind_it(how):
    """In the type in which it is added up, and once; whatever else is done with it keeps it where it is."""
    case = {"dtype": "f32", "acc": "f32", "region": "add(a, b)", "start": "given", "after": "after"} | ADDED[how]
    lines = case.get("lines", ADDS + "after = {acc}[4,8] add(before, w)").format(**case).replace("  ", "\n")
    text = ADDED_UP.format(**case | {"lines": lines})
    before, made = (compiled(text, stop_after=step) for step in ("inline", "loop-sums"))
    assert check(made) == []
    found = [one.shape.dtype.name for one in made.entry if one.opcode == "all-reduce"]
    assert found == ([] if case.get("stays") else [case["acc"]])
    assert sum(one.opcode == "all-reduce" for computation in made.computations for one in computation) == 1
    check_sums(before, made, case["dtype"], case["acc"])


def check_sums(before, made, dtype, acc):
    """Check that two modules give the same, of small whole numbers, which every order of sums gives alike."""
    rng, types = np.random.default_rng(6), [numpy_dtype(DTYPES[name]) for name in (dtype, acc)]
    inputs = [
        [rng.integers(-9, 9, size).astype(each) for size, each in zip(((3, 8, 4), (4, 8)), types, strict=True)]
        for _ in range(2)
    ]
    for one, other in zip(execute(before, inputs), execute(made, inputs), strict=True):
        np.testing.assert_array_equal(np.float64(one), np.float64(other))


PLAIN = ADDED_UP.format(
    dtype="f32",
    acc="f32",
    region="add(a, b)",
    start="given",
    after="after",
    lines=ADDS.format(dtype="f32", acc="f32").replace("  ", "\n") + "after = f32[4,8] add(before, w)",
)
OUTER = """outer {
  around = (s32[], f32[4,8], f32[3,8,4]) parameter(0)
  m = s32[] get-tuple-element(around), index=0
  so_far = f32[4,8] get-tuple-element(around), index=1
  y = f32[3,8,4] get-tuple-element(around), index=2
  none = s32[] constant(0)
  begin = (s32[], f32[4,8], f32[3,8,4]) tuple(none, so_far, y)
  done = (s32[], f32[4,8], f32[3,8,4]) while(begin), condition=condition, body=body
  all = f32[4,8] get-tuple-element(done), index=1
  further = s32[] constant(2)
  after_m = s32[] add(m, further)
  ROOT out = (s32[], f32[4,8], f32[3,8,4]) tuple(after_m, all, y)
}

ENTRY"""
READS = """number = f32[4,8] get-tuple-element(state), index=1
  one = f32[1,1] slice(number), slice={[0:1], [0:1]}
  element = f32[] reshape(one)
  large = f32[] constant(1000)
  is_small = pred[] compare(element, large), direction=LT
  is_not_last = pred[] compare(n, most), direction=LT
  ROOT less = pred[] and(is_small, is_not_last)"""
STAYS = {
    "looked at by the condition": ("ROOT less = pred[] compare(n, most), direction=LT", READS),
    "wanted behind another": ("to_apply=sum", "to_apply=sum, control-predecessors={next}"),
    "not taken from the loop": ("tuple(result, given)", "tuple(given, given)"),
}


@pytest.mark.parametrize("how", STAYS)
def test_what_is_needed_in_the_loop_or_not_behind_it_is_summed_in_it(how):
    """The condition may look at it, a program may want it in its place, or have no use for it."""
    old, new = STAYS[how]
    assert old in PLAIN
    before, made = (compiled(PLAIN.replace(old, new), stop_after=step) for step in ("inline", "loop-sums"))
    assert "all-reduce" not in made.entry.opcodes
    check_sums(before, made, "f32", "f32")


def test_what_loops_in_loops_add_up_is_summed_behind_all_of_them():
    """The inner one hands a sum over to the outer one, which adds it up."""
    text = PLAIN.replace("ENTRY", OUTER).replace(
        "while(start), condition=condition, body=body", "while(start), condition=condition, body=outer"
    )
    before, made = (compiled(text, stop_after=step) for step in ("inline", "loop-sums"))
    assert check(made) == []
    assert [computation.name for computation in made.computations if "all-reduce" in computation.opcodes] == ["e"]
    check_sums(before, made, "f32", "f32")
