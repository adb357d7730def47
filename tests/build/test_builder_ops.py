"""Every operation, built: its module prints as text that XLA's parser takes and that reads back as the module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.build.builder_cases import CASES
from tpusim.build.builder import Builder
from tpusim.ir.module import Literal
from tpusim.shapes.shape import ArrayShape, BufferShape, TupleShape
from tpusim.source import SourceText
from tpusim.text import parse_module, print_module

if TYPE_CHECKING:
    from tpusim.ir.module import Computation, Instruction, Module
    from tpusim.shapes.shape import Shape

CALLING = set(
    "to_apply calls condition body select scatter true_computation false_computation branch_computations"
    " called_computations".split()
)
NO_OPERATION = {"build", "called", "computation_shape", "emit", "parameter"}
WITHOUT_A_CASE_OF_THEIR_OWN = {
    "compare": "eq and the others",
    "concat_in_dim": "concatenate",
    "infeed_with_token": "infeed",
    "outfeed_with_token": "outfeed",
    "recv_with_token": "recv",
    "send_to_host": "recv_from_host",
    "send_with_token": "send",
}


def built(name: str) -> Module:
    """Return the module of a case."""
    b = Builder("case")
    return b.build(CASES[name](b))


def read(text: str) -> Module:
    """Return the module that a text holds."""
    return parse_module(SourceText("case.hlo", text))


def tree(module: Module, computation: Computation, name: str) -> tuple[Any, ...]:
    """Return an instruction with its operands and what it calls inside it: no names, no layouts, no order."""
    i = computation[name]
    attributes = {key: value for key, value in i.attributes.items() if key not in CALLING}
    called = [tree(module, module[c], module[c].root_name) for c in sorted_calls(i)]
    operands = [tree(module, computation, operand) for operand in i.operands]
    immediate = i.immediate.text.replace("-0.0", "-0") if isinstance(i.immediate, Literal) else i.immediate
    return (i.opcode, bare(i.shape), attributes, called, operands, immediate)


def sorted_calls(instruction: Instruction) -> list[str]:
    """Return the computations that an instruction calls, in the order of the attributes' names."""
    calls = [instruction.attributes[key] for key in sorted(CALLING & instruction.attributes.keys())]
    return [name for call in calls for name in (call if isinstance(call, tuple) else [call])]


def entry_tree(module: Module) -> tuple[Any, ...]:
    """Return the tree of what the module returns."""
    return tree(module, module.entry, module.entry.root_name)


def bare(shape: Shape) -> Shape:
    """Return a shape with no layout anywhere."""
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(map(bare, shape.elements)))
    assert not isinstance(shape, BufferShape)
    assert isinstance(shape, ArrayShape)
    return shape.with_layout(None)


@pytest.mark.parametrize("name", CASES)
def test_a_built_module_reads_back_as_itself(name: str) -> None:
    """Printing and parsing lose nothing."""
    module = built(name)
    assert read(print_module(module)) == structs.replace(module, source=None)


@pytest.mark.parametrize("name", CASES)
def test_xla_reads_what_is_built_and_means_the_same(name: str) -> None:
    """XLA's parser takes the text, and what it prints differs in layouts only: no default is written out."""
    xla = pytest.importorskip("tests.text.xla")
    module = built(name)
    assert entry_tree(read(xla.reprint_in_full(print_module(module)))) == entry_tree(module)


def test_every_method_has_a_case() -> None:
    """Each public method that makes an operation is built in a case, or says in which other one."""
    methods = {name for name in dir(Builder) if not name.startswith("_") and callable(getattr(Builder, name))}
    cases = {name.partition(" ")[0] for name in CASES}
    assert methods - cases - NO_OPERATION == set(WITHOUT_A_CASE_OF_THEIR_OWN)
