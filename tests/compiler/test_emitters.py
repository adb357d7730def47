"""Which emitter a kernel states for its product, and in which order that lies."""

from __future__ import annotations

import pytest

from tpusim.compiler.passes import compile_module
from tpusim.compiler.target import Target
from tpusim.hardware.load import load_chip
from tpusim.source import SourceText
from tpusim.text.parser import parse_module


def product(depth):
    """Return a program and the kernel of its product over ``depth`` terms, with 128 rows behind them."""
    text = f"""HloModule test
    ENTRY main {{
      x = f32[512,{depth},128] parameter(0)
      roots = f32[{depth},{depth}] parameter(1)
      made = f32[512,128,{depth}] dot(x, roots), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      ROOT out = f32[512,128,{depth}] tanh(made)
    }}"""
    module = compile_module(parse_module(SourceText("test", text)), Target(load_chip("v5e")))
    (kernel,) = (i for i in module.entry.instructions if i.opcode == "fusion")
    return module, kernel


@pytest.mark.parametrize(("depth", "emitter"), [(6, "EmitInputFeaturePackedInputBatchInLanes"), (16, "")])
def test_a_sum_of_few_terms_is_done_with_rows_in_lanes(depth, emitter):
    """As in the short factor of a Fourier transform."""
    _, kernel = product(depth)
    assert kernel.backend_config.convolution_emitter == emitter


def test_a_narrow_result_is_not_padded_to_a_register():
    """Where the default order would have 6 of 128 lanes full."""
    module, kernel = product(6)
    called = module[kernel.called_computations[0]]
    (dot,) = (i for i in called.instructions if i.opcode == "dot")
    assert dot.shape.layout.minor_to_major[0] == 1
