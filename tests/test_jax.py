"""From a JAX function to a program: where libtpu is installed the real thing, elsewhere what is said of it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from tpusim.errors import ConfigError
from tpusim.frontends.xla import jaxlib
from tpusim.jax import _key, compile_for, devices_of, lower_for, tune
from tpusim.pipeline.device_order import with_device_order
from tpusim.pipeline.stages import execute, simulate
from tpusim.source import SourceText
from tpusim.text import parse_module

HAS_LIBTPU = find_spec("libtpu") is not None
needs_libtpu = pytest.mark.skipif(not HAS_LIBTPU, reason="libtpu is large and in no group of the tests")


def double(x):
    """Return twice the argument."""
    return x + x


def scaled(tree, *, by, name="sum"):
    """Return the sum or the product of two arrays, scaled: a pytree, a number, and an option that is no array."""
    x, y = tree["x"], tree["y"]
    return by * (x + y if name == "sum" else x * y)


def halved(x):
    """Return each block of eight rows twice, doubled: a kernel whose index map divides the step by two."""
    pallas = pytest.importorskip("jax.experimental.pallas")

    def kernel(block, out):
        out[...] = block[...] * 2

    own = pallas.BlockSpec((8, 128), lambda step: (step, 0))
    shared = pallas.BlockSpec((8, 128), lambda step: (step // 2, 0))
    shape = jax.ShapeDtypeStruct((2 * x.shape[0], 128), x.dtype)
    return pallas.pallas_call(kernel, grid=(x.shape[0] // 4,), in_specs=[shared], out_specs=own, out_shape=shape)(x)


VALUES = {"x": np.arange(6, dtype="f4").reshape(2, 3), "y": np.ones((2, 3), "f4")}


def test_a_function_is_lowered_as_jax_lowers_it_for_a_tpu():
    """Opcode for opcode what JAX prints, under the name of the function and the chip."""
    shape = jax.ShapeDtypeStruct((8, 128), "float32")
    module = lower_for(double, shape, chip="v6e")
    text = jax.jit(double).trace(shape).lower(lowering_platforms=("tpu",)).as_text(dialect="hlo")
    expected = parse_module(SourceText("jax", text))
    assert [(i.opcode, i.shape) for i in module.entry] == [(i.opcode, i.shape) for i in expected.entry]
    assert module.source.name == "double.v6e.hlo.txt"
    assert simulate(module).chip.name == "v6e"
    assert not module.is_scheduled


def test_lowering_needs_no_libtpu(monkeypatch):
    """It is not even asked for."""
    monkeypatch.setitem(sys.modules, "libtpu", None)
    assert lower_for(double, jax.ShapeDtypeStruct((8,), "float32")).entry.root.opcode == "add"


@pytest.mark.parametrize(("name", "expected"), [("sum", VALUES["x"] + 1), ("product", VALUES["x"])])
def test_arguments_may_be_those_of_a_call(name, expected):
    """Pytrees of arrays, numbers, and what is static to a function that is jitted already; the values come out."""
    jitted = jax.jit(scaled, static_argnames="name")
    module = lower_for(jitted, VALUES, by=2.0, name=name)
    # JAX numbers the leaves in the order of the call's names.
    np.testing.assert_array_equal(execute(module, [VALUES["x"], VALUES["y"], 2.0]), 2 * expected)


def test_a_kernel_of_pallas_is_lowered_for_a_tpu():
    """Not for the machine that JAX runs on here."""
    pallas = pytest.importorskip("jax.experimental.pallas")

    def kernel(x, y):
        y[...] = x[...] * 2

    shape = jax.ShapeDtypeStruct((8, 128), "float32")
    root = lower_for(pallas.pallas_call(kernel, out_shape=shape), shape).entry.root
    assert root.attributes["custom_call_target"] == "tpu_custom_call"


@pytest.mark.parametrize("chip", ["v4-megacore", "v5e", "v7x"])
def test_an_index_map_may_round_down(chip):
    """As heads that share keys do: for ``//`` JAX asks which TPU there is. Half of the blocks are fetched."""
    module = lower_for(halved, jax.ShapeDtypeStruct((32, 128), "float32"), chip=chip)
    (kernel,) = simulate(module).program.every_step
    assert [stream.fetches for stream in kernel.streams] == [4, 8]


def test_a_kernel_that_asks_which_tpu_it_is_on_is_told_of_in_one_line():
    """On a mesh of CPUs JAX has no answer to give."""
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:1]), ("x",))
    spec = jax.sharding.PartitionSpec("x")
    inside = jax.shard_map(halved, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    sharding = jax.sharding.NamedSharding(mesh, spec)
    with pytest.raises(ConfigError, match=r"halved: a kernel asks .* write jax\.lax\.div"):
        lower_for(inside, jax.ShapeDtypeStruct((32, 128), "float32", sharding=sharding))


def test_constants_of_a_function_are_kept():
    """Closed over, as weights often are."""
    table = np.arange(4096, dtype="f4")
    module = lower_for(lambda x: x + table, jax.ShapeDtypeStruct((4096,), "float32"))
    np.testing.assert_array_equal(execute(module, [table]), 2 * table)


def test_candidates_that_fail_are_ranked_last(monkeypatch):
    """One that JAX does not trace, one that the compiler does not take, one that runs; in this order given."""
    program = lower_for(double, jax.ShapeDtypeStruct((8, 128), "float32"))

    def compiled(function, *_, **__):
        if function == "large":
            raise ConfigError("does not fit")
        return program

    def function_of(name):
        return {"small": double, "large": "large"}[name]

    monkeypatch.setattr("tpusim.jax.compile_for", compiled)
    found = tune(function_of, ["unknown", "large", "small"], topology="v5e")
    assert [each.what for each in found.candidates] == ["small", "unknown", "large"]
    assert [each.fault for each in found.candidates] == ["", "'unknown'", "does not fit"]


def test_lowering_for_a_chip_that_does_not_exist_is_refused():
    """Before JAX is asked."""
    with pytest.raises(ConfigError, match="v9"):
        lower_for(double, chip="v9")


def test_without_jax_the_error_says_what_to_install(monkeypatch):
    """Rather than a traceback of an import."""
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ConfigError, match=r"needs JAX.*pip install 'tpusim\[jax\]'"):
        lower_for(double)


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


@pytest.mark.parametrize("fails", ["compile", "runtime_executable"])
def test_a_compiler_that_fails_is_quoted_in_one_line(monkeypatch, fails):
    """A lowered function whose compiler runs out of memory, or has no text to give."""

    def fail(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm.\nstack")

    works = SimpleNamespace(runtime_executable=fail)
    lowered = SimpleNamespace(compile=fail if fails == "compile" else lambda: works)
    jitted = SimpleNamespace(trace=lambda: SimpleNamespace(lower=lambda **_: lowered), __name__="step")
    monkeypatch.setattr("tpusim.jax.devices_of", lambda _: jax.devices())
    with pytest.raises(ConfigError, match=r"step: JAX has no compiled text for v5e: RESOURCE_EXHAUSTED.*hbm\.$"):
        compile_for(jitted, topology="v5e")


SHARDED = """
import jax, numpy as np, tpusim
from jax.sharding import NamedSharding, PartitionSpec as P
from tpusim.jax import lower_for

jax.config.update("jax_num_cpu_devices", 8)
mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")).reshape(2, 4), ("x", "y"))
specs = P("x", "y"), P("y", None)
inside = jax.shard_map(lambda a, b: jax.lax.psum(a @ b, "y"), mesh=mesh, in_specs=specs, out_specs=P("x", None))
for function in (lambda a, b: a @ b, inside, lambda a, b: inside(2 * a, b) / 2):
    arrays = [np.arange(n, dtype="float32").reshape(8, -1) % 7 for n in (64, 32)]
    shardings = [NamedSharding(mesh, spec) for spec in specs]
    described = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s) for a, s in zip(arrays, shardings)]
    module = lower_for(jax.jit(function, out_shardings=NamedSharding(mesh, P())), *described)
    places = [sharding.devices_indices_map(array.shape) for array, sharding in zip(arrays, shardings)]
    parts = [[array[place[d]] for array, place in zip(arrays, places)] for d in mesh.devices.flat]
    for result in tpusim.execute(module, parts):
        np.testing.assert_array_equal(result, arrays[0] @ arrays[1])
    assert tpusim.simulate(module, "v5e", topology="v5e:2x4").communication.collectives
    assert tpusim.lower(module).device_order == ()

# Nothing but a region, or an array that is there, says that there are several devices.
line = jax.sharding.Mesh(np.array(jax.devices("cpu")), ("x",))
total = jax.shard_map(lambda v: jax.lax.psum(v, "x"), mesh=line, in_specs=P("x"), out_specs=P())
x = np.arange(16, dtype="float32")
for function in (total, lambda v: total(2 * v) / 2):
    module = lower_for(function, x)
    assert (module.partition_count, str(module.entry.parameters[0].shape)) == (8, "f32[2]{0}")
    for result in tpusim.execute(module, [[part] for part in np.split(x, 8)]):
        np.testing.assert_array_equal(result, x.reshape(8, 2).sum(0))
shared = jax.device_put(x, NamedSharding(line, P("x")))
for array in (shared, jax.jit(lambda v: 3 * v[::-1])(shared), jax.device_put(x, NamedSharding(line, P()))):
    module = lower_for(lambda v: v.sum(), array)
    assert module.partition_count == 8
    # Asked of JAX before the CPU of its own is: a slice is not needed to refuse it.
    tpusim.jax.devices_of = lambda topology: jax.devices()
    try:
        tpusim.jax.compile_for(lambda v: v.sum(), array)
    except tpusim.ConfigError as error:
        assert "found an array float32[16] on 8 devices of this machine" in str(error), error
    else:
        raise AssertionError("compile_for took an array of another machine's devices")

order = [0, 2, 4, 6, 1, 3, 5, 7]
other = jax.sharding.Mesh(np.array(jax.devices("cpu"))[order].reshape(2, 4), ("x", "y"))
shape = jax.ShapeDtypeStruct((8, 8), "float32", sharding=NamedSharding(other, P(None, "y")))
module = lower_for(lambda a: a @ a.T, shape)
assert tpusim.simulate(module, "v5e", topology="v5e:2x4").program.device_order == tuple(order)
"""


def test_a_sharded_function_is_cut_up_without_libtpu():
    """By XLA on the CPU, in a process of its own that has eight of them: each device's part gives the whole product."""
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"} | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", SHARDED], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "RET_CHECK" not in done.stderr


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
def test_a_program_is_compiled_once(monkeypatch, tmp_path):
    """The second time its text comes from the folder; in another order of the devices it is another program."""
    monkeypatch.setenv("TPUSIM_CACHE", str(tmp_path))
    devices = devices_of("v5e:2x2")
    texts = []
    for order in (devices, devices, devices[::-1]):
        mesh = jax.sharding.Mesh(np.array(order), ("x",))
        rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
        shape = jax.ShapeDtypeStruct((8, 128), "float32", sharding=rows)
        texts.append(compile_for(double, shape, topology="v5e:2x2").source.text)
    assert texts[0] == texts[1]
    assert len(list(tmp_path.iterdir())) == 2


def test_other_options_are_another_program(monkeypatch):
    """Those of ``jax.jit`` and of JAX itself are not in the text that the compiler is given, but are in the key."""
    monkeypatch.setattr("tpusim.jax.version", lambda name: "1")  # There is none of libtpu where it is not installed.

    def key(**options):
        shape = jax.ShapeDtypeStruct((8, 128), "float32")
        return _key(jax.jit(double, **options).trace(shape).lower(lowering_platforms=("tpu",)), (), "v5e")

    plain = key()
    assert plain == key() != []
    assert plain != key(compiler_options={"xla_tpu_scoped_vmem_limit_kib": "1024"})
    level = jax.config.values["jax_exec_time_optimization_effort"]
    jax.config.update("jax_exec_time_optimization_effort", 0.5)
    try:
        assert plain != key()
    finally:
        jax.config.update("jax_exec_time_optimization_effort", level)


@needs_libtpu
def test_the_order_of_a_mesh_is_kept(tmp_path):
    """JAX lists the chips of 4x4 host by host; tpusim numbers them by coordinates, and XLA reads what says so."""
    devices = devices_of("v5e:4x4")
    mesh = jax.sharding.Mesh(np.array(devices), ("x",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    shape = jax.ShapeDtypeStruct((1024, 1024), "float32", sharding=rows)
    module = compile_for(double, shape, topology="v5e:4x4")
    assert with_device_order(module, "hosts").attributes == module.attributes
    module.save(tmp_path / "double.v5e.hlo.txt")
    program = simulate(tmp_path / "double.v5e.hlo.txt").program
    assert program.device_order == tuple(x + 4 * y for x, y, _ in (device.coords for device in devices))
    assert program.topology == "v5e:4x4"
    text = (tmp_path / "double.v5e.hlo.txt").read_text()
    assert 'tpusim_topology="v5e:4x4"' in jaxlib("HLO text").hlo.hlo_module_from_text(text).to_string()


@needs_libtpu
def test_a_sharded_argument_stays_sharded():
    """Eight devices, each with its part of the rows."""
    mesh = jax.sharding.Mesh(devices_of("v5e:2x4"), ("x",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    shape = jax.ShapeDtypeStruct((1024, 1024), "float32", sharding=rows)
    module = compile_for(double, shape, topology="v5e:2x4")
    assert module.attributes["num_partitions"] == 8
