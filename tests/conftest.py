"""What holds for all tests: JAX computes on the CPU, and Hypothesis tries the same examples on every run."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

from tpusim.ir.custom_calls import REGISTERED, register_custom_call

# Without this JAX looks for accelerators first, and warns where it finds none.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# What is compiled is compiled, and nothing is left in the user's folder.
os.environ["TPUSIM_CACHE"] = ""

# A deadline measures the neighbours on a busy machine, as does the limit on the time that examples take to draw; and a
# random example fails for someone else first.
settings.register_profile("tpusim", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tpusim")


def pytest_addoption(parser):
    """Let a run be of every n-th test, as one with coverage is, which makes a test three times as slow."""
    parser.addoption("--one-of", type=int, default=1, metavar="N", help="run every N-th of the tests")


def pytest_collection_modifyitems(config, items):
    """Keep every n-th test."""
    n = config.getoption("--one-of")
    config.hook.pytest_deselected(items=[item for place, item in enumerate(items) if place % n])
    items[:] = items[::n]


@pytest.fixture
def registered():
    """Give the function that registers custom calls, and forget what a test registered."""
    before = dict(REGISTERED)
    yield register_custom_call
    REGISTERED.clear()
    REGISTERED.update(before)


@pytest.fixture
def no_garbage_of_others():
    """Keep Python's collector from going through what other tests left in this process, whichever of them it ran."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
