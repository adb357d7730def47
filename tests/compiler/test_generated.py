"""Generated programs: compiled, they are programs that compute the same, on every chip."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.numerics.graph_strategies import graphs
from tpusim.compiler.passes import PASSES, compile_module
from tpusim.compiler.target import Target
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import check, execute
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

CHIPS = {name: load_chip(name) for name in ("v3", "v4", "v5e", "v5p", "v7x")}
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def check_compiled(example, chip_name):
    """Assert that the compiled form is well-formed, reads back, and computes what the example does."""
    compiled = compile_module(example.module, Target(CHIPS[chip_name], narrows=False))
    assert check(compiled) == []
    assert parse_module(SourceText("compiled", compiled.text)).text == compiled.text
    ours, theirs = (execute(m, example.inputs, precision="exact") for m in (compiled, example.module))
    for one, two, error in zip(ours, theirs, example.errors, strict=True):
        assert (one.dtype, one.shape) == (two.dtype, two.shape)
        # Two right implementations may be that far apart; what has no error is the same.
        np.testing.assert_allclose(one.astype(np.float64), two.astype(np.float64), rtol=0, atol=error)


@settings(max_examples=15, suppress_health_check=QUIET)
@given(graphs(), st.sampled_from(sorted(CHIPS)))
def test_generated_programs_are_compiled(example, chip_name):
    """A few in every run."""
    check_compiled(example, chip_name)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=QUIET)
@given(graphs(), st.sampled_from(sorted(CHIPS)))
def test_many_generated_programs_are_compiled(example, chip_name):
    """A hundred where there is time."""
    check_compiled(example, chip_name)


@pytest.mark.slow
@settings(max_examples=20, suppress_health_check=QUIET)
@given(graphs(), st.sampled_from(sorted(CHIPS)))
def test_every_pass_leaves_a_program(example, chip_name):
    """Stopped after any of them, there is nothing wrong."""
    for name, _ in PASSES:
        assert check(compile_module(example.module, Target(CHIPS[chip_name]), name)) == []
