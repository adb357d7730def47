"""The best layout of an array, by what uses it: in words, and as a program has it."""

from __future__ import annotations

import pytest

from tests.cli.commands import output_of, refusal_of
from tests.house.source_tree import ROOT
from tpusim.errors import ConfigError
from tpusim.pipeline.answers.layouts import layouts, layouts_in
from tpusim.pipeline.answers.users import USES, users_in
from tpusim.pipeline.modules import Builder
from tpusim.pipeline.stages import load, simulate
from tpusim.shapes.notation import parse_shape
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

MLP = str(ROOT / "traces/mlp_b1024.v5e.hlo.txt.gz")


def table():
    """Return a program that takes rows of a table, and multiplies what it takes."""
    builder = Builder("table.v5e.hlo.txt")
    rows, places = builder.parameter(0, "f32[1024,256]"), builder.parameter(1, "s32[64,1]")
    dimensions = {"offset_dims": (1,), "collapsed_slice_dims": (0,), "start_index_map": (0,), "index_vector_dim": 1}
    taken = builder.gather(rows, places, slice_sizes=(1, 256), **dimensions)
    return builder.build(builder.mul(taken, taken))


TAKES = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,256}"
STATE = "(s32[], f32[1024,256], s32[64,1], f32[64,256])"
# As JAX makes it of a recomputed function in a scan: a call, a barrier around a tuple, and a loop's state.
CARRIED = f"""HloModule carried
take {{
  table = f32[1024,256] parameter(0)
  at = s32[64,1] parameter(1)
  ROOT rows = f32[64,256] gather(table, at), {TAKES}
}}
more {{
  state = {STATE} parameter(0)
  count = s32[] get-tuple-element(state), index=0
  five = s32[] constant(5)
  ROOT less = pred[] compare(count, five), direction=LT
}}
body {{
  state = {STATE} parameter(0)
  count = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(count, one)
  held = f32[1024,256] get-tuple-element(state), index=1
  at = s32[64,1] get-tuple-element(state), index=2
  both = (f32[1024,256], s32[64,1]) tuple(held, at)
  kept = (f32[1024,256], s32[64,1]) opt-barrier(both)
  again = f32[1024,256] get-tuple-element(kept), index=0
  rows = f32[64,256] call(again, at), to_apply=take
  ROOT end = {STATE} tuple(next, held, at, rows)
}}
ENTRY main {{
  table = f32[1024,256] parameter(0)
  at = s32[64,1] parameter(1)
  zero = s32[] constant(0)
  nothing = f32[] constant(0)
  none = f32[64,256] broadcast(nothing), dimensions={{}}
  start = {STATE} tuple(zero, table, at, none)
  loop = {STATE} while(start), condition=more, body=body
  after = f32[1024,256] get-tuple-element(loop), index=1
  last = f32[64,256] get-tuple-element(loop), index=3
  own = f32[64,256] gather(after, at), {TAKES}
  ROOT results = (f32[64,256], f32[64,256]) tuple(own, last)
}}
"""


FLATTENED = """\
HloModule flattened, is_scheduled=true
more {
  state.1 = (s32[], f32[2048,128]{1,0:T(8,128)}, f32[]) parameter(0)
  count.1 = s32[] get-tuple-element(state.1), index=0
  five = s32[] constant(5)
  ROOT less = pred[] compare(count.1, five), direction=LT
}
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}
body {
  state = (s32[], f32[2048,128]{1,0:T(8,128)}, f32[]) parameter(0)
  count = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(count, one)
  held = f32[2048,128]{1,0:T(8,128)} get-tuple-element(state), index=1
  zero.1 = f32[] constant(0)
  sum = f32[] reduce(held, zero.1), dimensions={0,1}, to_apply=add
  ROOT end = (s32[], f32[2048,128]{1,0:T(8,128)}, f32[]) tuple(next, held, sum)
}
ENTRY main {
  table = f32[16,128,128]{2,1,0:T(8,128)} parameter(0)
  zero = s32[] constant(0)
  nothing = f32[] constant(0)
  flat = f32[2048,128]{1,0:T(8,128)} bitcast(table)
  start = (s32[], f32[2048,128]{1,0:T(8,128)}, f32[]) tuple(zero, flat, nothing)
  loop = (s32[], f32[2048,128]{1,0:T(8,128)}, f32[]) while(start), condition=more, body=body
  twice = f32[16,128,128]{2,1,0:T(8,128)} add(table, table)
  ROOT r = (f32[16,128,128]{2,1,0:T(8,128)}) tuple(twice)
}
"""


def order_of(text):
    """Return the order of a shape's dimensions, the fastest first."""
    return parse_shape(text).layout.minor_to_major


@pytest.mark.parametrize("use", ["gather:0:64", "gather:0", "slice:0:1"])
def test_rows_that_are_taken_one_by_one_want_to_lie_together(use):
    """A row that is in lanes is one stretch of bytes; laid down sublanes each of its elements is in another tile."""
    first, last = layouts("f32[1024,256]", used_by=[use])
    assert order_of(first.shape) == (1, 0)
    assert last.users_ps > first.users_ps


def test_users_go_before_padding():
    """The least padded of three dimensions is not the best where single ones of another are taken."""
    shape = "f32[100,1024,64]"
    best = layouts(shape, used_by=["slice:1"])[0]
    assert best.users_ps < next(one.users_ps for one in layouts(shape, used_by=["slice:1"]) if one.is_default)


@pytest.mark.parametrize("word", USES)
def test_every_use_runs_with_every_layout(word):
    """On any chip, of several dimensions."""
    use = {"elementwise": word, "transpose": f"{word}:2,0,1"}.get(word, f"{word}:1")
    found = layouts("bf16[16,24,136]", "v6e", used_by=[use])
    assert len(found) == 6
    assert [one.users_ps for one in found] == sorted(one.users_ps for one in found)


def test_uses_of_a_program_are_those_in_words():
    """A gather of 64 rows takes as long either way; what is element-wise beyond it is another kernel's."""
    found, names, *_ = layouts_in(table(), "parameter.1", "v5e")
    assert names == ("gather.3",)
    in_words = layouts("f32[1024,256]", used_by=["gather:0:64"])
    assert [one.users_ps for one in found] == [one.users_ps for one in in_words]


def test_a_compiled_program_has_users_too(capsys):
    """Kernels that read an argument, through what has copied it to VMEM."""
    text = output_of(capsys, "layouts", MLP, "--op", "w1.1")
    assert "Its users are convolution_add_fusion:" in text


def test_names_that_only_the_compiled_program_has_are_known():
    """Reports have them: a gather is a kernel of another name, and what reads that is still the product."""
    found = {op.opcode: op.name for op in simulate(table()).summary.ops}
    made, used = found["gather"], found["multiply"]
    assert made not in table().homes
    assert layouts_in(table(), made).users == (used,)
    with pytest.raises(ConfigError, match=r"the name of an array, found 'gather\.9'"):
        layouts_in(table(), "gather.9")


def test_users_are_found_in_loops():
    """Of stacked weights that a loop goes through, which reads a slice in each trip."""
    path = ROOT / "traces/memory/scan_layers.v5p.hlo.txt.gz"
    entry = load(path).entry
    stacked = max(entry.parameters, key=lambda parameter: parameter.shape.element_count)
    found, names, *_ = layouts_in(path, stacked.name)
    assert names
    assert found[0].is_default


def test_what_a_loop_carries_is_used_in_every_trip_and_after_it():
    """Six gathers of 64 rows, five of them behind a tuple, a barrier and a call in the body of a loop."""
    carried = parse_module(SourceText("carried.v5e.hlo.txt", CARRIED))
    found, names, *_ = layouts_in(carried, "table")
    assert [name.endswith("(5 times)") for name in names] == [False, True]
    in_words = layouts("f32[1024,256]", used_by=["gather:0:64"])
    assert [one.users_ps for one in found] == [6 * one.users_ps for one in in_words]


def test_what_a_loop_carries_in_other_sizes_is_another_array():
    """A bitcast makes it: an order of three dimensions is none of two."""
    flattened = parse_module(SourceText("flattened.v5e.hlo.txt", FLATTENED))
    assert [layouts_in(flattened, name).users for name in ("table", "flat")] == [("twice",), ("sum (5 times)",)]


def test_the_layout_that_an_array_has_is_marked(capsys):
    """Of a compiled program; before any compiler an array has none."""
    assert output_of(capsys, "layouts", MLP, "--op", "w1.1").count("(here)") == 1
    assert not any(one.is_present for one in layouts_in(table(), "parameter.1").choices)


@pytest.mark.parametrize("use", ["dott:0", "dot", "dot:2", "reduce:0,0", "gather:0:0", "elementwise:0"])
def test_a_use_that_is_none_is_refused(use):
    """With what is known, and what a dimension looks like."""
    with pytest.raises(ConfigError, match=r"used-by: (expected|elementwise)"):
        layouts("f32[8,128]", used_by=[use])


@pytest.mark.parametrize(
    ("shape", "use", "words"),
    [
        ("f32[8,128]", "slice:0:80", r"expected at most 8 along dimension 0 of f32\[8,128\].*, found 80"),
        ("f32[0,128]", "slice:0", "expected at most 0 along dimension 0 of .*, found 1"),
        ("f32[0,128]", "gather:0", "expected a dimension that has rows, found 0 of"),
        ("f32[8,128]", "transpose:0", "expected each dimension of .* once, in its new order, found 1 of 2"),
        ("f32[8,128]", "reduce:0:5", "reduce takes dimensions and no number beside them, found 'reduce:0:5'"),
    ],
)
def test_a_use_that_the_array_does_not_have_is_refused_in_its_own_words(shape, use, words):
    """It was said of an instruction of the program that tpusim makes of it, or not at all."""
    with pytest.raises(ConfigError, match=f"used-by: {words}"):
        layouts(shape, used_by=[use])


def test_an_array_that_is_none_is_refused(capsys):
    """With the nearest name."""
    assert "did you mean" in refusal_of(capsys, "layouts", MLP, "--op", "w1.2")


def test_the_present_layout_takes_what_it_takes_in_the_run():
    """Of what reads an argument, in its own tiles; others are in proportion."""
    found = layouts_in(MLP, "w1.1")
    (here,) = (one for one in found.choices if one.is_present)
    ops = {group.name: group.time_ps for group in simulate(MLP).summary.ops}
    assert here.users_ps == ops["convolution_add_fusion"]
    compiled = layouts(here.shape, used_by=users_in(load(MLP), "w1.1"))
    assert found.compiled_ps == next(one.users_ps for one in compiled if one.is_present)
    assert [one.shape for one in compiled] == [one.shape for one in found.choices]


def test_what_is_made_in_a_loop_is_compiled_for_every_trip():
    """Five trips take what the run says, and compiled what one takes five times; what never runs has no figure."""
    flattened = parse_module(SourceText("flattened.v5e.hlo.txt", FLATTENED))
    (once,) = users_in(flattened, "held").parts
    own = layouts("f32[2048,128]{1,0:T(8,128)}", used_by=users_in(flattened, "held"))
    assert once.times == 1
    assert layouts_in(flattened, "held").compiled_ps == 5 * next(one.users_ps for one in own if one.is_present)
    assert layouts_in(parse_module(SourceText("entered.v5e.hlo.txt", ENTERED)), "y").compiled_ps == 0


def test_elements_of_tuples_are_arrays():
    """By their numbers, which the refusal of the tuple lists."""
    carried = parse_module(SourceText("carried.v5e.hlo.txt", CARRIED))
    assert layouts_in(carried, "%loop#1").users == ("own",)
    for name in ("loop", "loop#0", "loop#x"):
        with pytest.raises(ConfigError, match=r"name one of its elements: loop#1 \(f32\[1024,256\]"):
            layouts_in(carried, name)


FIXED = """\
HloModule fixed, is_scheduled=true
ENTRY main {
  x = f32[256,512]{1,0:T(8,128)} parameter(0)
  y = f32[256,512]{1,0:T(8,128)} parameter(1)
  made = f32[256,512]{1,0:T(8,128)} custom-call(x), custom_call_target="own",
    operand_layout_constraints={f32[256,512]{1,0}}
  ROOT sum = f32[256,512]{1,0:T(8,128)} add(made, y)
}
"""


@pytest.mark.parametrize(("name", "fixed_by", "count"), [("x", "made", 1), ("made", "made", 1), ("y", "", 2)])
def test_custom_calls_fix_how_their_operands_and_results_lie(name, fixed_by, count):
    """There is one layout then, and no other is ranked before it."""
    found = layouts_in(parse_module(SourceText("fixed.v5e.hlo.txt", FIXED)), name)
    assert (found.fixed_by, len(found.choices)) == (fixed_by, count)
    assert [order_of(one.shape) for one in found.choices if one.is_present] == [(1, 0)]


ENTERED = """\
HloModule entered, is_scheduled=true
twice {
  a = f32[64,256]{1,0:T(8,128)} parameter(0)
  ROOT two = f32[64,256]{1,0:T(8,128)} add(a, a)
}
yes {
  pair = (f32[64,256]{1,0:T(8,128)}) parameter(0)
  b = f32[64,256]{1,0:T(8,128)} get-tuple-element(pair), index=0
  ROOT square = f32[64,256]{1,0:T(8,128)} multiply(b, b)
}
no {
  c = f32[64,256]{1,0:T(8,128)} parameter(0)
  ROOT minus = f32[64,256]{1,0:T(8,128)} negate(c)
}
ENTRY main {
  x = f32[64,256]{1,0:T(8,128)} parameter(0)
  y = f32[64,256]{1,0:T(8,128)} parameter(1)
  p = pred[] parameter(2)
  called = f32[64,256]{1,0:T(8,128)} call(x), to_apply=twice
  both = (f32[64,256]{1,0:T(8,128)}) tuple(x)
  chosen = f32[64,256]{1,0:T(8,128)} conditional(p, both, y), true_computation=yes, false_computation=no
  ROOT r = (f32[64,256]{1,0:T(8,128)}, f32[64,256]{1,0:T(8,128)}) tuple(called, chosen)
}
"""


@pytest.mark.parametrize(("name", "users"), [("x", ("two", "square")), ("y", ("minus",))])
def test_calls_and_branches_are_followed(name, users):
    """By the operand that each computation is given."""
    assert layouts_in(parse_module(SourceText("entered.v5e.hlo.txt", ENTERED)), name).users == users


@pytest.mark.parametrize("shape", ["token[]", "opaque[]", "(f32[8])"])
def test_what_has_no_elements_has_no_layouts(shape):
    """It lies nowhere."""
    with pytest.raises(ConfigError, match="expected an array"):
        layouts(shape)
