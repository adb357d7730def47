"""Random graphs of many operations: XLA gives the same values, the text reads back, nothing is wrong, time passes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import tpusim
from tests.numerics.graph_strategies import STEPS, Example, graphs
from tests.numerics.oracle import run_xla
from tpusim.source import SourceText
from tpusim.text import parse_module, print_module

# A graph is large for what Hypothesis usually draws.
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
FEW = settings(max_examples=25, suppress_health_check=QUIET)
MANY = settings(max_examples=50, suppress_health_check=QUIET)


def check_values(example: Example) -> None:
    """Assert that our exact values are XLA's: integers and truth values all, floats within the example's errors."""
    ours = tpusim.execute(example.module, example.inputs, precision="exact")
    xla = run_xla(print_module(example.module), example.inputs)
    for one, two, error in zip(ours, xla, example.errors, strict=True):
        assert (one.dtype, one.shape) == (two.dtype, two.shape)
        if error:
            np.testing.assert_allclose(one.astype(np.float64), two.astype(np.float64), rtol=0, atol=error)
        else:
            np.testing.assert_array_equal(one, two)


@FEW
@given(graphs())
def test_values_are_those_of_xla(example):
    """Up to 30 steps of any kind: what single operations get right must hold when they feed each other."""
    check_values(example)


@FEW
@given(graphs())
def test_nothing_is_wrong_with_what_the_builder_makes(example):
    """Inference and verification were written apart, and agree."""
    assert tpusim.check(example.module) == []


@FEW
@given(graphs())
def test_text_reads_back(example):
    """The printed module is the module."""
    assert parse_module(SourceText("graph.hlo", print_module(example.module))) == example.module


@FEW
@given(graphs())
def test_every_graph_takes_time(example):
    """A module of the front end has no schedule and no layouts, and still has a time."""
    assert tpusim.simulate(example.module, "v5e").time_us > 0


@pytest.mark.slow
@MANY
@given(graphs())
def test_many_graphs(example):
    """All of the above on more graphs."""
    check_values(example)
    assert tpusim.check(example.module) == []
    assert parse_module(SourceText("graph.hlo", print_module(example.module))) == example.module
    assert tpusim.simulate(example.module, "v5e").time_us > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({name for steps in STEPS.values() for name in steps}))
def test_every_step(name):
    """Graphs that lean on one step: no step is left to luck."""

    @settings(max_examples=4, suppress_health_check=QUIET)
    @given(graphs(least=1, most=3, favourite=name))
    def run(example: Example) -> None:
        check_values(example)

    run()
