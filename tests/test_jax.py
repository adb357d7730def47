"""From a JAX function to a program: where libtpu is installed the real thing, elsewhere what is said of it."""

from __future__ import annotations

from importlib.util import find_spec
from types import SimpleNamespace

import jax
import pytest

from tpusim.errors import ConfigError
from tpusim.jax import compile_for, devices_of
from tpusim.pipeline.stages import simulate

HAS_LIBTPU = find_spec("libtpu") is not None
needs_libtpu = pytest.mark.skipif(not HAS_LIBTPU, reason="libtpu is large and in no group of the tests")


def double(x):
    """Return twice the argument."""
    return x + x


@pytest.mark.skipif(HAS_LIBTPU, reason="libtpu is installed")
def test_without_libtpu_the_error_says_what_is_missing():
    """And not only what JAX makes of it."""
    with pytest.raises(ConfigError, match="v5e: JAX cannot compile for this slice"):
        devices_of("v5e")


@pytest.mark.parametrize("topology", ["v9", "v9:2x2"])
def test_a_chip_that_does_not_exist_is_refused_before_jax_is_asked(topology):
    """By its name."""
    with pytest.raises(ConfigError, match="v9"):
        devices_of(topology)


@pytest.mark.parametrize("fails", ["compile", "as_text"])
def test_a_compiler_that_fails_is_quoted_in_one_line(monkeypatch, fails):
    """A lowered function whose compiler runs out of memory, or has no text to give."""

    def fail(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm.\nstack")

    works = SimpleNamespace(as_text=fail)
    lowered = SimpleNamespace(compile=fail if fails == "compile" else lambda: works)
    jitted = SimpleNamespace(trace=lambda: SimpleNamespace(lower=lambda **_: lowered), __name__="step")
    monkeypatch.setattr("tpusim.jax.devices_of", lambda _: jax.devices())
    with pytest.raises(ConfigError, match=r"step: JAX has no compiled text for v5e: RESOURCE_EXHAUSTED.*hbm\.$"):
        compile_for(jitted, topology="v5e")


@needs_libtpu
@pytest.mark.parametrize("chip", ["v4", "v5e", "v6e", "v7x"])
def test_a_function_becomes_a_program_for_the_chip(chip):
    """Scheduled, with one kernel that reads and writes 4 MiB, on the chip that it was compiled for."""
    module = compile_for(double, jax.ShapeDtypeStruct((1024, 1024), "float32"), topology=chip)
    result = simulate(module)
    assert module.attributes["is_scheduled"]
    assert result.chip.name == chip
    assert result.summary.memory.argument_bytes == 4 * 1024**2


@needs_libtpu
def test_a_sharded_argument_stays_sharded():
    """Eight devices, each with its part of the rows."""
    mesh = jax.sharding.Mesh(devices_of("v5e:2x4"), ("x",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    shape = jax.ShapeDtypeStruct((1024, 1024), "float32", sharding=rows)
    module = compile_for(double, shape, topology="v5e:2x4")
    assert module.attributes["num_partitions"] == 8
