"""Every operation, built and run: our values against XLA's on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.build.builder_cases import CASES
from tests.numerics.oracle import flatten, run_xla
from tpusim import Builder, check, execute, simulate
from tpusim.numerics.files import random_inputs
from tpusim.text import print_module

NOT_ON_XLA_CPU = frozenset(
    "acos acosh after_all asin asinh atanh cosh custom_call get_dimension_size infeed infeed_with_token mulhi"
    " optimization_barrier outfeed outfeed_with_token partition_id recv recv_from_host recv_with_token"
    " remove_dynamic_dimension replica_id rng_get_and_update_state rng_normal rng_uniform send send_to_host"
    " send_with_token set_dimension_size sinh stochastic_convert_type".split()
)
"""Cases that XLA's CPU backend refuses, or that say nothing about values: random numbers, the host, other devices."""

COLLECTIVE_WORDS = ("all_", "collective", "cross_replica", "reduce_scatter", "ragged_all")
CASES_WITH_VALUES = sorted(
    name for name in CASES if name not in NOT_ON_XLA_CPU and not any(name.startswith(word) for word in COLLECTIVE_WORDS)
)
TOLERANCE = 2e-5


def built(name: str) -> Any:
    """Return the module of a case."""
    builder = Builder("case")
    return builder.build(CASES[name](builder))


@pytest.mark.parametrize("name", CASES_WITH_VALUES)
def test_values_agree_with_xla(name):
    """Exactly for integers and predicates, within a part in fifty thousand of the largest value for floats."""
    module = built(name)
    inputs = random_inputs([parameter.shape for parameter in module.entry.parameters], 1)
    flat = [leaf for value in inputs for leaf in flatten(value)]
    if len(flat) != len(inputs):
        pytest.skip("the oracle takes no tuples")
    theirs = run_xla(print_module(module), flat)
    ours = [value for value in flatten(execute(module, inputs, precision="exact")) if not isinstance(value, str)]
    for found, wanted in zip(ours, theirs, strict=True):
        compare(np.asarray(found), np.asarray(wanted))


def compare(found: Any, wanted: Any) -> None:
    """Compare two arrays by the rule of their type."""
    assert found.shape == wanted.shape
    if wanted.dtype.kind in "biu":
        np.testing.assert_array_equal(found, wanted)
    else:
        largest = np.nanmax(np.abs(np.where(np.isfinite(wanted), wanted, 0)), initial=1e-6)
        np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE * float(largest))


@pytest.mark.parametrize("name", sorted(CASES))
def test_what_is_built_is_right(name):
    """The verifier has nothing to say."""
    assert check(built(name)) == []


@pytest.mark.parametrize("name", sorted(CASES))
def test_what_is_built_takes_time(name):
    """The machine runs it."""
    assert simulate(built(name), "v5e").time_us >= 0
