"""Programs from texts, compiled."""

from __future__ import annotations

from tpusim.compiler.passes import compile_module
from tpusim.compiler.target import Target
from tpusim.hardware.load import load_chip
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

SUM = "sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }"
LESS = "less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=LT }"
"""Scalar computations that programs apply."""


def compiled(text, chip="v5e", stop_after="", *, narrows=False):
    """Return the module of a text as our compiler leaves it for a chip, by default with the types that the text has."""
    return compile_module(parse_module(SourceText("text", text)), Target(load_chip(chip), narrows=narrows), stop_after)
