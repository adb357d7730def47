"""Which instructions hand buffers on: asynchronous pairs, channels, views, calls (XLA's data-flow analysis)."""

from __future__ import annotations

import pytest

from tests.lowering.hlo import lower_module_text, lower_text
from tpusim.program.module import Program

MIB = 2**20
BIG = "f32[1024,1024]{1,0:T(8,128)}"
WIDE = "f32[4096,1024]{1,0:T(8,128)}"
SMALL = "f32[8,128]{1,0:T(8,128)}"
END = f"ROOT %r = {SMALL} slice(%d), slice={{[0:8], [0:128]}}"


def lives(program: Program) -> list[tuple[str, int, str, str]]:
    """Return, of every temporary of a megabyte or more, its name, MiB, and the first and last that need it."""
    # One past the end stands for what is returned.
    names = (*program.schedule, "end")
    found = [b for b in program.buffers if b.kind == "temporary" and b.n_bytes >= MIB]
    return sorted((b.name, b.n_bytes // MIB, names[b.first], names[b.last]) for b in found)


def with_start(start: str, done: str, others: str = "") -> list[tuple[str, int, str, str]]:
    """Return the lives in a program that starts something with ``%b`` and ends it after a kernel."""
    lines = f"%a = {BIG} parameter(0)\n%b = {BIG} negate(%a)\n{start}\n%k = {SMALL} slice(%a), slice={{[0:8], [0:128]}}"
    return lives(lower_text(f"{lines}\n{done}\n{END}", others))


GROUPS = "replica_groups={{0,1,2,3}}"
WRAPPED = f"%w {{\n  %x = {BIG} parameter(0)\n  ROOT %n = {BIG} negate(%x)\n}}\n"
SUM = """%sum {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}
"""
STARTS = {
    "all-gather": (
        f"%s = ({BIG}, {WIDE}) all-gather-start(%b), {GROUPS}, dimensions={{0}}",
        f"%d = {WIDE} all-gather-done(%s)",
        16,
    ),
    "collective-permute": (
        f"%s = ({BIG}, {BIG}) collective-permute-start(%b), source_target_pairs={{{{0,1}},{{1,0}}}}",
        f"%d = {BIG} collective-permute-done(%s)",
        4,
    ),
    "flags of a permute": (
        f"%s = ({BIG}, {BIG}, u32[], u32[]) collective-permute-start(%b), source_target_pairs={{{{0,1}},{{1,0}}}}",
        f"%d = {BIG} collective-permute-done(%s)",
        4,
    ),
    "call": (
        f"%s = (({BIG}), {BIG}, u32[]) async-start(%b), calls=%w",
        f"%u = (({BIG}), {BIG}, u32[]) async-update(%s)\n%d = {BIG} async-done(%u)",
        4,
    ),
    "slice": (
        f"%s = (({BIG}), f32[512,1024]{{1,0:T(8,128)}}, u32[]) slice-start(%b), slice={{[0:512], [0:1024]}}",
        "%d = f32[512,1024]{1,0:T(8,128)} slice-done(%s)",
        2,
    ),
}


@pytest.mark.parametrize(("start", "done", "mib"), STARTS.values(), ids=STARTS.keys())
def test_a_start_keeps_its_operand_and_makes_the_result(start, done, mib):
    """The operand is in use until the end; the result lies where the start put it, until its own last use."""
    assert with_start(start, done, WRAPPED) == [("b", 4, "b", "d"), ("s", mib, "s", "r")]


def test_the_start_of_an_all_reduce_makes_its_result():
    """Its shape is that of the result, and its end gives the same buffer."""
    found = with_start(
        f"%s = {BIG} all-reduce-start(%b), {GROUPS}, to_apply=%sum", f"%d = {BIG} all-reduce-done(%s)", SUM
    )
    assert ("s", 4, "s", "r") in found
    assert len(found) == 2


def test_two_operands_of_a_gather_have_two_results():
    """Results follow all operands: the second result is that of the second operand."""
    shape = f"(({BIG}, {SMALL}), ({WIDE}, f32[32,128]{{1,0:T(8,128)}}))"
    program = lower_text(f"""
        %a = {BIG} parameter(0)
        %k = {SMALL} parameter(1)
        %b = {BIG} negate(%a)
        %s = {shape} all-gather-start(%b, %k), {GROUPS}, dimensions={{0}}
        %t = ({WIDE}, f32[32,128]{{1,0:T(8,128)}}) all-gather-done(%s)
        %w = {WIDE} get-tuple-element(%t), index=0
        %n = {SMALL} slice(%w), slice={{[0:8], [0:128]}}
        %d = f32[32,128]{{1,0:T(8,128)}} get-tuple-element(%t), index=1
        %q = f32[32,128]{{1,0:T(8,128)}} negate(%d)
        ROOT %r = {SMALL} slice(%q), slice={{[0:8], [0:128]}}""")
    assert ("s", 16, "s", "n") in lives(program)


UPDATE = f"""%w {{
  %x = {BIG} parameter(0)
  %y = {SMALL} parameter(1)
  %i = s32[] parameter(2)
  %j = s32[] parameter(3)
  ROOT %n = {BIG} dynamic-update-slice(%x, %y, %i, %j)
}}
"""


@pytest.mark.parametrize(
    ("begun", "end", "wrapped"),
    [
        ("dynamic-update-slice-start(%b, %u, %i, %i)", "dynamic-update-slice-done", ""),
        ("dynamic-update-slice-start(%b, %u, %i, %i)", "async-done", ""),
        ("async-start(%b, %u, %i, %i), calls=%w", "async-done", UPDATE),
        ("async-start(%b, %u, %i, %i), calls=%w", "dynamic-update-slice-done", UPDATE),
    ],
)
def test_an_asynchronous_update_is_written_over_its_operand(begun, end, wrapped):
    """Its result is the operand's buffer with the update in it, however it is spelt: nothing of 4 MiB is made."""
    start = (
        f"%u = {SMALL} slice(%a), slice={{[0:8], [0:128]}}\n%i = s32[] constant(0)\n"
        f"%s = (({BIG}, {SMALL}, s32[], s32[]), {BIG}, u32[]) {begun}"
    )
    assert with_start(start, f"%d = {BIG} {end}(%s)", wrapped) == [("b", 4, "b", "r")]


def test_an_update_of_another_operand_than_the_first_makes_its_result():
    """What it is written over is told by the computation alone: there is room for it, as where nothing is known."""
    start = (
        f"%u = {SMALL} slice(%a), slice={{[0:8], [0:128]}}\n%i = s32[] constant(0)\n"
        f"%s = (({SMALL}, {BIG}, s32[], s32[]), {BIG}, u32[]) async-start(%u, %b, %i, %i), calls=%w"
    )
    other = UPDATE.replace("%x =", "%t =").replace("parameter(1)", "parameter(0)", 1)
    other = other.replace(f"%t = {BIG} parameter(0)", f"%x = {BIG} parameter(1)")
    assert ("s", 4, "s", "r") in with_start(start, f"%d = {BIG} async-done(%s)", other)


def test_what_is_sent_is_kept_until_it_has_gone():
    """The payload of a send is its operand's own buffer; its end reads it."""
    start = f"%t = token[] after-all()\n%s = ({BIG}, u32[], token[]) send(%b, %t), channel_id=1"
    lines = f"%a = {BIG} parameter(0)\n%b = {BIG} negate(%a)\n{start}\n%k = {SMALL} slice(%a), slice={{[0:8], [0:128]}}"
    program = lower_text(f"{lines}\n%d = token[] send-done(%s), channel_id=1\nROOT %r = {SMALL} negate(%k)")
    assert lives(program) == [("b", 4, "b", "d")]


def test_what_is_received_lies_where_the_receive_put_it():
    """From the start, which makes room for it, to its last use."""
    program = lower_text(f"""
        %t = token[] after-all()
        %s = ({BIG}, u32[], token[]) recv(%t), channel_id=1
        %e = ({BIG}, token[]) recv-done(%s), channel_id=1
        %d = {BIG} get-tuple-element(%e), index=0
        {END}""")
    assert lives(program) == [("s", 4, "s", "r")]


VIEWS = {
    "opt-barrier": f"%d = {BIG} opt-barrier(%b)",
    "bitcast": f"%d = {BIG} bitcast(%b)",
    "domain": f'%d = {BIG} domain(%b), domain={{kind="sharding", entry={{replicated}}, exit={{replicated}}}}',
    "add-dependency": f"%t = token[] after-all()\n%d = {BIG} add-dependency(%b, %t)",
    "tuple": f"%p = ({BIG}, {BIG}) tuple(%a, %b)\n%d = {BIG} get-tuple-element(%p), index=1",
    "nested tuple": f"%q = ({BIG}, {BIG}) tuple(%a, %b)\n%p = (({BIG}, {BIG}), {BIG}) tuple(%q, %a)\n"
    f"%g = ({BIG}, {BIG}) get-tuple-element(%p), index=0\n%d = {BIG} get-tuple-element(%g), index=1",
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_view_makes_no_buffer_and_keeps_one_only_for_what_reads_it(view):
    """The value behind it lives until it is read through the view."""
    assert with_start("", view) == [("b", 4, "b", "r")]


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_view_that_nothing_reads_keeps_nothing(view):
    """To be viewed is no use."""
    lines = f"%a = {BIG} parameter(0)\n%b = {BIG} negate(%a)\n%k = {SMALL} slice(%b), slice={{[0:8], [0:128]}}"
    program = lower_text(f"{lines}\n{view}\nROOT %r = {SMALL} negate(%k)")
    assert lives(program) == [("b", 4, "b", "k")]


JOIN = """
    %b = f32[1024,1024]{1,0:T(8,128)} negate(%a)
    %c = f32[1024,1024]{1,0:T(8,128)} exponential(%a)
    %d = f32[2048,1024]{1,0:T(8,128)} custom-call(%b, %c), custom_call_target="ConcatBitcast"
"""


def test_joined_operands_become_the_joined_value():
    """Where it begins they end, so that nothing counts twice."""
    program = lower_text(f"%a = {BIG} parameter(0)\n{JOIN}\n{END}")
    assert lives(program) == [("b", 4, "b", "c"), ("c", 4, "c", "c"), ("d", 8, "d", "r")]


def test_what_reads_a_joined_operand_keeps_the_joined_value():
    """It is a part of that value's memory."""
    late = f"%n = {SMALL} slice(%d), slice={{[0:8], [0:128]}}\n%m = {BIG} abs(%b)"
    found = lives(lower_text(f"%a = {BIG} parameter(0)\n{JOIN}\n{late}\n{END.replace('%d', '%m')}"))
    assert found == [("b", 4, "b", "c"), ("c", 4, "c", "c"), ("d", 8, "d", "m"), ("m", 4, "m", "r")]


def test_a_joined_value_is_updated_in_place():
    """The update makes no array: the joined one lives until the updated one is read."""
    update = f"%u = {SMALL} slice(%a), slice={{[0:8], [0:128]}}\n%i = s32[] constant(0)\n"
    update += "%e = f32[2048,1024]{1,0:T(8,128)} dynamic-update-slice(%d, %u, %i, %i)"
    end = END.replace("%d", "%e")
    found = lives(lower_text(f"%a = {BIG} parameter(0)\n{JOIN}\n{update}\n{end}"))
    assert found == [("b", 4, "b", "c"), ("c", 4, "c", "c"), ("d", 8, "d", "r")]


def test_any_other_custom_call_makes_its_result():
    """Its operand is in use while it runs."""
    program = lower_text(f"""
        %a = {BIG} parameter(0)
        %b = {BIG} negate(%a)
        %d = {BIG} custom-call(%b), custom_call_target="Mystery"
        {END}""")
    assert lives(program) == [("b", 4, "b", "d"), ("d", 4, "d", "r")]


def test_a_called_computation_reads_its_callers_buffers():
    """Neither the argument nor the result of a call is copied."""
    called = f"%g {{\n  %x = {BIG} parameter(0)\n  %y = {BIG} parameter(1)\n  ROOT %n = {BIG} add(%x, %y)\n}}\n"
    program = lower_text(
        f"%a = {BIG} parameter(0)\n%b = {BIG} negate(%a)\n%d = {BIG} call(%a, %b), to_apply=%g\n{END}", called
    )
    assert [(name, first) for name, _, first, _ in lives(program)] == [("b", "b"), ("n", "n")]


def test_a_second_call_hands_on_its_own_argument():
    """The first gives one array twice, the second two: the one that is handed on lives until it is read at last."""
    pair = f"({BIG}, {BIG})"
    called = f"%g {{\n  %x = {BIG} parameter(0)\n  %y = {BIG} parameter(1)\n  %n = {BIG} negate(%y)\n"
    called += f"  ROOT %t = {pair} tuple(%x, %n)\n}}\n"
    program = lower_text(
        f"""%a = {BIG} parameter(0)
        %b = {BIG} negate(%a)
        %one = {pair} call(%b, %b), to_apply=%g
        %c = {BIG} get-tuple-element(%one), index=1
        %p = {BIG} exponential(%c)
        %q = {BIG} abs(%c)
        %two = {pair} call(%p, %q), to_apply=%g
        %d = {BIG} get-tuple-element(%two), index=0
        {END}""",
        called,
    )
    assert {name: last for name, _, _, last in lives(program)}["p"] == "r"


def test_each_branch_reads_its_own_operand():
    """Of three branches the second takes what was made for it, and all results lie in one place."""
    branches = "".join(
        f"%f{n} {{\n  %x{n} = {BIG} parameter(0)\n  ROOT %n{n} = {BIG} {opcode}(%x{n})\n}}\n"
        for n, opcode in enumerate(("negate", "exponential", "abs"))
    )
    program = lower_text(
        f"""%a = {BIG} parameter(0)
        %i = s32[] parameter(1)
        %b = {BIG} negate(%a)
        %d = {BIG} conditional(%i, %a, %b, %a), branch_computations={{%f0, %f1, %f2}}
        {END}""",
        branches,
    )
    assert ("b", 4, "b", "d") in lives(program)
    results = [b for b in program.buffers if b.name in ("n0", "n1", "n2", "d") and b.kind != "scratch"]
    assert len({b.offset_bytes for b in results}) == 1


def test_an_alias_says_which_result_lies_over_which_part_of_an_argument():
    """The second result over the first part of the argument: of two results one needs memory of its own."""
    alias = "input_output_alias={ {1}: (0, {0}, may-alias) }"
    program = lower_module_text(f"""HloModule m, is_scheduled=true, {alias}

ENTRY %main {{
  %p = ({BIG}, {SMALL}) parameter(0)
  %a = {BIG} get-tuple-element(%p), index=0
  %n = {BIG} negate(%a)
  %e = {BIG} exponential(%a)
  ROOT %t = ({BIG}, {BIG}) tuple(%n, %e)
}}
""")
    kinds = sorted((b.name, b.kind) for b in program.buffers if b.n_bytes == 4 * MIB)
    assert kinds == [("n", "output"), ("p", "argument")]
    assert program.alias_bytes == 4 * MIB


def test_each_table_of_a_tuple_has_a_place_of_its_own():
    """Two tuples inside and the one that is returned: two tables beside the heap."""
    program = lower_text(f"""
        %a = {BIG} parameter(0)
        %p = ({BIG}, {BIG}) tuple(%a, %a)
        %o = ({BIG}, {BIG}) opt-barrier(%p)
        %q = ({BIG}, {BIG}) tuple(%a, %a)
        %g = {BIG} get-tuple-element(%o), index=0
        ROOT %n = {BIG} negate(%g)""")
    (tables,) = [b for b in program.buffers if b.name == "tuple tables"]
    assert tables.n_bytes == 2 * 16384
