"""What it costs to widen and pack narrow elements, by counting registers."""

from __future__ import annotations

import pytest

from tests.lowering.hlo import lower_text
from tpusim.hardware.load import load_chip


def work_of(entry, chip="v4"):
    """Return the vector work and tiles of the only kernel of a program."""
    (kernel,) = lower_text(entry, "", chip).steps
    return kernel.work, kernel.tiles


def unary(dtype, opcode, packing):
    """Return a program of one operation on 64 registers of elements."""
    shape = f"{dtype}[512,128]{{1,0:T(8,128){packing}}}"
    return f"%x = {shape} parameter(0)\nROOT %y = {shape} {opcode}(%x)"


def test_f16_is_widened_and_packed():
    """A negation of f16 costs more than one of f32 by what 64 registers cost in and out."""
    ops = load_chip("v4").vector_ops
    wide, tiles = work_of(unary("f32", "negate", ""))
    narrow, narrow_tiles = work_of(unary("f16", "negate", "(2,1)"))
    extra = narrow.ops["vector"] * narrow_tiles - wide.ops["vector"] * tiles
    assert extra == pytest.approx(64 * (ops.unpack["f16"]["vector"] + ops.pack["f16"]["vector"]))


def test_even_a_copy_of_f16_is_converted():
    """No register holds f16, so that a copy costs what a negation does but for the negation."""
    copied, tiles = work_of(unary("f16", "copy", "(2,1)"))
    negated, _ = work_of(unary("f16", "negate", "(2,1)"))
    assert (negated.ops["vector"] - copied.ops.get("vector", 0)) * tiles == pytest.approx(64)


def test_a_copy_of_bf16_moves_packed_words():
    """bf16 can lie in registers as it is."""
    assert work_of(unary("bf16", "copy", "(2,1)"))[0].ops.get("vector", 0) == 0


def test_native_bf16_costs_no_conversion():
    """On v6e a negation of bf16 is half a register operation per 32-bit register of elements."""
    work, tiles = work_of(unary("bf16", "negate", "(2,1)"), "v6e")
    assert work.ops["vector"] * tiles == pytest.approx(32)


def test_the_array_takes_bf16_as_it_is():
    """Operands of a bf16 product pass the vector unit by; f16 ones do not."""
    text = """
        %x = T[256,128]{1,0:T(8,128)(2,1)} parameter(0)
        %w = T[128,128]{1,0:T(8,128)(2,1)} parameter(1)
        ROOT %y = f32[256,128]{1,0:T(8,128)} convolution(%x, %w), dim_labels=bf_io->bf"""
    assert work_of(text.replace("T[", "bf16["))[0].ops.get("vector", 0) == 0
    assert work_of(text.replace("T[", "f16["))[0].ops["vector"] > 0
