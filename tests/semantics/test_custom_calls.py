"""Custom calls to the TPU compiler's own targets: no operands, others than they work on, nothing that they give."""

from __future__ import annotations

import numpy as np
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


@pytest.mark.parametrize(
    ("call", "target"),
    [
        ("f32[8,128] custom-call(p)", "ProductOfElementaryHouseholderReflectors"),
        ("(f32[8,128], f32[8]) custom-call(p, p)", "Qr"),
        ("f32[8,128] custom-call(p)", "Qr"),
        ("(f32[8,128], f32[128]) custom-call(p)", "Qr"),
        ("f32[8,128] custom-call(p)", "LuDecomposition"),
        ("(f32[8,128], s32[8], s32[8], s32[8]) custom-call(p)", "LuDecomposition"),
        ("f32[128,8] custom-call(p)", "AssumeGatherIndicesInBound"),
        ("(f32[8,200], s32[8,200]) custom-call(p)", "TopK"),
        ("(f32[128,8], s32[128,8]) custom-call(p)", "TopK"),
        ("(f32[8,5], s32[8,4]) custom-call(p)", "TopK"),
        ("(f32[8,128], f32[8,128]) custom-call(p, p)", "AsyncCollectiveStart"),
        ("f32[8,128] custom-call(p)", "AsyncCollectiveStart"),
        ("f32[8,128] custom-call(p)", "AsyncCollectiveDone"),
        ("f32[8,128] custom-call(p, z)", "ProductOfElementaryHouseholderReflectors"),
        ("f32[8,128] custom-call(p, p)", "MoveToHost"),
        ("(f32[8,128], s32[]) custom-call(t)", "MoveToDevice"),
        ("f32[8,64] custom-call(p)", "MoveToDevice"),
        ("s32[8,128] custom-call(p)", "MoveToDevice"),
        ("(f32[8,128], s32[]) custom-call(p, z)", "annotate_device_placement"),
        ("f32[8,128] custom-call(p, z)", "Sharding"),
        ("s32[8,128] custom-call(p)", "LayoutConstraint"),
        ("f32[8] custom-call(p)", "SPMDShardToFullShape"),
        ("f32[8,128] custom-call(t)", "SPMDFullToShardShape"),
        ("f32[8,128] custom-call()", "xla.sdy.GlobalToLocalShape"),
        ("f32[8,128] custom-call(t)", "xla.sdy.LocalToGlobalShape"),
        ("(f32[8,128], f32[8,128]) custom-call(p)", "xla.sdy.LocalToGlobalShape"),
    ],
)
def test_what_takes_or_gives_others_than_its_target_is_wrong(call, target):
    """So many operands, and results of the sizes that follow from theirs."""
    with pytest.raises(ProgramError, match="custom_call_c4"):
        verify_module(program(call, target))


@pytest.mark.parametrize(
    ("call", "target"),
    [
        ("(f32[8,128], f32[8]) custom-call(p)", "Qr"),
        ("(f32[8,128], s32[8], s32[8]) custom-call(p)", "LuDecomposition"),
        ("(f32[8,128], s32[8]) custom-call(p)", "LuDecomposition"),
        ("(f32[8,5], s32[8,5]) custom-call(p)", "TopK"),
        ("f32[8,128]{0,1} custom-call(p)", "AssumeGatherIndicesInBound"),
        ("f32[8,128]{0,1} custom-call(p)", "LayoutConstraint"),
        ("(f32[8,128], s32[]) custom-call(t)", "Sharding"),
        ("f32[16,128] custom-call(p)", "SPMDShardToFullShape"),
    ],
)
def test_what_gives_what_its_target_gives_is_right(call, target):
    """What nothing needs may be missing at the end."""
    verify_module(program(call, target))


@pytest.mark.parametrize(("stated", "is_right"), [("s32[3]", False), ("f32[8]", False), ("token[]", True)])
def test_what_is_computed_has_the_type_and_sizes_that_are_stated(stated, is_right):
    """A target whose result the verifier does not know: nothing is cast or handed on as something else."""
    module = program(f"{stated} custom-call(z)", "PrepareAsyncCallDone")
    inputs = [np.zeros((8, 128), np.float32), np.int32(1)]
    if is_right:
        tpusim.execute(module, inputs)
        return
    with pytest.raises(ProgramError, match="expected what 'PrepareAsyncCallDone' gives"):
        tpusim.execute(module, inputs)


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
