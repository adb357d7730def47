"""Which computations of two scalars one opcode says it all of: of a module, and of a draft, in every spelling."""

from __future__ import annotations

import pytest

from tpusim.draft import Draft
from tpusim.semantics.combining import REPLACE, sole_opcode
from tpusim.source import SourceText
from tpusim.text.parser import parse_module


def of_two(lines, dtype="bf16", name="f"):
    """Return a computation of ``a`` and ``b`` with these lines, the root last."""
    *before, root = lines
    scalars = [f"{letter} = {dtype}[] parameter({at})" for at, letter in enumerate("ab")]
    return "\n".join([f"{name} {{", *scalars, *before, f"ROOT {root}", "}", ""])


def converted(opcode, dtype, wide, order="cd", back=None):
    """Return a computation that applies an opcode to its parameters in another type."""
    lines = [f"c = {wide}[] convert(a)", f"d = {wide}[] convert(b)", f"s = {wide}[] {opcode}({', '.join(order)})"]
    return of_two([*lines, f"r = {back or dtype}[] convert(s)"], dtype)


def found(*computations, last="f"):
    """Return what is found of a module's computation and of a draft's, which must be one answer."""
    entry = "ENTRY e {\n  ROOT p = bf16[] parameter(0)\n}\n"
    module = parse_module(SourceText("test.hlo", "\n".join(["HloModule m\n", *computations, entry])))
    one, other = sole_opcode(module.by_name, last), sole_opcode(Draft(module).graphs, last)
    assert one == other
    return one


def called(opcode, arguments, how="call", attribute="to_apply"):
    """Return a computation that calls one of an opcode."""
    inner = of_two([f"r = bf16[] {opcode}(a, b)"], name="inner")
    return inner, of_two([f"r = bf16[] {how}({arguments}), {attribute}=inner"])


@pytest.mark.parametrize("order", ["a, b", "b, a"])
@pytest.mark.parametrize("how", [(), ("fusion", "kind=kLoop, calls")])
def test_a_call_or_fusion_is_what_it_calls(how, order):
    """The parameters in either order, where that is all one."""
    assert found(*called("add", order, *how)) == "add"


def test_calls_of_calls_are_what_they_end_in():
    """However many there are."""
    outer = of_two(["r = bf16[] call(b, a), to_apply=f"], name="g")
    assert found(*called("maximum", "b, a"), outer, last="g") == "maximum"


def test_what_does_not_commute_keeps_its_order():
    """Twice the other way round is in order."""
    outer = of_two(["r = bf16[] call(b, a), to_apply=f"], name="g")
    assert found(*called("subtract", "a, b")) == "subtract"
    assert found(*called("subtract", "b, a")) == ""
    assert found(*called("subtract", "b, a"), outer, last="g") == "subtract"


@pytest.mark.parametrize(
    ("dtype", "wide"), [("bf16", "f32"), ("bf16", "f64"), ("f16", "f32"), ("f32", "f64"), ("f8e4m3fn", "f32")]
)
@pytest.mark.parametrize("opcode", ["add", "multiply", "maximum"])
def test_an_opcode_in_a_wider_float_is_that_opcode(dtype, wide, opcode):
    """What a processor without the narrow type does anyway: rounding twice is rounding once."""
    assert found(converted(opcode, dtype, wide)) == opcode
    assert found(converted(opcode, dtype, wide, "dc")) == opcode


@pytest.mark.parametrize(
    ("dtype", "other"),
    [
        ("f32", "bf16"),
        ("bf16", "f16"),
        ("f16", "bf16"),
        ("f8e4m3fn", "bf16"),
        ("s8", "s32"),
        ("bf16", "s32"),
        ("s32", "f64"),
    ],
)
def test_an_opcode_in_another_type_is_not(dtype, other):
    """One that holds fewer numbers, rounds where the narrow one does not, or overflows elsewhere."""
    assert found(converted("add", dtype, other)) == ""


def test_only_there_and_back_is_the_opcode():
    """A result of another type, what neither adds nor multiplies, or only one parameter of a wider one."""
    assert found(converted("add", "bf16", "f32", back="f16")) == ""
    assert found(converted("power", "bf16", "f32")) == ""
    assert found(of_two(["c = f32[] convert(a)", "s = f32[] add(c, c)", "r = bf16[] convert(s)"])) == ""


def test_converts_stand_inside_of_calls_too():
    """The parameters are widened outside of the call, the sum is rounded in it."""
    inner = (
        "inner {\na = f32[] parameter(0)\nb = f32[] parameter(1)\ns = f32[] add(a, b)\nROOT r = bf16[] convert(s)\n}\n"
    )
    lines = ["c = f32[] convert(a)", "d = f32[] convert(b)", "r = bf16[] call(c, d), to_apply=inner"]
    assert found(inner, of_two(lines)) == "add"


def test_the_second_parameter_replaces_in_every_spelling():
    """Returned as it is, handed through a call, or widened and rounded back."""
    second = "f {\na = bf16[] parameter(0)\nROOT b = bf16[] parameter(1)\n}\n"
    assert found(second) == REPLACE
    assert found(second, of_two(["r = bf16[] call(a, b), to_apply=f"], name="g"), last="g") == REPLACE
    assert found(second, of_two(["r = bf16[] call(b, a), to_apply=f"], name="g"), last="g") == ""
    assert found(of_two(["c = f32[] convert(b)", "r = bf16[] convert(c)"])) == REPLACE


@pytest.mark.parametrize(
    "lines",
    [
        ["r = bf16[] add(a, a)"],
        ["c = bf16[] add(a, b)", "r = bf16[] negate(c)"],
        ["c = bf16[] multiply(b, b)", "r = bf16[] add(a, c)"],
        ["r = pred[] compare(a, b), direction=GT"],
    ],
)
def test_other_computations_have_no_sole_opcode(lines):
    """What repeats a parameter, does more, or says more than by its opcode."""
    assert found(of_two(lines)) == ""


def test_what_calls_hand_on_for_ever_is_no_ones():
    """Each level hands both its parameters to the next, so that the way through thirty is a power of their number."""
    levels = [of_two(["r = bf16[] copy(b)"], name="g0")]
    for level in range(1, 31):
        lines = [f"c = bf16[] call(a, b), to_apply=g{level - 1}", f"r = bf16[] call(c, c), to_apply=g{level - 1}"]
        levels.append(of_two(lines, name=f"g{level}"))
    assert found(*levels[:4], last="g3") == REPLACE
    assert found(*levels, last="g30") == ""
