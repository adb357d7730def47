"""What instructions become: steps, bytes and work that follow from their shapes."""

from __future__ import annotations

import json

import pytest

from tests.lowering.hlo import ADD, kernel_named, lower_module_text, lower_text
from tpusim.analysis.memory import memory_use
from tpusim.cost.classes import unit_cycles
from tpusim.errors import ProgramError
from tpusim.hardware.load import load_chip
from tpusim.ir.ops import OPERATIONS
from tpusim.lowering.scope import RULES
from tpusim.program.steps import Branch, Call, ChannelTransfer, Collective, Copy, HostTransfer, Kernel, Loop, Wait
from tpusim.program.verify import verify_program
from tpusim.program.work import Work

BIG = "f32[1024,1024]{1,0:T(8,128)}"
VMEM = "f32[1024,1024]{1,0:T(8,128)S(1)}"
MIB = 2**20


def test_every_opcode_has_a_rule():
    """No opcode of XLA's text format is skipped in silence."""
    assert set(RULES) == set(OPERATIONS)


def test_elementwise_reads_operands_and_writes_its_result():
    """An addition of two 4 MiB arrays moves 12 MiB of HBM."""
    program = lower_text(f"""
        %x = {BIG} parameter(0)
        %y = {BIG} parameter(1)
        ROOT %z = {BIG} add(%x, %y)""")
    (step,) = program.steps
    assert step.hbm_bytes == pytest.approx(12 * MIB)
    assert step.flops == 1024 * 1024


def test_padding_is_paid_for():
    """A [1025,129] array moves as the [1032,256] that its tiles make of it."""
    shape = "f32[1025,129]{1,0:T(8,128)}"
    (step,) = lower_text(f"%x = {shape} parameter(0)\nROOT %z = {shape} negate(%x)").steps
    assert step.hbm_bytes == pytest.approx(2 * 1032 * 256 * 4)


def test_vmem_operands_move_no_hbm_bytes():
    """What the compiler placed in S(1) does not go over HBM."""
    (step,) = lower_text(f"%x = {VMEM} parameter(0)\nROOT %z = {VMEM} negate(%x)").steps
    assert step.hbm_bytes == 0


def test_scalars_run_on_the_scalar_core():
    """An addition of two s32[] is no kernel."""
    (step,) = lower_text("%x = s32[]{:T(128)S(6)} parameter(0)\nROOT %z = s32[]{:T(128)S(6)} add(%x, %x)").steps
    assert step.scalar


FUSED_SLICE = f"""\
%f (p: f32[1024,1024], i: s32[]) -> f32[8,1024] {{
  %p = {BIG} parameter(0)
  %i = s32[] parameter(1)
  %c = s32[] constant(0)
  %d = f32[8,1024]{{1,0:T(8,128)}} dynamic-slice(%p, %i, %c), dynamic_slice_sizes={{8,1024}}
  ROOT %n = f32[8,1024]{{1,0:T(8,128)}} negate(%d)
}}
"""


def test_a_fused_slice_reads_only_the_slice():
    """Of a 4 MiB operand that is sliced to 32 KiB only these move."""
    program = lower_text(
        f"""
        %x = {BIG} parameter(0)
        %i = s32[] parameter(1)
        ROOT %z = f32[8,1024]{{1,0:T(8,128)}} fusion(%x, %i), kind=kLoop, calls=%f""",
        FUSED_SLICE,
    )
    assert kernel_named(program, "z").hbm_bytes == pytest.approx(2 * 8 * 1024 * 4, rel=0.02)


def test_update_in_place_moves_only_the_update():
    """A dynamic-update-slice reads and writes its update, not the 4 MiB around it."""
    program = lower_text(f"""
        %x = {BIG} parameter(0)
        %u = f32[8,1024]{{1,0:T(8,128)}} parameter(1)
        %i = s32[] constant(0)
        ROOT %z = {BIG} dynamic-update-slice(%x, %u, %i, %i)""")
    assert kernel_named(program, "z").hbm_bytes == pytest.approx(2 * 8 * 1024 * 4, rel=0.02)


def test_reduce_counts_every_input_element():
    """The sum of a million numbers is a million additions."""
    program = lower_text(
        f"""
        %x = {BIG} parameter(0)
        %c = f32[] constant(0)
        ROOT %z = f32[1024]{{0:T(1024)}} reduce(%x, %c), dimensions={{1}}, to_apply=%add""",
        ADD,
    )
    step = kernel_named(program, "z")
    assert step.flops == 1024 * 1024
    assert step.work.ops["vector"] * step.tiles >= 1024
    assert step.work.ops["xlu"] > 0


def test_copy_start_and_done():
    """A copy runs from its start to its done, from HBM to VMEM."""
    program = lower_text(f"""
        %x = {BIG} parameter(0)
        %s = ({VMEM}, {BIG}, u32[]{{:S(2)}}) copy-start(%x)
        ROOT %d = {VMEM} copy-done(%s)""")
    copy, wait = program.steps
    assert isinstance(copy, Copy)
    assert (copy.n_bytes, copy.source_space, copy.target_space) == (4 * MIB, "hbm", "vmem")
    assert isinstance(wait, Wait)
    assert wait.needs == ("s",)


def test_asynchronous_slice_moves_the_slice():
    """The short form slice-start copies as much as it cuts out."""
    program = lower_text(f"""
        %x = {BIG} parameter(0)
        %s = (({BIG}), f32[256,1024]{{1,0:T(8,128)S(1)}}, s32[]{{:S(2)}}) slice-start(%x), slice={{[0:256], [0:1024]}}
        ROOT %d = f32[256,1024]{{1,0:T(8,128)S(1)}} slice-done(%s)""")
    assert program.steps[0].n_bytes == MIB


def test_an_update_of_a_short_form_waits_for_nothing():
    """A slice-update hands the slice on; only its done is waited for."""
    start = f"(({BIG}), f32[256,1024]{{1,0:T(8,128)S(1)}}, s32[]{{:S(2)}})"
    program = lower_text(f"""
        %x = {BIG} parameter(0)
        %s = {start} slice-start(%x), slice={{[0:256], [0:1024]}}
        %u = {start} slice-update(%s)
        ROOT %d = f32[256,1024]{{1,0:T(8,128)S(1)}} slice-done(%u)""")
    assert [type(step) for step in program.steps] == [Copy, Wait]


def test_views_take_no_time():
    """Tuples, their elements and bitcasts become no steps."""
    program = lower_text(f"""
        %x = {BIG} parameter(0)
        %t = ({BIG}, {BIG}) tuple(%x, %x)
        %e = {BIG} get-tuple-element(%t), index=1
        ROOT %b = f32[1048576]{{0:T(1024)}} bitcast(%e)""")
    assert program.steps == ()


COLLECTIVES = [
    ("all-reduce(%x), replica_groups={{0,1,2,3}}, to_apply=%add", "all-reduce", 4 * MIB, 4),
    ("all-to-all(%x), replica_groups=[2,4]<=[8], dimensions={0}", "all-to-all", 4 * MIB, 4),
    ("collective-permute(%x), source_target_pairs={{0,1},{1,0}}", "collective-permute", 4 * MIB, 2),
]


@pytest.mark.parametrize(("text", "kind", "n_bytes", "group"), COLLECTIVES)
def test_collectives(text, kind, n_bytes, group):
    """Kind, bytes and group size come from the instruction."""
    (step,) = lower_text(f"%x = {BIG} parameter(0)\nROOT %z = {BIG} {text}", ADD).steps
    assert isinstance(step, Collective)
    assert (step.kind, step.n_bytes, step.group_size) == (kind, n_bytes, group)


def test_all_gather_counts_the_gathered_array():
    """An all-gather among 4 of 4 MiB each makes 16 MiB."""
    text = "all-gather(%x), replica_groups={{0,1,2,3}}, dimensions={0}"
    (step,) = lower_text(f"%x = {BIG} parameter(0)\nROOT %z = f32[4096,1024]{{1,0:T(8,128)}} {text}").steps
    assert step.n_bytes == 16 * MIB


def test_infeed_is_a_host_transfer():
    """An infeed moves its array over the link to the host."""
    program = lower_text(f"""
        %t = token[] after-all()
        ROOT %i = ({BIG}, token[]) infeed(%t)""")
    (step,) = program.steps
    assert isinstance(step, HostTransfer)
    assert step.n_bytes == 4 * MIB


def test_send_and_receive_run_beside_the_core():
    """Channels to another device are started, then waited for."""
    program = lower_text(f"""
        %t = token[] after-all()
        %x = {BIG} parameter(0)
        %s = ({BIG}, u32[], token[]) send(%x, %t), channel_id=1
        ROOT %d = token[] send-done(%s), channel_id=1""")
    assert [type(step) for step in program.steps] == [ChannelTransfer, Wait]


def test_unknown_custom_call_is_listed():
    """What has no rule is costed by its bytes and named in the program."""
    text = f'%x = {BIG} parameter(0)\nROOT %z = {BIG} custom-call(%x), custom_call_target="Mystery"'
    program = lower_text(text)
    assert [(item.name, item.opcode) for item in program.unsupported] == [("z", "custom-call")]
    assert program.steps[0].hbm_bytes == pytest.approx(8 * MIB)


def test_conditional_takes_the_longest_branch_and_says_so():
    """Which branch runs is not known: the longer one, with a warning."""
    branches = f"""\
%small (p: f32[1024,1024]) -> f32[1024,1024] {{
  ROOT %p = {BIG} parameter(0)
}}

%large (q: f32[1024,1024]) -> f32[1024,1024] {{
  %q = {BIG} parameter(0)
  ROOT %n = {BIG} negate(%q)
}}
"""
    text = f"""
        %x = {BIG} parameter(0)
        %i = s32[] parameter(1)
        ROOT %z = {BIG} conditional(%i, %x, %x), branch_computations={{%small, %large}}"""
    program = lower_text(text, branches)
    assert isinstance(program.steps[0], Branch)
    assert program.steps[0].taken == 1
    assert "large" in program.warnings[0]


def test_the_longest_branch_is_that_at_the_peaks_of_its_types():
    """On v5e 2,048 columns in s8 take as long as 1,024 in bf16, and 1,536 of these longer."""
    branches = "".join(
        f"%{name} {{\n  %{name}.x = {side}[4096,4096]{{1,0:T(8,128)}} parameter(0)\n"
        f"  %{name}.y = {side}[4096,{columns}]{{1,0:T(8,128)}} constant({{...}})\n"
        f"  %{name}.d = {out}[4096,{columns}]{{1,0:T(8,128)}} dot(%{name}.x, %{name}.y), lhs_contracting_dims={{1}}, "
        f"rhs_contracting_dims={{0}}\n  ROOT %{name}.r = s32[] constant(0)\n}}\n\n"
        for name, side, out, columns in (("ints", "s8", "s32", 2048), ("floats", "bf16", "f32", 1536))
    )
    text = """
        %i = s32[] parameter(0)
        %x = s8[4096,4096]{1,0:T(8,128)} parameter(1)
        %y = bf16[4096,4096]{1,0:T(8,128)} parameter(2)
        ROOT %z = s32[] conditional(%i, %x, %y), branch_computations={%ints, %floats}"""
    (branch,) = lower_text(text, branches).steps
    assert branch.taken == 1


def test_call_holds_the_steps_of_its_computation():
    """A call is transparent."""
    called = (
        f"%g (p: f32[1024,1024]) -> f32[1024,1024] {{\n  %p = {BIG} parameter(0)\n  ROOT %n = {BIG} negate(%p)\n}}\n"
    )
    (step,) = lower_text(f"%x = {BIG} parameter(0)\nROOT %z = {BIG} call(%x), to_apply=%g", called).steps
    assert isinstance(step, Call)
    assert isinstance(step.body[0], Kernel)


def test_unscheduled_module_is_run_with_a_warning():
    """Without a schedule the order of the text is taken, and the user is told."""
    text = "HloModule m\n\nENTRY e {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] negate(x)\n}\n"
    assert "not scheduled" in lower_module_text(text).warnings[0]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("u32[] partition-id()", "on which 'y' depends: one is taken"),
        ("(f32[8], u32[], token[]) recv(k), channel_id=1", "on which 'y' depends: one is taken"),
        ("(f32[8], u32[], token[]) recv(k), channel_id=1, is_host_transfer=true", ""),
        ("f32[8] negate(x)", ""),
    ],
)
@pytest.mark.parametrize("counts", ["", ", num_partitions=2"])
def test_a_module_that_says_nothing_of_devices_is_for_one_with_a_warning(made, words, counts):
    """Serialised HLO has no counts of devices; where nothing depends on them that is no matter."""
    lines = f"  x = f32[8] parameter(0)\n  k = token[] after-all()\n  y = {made}\n"
    end = "  d = (f32[8], token[]) recv-done(y), channel_id=1\n" if "recv" in made else ""
    end = end.replace("id=1", "id=1, is_host_transfer=true") if "is_host" in made else end
    text = f"HloModule m, is_scheduled=true{counts}\n\nENTRY e {{\n{lines}{end}  ROOT r = f32[8] negate(x)\n}}\n"
    found = [warning for warning in lower_module_text(text).warnings if "how many devices" in warning]
    assert len(found) == bool(words and not counts)
    assert all(words in warning for warning in found)


LOOP = """\
%body (p: (s32[])) -> (s32[]) {
  %p = (s32[]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  ROOT %t = (s32[]) tuple(%next)
}

%condition (q: (s32[])) -> pred[] {
  %q = (s32[]) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %end = s32[] constant(12)
  ROOT %less = pred[] compare(%j, %end), direction=LT
}
"""


def test_loop_holds_condition_and_body():
    """A while becomes a Loop with its trips."""
    start = "%zero = s32[] constant(0)\n%init = (s32[]) tuple(%zero)\n"
    program = lower_text(f"{start}ROOT %w = (s32[]) while(%init), condition=%condition, body=%body", LOOP)
    loop = next(step for step in program.steps if isinstance(step, Loop))
    assert (loop.trips, loop.trips_from) == (12, "induction variable")
    assert [[step.name for step in part] for part in (loop.condition, loop.body)] == [["less"], ["next"]]


FUSED_UPDATE = f"""\
%f (p: f32[1024,1024], u: f32[8,1024], i: s32[]) -> f32[1024,1024] {{
  %p = {BIG} parameter(0)
  %u = f32[8,1024]{{1,0:T(8,128)}} parameter(1)
  %i = s32[] parameter(2)
  %d = {BIG} dynamic-update-slice(%p, %u, %i, %i)
  ROOT %n = {BIG} negate(%d)
}}
"""


def test_an_update_that_is_computed_with_reads_everything():
    """In a fusion whose root is not the update itself, all of the operand is read and all of the result written."""
    text = f"""
        %x = {BIG} parameter(0)
        %u = f32[8,1024]{{1,0:T(8,128)}} parameter(1)
        %i = s32[] parameter(2)
        ROOT %z = {BIG} fusion(%x, %u, %i), kind=kLoop, calls=%f"""
    assert kernel_named(lower_text(text, FUSED_UPDATE), "z").hbm_bytes == pytest.approx(8 * MIB, rel=0.02)


def test_a_fusion_between_scalars_may_be_no_scalar():
    """A large array that is made and summed inside is vector work."""
    called = f"""{ADD}
%f (p: f32[]) -> f32[] {{
  %p = f32[] parameter(0)
  %b = {BIG} broadcast(%p), dimensions={{}}
  ROOT %r = f32[] reduce(%b, %p), dimensions={{0,1}}, to_apply=%add
}}
"""
    program = lower_text("%x = f32[] parameter(0)\nROOT %z = f32[] fusion(%x), kind=kLoop, calls=%f", called)
    assert not kernel_named(program, "z").scalar


def test_asynchronous_update_moves_the_update_to_where_it_goes():
    """From VMEM into the array in HBM, 32 KiB of it."""
    update = "f32[8,1024]{1,0:T(8,128)S(1)}"
    program = lower_text(f"""
        %x = {BIG} parameter(0)
        %u = {update} parameter(1)
        %i = s32[] constant(0)
        %s = (({BIG}, {update}, s32[], s32[]), {BIG}, s32[]{{:S(2)}}) dynamic-update-slice-start(%x, %u, %i, %i)
        ROOT %d = {BIG} dynamic-update-slice-done(%s)""")
    copy = program.steps[0]
    assert (copy.n_bytes, copy.source_space, copy.target_space) == (32 * 1024, "vmem", "hbm")


def test_offloaded_computation_is_followed():
    """The custom call that hands a computation to the sparse cores costs what the computation does."""
    called = (
        f"%g (p: f32[1024,1024]) -> f32[1024,1024] {{\n  %p = {BIG} parameter(0)\n  ROOT %n = {BIG} negate(%p)\n}}\n"
    )
    call = 'custom-call(%x), custom_call_target="later", called_computations={%g}'
    program = lower_text(f"%x = {BIG} parameter(0)\nROOT %z = {BIG} {call}", called)
    assert isinstance(program.steps[0].body[0], Kernel)
    assert program.unsupported == ()


def test_outputs_over_arguments_count_once():
    """An aliased output needs no memory of its own."""
    text = f"""HloModule m, is_scheduled=true, input_output_alias={{ {{}}: (0, {{}}, may-alias) }}

ENTRY e {{
  %x = {BIG} parameter(0)
  ROOT %z = {BIG} negate(%x)
}}
"""
    assert lower_module_text(text).alias_bytes == 4 * MIB


def test_what_lies_on_the_host_is_written_over_nothing_of_the_device():
    """An offloaded argument that a result takes over is in no figure of the device's memory."""
    host = "f32[1024,1024]{1,0:T(8,128)S(5)}"
    text = (
        "HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, must-alias) }\n\nENTRY e {\n"
        f"  p = {host} parameter(0)\n  q = f32[8,128]{{1,0:T(8,128)}} parameter(1)\n"
        f"  n = f32[8,128]{{1,0:T(8,128)}} negate(q)\n  ROOT r = ({host}, f32[8,128]{{1,0:T(8,128)}}) tuple(p, n)\n}}\n"
    )
    program = lower_module_text(text)
    verify_program(program)
    assert (program.argument_bytes, program.alias_bytes) == (4096, 0)


def test_registered_cost_is_taken(registered):
    """A user's target costs what its cost says, beside its bytes, and counts as known."""
    registered("Mystery", cost=lambda instruction, chip: Work(ops={"vector": 1e6}))
    text = f'%x = {BIG} parameter(0)\nROOT %z = {BIG} custom-call(%x), custom_call_target="Mystery"'
    program = lower_text(text)
    assert program.unsupported == ()
    assert program.steps[0].work.ops["vector"] * program.steps[0].tiles == pytest.approx(1e6)


def test_a_registered_cost_names_units_that_exist(registered):
    """A slip in the name of a unit would else make the call cost nothing."""
    registered("Mystery", cost=lambda instruction, chip: Work(ops={"valu": 1e6}))
    text = f'%x = {BIG} parameter(0)\nROOT %z = {BIG} custom-call(%x), custom_call_target="Mystery"'
    with pytest.raises(ProgramError, match=r"cost of the custom call 'Mystery': work.ops: .*found 'valu'"):
        lower_text(text)


def test_scaled_dot_multiplies_its_first_two_operands():
    """The scales stand behind both sides, as in XLA's text."""
    text = """
        %x = f32[64,128]{1,0:T(8,128)} parameter(0)
        %w = f32[128,32]{1,0:T(8,128)} parameter(1)
        %s = f32[64,4]{1,0:T(8,128)} parameter(2)
        %t = f32[4,32]{1,0:T(8,128)} parameter(3)
        ROOT %z = f32[64,32] scaled-dot(%x, %w, %s, %t), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
    assert kernel_named(lower_text(text), "z").flops == 2 * 64 * 128 * 32


@pytest.mark.parametrize("steps", [64, 4096])
def test_a_scan_takes_a_cycle_per_step_at_least(steps):
    """Each step's addition waits for the one before, so that of all slots one works."""
    slots = load_chip("v5e").vpu.alu_slots
    text = f"""HloModule m
        step {{ x = f32[] parameter(0) c = f32[] parameter(1) y = f32[] add(x, c) ROOT r = (f32[], f32[]) tuple(y, y) }}
        ENTRY e {{ a = f32[{steps}] parameter(0) z = f32[] constant(0)
          ROOT r = (f32[{steps}], f32[]) scan(a, z), dimensions={{0}}, num_carries=1, to_apply=step }}"""
    (kernel,) = lower_module_text(text).steps
    assert kernel.work.ops["vector"] == steps * slots


def test_a_reduction_pays_for_what_its_computation_calls():
    """A call between a reduction and its addition makes nothing cheaper."""
    outer = ADD.replace("%add ", "%outer ").replace("add(%a, %b)", "call(%a, %b), to_apply=%add")
    text = f"""
        %x = {BIG} parameter(0)
        %z = f32[] constant(0)
        ROOT %r = f32[1024]{{0:T(1024)}} reduce(%x, %z), dimensions={{0}}, to_apply=%NAME"""
    plain, called = (lower_text(text.replace("NAME", name), ADD + outer).steps[0] for name in ("add", "outer"))
    assert called.work == plain.work


def test_of_equally_long_branches_the_first_is_taken():
    """And of three the first of the two longest."""
    half = "f32[512,1024]{1,0:T(8,128)}"
    branch = f"%NAME {{\n  %p = {BIG} parameter(0)\n  ROOT %c = {half} slice(%BODY), slice={{[0:512], [0:1024]}}\n}}\n"
    short = branch.replace("NAME", "a").replace("BODY", "p")
    longer = branch.replace("ROOT", f"%n = {BIG} negate(%p)\n  ROOT").replace("BODY", "n")
    program = lower_text(
        f"""
        %x = {BIG} parameter(0)
        %i = s32[] parameter(1)
        ROOT %z = {half} conditional(%i, %x, %x, %x), branch_computations={{%a, %b, %c}}""",
        short + longer.replace("NAME", "b") + longer.replace("NAME", "c"),
    )
    assert program.steps[0].taken == 1


def test_a_collective_without_a_channel_is_on_none():
    """0 is how the protocol buffer says that there is none."""
    line = "all-gather(%x), replica_groups={{0,1}}, dimensions={0}"
    lines = f"%x = {BIG} parameter(0)\nROOT %y = f32[2048,1024]{{1,0:T(8,128)}} {line}"
    assert [lower_text(text).steps[0].channel_id for text in (lines, f"{lines}, channel_id=3")] == [0, 3]


def test_an_end_waits_for_the_element_of_a_tuple_that_was_started():
    """The second of two: what stands beside it is no start."""
    state = f"({BIG}, u32[], token[])"
    program = lower_text(f"""
        %x = {BIG} parameter(0)
        %k = token[] after-all()
        %s = {state} send(%x, %k), channel_id=1
        %t = ({BIG}, {state}) tuple(%x, %s)
        %g = {state} get-tuple-element(%t), index=1
        ROOT %d = token[] send-done(%g), channel_id=1""")
    assert [step.needs for step in program.steps if isinstance(step, Wait)] == [("s",)]
    assert not any("outside its computation" in warning for warning in program.warnings)


@pytest.mark.parametrize(
    ("source", "target", "moved"),
    [("", "S(6)", ["x"]), ("S(6)", "", ["y"]), ("S(6)", "S(6)", []), ("", "", [])],
)
def test_a_scalar_is_moved_by_what_copies_it_to_another_memory(source, target, moved):
    """Into SMEM for kernels that would each fetch it, or back."""
    text = f"%x = s32[]{{:T(128){source}}} parameter(0)\nROOT %y = s32[]{{:T(128){target}}} copy(%x)"
    (step,) = lower_text(text).steps
    assert [(stream.operand, stream.space) for stream in step.streams] == [(name, "hbm") for name in moved]


def test_a_fusion_of_scalars_takes_an_operation_for_each_that_computes():
    """Three of four; one that only hands a number on takes one all the same."""
    number = "s32[]{:T(128)S(6)}"
    called = f"""%f {{
  %p = {number} parameter(0)
  %a = {number} add(%p, %p)
  %b = {number} multiply(%a, %p)
  %c = {number} copy(%b)
  ROOT %d = {number} negate(%c)
}}
"""
    lines = f"%x = {number} parameter(0)\nROOT %y = {number} fusion(%x), kind=kLoop, calls=%f"
    (fused,), (copied,) = (
        lower_text(*texts).steps
        for texts in ((lines, called), (f"%x = {number} parameter(0)\nROOT %y = {number} copy(%x)",))
    )
    assert (fused.scalar, fused.work.ops, copied.work.ops) == (True, {"scalar": 3.0}, {"scalar": 1.0})


def stated_call(operand=BIG, chip="v5e", **estimate):
    """Return the program of one Pallas kernel that states its cost, in the text form of JAX's own."""
    config = f'{{"custom_call_config":{{"body":"","cost_estimate":{json.dumps(estimate)},"serialization_format":1}}}}'
    call = f'custom-call(%x), custom_call_target="tpu_custom_call", backend_config={config}'
    return lower_text(f"%x = {operand} parameter(0)\nROOT %z = {operand} {call}", chip=chip)


@pytest.mark.parametrize("operand", [BIG, "bf16[1024,1024]{1,0:T(8,128)(2,1)}", "s8[1024,1024]{1,0:T(8,128)(4,1)}"])
def test_a_hand_written_kernel_takes_at_least_the_flops_that_it_states(operand):
    """At the array's rate for what it touches, of bf16 if that is not known; it is listed all the same."""
    chip = load_chip("v5e")
    program = stated_call(operand, flops=10**12, transcendentals=0, bytes_accessed=0)
    (kernel,) = program.steps
    rate = 2 if operand.startswith("s8") else 1
    macs_per_cycle = chip.mxu.count * chip.mxu.rows * chip.mxu.columns * rate * chip.mxu.efficiency
    assert unit_cycles(kernel.work, chip)["matrix"] * kernel.tiles == pytest.approx(10**12 / 2 / macs_per_cycle)
    assert (kernel.flops, kernel.flops_type) == (10**12, "s8" if rate == 2 else "bf16")
    assert [item.name for item in program.unsupported] == ["z"]


def test_a_hand_written_kernel_takes_at_least_the_transcendentals_that_it_states():
    """One for each element of a register."""
    (kernel,) = stated_call(flops=0, transcendentals=2**30, bytes_accessed=0).steps
    assert kernel.work.ops["eup"] * kernel.tiles == pytest.approx(2**20)
    assert kernel.work.matmuls == ()


@pytest.mark.parametrize(("operand", "stated", "moved"), [(BIG, 2, 8), (BIG, 24, 24), (VMEM, 24, 0)])
def test_a_hand_written_kernel_moves_at_least_the_bytes_that_it_states(operand, stated, moved):
    """Never less than operands and results; what lies in VMEM moves nothing, however often it is read (in MiB)."""
    (kernel,) = stated_call(operand, flops=0, transcendentals=0, bytes_accessed=stated * MIB).steps
    assert kernel.hbm_bytes == pytest.approx(moved * MIB)


def test_bytes_that_are_stated_take_time_and_no_room():
    """What moves more often than its operands and results say has no larger blocks for that."""
    plain, stated = (stated_call(flops=0, transcendentals=0, bytes_accessed=count * MIB) for count in (0, 2**20))
    assert stated.steps[0].vmem_bytes == plain.steps[0].vmem_bytes > 0
    needed = {memory_use(program).peak_vmem_bytes for program in (plain, stated)}
    assert needed == {plain.steps[0].vmem_bytes}


def test_a_kernel_beside_the_core_takes_none_of_its_vmem():
    """What an asynchronous call runs is on other processors, with memories of their own."""
    started = f"(({BIG}), {BIG}, u32[]) negate-start(%x)"
    program = lower_text(f"%x = {BIG} parameter(0)\n%s = {started}\nROOT %d = {BIG} negate-done(%s)")
    assert program.steps[0].is_async
    assert memory_use(program).peak_vmem_bytes == 0


def test_a_stated_cost_counts_inside_a_fusion_too():
    """The compiler may put what a kernel reads into one fusion with it."""
    config = '{"custom_call_config":{"cost_estimate":{"flops":"2000000"}}}'
    fused = f"""\
%f {{
  %p = {BIG} parameter(0)
  ROOT %c = {BIG} custom-call(%p), custom_call_target="tpu_custom_call", backend_config={config}
}}
"""
    program = lower_text(f"%x = {BIG} parameter(0)\nROOT %z = {BIG} fusion(%x), kind=kCustom, calls=%f", fused)
    assert program.steps[0].flops == 2 * 10**6
    assert [item.name for item in program.unsupported] == ["c"]
