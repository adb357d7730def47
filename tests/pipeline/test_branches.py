"""Of branches that only data tell apart the one is taken that takes longest on the slice that the program runs on."""

from __future__ import annotations

from itertools import combinations

import pytest
from msgspec import structs

import tpusim
from tests.lowering.hlo import ADD
from tpusim.errors import ConfigError
from tpusim.pipeline.answers.explain import explain
from tpusim.pipeline.reuse import Reuse
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

ARRAY, INDEX, HOST = "f32[512,512]{1,0:T(8,128)}", "s32[512]{0:T(512)}", "f32[512,512]{1,0:T(8,128)S(5)}"
DOT = f"{ARRAY} dot(%p, %p), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
EIGHT = "channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true, to_apply=%add"
PAIRS = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2},{2,3},{3,0}}"}'

BODIES = {
    "negation": f"ROOT %n = {ARRAY} negate(%p)",
    "product": f"ROOT %d = {DOT}",
    "precise product": f"ROOT %d = {DOT}, operand_precision={{highest,highest}}",
    "sort": f"ROOT %s = {ARRAY} sort(%p), dimensions={{1}}, to_apply=%less",
    "three sorts": f"""%s = {ARRAY} sort(%p), dimensions={{1}}, to_apply=%less
      %m = {ARRAY} sort(%s), dimensions={{0}}, to_apply=%less
      ROOT %r = {ARRAY} sort(%m), dimensions={{1}}, to_apply=%less""",
    "gather": f"""%i = {INDEX} iota(), iota_dimension=0
      ROOT %g = {ARRAY} gather(%p, %i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}}, \
index_vector_dim=1, slice_sizes={{1,512}}""",
    "loop": f"""%z = s32[] constant(0)
      %t = (s32[], {ARRAY}) tuple(%z, %p)
      %w = (s32[], {ARRAY}) while(%t), condition=%condition, body=%body
      ROOT %g = {ARRAY} get-tuple-element(%w), index=1""",
    "sum": f"ROOT %a = {ARRAY} all-reduce(%p), {EIGHT}",
    "sum beside a product": f"""%a = {ARRAY} all-reduce-start(%p), {EIGHT}
      %d = {DOT}
      %e = {ARRAY} all-reduce-done(%a)
      ROOT %s = {ARRAY} add(%d, %e)""",
    "copies": f"""%o = ({HOST}, {ARRAY}, u32[]) copy-start(%p)
      %h = {HOST} copy-done(%o)
      %b = ({ARRAY}, {HOST}, u32[]) copy-start(%h)
      ROOT %c = {ARRAY} copy-done(%b)""",
    "message": f"""%k = token[] after-all()
      %r = ({ARRAY}, u32[], token[]) recv(%k), channel_id=2, {PAIRS}
      %s = ({ARRAY}, u32[], token[]) send(%p, %k), channel_id=2, {PAIRS}
      %e = token[] send-done(%s), channel_id=2
      %f = ({ARRAY}, token[]) recv-done(%r), channel_id=2
      ROOT %g = {ARRAY} get-tuple-element(%f), index=0""",
    "choice": f"""%e = f32[1,1]{{1,0:T(8,128)}} slice(%p), slice={{[0:1], [0:1]}}
      %f = f32[] reshape(%e)
      %m = s32[] convert(%f)
      ROOT %n = {ARRAY} conditional(%m, %p, %p), branch_computations={{%within_0, %within_1}}""",
}

COMPUTATIONS = f"""{ADD}
%less (a: f32[], b: f32[]) -> pred[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = pred[] compare(%a, %b), direction=LT
}}
%condition (t: (s32[], f32[512,512])) -> pred[] {{
  %t = (s32[], {ARRAY}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %n = s32[] constant(20)
  ROOT %s = pred[] compare(%i, %n), direction=LT
}}
%body (t: (s32[], f32[512,512])) -> (s32[], f32[512,512]) {{
  %t = (s32[], {ARRAY}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %n = s32[] constant(1)
  %j = s32[] add(%i, %n)
  %x = {ARRAY} get-tuple-element(%t), index=1
  %y = {ARRAY} negate(%x)
  ROOT %r = (s32[], {ARRAY}) tuple(%j, %y)
}}
"""


def computation(name, body):
    """Return the text of a branch."""
    return f"%{name} (p: f32[512,512]) -> f32[512,512] {{\n  %p = {ARRAY} parameter(0)\n  {body}\n}}\n"


def module(*kinds):
    """Return a scheduled module for eight devices that runs a branch of one of some kinds."""
    names = [f"branch_{number}" for number in range(len(kinds))]
    within = "".join(computation(f"within_{n}", BODIES[kind]) for n, kind in enumerate(("negation", "sort")))
    branches = "".join(computation(name, BODIES[kind]) for name, kind in zip(names, kinds, strict=True))
    operands, called = ", %x" * len(kinds), ", ".join(f"%{name}" for name in names)
    entry = f"""ENTRY %main (i: s32[], x: f32[512,512]) -> f32[512,512] {{
  %i = s32[] parameter(0)
  %x = {ARRAY} parameter(1)
  ROOT %c = {ARRAY} conditional(%i{operands}), branch_computations={{{called}}}
}}
"""
    head = "HloModule m, is_scheduled=true, num_partitions=8\n\n"
    return parse_module(SourceText("m.v5e.hlo", head + COMPUTATIONS + within + branches + entry))


def with_branch(program, number):
    """Return a lowered program with another branch of its conditional."""
    (branch,) = program.steps
    return structs.replace(program, steps=(structs.replace(branch, taken=number),))


def times_ps(program, **options):
    """Return what a lowered program of one conditional takes with each of its branches."""
    count = len(program.steps[0].branches)
    return [tpusim.simulate(with_branch(program, n), **options).summary.total_ps for n in range(count)]


@pytest.mark.parametrize("kinds", list(combinations(BODIES, 2)), ids="-".join)
@pytest.mark.parametrize("options", [{"topology": "v5e:2x4"}, {"topology": "v4:2x2x2"}], ids=["v5e", "v4"])
def test_the_branch_that_takes_longest_is_taken(kinds, options):
    """Whatever fills it: each branch is run, as the only one."""
    result = tpusim.simulate(module(*kinds), **options)
    assert result.summary.total_ps == max(times_ps(result.program, **options))


def test_a_program_of_its_own_takes_the_same_branch():
    """The file of a lowered program has the branch, and whoever edits it has another one run."""
    lowered = tpusim.lower(module("product", "sum"), topology="v5e:2x4")
    result = tpusim.simulate(module("product", "sum"), topology="v5e:2x4")
    assert lowered.steps[0].taken == result.program.steps[0].taken == 1
    edited = tpusim.simulate(with_branch(lowered, 0), topology="v5e:2x4")
    assert edited.summary.total_ps < result.summary.total_ps


@pytest.mark.parametrize(("topology", "longest"), [("v5e:2x4", 0), ("v5e:1x8", 1)])
def test_the_slice_decides(topology, longest):
    """Three sorts take longer than a sum over two axes, and a sum along a single one longer than these."""
    result = tpusim.simulate(module("three sorts", "sum"), topology=topology)
    assert result.program.steps[0].taken == longest
    (warning,) = (text for text in result.program.warnings if "longest" in text)
    assert f"the longest, 'branch_{longest}', taken" in warning


def test_a_slice_that_does_not_fit_is_refused_as_before():
    """What no branch can be run on is not asked: the message is that of a program without them."""
    with pytest.raises(ConfigError, match="topology: the program is for 8 devices, this slice has 4"):
        tpusim.simulate(module("product", "sum"), topology="v5e:2x2")


def test_explain_shows_the_branch_that_ran():
    """With the ops inside it, and no others."""
    facts = explain(module("product", "sum"), "c", topology="v5e:2x4").facts
    assert (facts.branch, [op.name.partition(".")[0] for op in facts.ops]) == (1, ["a"])


def test_what_is_kept_between_runs_follows_from_the_links():
    """A sweep of their rate lowers such a program anew: another branch is the longest."""
    reuse, program, taken = Reuse(), module("three sorts", "sum"), []
    for rate in (45e9, 4.5e9, 450e9):
        options = {"topology": "v5e:2x4", "overrides": {"ici.link_bytes_per_second": rate}}
        taken.append(tpusim.simulate(program, reuse=reuse, **options).program.steps[0].taken)
        assert tpusim.lower(program, **options).steps[0].taken == taken[-1]
    assert taken == [0, 1, 0]


def test_beside_others_the_longest_is_taken_as_on_a_slice_of_its_own():
    """Of twelve chips eight are no whole slice of this program, and would be refused if it were alone on them."""
    text = "HloModule other, is_scheduled=true, num_partitions=4\n\nENTRY %e {\n  ROOT %p = f32[] parameter(0)\n}\n"
    other = parse_module(SourceText("other.v5e.hlo", text))
    result = tpusim.simulate(module("product", "sum"), topology="v5e:3x4", beside=[other])
    assert result.program.steps[0].taken == 1
