"""Where values lie and for how long: the rules of XLA's buffer assignment, on modules of a few lines."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.lowering.hlo import lower_module_text, lower_text
from tpusim.allocation.liveness import table_size
from tpusim.allocation.plan import TABLES
from tpusim.hardware.load import load_chip
from tpusim.program.buffers import Buffer
from tpusim.program.module import Program
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.notation import parse_shape
from tpusim.shapes.shape import TupleShape

BIG = "f32[1024,1024]{1,0:T(8,128)}"
BIG_BYTES = 4 * 2**20
LOOP = f"""\
HloModule m, is_scheduled=true

%cond (s: (s32[], f32[1024,1024], f32[1024,1024])) -> pred[] {{
  %s = (s32[]{{:T(128)}}, {BIG}, {BIG}) parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%s), index=0
  %n = s32[]{{:T(128)}} constant(3)
  ROOT %lt = pred[]{{:T(512)}} compare(%i, %n), direction=LT
}}

%body (s: (s32[], f32[1024,1024], f32[1024,1024])) -> (s32[], f32[1024,1024], f32[1024,1024]) {{
  %s = (s32[]{{:T(128)}}, {BIG}, {BIG}) parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%s), index=0
  %one = s32[]{{:T(128)}} constant(1)
  %next = s32[]{{:T(128)}} add(%i, %one)
  %x = {BIG} get-tuple-element(%s), index=1
  %w = {BIG} get-tuple-element(%s), index=2
  %t = {BIG} multiply(%x, %w)
  %z = {BIG} negate(%t)
  %y = {BIG} add(%z, %w)
  ROOT %r = (s32[]{{:T(128)}}, {BIG}, {BIG}) tuple(%next, %y, %w)
}}

ENTRY %main {{
  %a = {BIG} parameter(0)
  %zero = s32[]{{:T(128)}} constant(0)
  %c = s32[]{{:T(128)}} copy(%zero)
  %x0 = {BIG} copy(%a)
  %w0 = {BIG} negate(%a)
  %init = (s32[]{{:T(128)}}, {BIG}, {BIG}) tuple(%c, %x0, %w0)
  %loop = (s32[]{{:T(128)}}, {BIG}, {BIG}) while(%init), condition=%cond, body=%body
  %out = {BIG} get-tuple-element(%loop), index=1
  ROOT %sum = {BIG} exponential(%out)
}}
"""


def big(program: Program, name: str) -> list[Buffer]:
    """The arrays of a name that have a megabyte or more."""
    return [b for b in program.buffers if b.name == name and b.kind != "scratch" and b.n_bytes >= 2**20]


def one(program: Program, name: str) -> Buffer:
    """The one large buffer of a name."""
    (buffer,) = big(program, name)
    return buffer


def test_the_schedule_is_flat():
    """What a loop runs stands before it, its condition first, as in XLA's HloLiveRange."""
    names = lower_module_text(LOOP).schedule
    assert names.index("lt") < names.index("next") < names.index("loop") < names.index("sum")


def test_a_loop_keeps_its_state_in_one_place():
    """The value on the way in and the one that the body makes have one offset, and a gap in between."""
    program = lower_module_text(LOOP)
    inside = program.schedule.index
    way_in, made = one(program, "x0"), one(program, "y")
    assert (way_in.offset_bytes, way_in.within) == (made.offset_bytes, made.within)
    assert (way_in.last, made.first) == (inside("t"), inside("y"))


def test_what_no_trip_changes_lives_throughout():
    """The weights of the loop are one buffer from before the loop to its end."""
    program = lower_module_text(LOOP)
    assert one(program, "w0").last >= program.schedule.index("y")
    assert big(program, "w") == []


def test_an_output_lends_its_memory():
    """A temporary that is dead before the output is made lies in its memory and adds nothing."""
    program = lower_text(
        f"""%a = {BIG} parameter(0)
        %b = {BIG} copy(%a)
        %c = {BIG} negate(%b)
        ROOT %d = {BIG} exponential(%c)"""
    )
    # %c is still read while %d is written; %b is not.
    assert (one(program, "b").within, one(program, "c").within) == ("d", "")
    assert one(program, "c").offset_bytes == 0


def test_temporaries_of_different_times_share_the_heap():
    """Three temporaries in a row: one in the output's memory, of the others two are alive at once at no time."""
    lines = [f"%a = {BIG} parameter(0)", f"%t0 = {BIG} copy(%a)"]
    lines += [f"%t{i} = {BIG} negate(%t{i - 1})" for i in range(1, 6)]
    program = lower_text(
        "\n".join(
            [
                *lines,
                "%small = f32[8,128]{1,0:T(8,128)} slice(%t5), slice={[0:8], [0:128]}",
                "ROOT %s = f32[8,128]{1,0:T(8,128)} negate(%small)",
            ]
        )
    )
    places = {one(program, f"t{i}").offset_bytes for i in range(6)}
    assert places == {0, BIG_BYTES}


def test_an_update_in_place_makes_no_buffer():
    """A dynamic-update-slice is written over its operand."""
    program = lower_text(
        f"""%a = {BIG} parameter(0)
        %u = f32[8,1024]{{1,0:T(8,128)}} parameter(1)
        %i = s32[]{{:T(128)}} constant(0)
        %copy = {BIG} copy(%a)
        ROOT %d = {BIG} dynamic-update-slice(%copy, %u, %i, %i)"""
    )
    (buffer,) = [b for b in program.buffers if b.n_bytes == BIG_BYTES and b.kind != "argument"]
    assert (buffer.name, buffer.kind) == ("copy", "output")


def test_stated_sharing_is_followed():
    """``aliasing_operands`` numbers operands, then results: the sum is written over its second operand."""
    config = '{"aliasing_operands":{"lists":[{"indices":["1","2"]}]}}'
    program = lower_text(
        f"""%a = {BIG} parameter(0)
        %b = {BIG} copy(%a)
        %s = {BIG} add(%a, %b), backend_config={config}
        ROOT %r = f32[8,128]{{1,0:T(8,128)}} slice(%s), slice={{[0:8], [0:128]}}"""
    )
    assert big(program, "s") == []
    assert one(program, "b").last == program.schedule.index("r")


@pytest.mark.parametrize(
    ("alias", "kinds"), [("", ["argument", "output"]), (" { {}: (0, {}, may-alias) }", ["argument"])]
)
def test_only_a_donated_argument_is_written_over(alias, kinds):
    """A caller keeps the others whole, whatever ``aliasing_operands`` would let a kernel do."""
    config = '{"aliasing_operands":{"lists":[{"indices":["0","1"]}]}}'
    entry = f"%a = {BIG} parameter(0)\nROOT %s = {BIG} negate(%a), backend_config={config}"
    header = f"HloModule m, is_scheduled=true{alias and ', input_output_alias=' + alias}"
    program = lower_module_text(f"{header}\n\nENTRY %main {{\n{entry}\n}}\n")
    assert [b.kind for b in program.buffers if b.kind != "scratch"] == kinds


def test_a_donated_argument_holds_the_output():
    """With ``input_output_alias`` the output is the argument's buffer, and no bytes are added."""
    entry = f"""%a = {BIG} parameter(0)
      ROOT %d = {BIG} negate(%a)"""
    alias = "input_output_alias={ {}: (0, {}, may-alias) }"
    program = lower_module_text(f"HloModule m, is_scheduled=true, {alias}\n\nENTRY %main {{\n{entry}\n}}\n")
    assert [(b.name, b.kind) for b in program.buffers if b.space == "hbm"] == [("a", "argument")]


def test_a_copy_keeps_its_source_until_it_is_done():
    """What an asynchronous copy reads may not be overwritten before its done."""
    vmem = BIG.replace("128)}", "128)S(1)}")
    program = lower_text(
        f"""%a = {BIG} parameter(0)
        %b = {BIG} negate(%a)
        %s = ({vmem}, {BIG}, u32[]{{:S(2)}}) copy-start(%b)
        %c = {BIG} exponential(%a)
        %e = {vmem} copy-done(%s)
        ROOT %r = f32[8,128]{{1,0:T(8,128)}} slice(%e), slice={{[0:8], [0:128]}}"""
    )
    assert one(program, "b").last == program.schedule.index("e")
    assert (one(program, "s").space, one(program, "s").last) == ("vmem", program.schedule.index("r"))


def _branch(name: str, opcode: str) -> str:
    """A computation of one operation on one large array."""
    lines = (f"%{name} (p: f32[1024,1024]) -> f32[1024,1024] {{", f"%p = {BIG} parameter(0)")
    return "\n".join([*lines, f"ROOT %v{name} = {BIG} {opcode}(%p)", "}"])


def test_branches_return_to_one_place():
    """What the branches of a conditional make lies where its result does, each in its turn."""
    others = "\n".join(_branch(*names) for names in (("t", "negate"), ("f", "exponential")))
    program = lower_text(
        f"""%a = {BIG} parameter(0)
        %c = pred[] parameter(1)
        %r = {BIG} conditional(%c, %a, %a), true_computation=%t, false_computation=%f
        ROOT %d = f32[8,128]{{1,0:T(8,128)}} slice(%r), slice={{[0:8], [0:128]}}""",
        others,
    )
    offsets = {b.offset_bytes for b in program.buffers if b.kind == "temporary" and b.n_bytes == BIG_BYTES}
    assert offsets == {0}


def test_padding_and_source_are_known():
    """A buffer of 8 x 100 elements of 4 bytes takes a whole tile, and says which line of which file made it."""
    program = lower_text(
        """%a = f32[8,100]{1,0:T(8,128)} parameter(0)
        %b = f32[8,100]{1,0:T(8,128)} negate(%a), metadata={op_name="neg" source_file="model.py" source_line=7}
        ROOT %c = f32[100,8]{0,1:T(8,128)} transpose(%b), dimensions={1,0}"""
    )
    buffer = next(b for b in program.buffers if b.name == "b")
    assert (buffer.n_bytes, buffer.unpadded_bytes, buffer.expansion) == (4096, 3200, 1.28)
    assert (buffer.source, buffer.op_name, buffer.opcode) == ("model.py:7", "neg", "negate")


def test_a_copy_says_where_its_value_comes_from():
    """The compiler's own copies have no metadata; what they hold was made at a line of somebody's code."""
    program = lower_text(
        f"""%a = {BIG} parameter(0)
        %b = {BIG} negate(%a), metadata={{op_name="neg" source_file="model.py" source_line=7}}
        %c = {BIG} copy(%b)
        ROOT %d = {BIG} exponential(%c)"""
    )
    assert (one(program, "c").source, one(program, "c").op_name) == ("model.py:7", "neg")


def test_scratch_of_a_kernel_lives_with_it():
    """VMEM that the compiler states for one kernel is a buffer of one position."""
    config = '{"used_scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"65536"}]}'
    program = lower_text(f"%a = {BIG} parameter(0)\nROOT %b = {BIG} negate(%a), backend_config={config}")
    (scratch,) = [b for b in program.buffers if b.kind == "scratch"]
    assert (scratch.n_bytes, scratch.space, scratch.first, scratch.last) == (65536, "vmem", 1, 1)


def test_a_kernel_that_states_no_scratch_has_its_blocks():
    """Two of what it reads and two of what it writes, where both change from tile to tile."""
    program = lower_text(f"%a = {BIG} parameter(0)\nROOT %b = {BIG} negate(%a)")
    (kernel,) = program.steps
    (scratch,) = [b for b in program.buffers if b.kind == "scratch"]
    assert kernel.tiles > 1
    assert scratch.n_bytes == 4 * physical_bytes(parse_shape(BIG)) / kernel.tiles
    assert (scratch.name, scratch.space, scratch.first, scratch.last) == ("b", "vmem", 1, 1)


def test_what_a_scalar_core_works_on_is_no_scratch():
    """Nor what lies in VMEM already."""
    program = lower_text(
        """%s = s32[] parameter(0)
        %a = f32[8,128]{1,0:T(8,128)S(1)} parameter(1)
        %t = s32[] add(%s, %s)
        %b = f32[8,128]{1,0:T(8,128)S(1)} negate(%a)
        ROOT %r = (s32[], f32[8,128]{1,0:T(8,128)S(1)}) tuple(%t, %b)"""
    )
    assert [step.name for step in program.steps] == ["t", "b"]
    assert not [b for b in program.buffers if b.kind == "scratch"]


def test_a_kernel_in_a_loop_has_scratch_once():
    """However often it runs: at its position in the schedule, which has it once."""
    program = lower_module_text(LOOP)
    found = [(b.name, b.first) for b in program.buffers if b.kind == "scratch"]
    kernels = ["t", "z", "y", "x0", "w0", "sum"]
    assert sorted(found) == sorted((name, program.schedule.index(name)) for name in kernels)


@pytest.mark.parametrize("granule_bytes", [4, 512, 16384, 16385, 10**6, 10**9])
def test_the_heap_holds_tables_of_any_granule(granule_bytes):
    """The buffer of tables is as large as they are, and temporaries are never fewer bytes than none."""
    chip = structs.replace(load_chip("v5e"), tuple_table_granule_bytes=granule_bytes)
    program = lower_module_text(LOOP, chip)
    (tables,) = [buffer for buffer in program.buffers if buffer.name == TABLES]
    assert tables.n_bytes >= table_size(TupleShape((parse_shape("f32[]"),) * 3), granule_bytes)
    assert tables.n_bytes % 16384 == 0
    assert program.temp_bytes >= 0


@pytest.mark.parametrize(("count", "granule_bytes", "n_bytes"), [(1, 4, 4), (5, 4, 20), (5, 16, 32), (129, 512, 1024)])
def test_a_table_has_four_bytes_for_each_element(count, granule_bytes, n_bytes):
    """Rounded up to the granule; elements that are tuples count once."""
    element = parse_shape("(f32[2], f32[2])")
    assert table_size(TupleShape((element,) * count), granule_bytes) == n_bytes
