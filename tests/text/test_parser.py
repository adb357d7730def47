"""What instructions and modules hold after reading."""

from __future__ import annotations

import gc

import pytest

from tests.text.programs import entry, source, text_of
from tpusim.ir.attributes import (
    BufferDonor,
    ComputationName,
    ConvolutionLabels,
    InstructionName,
    OperandAlias,
    PaddingDimension,
    ParameterAlias,
    Raw,
    SliceDimension,
    Symbol,
    Window,
    WindowDimension,
)
from tpusim.ir.module import Instruction, Module
from tpusim.shapes.notation import parse_shape
from tpusim.source import SourceText
from tpusim.text import parse_module


def module_of(name: str) -> Module:
    """Return one of the hand-written programs."""
    return parse_module(source(text_of(name)))


def instruction(module: str, name: str) -> Instruction:
    """Return an instruction of the entry of a hand-written program."""
    return module_of(module).entry[name]


def test_an_instruction_has_its_parts() -> None:
    """Name, shape, opcode, operands and attributes in the order of the text."""
    found = instruction("windows", "conv")
    assert (found.name, found.opcode, found.operands) == ("conv", "convolution", ("x", "k"))
    assert found.shape == parse_shape("f32[1,4,4,4]{3,2,1,0}")
    assert list(found.attributes) == ["window", "dim_labels", "operand_precision", "feature_group_count"]


@pytest.mark.parametrize(
    ("program", "name", "attribute", "value"),
    [
        ("windows", "odd", "window", Window((WindowDimension(3, pad_low=1, pad_high=1),))),
        ("windows", "odd", "dim_labels", ConvolutionLabels("b0?f", "0?io", "b0?f")),
        ("windows", "conv", "operand_precision", (Symbol("highest"), Symbol("default"))),
        ("windows", "conv", "feature_group_count", 1),
        ("calls", "sorted", "dimensions", (0,)),
        ("calls", "sorted", "is_stable", True),
        ("calls", "sorted", "to_apply", ComputationName("order")),
        ("calls", "called", "called_computations", (ComputationName("less"), ComputationName("next"))),
        ("calls", "called", "custom_call_target", 'f\n"g"'),
        ("calls", "called", "output_to_operand_aliasing", (OperandAlias((), 0, ()),)),
        ("calls", "called", "schedule", Symbol("SCHEDULE_LATEST")),
        ("calls", "called", "literal", Raw("s32[2]{0} {1, 2}")),
        ("calls", "loop", "backend_config", Raw('{"known_trip_count":{"n":"10"}}')),
        ("calls", "scattered", "update_window_dims", ()),
        ("calls", "dotted", "algorithm", Symbol("dot_bf16_bf16_f32_x3")),
        ("devices", "ring", "source_target_pairs", ((0, 1), (1, 2), (2, 3), (3, 0))),
        ("devices", "all", "control-predecessors", (InstructionName("plain"), InstructionName("mesh"))),
        ("nested_tuples", "p", "parameter_replication", (True, False)),
    ],
)
def test_an_attribute_has_its_value(program: str, name: str, attribute: str, value: object) -> None:
    """Short attributes become values of ``ir.attributes``, long ones stay text."""
    found = instruction(program, name).attributes[attribute]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("end", ["padding=\n}", 'padding=, metadata={op_name="a"}\n}', "padding= }"])
def test_the_padding_of_a_scalar_has_no_numbers(end: str) -> None:
    """XLA prints it so, and does not read it."""
    text = f"HloModule m\n\nENTRY e {{\n  s = f32[] parameter(0)\n  z = f32[] pad(s, s), {end}\n"
    module = parse_module(SourceText("m", text))
    assert module.entry.root.attributes["padding"] == ()
    assert parse_module(SourceText("again", module.text)).text == module.text


def test_padding_and_slices_are_numbers_per_dimension() -> None:
    """Negative padding, interiors and strides included."""
    padded = instruction("windows", "padded").attributes["padding"]
    assert padded[1:3] == (PaddingDimension(1, 2), PaddingDimension(-1, 0))
    assert instruction("windows", "spread").attributes["padding"][1] == PaddingDimension(0, 0, 1)
    part = instruction("windows", "part").attributes["slice"]
    assert part[1:] == (SliceDimension(0, 8, 4), SliceDimension(1, 8, 2), SliceDimension(0, 3, 1))


def test_the_fields_of_a_window_come_in_any_order() -> None:
    """``stride`` before ``size``; fields left out have their defaults."""
    window = instruction("windows", "pool").attributes["window"]
    assert window.dimensions[1] == WindowDimension(size=2, stride=2)
    assert instruction("windows", "conv").attributes["window"].dimensions[0].reversal


def test_the_attributes_of_a_module_have_their_values() -> None:
    """The first line of a module, structured but for its long texts."""
    attributes = module_of("module_attributes").attributes
    assert attributes["input_output_alias"] == (ParameterAlias((0,), 0, (), True), ParameterAlias((1,), 1, (1,)))
    assert attributes["buffer_donor"] == (BufferDonor(1, (0,)),)
    assert attributes["allow_spmd_sharding_propagation_to_parameters"] == (True, False)
    assert attributes["allow_spmd_sharding_propagation_to_output"] is True
    assert (attributes["replica_count"], attributes["num_partitions"]) == (2, 4)
    assert module_of("module_attributes").is_scheduled


def test_the_entry_layout_is_shapes() -> None:
    """Layouts of the parameters and of the result as the host sees them."""
    layout = module_of("nested_tuples").attributes["entry_computation_layout"]
    assert layout.parameters == (parse_shape("(f32[2]{0}, (s32[], ()))"),)
    assert layout.result == parse_shape("((f32[2]{0}, (s32[], ())), s32[])")


def test_tables_keep_their_rows_in_xlas_order() -> None:
    """A row's fields may come in any order and with commas; they are kept as XLA prints them."""
    tables = module_of("module_attributes").tables
    assert tables["FileNames"] == ('1 "model.py"', r'2 "a \"quoted\" name.py"')
    location = "2 {file_name_id=2 function_name_id=1 line=11 end_line=11 column=4 end_column=9}"
    assert tables["FileLocations"][1] == location


def test_a_module_without_header_is_named_after_its_entry() -> None:
    """XLA: ``module_`` and the entry, which is marked, or else the last computation."""
    module = module_of("headerless")
    assert (module.name, module.entry_name) == ("module_main", "main")
    unmarked = parse_module(source("a {\n x = f32[] constant(1)\n}\nb {\n y = f32[] constant(2)\n}\n"))
    assert unmarked.entry_name == "b"


def test_a_computation_without_root_returns_its_last_instruction() -> None:
    """XLA: no ROOT is the last."""
    assert module_of("headerless")["double"].root.name == "twice"


def test_one_instruction_is_a_module_whose_operands_are_parameters() -> None:
    """Operands need shapes but no names."""
    entry_computation = module_of("one_instruction_unnamed").entry
    assert [(p.name, p.immediate) for p in entry_computation.parameters] == [("_0", 0), ("given", 1)]
    assert entry_computation.root.operands == ("_0", "given")


def test_nested_instructions_become_instructions_before() -> None:
    """They are named after their opcode, innermost first."""
    names = [i.name for i in module_of("old_style").entry]
    assert names[3:6] == ["exponential.anon", "add.anon", "nested"]


def test_computations_in_braces_become_computations_before() -> None:
    """They are named ``_``, ``_.1`` and so on, in the order of the text."""
    module = module_of("inline_computations")
    assert [c.name for c in module.computations] == ["_", "_.1", "_.2", "main"]
    assert module.entry["fused"].called_computations == ("_.2",)


def test_the_short_form_of_an_asynchronous_operation_is_its_opcode() -> None:
    """``slice-start`` stays one instruction; ``async-start`` names the computation that it wraps."""
    assert instruction("async_short", "slice-start").opcode == "slice-start"
    assert module_of("async_short")["callee"].execution_thread == "sparsecore"
    assert instruction("async_calls", "start").called_computations == ("wrapped",)


def test_elements_of_a_tuple_are_taken_out_by_the_hash_sign() -> None:
    """``%t#1#0`` is an element of an element; each is taken out once. Newer than the tested XLA, from its parser."""
    lines = ("t = (f32[], (s32[], u32[])) parameter(0)", "a = s32[] add(t#1#0, s32[] t#1#0)")
    names = [(i.name, i.opcode) for i in parse_module(source(entry(*lines))).entry]
    assert names[1:3] == [("t_1", "get-tuple-element"), ("t_1_0", "get-tuple-element")]
    assert len(names) == 4


@pytest.mark.parametrize(
    ("line", "shape"),
    [
        ("compare(p, p), direction=LT", "pred[4]{0}"),
        ("tuple(p, p)", "(f32[4]{0}, f32[4]{0})"),
        ("complex(p, p)", "c64[4]{0}"),
        ("imag(c64[4]{0} complex(p, p))", "f32[4]{0}"),
        ("dot(p, p), lhs_contracting_dims={0}, rhs_contracting_dims={0}", "f32[]"),
        ("get-dimension-size(p), dimensions={0}", "s32[]"),
        ("after-all()", "token[]"),
    ],
)
def test_a_shape_that_follows_may_be_left_out(line: str, shape: str) -> None:
    """The rules of the operation semantics."""
    module = parse_module(source(entry("p = f32[4]{0} parameter(0)", f"ROOT r = {line}")))
    assert module.entry.root.shape == parse_shape(shape)


def test_attributes_may_go_on_on_the_next_line() -> None:
    """As XLA reads them, although the line before ends like an ordinary one."""
    lines = ("%p = f32[] parameter(0)", '%n = f32[] negate(%p)\n, metadata={op_name="x"}', "%q = f32[] negate(%n)")
    found = parse_module(source(entry(*lines))).entry
    assert found["n"].metadata.op_name == "x"
    assert found.root_name == "q"


def test_what_others_have_frozen_is_not_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python counts it one by one: with millions of objects that took longer than to read ten thousand lines."""
    monkeypatch.setattr(gc, "get_freeze_count", lambda: pytest.fail("frozen objects are counted"))
    lines = (f"  y{n + 1} = f32[8,128]{{1,0:T(8,128)}} negate(y{n})" for n in range(10_000))
    body = "\n".join(("  y0 = f32[8,128]{1,0:T(8,128)} parameter(0)", *lines))
    assert len(parse_module(source(f"HloModule m\n\nENTRY e {{\n{body}\n}}\n")).entry.instructions) == 10_001
