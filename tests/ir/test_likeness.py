"""Computations of one number differ in names and metadata alone."""

from __future__ import annotations

import copy
import pickle

import pytest
from msgspec import structs

from tpusim.ir.likeness import Likeness
from tpusim.ir.module import Module
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

COMMON = """HloModule m
%inner { %i = f32[8] parameter(0)  ROOT %n = f32[8] negate(%i) }
%same { %j = f32[8] parameter(0)  ROOT %o = f32[8] negate(%j), metadata={op_name="o"} }
%other { %k = f32[8] parameter(0)  ROOT %t = f32[8] tanh(%k) }
"""
ONE = """%one {
  %a = f32[8] parameter(0)
  %b = f32[8] parameter(1)
  %c = f32[8] fusion(%a), kind=kLoop, calls=%inner
  %d = f32[8] fusion(%b), kind=kLoop, calls=%inner
  ROOT %r = f32[8] subtract(%c, %d)
}
"""
AFTER = ("%c, %d)", "%c, %d), control-predecessors={%a}")
ENTRY = """
ENTRY %e { %x = f32[8] parameter(0)  ROOT %y = f32[8] negate(%x) }
"""


def changed(text: str, *changes: tuple[str, str]) -> str:
    """Return a text with each change made, all of which must be possible."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def with_two(one: str, two: str) -> Module:
    """Return a module of two computations beside others, of which the second is called ``two``."""
    return parse_module(SourceText("m", COMMON + one + changed(two, ("%one", "%two")) + ENTRY))


def are_alike(one: str, *changes: tuple[str, str]) -> bool:
    """Return whether a computation and a changed copy of it have one number; the entry has none."""
    numbers = with_two(one, changed(one, *changes)).likeness.numbers
    assert "e" not in numbers
    return numbers["one"] == numbers["two"]


@pytest.mark.parametrize(
    "changes",
    [
        (),
        (("%c", "%z"),),
        (("calls=%inner\n  %d", "calls=%same\n  %d"),),
        (("calls=%inner\n  %d", 'calls=%inner, metadata={op_name="c"}\n  %d'),),
    ],
)
def test_names_and_metadata_make_no_difference(changes: tuple[tuple[str, str], ...]) -> None:
    """Nor do the names of computations that are alike."""
    assert are_alike(ONE, *changes)


@pytest.mark.parametrize(
    "changes",
    [
        (("calls=%inner\n  %d", "calls=%other\n  %d"),),
        (("(%c, %d)", "(%d, %c)"),),
        (("parameter(1)", "parameter(2)"), ("parameter(0)", "parameter(1)"), ("parameter(2)", "parameter(0)")),
        (("subtract", "add"),),
        (("%r = f32[8]", "%r = bf16[8]"),),
        (("kind=kLoop", "kind=kOutput"),),
        (("ROOT %r", "%r"), ("%d =", "ROOT %d =")),
        (("}\n", '}, execution_thread="side"\n'),),
        (AFTER,),
    ],
)
def test_anything_else_does(changes: tuple[tuple[str, str], ...]) -> None:
    """What they call, operands, parameters, opcodes, shapes, attributes, the root, the thread."""
    assert not are_alike(ONE, *changes)


def test_how_many_operands_each_has_makes_a_difference() -> None:
    """All of them together may be the same: of (x), (x, y) and of (x, x), (y)."""
    parts = ("a", "a, b"), ("a, a", "b")
    one, other = (
        "%one {\n  %a = f32[8] parameter(0)\n  %b = f32[8] parameter(1)\n"
        + f'  %c = f32[8] custom-call({first}), custom_call_target="k"\n'
        + f'  ROOT %d = f32[8] custom-call({second}), custom_call_target="k"\n}}\n'
        for first, second in parts
    )
    numbers = with_two(one, other).likeness.numbers
    assert numbers["one"] != numbers["two"]


def test_what_one_name_stands_for_makes_a_difference() -> None:
    """To run after ``a`` is something else where another instruction has that name."""
    swapped = (("%a ", "%z "), ("%b ", "%a "), ("%z ", "%b "), ("(%a)", "(%z)"), ("(%b)", "(%a)"), ("(%z)", "(%b)"))
    assert are_alike(ONE, *swapped)
    assert not are_alike(changed(ONE, AFTER), *swapped)


def test_those_that_are_alike_stand_for_each_other_once() -> None:
    """The first of them, in the order of the text; the entry stands for itself."""
    unlike = with_two(ONE, ONE).unlike
    assert [computation.name for computation in unlike] == ["inner", "other", "one", "e"]


def test_a_computation_knows_its_calls() -> None:
    """Also those of short forms of asynchronous operations, which no table has; what calls nothing is none."""
    text = """HloModule m
        add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
        ENTRY e { x = f32[8] parameter(0) z = f32[] constant(0) k = f32[8] custom-call(x), custom_call_target="k"
          ROOT r = f32[] reduce(k, z), dimensions={0}, to_apply=add }"""
    entry = parse_module(SourceText("m", text)).entry
    short = structs.replace(entry["r"], opcode="reduce-start")
    longer = structs.replace(entry, instructions=(*entry.instructions[:-1], short))
    for computation, opcode in ((entry, "reduce"), (longer, "reduce-start")):
        assert [(one.opcode, names) for one, names in computation.calls] == [("custom-call", ()), (opcode, ("add",))]


def test_a_copy_of_a_module_has_no_numbers_of_another() -> None:
    """What is known by identity would be taken for what then lies there."""
    module = with_two(ONE, ONE)
    assert module.likeness.numbers
    for copied in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
        assert copied == module
        assert "likeness" not in vars(copied)


def test_what_is_gone_is_not_taken_for_what_lies_there_now() -> None:
    """Each dict has a number of its own, though most take the address of the one before."""
    module, likeness = with_two(ONE, ONE), Likeness()
    forms = {
        likeness.form(module.entry, structs.replace(module.entry.root, attributes={"a": str(number)}))
        for number in range(100)
    }
    assert len(forms) == 100


def test_computations_that_do_not_hold_together_are_not_alike_those_that_do() -> None:
    """One name twice; an operand or a root that is not there."""
    module = with_two(ONE, ONE)
    one, two = module["one"], module["two"]
    first, *others = two.instructions
    broken = (
        structs.replace(two, name="twice", instructions=(first, *two.instructions)),
        structs.replace(two, name="missing", instructions=tuple(others)),
        structs.replace(two, name="rootless", root_name="nowhere"),
    )
    numbers = Likeness((module["inner"], one, two, *broken)).numbers
    assert numbers["one"] == numbers["two"]
    assert len(set(numbers.values())) == 5
