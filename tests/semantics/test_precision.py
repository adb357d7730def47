"""Passes of products against the TPU compiler's estimates, and against the values that they make."""

from __future__ import annotations

import numpy as np
import pytest

from tests.numerics.oracle import run_ours
from tpusim.ir.module import Instruction
from tpusim.semantics.precision import product_passes
from tpusim.semantics.products import canonical_product
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.notation import parse_shape
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

ESTIMATED = [
    ("f32", "f32", "default", "default", 1),
    ("f32", "f32", "high", "high", 3),
    ("f32", "f32", "highest", "highest", 6),
    ("f32", "f32", "default", "highest", 3),
    ("f32", "f32", "default", "high", 2),
    ("f32", "f32", "high", "highest", 5),
    ("f32", "bf16", "highest", "highest", 3),
    ("f32", "bf16", "high", "high", 2),
    ("f32", "bf16", "high", "highest", 2),
    ("f32", "bf16", "default", "highest", 1),
    ("f32", "f16", "highest", "highest", 5),
    ("f32", "f16", "high", "high", 3),
    ("f16", "f16", "highest", "highest", 3),
    ("bf16", "f16", "highest", "highest", 2),
    ("bf16", "bf16", "highest", "highest", 1),
    ("f32", "s8", "highest", "highest", 3),
    ("f8e4m3fn", "f8e4m3fn", "highest", "highest", 1),
    ("s8", "s8", "highest", "highest", 1),
    ("s16", "s16", "default", "default", 4),
    ("s32", "s32", "default", "default", 10),
]
"""Types, precisions, and passes of 33 k cycles each in libtpu 0.0.52's estimates for 1024 x 2048 x 1024 on v5e."""

ALGORITHMS = {
    "dot_any_f8_any_f8_f32": ("f8e5m2", 1),
    "dot_any_f8_any_f8_f32_fast_accum": ("f8e5m2", 1),
    "dot_f16_f16_f16": ("f16", 3),
    "dot_f16_f16_f32": ("f16", 3),
    "dot_bf16_bf16_bf16": ("bf16", 1),
    "dot_bf16_bf16_f32": ("f32", 1),
    "dot_bf16_bf16_f32_x3": ("f32", 3),
    "dot_bf16_bf16_f32_x6": ("f32", 6),
    "dot_bf16_bf16_f32_x9": ("f32", 9),
    "dot_tf32_tf32_f32": ("f32", 3),
    "dot_tf32_tf32_f32_x3": ("f32", 6),
    "dot_f32_f32_f32": ("f32", 6),
    "dot_f64_f64_f64": ("f64", 48),
}
"""Operand type and passes of each name that XLA's parser knows: the number in the name, or enough for its mantissa.

The compiler refuses the last one on a TPU; it takes what a product of f64 does without it.
"""

CONVOLUTION = """HloModule m
ENTRY e {
  p = f32[8,16] parameter(0)
  q = f32[16,32] parameter(1)
  ROOT c = f32[8,32] convolution(p, q), dim_labels=bf_io->bf, algorithm=NAME
}"""


@pytest.mark.parametrize(("lhs", "rhs", "left", "right", "count"), ESTIMATED)
def test_passes_are_those_of_the_compilers_estimates(lhs, rhs, left, right, count):
    """Each operand falls into as many pieces as its own word asks for and its type has."""
    made = Instruction("d", parse_shape("f32[8,8]"), "dot", ("x", "w"), {"operand_precision": (left, right)})
    assert len(product_passes(made, DTYPES[lhs], DTYPES[rhs])) == count


LONG = [
    # Loops of 16 turns, three convolutions in each, whatever the precision.
    ("f64", "f64", "default", 16 * 3),
    ("f64", "f64", "highest", 16 * 3),
    ("f32", "f64", "default", 16 * 3),
    # Three of f32, which has a precision; nine convolutions in three such loops.
    ("c64", "c64", "default", 3 * 1),
    ("c64", "c64", "highest", 3 * 6),
    ("c128", "c128", "default", 3 * 16 * 3),
]
"""Types of operands and results, precision, and products of bf16 in programs of libtpu 0.0.52 for v5e."""


@pytest.mark.parametrize(("operands", "result", "word", "count"), LONG)
def test_products_of_doubles_and_complex_numbers_take_what_their_programs_do(operands, result, word, count):
    """The unit has neither; f64 also decides where only the result is one."""
    shape, values = parse_shape(f"{operands}[8,8]"), {"lhs_contracting_dims": (1,), "operand_precision": (word, word)}
    made = Instruction("d", parse_shape(f"{result}[8,8]"), "dot", ("x", "w"), values)
    assert canonical_product(made, [shape, shape]).passes == count


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_is_timed_in_its_passes(name):
    """Dots and convolutions alike; a precision beside the algorithm changes nothing."""
    dtype, count = ALGORITHMS[name]
    shape = parse_shape(f"{dtype}[8,8]")
    values = {"algorithm": name, "lhs_contracting_dims": (1,), "operand_precision": ("high", "default")}
    assert canonical_product(Instruction("d", shape, "dot", ("x", "w"), values), [shape, shape]).passes == count
    convolution = parse_module(SourceText("m.hlo", CONVOLUTION.replace("NAME", name))).entry.root
    matrices = (parse_shape(f"{dtype}[8,16]"), parse_shape(f"{dtype}[16,32]"))
    assert canonical_product(convolution, matrices).passes == count


def test_nine_passes_are_as_good_as_f64():
    """All pairs of three pieces hold 24 bits of each operand: what remains is the rounding of the f32 sums."""
    rng = np.random.default_rng(0)
    inputs = [rng.random((8, 16), np.float32), rng.random((16, 32), np.float32)]
    found = run_ours(CONVOLUTION.replace("NAME", "dot_bf16_bf16_f32_x9"), inputs, "tpu")[0]
    np.testing.assert_allclose(found, inputs[0].astype(np.float64) @ inputs[1], rtol=2.0**-20)


def test_operands_differ_in_their_precision():
    """{default, highest} rounds the left operand to bf16 and keeps the right one whole."""
    text = CONVOLUTION.replace("algorithm=NAME", "operand_precision={default,highest}")
    rng = np.random.default_rng(1)
    inputs = [rng.integers(1, 100, (8, 16)).astype(np.float32), rng.random((16, 32), np.float32)]
    found = run_ours(text, inputs, "tpu")[0]
    np.testing.assert_allclose(found, inputs[0].astype(np.float64) @ inputs[1], rtol=2.0**-20)


ROUNDED = {
    "dot_any_f8_any_f8_f32": 1,
    "dot_any_f8_any_f8_f32_fast_accum": 1,
    "dot_bf16_bf16_bf16": 1,
    "dot_bf16_bf16_f32": 1,
    "dot_f16_f16_f16": 3,
    "dot_f16_f16_f32": 3,
}


@pytest.mark.parametrize("name", ROUNDED)
def test_an_algorithm_rounds_wider_operands_to_what_it_names(name):
    """An f32 operand of bf16 or f8 products is one piece, of f16 products two, whose smallest product is left out."""
    made = Instruction("d", parse_shape("f32[8,8]"), "dot", ("x", "w"), {"algorithm": name})
    assert len(product_passes(made, DTYPES["f32"], DTYPES["f32"])) == ROUNDED[name]
