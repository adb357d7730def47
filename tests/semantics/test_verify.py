"""Verification of modules: every constraint by its label, kept and broken, and whole programs that must pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec import structs

import tpusim.semantics
import tpusim.text
from tests.semantics.hlo import labels_in, one, parse
from tests.semantics.verify_cases import CASES
from tests.text.programs import COMPILED, name_of
from tpusim.errors import ProgramError
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.semantics.infer.rules import LABELS
from tpusim.semantics.verify.module import problems, verify_module
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.layout import Layout
from tpusim.shapes.shape import ArrayShape
from tpusim.text import parse_module, read_source

SEMANTICS = Path(tpusim.semantics.__file__).parent
TEXT = Path(tpusim.text.__file__).parent
_BY_HAND = (
    "instruction_c5 schedule_c1 schedule_c2 parameter_c1 computation_c1 computation_c2 computation_c3 computation_c5"
    " async_c9 channel_c1 module_c1 module_c2 module_c3 module_c4 shape_c4"
).split()


@pytest.mark.parametrize("label", list(CASES))
def test_a_module_that_keeps_the_constraint_is_accepted(label: str) -> None:
    """Nothing at all is wrong with it."""
    assert [str(error) for error in problems(parse(CASES[label][0]))] == []


@pytest.mark.parametrize("label", list(CASES))
def test_a_module_that_breaks_the_constraint_is_refused_by_its_label(label: str) -> None:
    """Among what is wrong is the label, and the place if it is one instruction's."""
    text, part, other = CASES[label]
    assert part in text
    found = [error.message for error in problems(parse(text.replace(part, other)))]
    assert any(f"[{label}]" in message and LABELS[label] in message for message in found), found


@pytest.mark.parametrize("label", list(CASES))
def test_every_refusal_has_a_place(label: str) -> None:
    """File, line and column, and a caret under an instruction or under an attribute of the first line."""
    text, part, other = CASES[label]
    for error in problems(parse(text.replace(part, other))):
        assert re.match(r"test.hlo:\d+:\d+: [\s\S]*\[\w+\]\n.*\n +\^+\Z", str(error))


_TWO_CALLERS = """HloModule m
%right (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}}
%wrong (a: s32[], b: s32[]) -> s32[] {{
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  ROOT %c = s32[] add(%a, %b)
}}
ENTRY %e (x: f32[4]) -> f32[] {{
  %x = f32[4] parameter(0)
  %y = f32[] constant(0)
  %first = f32[] {call}%right
  ROOT %second = f32[] {call}%wrong
}}
"""


@pytest.mark.parametrize(
    ("call", "label"),
    [
        ("reduce(%x, %y), dimensions={0}, to_apply=", "reducer_c5"),
        ("fusion(%y, %y), kind=kLoop, calls=", "fusion_c2"),
        ("call(%y, %y), to_apply=", "call_c2"),
    ],
    ids=["reduce", "fusion", "call"],
)
def test_what_is_right_with_one_computation_is_not_with_another(call: str, label: str) -> None:
    """Instructions that differ only in what they call are judged by it, each at its place."""
    (found,) = problems(parse(_TWO_CALLERS.format(call=call)))
    assert "'second'" in found.message
    assert f"[{label}]" in found.message


_ALIKE = """HloModule m, is_scheduled=true
%one {{ {body} }}
%two {{ {body} }}
ENTRY %e {{
  %x = f32[16,128]{{1,0:T(8,128)}} parameter(0)
  %y = f32[8,128]{{1,0:T(8,128)}} parameter(1)
  %i = s32[]{{:T(128)}} constant(0)
  %first = f32[16,128]{{1,0:T(8,128)S(1)}} fusion(%x, %y, %i), kind=kLoop, calls=%one
  ROOT %second = f32[16,128]{{1,0:T(8,128)S(1)}} call(%x, %y, %i), to_apply=%two
}}
"""
_UPDATE = """
  %a = f32[16,128]{1,0:T(8,128)} parameter(0)
  %b = f32[8,128]{1,0:T(8,128)} parameter(1)
  %i = s32[]{:T(128)} parameter(2)
  ROOT %u = f32[16,128]{1,0:T(8,128)S(1)} dynamic-update-slice(%a, %b, %i, %i)
"""


def test_what_is_right_where_it_is_fused_may_be_wrong_where_it_is_called() -> None:
    """Inside a fusion, an update in place may give another memory."""
    (found,) = problems(parse(_ALIKE.format(body=_UPDATE)))
    assert "'u'" in found.message
    assert "[layout_c5]" in found.message


def test_every_computation_that_is_wrong_is_told() -> None:
    """Those that are alike too."""
    found = problems(parse(_ALIKE.format(body=_UPDATE.replace("f32[8,128]{1,0", "f32[24,128]{1,0"))))
    assert sum("[dynamic_update_slice_c3]" in error.message for error in found) == 2


def test_every_label_of_verification_has_a_case() -> None:
    """A label that stands in a file of verification is kept and broken by a module here."""
    used = {label for path in (SEMANTICS / "verify").glob("*.py") for label in labels_in(path)}
    assert used == {*CASES, *_BY_HAND}


def test_every_label_is_explained_and_used() -> None:
    """No label stands in the code without a statement, and none is stated for nothing."""
    paths = [path for path in SEMANTICS.rglob("*.py") if path.stem != "labels"] + [*TEXT.rglob("*.py")]
    assert {label for path in paths for label in labels_in(path)} == LABELS.keys()


def test_the_error_names_file_line_and_column() -> None:
    """The place is that of the instruction, under whose name the caret stands."""
    with pytest.raises(ProgramError) as caught:
        verify_module(parse("HloModule m\n\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT r = f32[3] negate(p)\n}\n"))
    first, line, caret = str(caught.value).splitlines()
    assert first.startswith("test.hlo:5:8: 'negate' 'r': expected the stated shape")
    assert line[caret.index("^")] == "r"


def test_all_problems_are_reported() -> None:
    """One wrong instruction does not hide another."""
    lines = "p = f32[2] parameter(0) q = f32[3] negate(p) ROOT r = s32[3] exponential(q)"
    text = f"HloModule m\n\nENTRY e {{ {lines} }}\n"
    assert len(problems(parse(text))) == 2


@pytest.mark.parametrize("path", COMPILED, ids=name_of)
def test_what_a_tpu_compiler_left_is_accepted(path: Path) -> None:
    """Compiled and unscheduled programs mean something."""
    verify_module(parse_module(read_source(path)))


def test_a_schedule_may_mix_precisions_but_a_front_end_may_not() -> None:
    """TPU compilers fuse bf16 with f32; before them, an operation takes one type of floats."""
    text = one("f32[2] add(f32[2], bf16[2])")
    assert len(problems(parse(text))) == 1
    assert problems(parse(text), mixed_precision=True) == []
    assert problems(parse(text.replace("HloModule m", "HloModule m, is_scheduled=true"))) == []


def test_a_fusion_is_of_the_type_that_is_made_in_it() -> None:
    """Also in a schedule, where floats of several precisions may meet: nothing converts what it hands on."""
    inner = "f {\n  q = f32[2] parameter(0)\n  ROOT n = f32[2] negate(q)\n}\n"
    entry = "ENTRY e {\n  p = f32[2] parameter(0)\n  ROOT r = f32[2] fusion(p), kind=kLoop, calls=f\n}\n"
    text = f"HloModule m, is_scheduled=true\n\n{inner}\n{entry}"
    assert problems(parse(text)) == []
    assert "[shape_c2]" in _labels(parse(text.replace("ROOT r = f32", "ROOT r = bf16")))


def _module(*computations: Computation) -> Module:
    """Return a module of computations, the last of which is the entry."""
    return Module("m", computations, computations[-1].name)


def _labels(module: Module) -> str:
    """Return all messages of a module's problems."""
    return " ".join(error.message for error in problems(module))


def _negate() -> Computation:
    """Return a computation that negates its parameter."""
    return parse("HloModule m\n\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT r = f32[2] negate(p)\n}\n").entry


def test_instruction_c5_schedule_c1_operands_come_first_and_names_once() -> None:
    """The parser refuses both; a module that is built may have them."""
    entry = _negate()
    assert problems(_module(entry)) == []
    assert "[schedule_c1]" in _labels(_module(structs.replace(entry, instructions=entry.instructions[::-1])))
    assert "[instruction_c5]" in _labels(_module(structs.replace(entry, instructions=entry.instructions[:1] * 2)))


def test_schedule_c2_control_predecessors_come_first() -> None:
    """What must be done before stands before."""
    entry = _negate()
    late = structs.replace(entry.instructions[0], attributes={"control-predecessors": ("r",)})
    assert "[schedule_c2]" in _labels(_module(structs.replace(entry, instructions=(late, entry.instructions[1]))))


def test_parameter_c1_numbers_have_no_hole() -> None:
    """A computation of one parameter has number 0."""
    entry = _negate()
    second = structs.replace(entry.instructions[0], immediate=1)
    assert "[parameter_c1]" in _labels(_module(structs.replace(entry, instructions=(second, entry.instructions[1]))))


def test_computation_c1_computation_c2_callees_exist_and_come_first() -> None:
    """What is called stands before, so that nothing calls itself."""
    entry = _negate()
    module = parse(one("f32[2] call(f32[2]), to_apply=body"))
    body, caller = module["body"], module.entry
    assert problems(_module(body, caller)) == []
    assert "[computation_c1]" in _labels(_module(caller))
    assert "[computation_c2]" in _labels(structs.replace(_module(caller, body), entry_name=caller.name))
    assert "[computation_c1]" in _labels(structs.replace(_module(entry), entry_name="nobody"))


def test_computation_c3_the_root_is_one_of_the_instructions() -> None:
    """A root that is not there gives no result."""
    assert "[computation_c3]" in _labels(_module(structs.replace(_negate(), root_name="nobody")))


def test_computation_c5_each_computation_has_a_name_of_its_own() -> None:
    """Of two, one would be looked at and the other be run."""
    module = _module(_negate())
    assert "[computation_c5]" in _labels(structs.replace(module, computations=(*module.computations, module.entry)))


@pytest.mark.parametrize("groups", ["{{}}", "{{0,1},{}}", "{{},{0,1}}"])
def test_groups_c3_no_group_of_a_broadcast_is_empty(groups: str) -> None:
    """As of any other collective."""
    text = one(f"f32[2] collective-broadcast(f32[2]), replica_groups={groups}", ", replica_count=2")
    assert "[groups_c3]" in _labels(parse(text))


def test_module_c1_the_entry_is_not_fused() -> None:
    """What a fusion calls is no program."""
    module = parse(one("f32[2] fusion(f32[2]), kind=kLoop, calls=body"))
    assert "[module_c1]" in _labels(structs.replace(module, entry_name="body"))


@pytest.mark.parametrize("slice_", ["2y4", "v5e:0x4", "v9-8", "v5e:2x4*0"])
def test_module_c4_the_slice_that_a_module_is_for_is_one(slice_: str) -> None:
    """As any run on it would say, and under the attribute that states it."""
    text = (
        'HloModule m, frontend_attributes={tpusim_topology="v5e:2x4"}\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n'
    )
    assert list(problems(parse(text))) == []
    (problem,) = problems(parse(text.replace("v5e:2x4", slice_)))
    assert "[module_c4]" in problem.message
    assert problem.span is not None


def test_shape_c4_a_layout_orders_all_dimensions() -> None:
    """The parser refuses another; a module that is built may have it."""
    entry = _negate()
    shape = ArrayShape(DTYPES["f32"], (2,), layout=Layout((1,)))
    wrong = structs.replace(entry.root, shape=shape)
    assert "[shape_c4]" in _labels(
        _module(structs.replace(entry, instructions=(entry.instructions[0], wrong), offsets=()))
    )


def test_async_c9_a_done_takes_a_start() -> None:
    """A tuple of the right shape is no start."""
    module = parse(one("((f32[2]), f32[2]) tuple((f32[2]), f32[2])"))
    done = Instruction("d", module["negated"].root.shape, "async-done", ("result",))
    entry = structs.replace(module.entry, instructions=(*module.entry.instructions, done), root_name="d", offsets=())
    assert "[async_c9]" in _labels(structs.replace(module, computations=(*module.computations[:-1], entry)))


def test_channel_c4_no_schedule_can_send_what_it_waits_for() -> None:
    """What is sent comes out of the recv-done that waits for it, in whatever order the two are started."""
    text, part, other = CASES["channel_c4"]
    unscheduled = text.replace(", is_scheduled=true", "")
    assert _labels(parse(unscheduled)) == _labels(parse(unscheduled.replace(part, other))) == ""
    sent = "g = f32[2] get-tuple-element(vd), index=0 s = (f32[2], u32[], token[]) send(g, k), channel_id=1"
    line = next(line for line in part.splitlines() if " send(" in line)
    looped = unscheduled.replace(part, other).replace(line.strip(), sent)
    assert "[channel_c4]" in _labels(parse(looped))


def test_channel_c1_a_done_is_on_the_channel_of_its_start() -> None:
    """The parser refuses it; a module that is built may have it."""
    text = "p = f32[2] parameter(0) k = token[] after-all() s = (f32[2], u32[], token[]) send(p, k), channel_id=1"
    module = parse(f"HloModule m\n\nENTRY e {{ {text} ROOT d = token[] send-done(s), channel_id=1 }}\n")
    done = structs.replace(module.entry.root, attributes={"channel_id": 2})
    entry = structs.replace(module.entry, instructions=(*module.entry.instructions[:-1], done), offsets=())
    assert "[channel_c1]" in _labels(_module(entry))


LAID_OUT, _, _ = CASES["layout_c4"]
TILED = "f32[4,8]{1,0:T(8,128)}"


@pytest.mark.parametrize(
    ("label", "part", "other"),
    [
        ("layout_c4", f"q = {TILED}", "q = f32[4,8]{0,1:T(8,128)}"),
        ("layout_c5", f"t = ({TILED}, ", "t = (f32[4,8]{1,0:T(4,128)}, "),
        ("shape_c2", f"t = ({TILED}, ", "t = (bf16[4,8]{1,0:T(8,128)}, "),
        ("layout_c6", f"ROOT n = {TILED}", "ROOT n = f32[4,8]{1,0:T(8,128)S(1)}"),
        ("layout_c7", f"u = {TILED}", "u = f32[4,8]{0,1:T(8,128)}"),
    ],
)
def test_layouts_are_compared_in_a_schedule_alone(label: str, part: str, other: str) -> None:
    """Whatever of them XLA's verifier compares when it is layout-sensitive; before a schedule nothing is laid out."""
    changed = LAID_OUT.replace(part, other)
    assert f"[{label}]" in problems(parse(changed))[0].message
    assert "[layout_" not in _labels(parse(changed.replace(", is_scheduled=true", "")))


@pytest.mark.parametrize("text", ["q = f32[4,8]{1,0:T(4,128)}", "q = f32[4,8]{1,0:T(8,128)S(1)}", "q = f32[4,8]"])
def test_tiles_and_memories_of_what_is_computed_are_free(text: str) -> None:
    """Only the order of dimensions is the operands'; and where no layout is written, any may come."""
    assert not problems(parse(LAID_OUT.replace(f"q = {TILED}", text)))


SCATTERED = """HloModule m, is_scheduled=true

add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }

ENTRY e {
  x = f32[4,8]{0,1:T(8,128)} parameter(0)
  i = s32[2]{0} parameter(1)
  u = f32[4,2]{1,0:T(8,128)} parameter(2)
  ROOT s = f32[4,8]{0,1:T(8,128)} scatter(x, i, u), update_window_dims={0}, inserted_window_dims={1},
    scatter_dims_to_operand_dims={1}, index_vector_dim=1, to_apply=add
}
"""


def test_layout_c4_updates_of_a_scatter_lie_in_any_order() -> None:
    """As the TPU compiler leaves ``x.at[:, i].add(u)``; what they are put into lies as the result does."""
    assert problems(parse(SCATTERED)) == []
    assert "[layout_c4]" in _labels(parse(SCATTERED.replace("x = f32[4,8]{0,1", "x = f32[4,8]{1,0")))


def test_layout_c5_a_copy_that_runs_beside_keeps_the_order() -> None:
    """It goes to another memory, in tiles of its own, but a DMA turns nothing."""
    start = "a = (f32[4,8]{1,0:T(4,128)S(1)}, f32[4,8]{1,0}, u32[]) copy-start(p)"
    lines = f"p = f32[4,8]{{1,0}} parameter(0) {start} ROOT b = f32[4,8]{{1,0:T(4,128)S(1)}} copy-done(a)"
    text = f"HloModule m, is_scheduled=true\n\nENTRY e {{ {lines} }}\n"
    assert problems(parse(text)) == []
    assert "[layout_c5]" in _labels(parse(text.replace("{1,0:T(4,128)S(1)}", "{0,1:T(4,128)S(1)}")))


def test_layout_c2_layout_c3_the_entry_lies_as_the_host_has_it() -> None:
    """In the order of dimensions; tiles are no part of what is agreed."""
    header = "entry_computation_layout={(f32[4,8]{1,0})->f32[4,8]{1,0}}"
    lines = "p = f32[4,8]{1,0:T(8,128)} parameter(0) ROOT r = f32[4,8]{1,0:T(8,128)} negate(p)"
    text = f"HloModule m, is_scheduled=true, {header}\n\nENTRY e {{ {lines} }}\n"
    assert problems(parse(text)) == []
    assert "[layout_c2]" in _labels(parse(text.replace("{(f32[4,8]{1,0})", "{(f32[4,8]{0,1})")))
    assert "[layout_c3]" in _labels(parse(text.replace("->f32[4,8]{1,0}", "->f32[4,8]{0,1}")))


def test_an_operand_of_another_structure_is_refused_by_its_shape() -> None:
    """Its layouts cannot be compared with those of the parameter; several checks may still say something."""
    changed = LAID_OUT.replace("fusion(p)", "fusion(t)").replace("tuple(f, r)", "tuple(q, r)")
    lines = changed.splitlines()
    place = next(number for number, line in enumerate(lines) if " fusion(t)" in line)
    lines.insert(place + 4, lines.pop(place))
    assert "[fusion_c2]" in _labels(parse("\n".join(lines)))


def test_a_tuple_is_copied_between_memories_without_a_check() -> None:
    """A layout is an array's: of a tuple nothing is compared, also where the copy brings it to the host."""
    array, host = "f32[4,8]{1,0:T(8,128)}", "f32[4,8]{0,1:T(8,128)S(5)}"
    lines = f"p = ({array}) parameter(0) ROOT c = ({host}) copy(p)"
    assert "[layout_c7]" not in _labels(parse(f"HloModule m, is_scheduled=true\n\nENTRY e {{ {lines} }}\n"))
