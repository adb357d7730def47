"""Custom calls to the TPU compiler's own targets: no operands, others than they work on, nothing that they give."""

from __future__ import annotations

import pytest

import tpusim
from tpusim.errors import ProgramError
from tpusim.ir.custom_calls import REGISTERED
from tpusim.semantics.verify.module import verify_module
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

OPERANDS = {"none": "", "a number": "z", "a tuple": "t", "a token": "k"}
ON_ARRAYS = ("PartialReduce", "TopK", "Cholesky", "EighTpu", "InvertDiagBlocksLowerTriangular", "ConcatBitcast")


def program(call, target):
    """Return a program of one call."""
    text = f"""HloModule m
ENTRY e {{
  p = f32[8,128] parameter(0)
  z = s32[] parameter(1)
  t = (f32[8,128], s32[]) tuple(p, z)
  k = token[] after-all()
  ROOT r = {call}, custom_call_target="{target}"
}}
"""
    return parse_module(SourceText("text", text))


@pytest.mark.parametrize("operands", OPERANDS)
@pytest.mark.parametrize("target", ON_ARRAYS)
def test_what_is_given_no_array_is_wrong(target, operands):
    """Not a fault of ours."""
    with pytest.raises(ProgramError, match="custom_call_c4"):
        tpusim.simulate(program(f"f32[8,128] custom-call({OPERANDS[operands]})", target), "v5e")


@pytest.mark.parametrize(
    ("call", "target"),
    [
        ("() custom-call(p)", "TopK"),
        ("() custom-call()", "AllocateBuffer"),
        ("(f32[8,128]) custom-call(p)", "ConcatBitcast"),
        ("f32[8,128] custom-call(p)", "TopK"),
        ("f32[8,128] custom-call(p)", "X64Combine"),
        ("f32[8,128] custom-call()", "Sharding"),
        ("f32[8,128] custom-call()", "MoveToHost"),
    ],
)
def test_what_gives_no_array_is_wrong(call, target):
    """Where the target makes one."""
    with pytest.raises(ProgramError, match="custom_call_c4"):
        tpusim.simulate(program(call, target), "v5e")


def test_a_registered_target_takes_what_it_is_given():
    """It means what the user says."""
    tpusim.register_custom_call("PartialReduce", numerics=lambda instruction: None)
    try:
        verify_module(program("f32[8,128] custom-call()", "PartialReduce"))
    finally:
        del REGISTERED["PartialReduce"]


def test_a_call_for_its_effects_gives_nothing():
    """It takes the time of what it reads."""
    assert tpusim.simulate(program("() custom-call(p)", "mine"), "v5e").time_us > 0
