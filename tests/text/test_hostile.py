"""Texts of ten megabytes that are made to hurt: an error within seconds, and nothing else.

No time is measured; a text that made a pattern backtrack, or a walk quadratic, would take hours.
"""

from __future__ import annotations

import pytest

from tests.text.programs import source
from tpusim.errors import ProgramError
from tpusim.text import parse_module

N = 10_000_000
HEAD = "HloModule m\n\nENTRY %e {\n  %a = f32[] parameter(0)"
HOSTILE = {
    "parentheses": "(" * N,
    "braces": "{" * N,
    "one word": "x" * N,
    "one number": "9" * N,
    "quotes": '"' * N,
    "open string": 'HloModule m, frontend_attributes={a="' + "x" * N,
    "open comment": "/*" + "* /" * (N // 3),
    "slashes": "//" * (N // 2),
    "blanks": " " * N,
    "one line of attributes": "HloModule m" + ", a=1" * (N // 5),
    "unclosed attributes": HEAD + ", a={b" * (N // 6) + "\n",
    "unclosed strings": HEAD + ', metadata={op_name="' * (N // 21) + "\n",
    "open config": HEAD + ", backend_config=" + "{" * N,
    "open string in a config": HEAD + ', backend_config={"' + '\\"' * (N // 2),
    "closed config": HEAD + ", backend_config=" + "{" * (N // 2) + "}" * (N // 2),
    "open shape": HEAD + "\n  %b = " + "(" * N,
    "open dimensions": HEAD + "\n  %b = " + "f32[" * (N // 4),
    "open literal": HEAD + "\n  %b = f32[2] constant(" + "{" * N,
    "commas": HEAD + "\n  %b = f32[2] constant({" + "," * N,
    "digits of a literal": HEAD + "\n  %b = s32[] constant(" + "9" * N + ")",
    "digits of a fraction": HEAD + "\n  %b = f32[] constant(0." + "9" * N + "e" + "9" * 30 + ")",
    "nested operands": HEAD + "\n  %b = f32[] " + "negate(" * (N // 7),
    "nested computations": HEAD + "\n  %b = f32[] call(%a), to_apply={ %a = f32[] parameter(0)" * (N // 60),
    "open sharding": HEAD + ", sharding=" + "{" * N,
    "open origin": HEAD + ", origin={" + "(" * N,
    "window": HEAD + "\n  %b = f32[] reduce-window(%a, %a), window={size=" + "1x" * (N // 2) + "1}",
    "labels": HEAD + "\n  %b = f32[] convolution(%a, %a), dim_labels=" + "0" * N + "_00->00",
    "too many devices": HEAD + "\n  %b = f32[] all-to-all(%a), replica_groups=[9,99999999999]<=[899999999991]",
    "roots": "HloModule m\n\nENTRY %e {\n" + "ROOT " * (N // 5),
    "elements of elements": HEAD + "\n  %b = f32[] negate(%a" + "#0" * (N // 2),
    "names": HEAD + "\n" + "  %a = f32[] parameter(0)\n" * (N // 26),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_an_error(name: str) -> None:
    """No traceback of another type, no recursion limit, no pattern that backtracks."""
    with pytest.raises(ProgramError):
        parse_module(source(HOSTILE[name]))


def test_a_chain_of_updates_is_not_walked_again_and_again() -> None:
    """Ten thousand updates of one asynchronous operation."""
    count = 10_000
    start = '\n  %step0 = ((f32[]), f32[]) custom-call-start(%a), custom_call_target="x"\n'
    updates = "".join(f"  %step{i + 1} = ((f32[]), f32[]) custom-call-update(%step{i})\n" for i in range(count))
    module = parse_module(source(HEAD + start + updates + "}\n"))
    assert module.instruction_count == count + 2


def test_a_literal_of_a_thousand_dimensions_is_read() -> None:
    """Rank costs no recursion."""
    rank = 1000
    shape = "f32[" + ",".join(["1"] * rank) + "]"
    text = f"HloModule m\n\nENTRY e {{\n  c = {shape} constant({'{' * rank}7{'}' * rank})\n}}\n"
    assert parse_module(source(text)).entry.root.name == "c"
