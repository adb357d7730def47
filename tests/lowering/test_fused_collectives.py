"""Fusions that hold a collective: the collective and what else they do are steps of their own."""

from __future__ import annotations

import pytest

from tests.lowering.hlo import ADD, lower_text
from tpusim.program.steps import Collective, Kernel, Loop, Wait

X = "f32[256,256]{1,0:T(8,128)}"
PART = "f32[64,256]{1,0:T(8,128)}"
STATE = f"({PART}, {X}, u32[])"
FLOPS = 2 * 256**3
GATHER = "all-gather(%p0), replica_groups={{0,1,2,3}}, dimensions={0}"

FUSED = f"""\
{ADD}
%start {{
  %p0 = {PART} parameter(0)
  %g = {X} {GATHER} CHANNEL
  ROOT %c = {STATE} custom-call(%g), custom_call_target="AsyncCollectiveStart"
}}

%beside {{
  %p0 = {PART} parameter(0)
  %p1 = {X} parameter(1)
  %p2 = u32[] parameter(2)
  %p3 = {X} parameter(3)
  %d = {X} dot(%p3, %p3), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  %g = {X} {GATHER} CHANNEL
  ROOT %r = ({X}, {PART}, {X}, {X}, u32[]) tuple(%d, %p0, %p1, %g, %p2)
}}

%end {{
  %p0 = {PART} parameter(0)
  %p1 = {X} parameter(1)
  %p2 = u32[] parameter(2)
  %g = {X} {GATHER} CHANNEL
  ROOT %c = {X} custom-call(%p0, %p1, %g, %p2), custom_call_target="AsyncCollectiveDone"
}}
"""

BESIDE = f"({X}, {PART}, {X}, {X}, u32[])"
ENTRY = f"""\
%part = {PART} parameter(0)
%x = {X} parameter(1)
%s = {STATE} fusion(%part), kind=kCustom, calls=%start
%a0 = {PART} get-tuple-element(%s), index=0
%a1 = {X} get-tuple-element(%s), index=1
%a2 = u32[] get-tuple-element(%s), index=2
%k = {BESIDE} fusion(%a0, %a1, %a2, %x), kind=kOutput, calls=%beside
%k1 = {PART} get-tuple-element(%k), index=1
%k2 = {X} get-tuple-element(%k), index=2
%k4 = u32[] get-tuple-element(%k), index=4
ROOT %e = {X} fusion(%k1, %k2, %k4), kind=kCustom, calls=%end"""

LOOP = f"""\
%body {{
  %b = {STATE} parameter(0)
  %a0 = {PART} get-tuple-element(%b), index=0
  %a1 = {X} get-tuple-element(%b), index=1
  %a2 = u32[] get-tuple-element(%b), index=2
  %k = {BESIDE} fusion(%a0, %a1, %a2, %a1), kind=kOutput, calls=%beside
  %k1 = {PART} get-tuple-element(%k), index=1
  %k2 = {X} get-tuple-element(%k), index=2
  %k4 = u32[] get-tuple-element(%k), index=4
  ROOT %t = {STATE} tuple(%k1, %k2, %k4)
}}

%condition {{
  %b = {STATE} parameter(0)
  %n = u32[] get-tuple-element(%b), index=2
  %two = u32[] constant(2)
  ROOT %less = pred[] compare(%n, %two), direction=LT
}}
"""
AROUND_LOOP = f"""\
%part = {PART} parameter(0)
%s = {STATE} fusion(%part), kind=kCustom, calls=%start
%w = {STATE} while(%s), condition=%condition, body=%body
%w0 = {PART} get-tuple-element(%w), index=0
%w1 = {X} get-tuple-element(%w), index=1
%w2 = u32[] get-tuple-element(%w), index=2
ROOT %e = {X} fusion(%w0, %w1, %w2), kind=kCustom, calls=%end"""


@pytest.mark.parametrize("channel", [", channel_id=7", ""])
def test_a_collective_goes_on_under_a_kernel(channel):
    """With a channel or by who hands its buffers to whom: one start, one product, one end."""
    start, kernel, end = lower_text(ENTRY, FUSED.replace(" CHANNEL", channel)).steps
    assert isinstance(start, Collective)
    assert (start.is_async, start.n_bytes, start.group_size) == (True, 256 * 256 * 4, 4)
    assert isinstance(kernel, Kernel)
    assert (kernel.name, kernel.product_flops, kernel.flops) == ("k", FLOPS, FLOPS)
    assert isinstance(end, Wait)
    assert end.needs == ("s",)


def test_a_kernel_touches_nothing_of_the_collective_beside_it():
    """It reads its own operand and writes its own result; the buffers that it hands through stay where they are."""
    kernel = lower_text(ENTRY, FUSED.replace(" CHANNEL", ", channel_id=7")).steps[1]
    assert isinstance(kernel, Kernel)
    assert {(stream.operand, stream.is_output) for stream in kernel.streams} == {("x", False), ("k", True)}
    assert [stream.total_bytes for stream in kernel.streams if stream.is_output] == [256 * 256 * 4]


def test_a_collective_goes_on_through_a_loop():
    """What comes in with a loop's state is known by its channel; behind the loop the end finds its start."""
    start, loop, end = lower_text(AROUND_LOOP, FUSED.replace(" CHANNEL", ", channel_id=7") + "\n" + LOOP).steps
    assert isinstance(loop, Loop)
    assert [(type(step), step.name) for step in loop.body] == [(Kernel, "k")]
    assert (start.name, end.needs) == ("s", ("s",))


def test_an_end_in_a_loop_waits_for_the_start_before_it():
    """Its flags come in with the state, so that only the channel tells."""
    ended = LOOP.replace(
        f"  ROOT %t = {STATE} tuple(%k1, %k2, %k4)",
        f"  %e = {X} fusion(%k1, %k2, %k4), kind=kCustom, calls=%end\n  ROOT %t = {STATE} tuple(%k1, %e, %k4)",
    )
    entry = AROUND_LOOP.rsplit("\n", 4)[0].replace("%w =", "ROOT %w =")
    _, loop = lower_text(entry, FUSED.replace(" CHANNEL", ", channel_id=7") + "\n" + ended).steps
    assert isinstance(loop, Loop)
    assert [(step.name, step.needs) for step in loop.body] == [("k", ()), ("e", ("s",))]


def test_starts_on_two_channels_are_told_apart():
    """An end waits for the start on its own channel, though both stand before it."""
    seven, eight = (FUSED.replace(ADD, "").replace(" CHANNEL", f", channel_id={n}") for n in (7, 8))
    eight = eight.replace("%start", "%start8").replace("%beside", "%beside8").replace("%end", "%end8")
    lines = ENTRY.split("\n")
    lines.insert(3, f"%o = {STATE} fusion(%part), kind=kCustom, calls=%start8")
    steps = lower_text("\n".join(lines), seven + "\n" + eight).steps
    assert [(type(step), step.needs) for step in steps] == [
        (Collective, ()),
        (Collective, ()),
        (Kernel, ()),
        (Wait, ("s",)),
    ]


def test_what_nobody_started_is_run_on_the_core():
    """A kernel with a collective whose start the program does not have does both."""
    entry = f"""\
%part = {PART} parameter(0)
%x = {X} parameter(1)
%n = u32[] parameter(2)
ROOT %k = {BESIDE} fusion(%part, %x, %n, %x), kind=kOutput, calls=%beside"""
    collective, kernel = lower_text(entry, FUSED.replace(" CHANNEL", ", channel_id=7")).steps
    assert (collective.is_async, kernel.product_flops) == (False, FLOPS)


FIRST = f"""\
{ADD}
%both {{
  %p0 = {X} parameter(0)
  %p1 = {X} parameter(1)
  %d = {X} dot(%p0, %p1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT %r = {X} all-reduce(%d), replica_groups={{{{0,1,2,3}}}}, to_apply=%add
}}
"""
SECOND = f"""\
{ADD}
%both {{
  %p0 = {X} parameter(0)
  %p1 = {X} parameter(1)
  %r = {X} all-reduce(%p0), replica_groups={{{{0,1,2,3}}}}, to_apply=%add
  ROOT %d = {X} dot(%r, %p1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""


@pytest.mark.parametrize(("fused", "order"), [(FIRST, [Kernel, Collective]), (SECOND, [Collective, Kernel])])
def test_a_product_fused_with_a_collective_is_kept(fused, order):
    """Whichever takes what the other makes comes second; the sums of an all-reduce are its own operations."""
    entry = f"%x = {X} parameter(0)\n%y = {X} parameter(1)\nROOT %f = {X} fusion(%x, %y), kind=kOutput, calls=%both"
    steps = lower_text(entry, fused).steps
    assert [type(step) for step in steps] == order
    assert {type(step): step.flops for step in steps} == {Kernel: FLOPS, Collective: 256 * 256}


def test_every_collective_of_a_fusion_counts():
    """Two all-reduces with a product between them."""
    last = f"  ROOT %q = {X} all-reduce(%d), replica_groups={{{{0,1,2,3}}}}, to_apply=%add\n}}\n"
    fused = SECOND.replace("ROOT %d", "%d").removesuffix("}\n") + last
    entry = f"%x = {X} parameter(0)\n%y = {X} parameter(1)\nROOT %f = {X} fusion(%x, %y), kind=kOutput, calls=%both"
    steps = lower_text(entry, fused).steps
    assert sorted(step.flops for step in steps) == [256 * 256, 256 * 256, FLOPS]


def test_a_slice_of_an_all_reduce_is_a_reduce_scatter_alone():
    """Where the slice begins is computed from the device's own number: single elements make no kernel."""
    fused = f"""\
{ADD}
%scatter {{
  %p0 = {X} parameter(0)
  %i = u32[] parameter(1)
  %r = {X} all-reduce(%p0), replica_groups={{{{0,1,2,3}}}}, to_apply=%add
  %rows = u32[] constant(64)
  %at = u32[] multiply(%i, %rows)
  %zero = u32[] constant(0)
  ROOT %d = {PART} dynamic-slice(%r, %at, %zero), dynamic_slice_sizes={{64,256}}
}}
"""
    entry = (
        f"%x = {X} parameter(0)\n%i = u32[] parameter(1)\nROOT %f = {PART} fusion(%x, %i), kind=kLoop, calls=%scatter"
    )
    (step,) = lower_text(entry, fused).steps
    assert (step.kind, step.is_async) == ("reduce-scatter", False)


SCATTERED = f"""\
{ADD}
%scatter {{
  %p0 = {X} parameter(0)
  %p1 = {X} parameter(1)
  %i = u32[] parameter(2)
  %r = ({X}, {X}) all-reduce(%p0, %p1), replica_groups={{{{0,1,2,3}}}}, to_apply=%add
  %zero = u32[] constant(0)
  %r0 = {X} get-tuple-element(%r), index=0
  %d0 = {PART} dynamic-slice(%r0, %i, %zero), dynamic_slice_sizes={{64,256}}
  %r1 = {X} get-tuple-element(%r), index=1
  %d1 = {PART} dynamic-slice(%r1, %i, %zero), dynamic_slice_sizes={{64,256}}
  ROOT %d = ({PART}, {PART}) tuple(%d0, %d1)
}}
"""


def test_slices_of_several_sums_are_a_reduce_scatter_as_well():
    """What the TPU compiler makes one of small gradients: a tuple of slices."""
    arguments = f"%x = {X} parameter(0)\n%y = {X} parameter(1)\n%i = u32[] parameter(2)\n"
    call = f"ROOT %f = ({PART}, {PART}) fusion(%x, %y, %i), kind=kCustom, calls=%scatter"
    (step,) = lower_text(arguments + call, SCATTERED).steps
    assert (step.kind, step.n_bytes) == ("reduce-scatter", 2 * 256 * 256 * 4)


NEAR = X.replace("}", "S(1)}")


@pytest.mark.parametrize(("result", "hbm_bytes"), [(X, 5 * 64 * 256 * 4), (NEAR, 64 * 256 * 4)])
def test_where_a_fused_start_puts_its_result_stands_outside(result, hbm_bytes):
    """Its operand is read; the result, four times as large, is written to HBM only where it lies there."""
    placed = STATE.replace(X, result)
    fused = FUSED.replace(" CHANNEL", ", channel_id=7").replace(f"%c = {STATE}", f"%c = {placed}")
    step = lower_text(
        f"%part = {PART} parameter(0)\nROOT %s = {placed} fusion(%part), kind=kCustom, calls=%start", fused
    )
    assert step.steps[0].hbm_bytes == hbm_bytes


def test_the_operands_of_a_fused_start_are_none_of_its_results():
    """Two arrays in HBM are gathered into VMEM: nothing is written to HBM."""
    state = f"({PART}, {PART}, {NEAR}, {NEAR}, u32[])"
    gathered = f"({X}, {X}) all-gather(%p0, %p1), replica_groups={{{{0,1,2,3}}}}, dimensions={{0}}"
    fused = f"""\
%start {{
  %p0 = {PART} parameter(0)
  %p1 = {PART} parameter(1)
  %g = {gathered}
  ROOT %c = {state} custom-call(%g), custom_call_target="AsyncCollectiveStart"
}}
"""
    call = "fusion(%a, %b), kind=kCustom, calls=%start"
    entry = f"%a = {PART} parameter(0)\n%b = {PART} parameter(1)\nROOT %s = {state} {call}"
    assert lower_text(entry, fused).steps[0].hbm_bytes == 2 * 64 * 256 * 4


NESTED = f"""\
{ADD}
%inner {{
  %q = {X} parameter(0)
  ROOT %g = {X} all-reduce(%q), replica_groups={{{{0,1,2,3}}}}, to_apply=%add
}}
%outer {{
  %p = {X} parameter(0)
  ROOT %c = {X} fusion(%p), kind=kLoop, calls=%inner
}}
"""


def test_a_collective_in_a_fusion_inside_a_fusion_is_found():
    """However deep it stands, it is no kernel."""
    entry = f"%x = {X} parameter(0)\nROOT %f = {X} fusion(%x), kind=kLoop, calls=%outer"
    (step,) = lower_text(entry, NESTED).steps
    assert (step.kind, step.n_bytes, step.group_size) == ("all-reduce", 256 * 256 * 4, 4)


@pytest.mark.parametrize(("elements", "kernels"), [(1, 0), (2, 1)])
def test_two_elements_beside_a_collective_are_a_kernel(elements, kernels):
    """One is a number of the scalar core, which says where the collective's data goes."""
    small = f"f32[{elements}]{{0:T(128)}}"
    fused = f"""\
{ADD}
%both {{
  %p0 = {X} parameter(0)
  %p1 = {small} parameter(1)
  %r = {X} all-reduce(%p0), replica_groups={{{{0,1,2,3}}}}, to_apply=%add
  %n = {small} negate(%p1)
  ROOT %t = ({X}, {small}) tuple(%r, %n)
}}
"""
    entry = f"%x = {X} parameter(0)\n%y = {small} parameter(1)\n"
    entry += f"ROOT %f = ({X}, {small}) fusion(%x, %y), kind=kLoop, calls=%both"
    assert [type(step) for step in lower_text(entry, fused).steps] == [Collective, *[Kernel] * kernels]


def test_a_collective_of_an_element_that_a_fusion_made_is_no_end():
    """The fusion hands over a tuple, of which the next takes the second: nobody started anything."""
    fused = f"""\
%make {{
  %p0 = {X} parameter(0)
  %n = {X} negate(%p0)
  %q = {PART} slice(%p0), slice={{[0:64], [0:256]}}
  ROOT %t = ({X}, {PART}) tuple(%n, %q)
}}
%gather {{
  %s = ({X}, {PART}) parameter(0)
  %e = {PART} get-tuple-element(%s), index=1
  ROOT %g = {X} all-gather(%e), replica_groups={{{{0,1,2,3}}}}, dimensions={{0}}
}}
"""
    entry = f"%x = {X} parameter(0)\n%m = ({X}, {PART}) fusion(%x), kind=kLoop, calls=%make\n"
    steps = lower_text(f"{entry}ROOT %f = {X} fusion(%m), kind=kLoop, calls=%gather", fused).steps
    assert [(type(step), step.name) for step in steps] == [(Kernel, "m"), (Collective, "f")]
    assert steps[1].is_async is False


def test_a_collective_in_a_computation_that_runs_beside_the_core_does_too():
    """The general start, around what has no start of its own."""
    shape = "f32[256,256]{1,0:T(8,128)}"
    start, end = lower_text(
        f"""
        %x = {shape} parameter(0)
        %s = (({shape}), {shape}, u32[]) async-start(%x), calls=%wrapped
        ROOT %d = {shape} async-done(%s)""",
        f"""%wrapped {{
  %p = {shape} parameter(0)
  ROOT %t = {shape} all-to-all(%p), dimensions={{0}}, replica_groups={{{{0,1}}}}
}}
""",
    ).steps
    assert isinstance(start, Collective)
    assert (start.kind, start.is_async) == ("all-to-all", True)
    assert isinstance(end, Wait)


def test_a_start_in_a_fusion_is_the_collective_that_it_starts():
    """An opcode's ending is no kind: there are times for ``collective-permute`` only."""
    fused = f"""\
%move {{
  %p0 = {X} parameter(0)
  %s = ({X}, {X}, u32[], u32[]) collective-permute-start(%p0), source_target_pairs={{{{0,1}},{{1,0}}}}
  ROOT %d = {X} collective-permute-done(%s)
}}
"""
    step, *_ = lower_text(f"%x = {X} parameter(0)\nROOT %f = {X} fusion(%x), kind=kLoop, calls=%move", fused).steps
    assert (step.kind, step.pairs) == ("collective-permute", ((0, 1), (1, 0)))
