"""Exact values of compiled programs: which roundings to bf16 are the compiler's, and which the program's own."""

from __future__ import annotations

import numpy as np
import pytest

import tpusim
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

# Neither of them is a number of bf16.
VALUES = np.float32([1 + 2**-12, 3 - 2**-12])

LARGEST = """HloModule m, is_scheduled=true
larger { a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT m = bf16[] maximum(a, b) }
ENTRY e {
  x = f32[2] parameter(0)
  narrow = bf16[2] convert(x)METADATA
  least = bf16[] constant(-inf)
  largest = bf16[] reduce(narrow, least), dimensions={0}, to_apply=larger
  ROOT r = f32[] convert(largest)
}"""
OWN = ', metadata={op_name="jit(f)/convert_element_type"}'


def largest(metadata: str, precision: str = "exact") -> float:
    """Return the largest of the values, as a module computes it that narrows them first."""
    module = parse_module(SourceText("test.hlo", LARGEST.replace("METADATA", metadata)))
    return float(tpusim.execute(module, [VALUES], precision=precision))


@pytest.mark.parametrize("metadata", ["", ', metadata={op_name="jit(f)/dot_general"}'])
def test_the_roundings_of_the_compiler_are_left_out(metadata):
    """Also where what is reduced begins with a narrow constant."""
    assert largest(metadata) == VALUES[1]


def test_the_roundings_of_the_program_stay():
    """XLA on the CPU rounds there too."""
    assert largest(OWN) == 3


def test_a_tpu_rounds_wherever_the_text_says():
    """Whoever asked for it."""
    assert largest("", "tpu") == largest(OWN, "tpu") == 3


@pytest.mark.parametrize("precision", ["exact", "tpu"])
def test_our_own_compiler_narrows_nothing(precision):
    """Every rounding in what it makes is one of the program, whatever it is called: 257 is no number of bf16."""
    text = LARGEST.replace(", is_scheduled=true", "").replace("METADATA", "")
    module = parse_module(SourceText("test.v5e.hlo.txt", text))
    values = [np.float32([257, 1.001])]
    given, compiled = (
        tpusim.execute(module, values, precision=precision, schedule=schedule) for schedule in ("given", "compiled")
    )
    assert float(given) == float(compiled) == 256
