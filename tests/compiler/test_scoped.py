"""What Pallas kernels take of VMEM; the oracle is what the TPU compiler states of the same kernels, or refuses."""

from __future__ import annotations

import pytest

import tpusim
from tpusim.compiler.passes import compile_module
from tpusim.compiler.target import Target
from tpusim.errors import CapacityError
from tpusim.hardware.load import load_chip
from tpusim.jax import lower_for
from tpusim.undo.defuse import defuse

jax = pytest.importorskip("jax")
jnp = jax.numpy
pl = pytest.importorskip("jax.experimental.pallas")
pltpu = pytest.importorskip("jax.experimental.pallas.tpu")

KIB, MIB = 2**10, 2**20
BLOCK = (512, 512)


def each(i, j):
    """Take another block in every step."""
    return i, j


def kernel(block=BLOCK, *, body=None, second=None, dtype="float32", grid=(8, 4), scratch=(), result=None, limit=None):
    """Return a program whose kernel adds two arrays of as many blocks as its grid has steps.

    ``second`` and ``result`` are other specifications for the second operand and the result; a kernel may take
    ``limit`` bytes of VMEM.
    """

    def add(one, two, out, *rest):
        (body or (lambda one, two, out: out.__setitem__(..., one[...] + two[...])))(one, two, out, *rest)

    array = jax.ShapeDtypeStruct((grid[0] * block[0], grid[1] * block[1]), dtype)
    spec = pl.BlockSpec(block, each)
    call = pl.pallas_call(
        add,
        out_shape=array,
        grid=grid,
        in_specs=[spec, second or spec],
        out_specs=result or spec,
        scratch_shapes=[pltpu.VMEM(block, jnp.float32)] * len(scratch),
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=limit),
    )
    return lower_for(call, array, array)


def compiled(module, chip="v5e"):
    """Return what our compiler makes of a module."""
    return compile_module(module, Target(load_chip(chip)))


def stated(module, chip="v5e"):
    """Return the VMEM that the only kernel of a compiled module states."""
    return max(i.backend_config.scoped_vmem_bytes for i in compiled(module, chip).entry)


def through(one, two, out, scratch):
    """Fill the scratch, then read it."""
    scratch[...] = 2 * one[...]
    out[...] = scratch[...] + two[...]


def summed(one, two, out, scratch):
    """Keep a sum from step to step."""

    @pl.when(pl.program_id(1) == 0)
    def _():
        scratch[...] = jnp.zeros_like(scratch)

    scratch[...] += one[...] * two[...]
    out[...] = scratch[...]


def before(one, two, out, scratch):
    """Read what the step before has left."""
    out[...] = scratch[...] + two[...]
    scratch[...] = one[...]


# By kernel the bytes that the TPU compiler (libtpu of JAX 0.8) states for v5e.
STATED = {
    "plain": ({}, 6 * MIB),
    "of 16 bits": ({"dtype": "bfloat16"}, 3 * MIB),
    "rows of half a register": ({"block": (8, 512), "dtype": "bfloat16"}, 48 * KIB),
    "a block that stays": ({"second": pl.BlockSpec(BLOCK, lambda i, j: (0, 0))}, 5 * MIB),
    "a block that hardly moves": ({"second": pl.BlockSpec(BLOCK, lambda i, j: (jnp.minimum(i, 0), 0))}, 6 * MIB),
    "a result that stays": ({"result": pl.BlockSpec(BLOCK, lambda i, j: (0, 0))}, 5 * MIB),
    "one buffer": ({"second": pl.BlockSpec(BLOCK, each, pipeline_mode=pl.Buffered(1))}, 5 * MIB),
    "one step": ({"grid": (1, 1)}, 3 * MIB),
    "two steps": ({"grid": (2, 1)}, 6 * MIB),
    "an axis of one step": ({"grid": (1, 4), "second": pl.BlockSpec(BLOCK, lambda i, j: (i, 0))}, 5 * MIB),
    "an array elsewhere": (
        {"second": pl.BlockSpec(memory_space=pl.ANY), "body": lambda one, two, out: out.__setitem__(..., one[...])},
        4 * MIB,
    ),
    "scratch that only passes": ({"body": through, "scratch": [1]}, 6 * MIB),
    "scratch for a sum": ({"body": summed, "scratch": [1]}, 7 * MIB),
    "scratch for the next step": ({"body": before, "scratch": [1]}, 7 * MIB),
}


@pytest.mark.parametrize("name", STATED)
def test_kernels_state_what_the_tpu_compiler_states(name):
    """To the byte, where it spills nothing."""
    changes, n_bytes = STATED[name]
    assert stated(kernel(**changes)) == n_bytes


# By rows of blocks that are 512 wide, in MiB 15.94, 16.03, 31.97 and 32.06: on which chips the TPU compiler takes them.
@pytest.mark.parametrize(("rows", "takes"), [(1360, "v4 v5e v5p v6e"), (1368, "v6e"), (2728, "v6e"), (2736, "")])
@pytest.mark.parametrize("chip", ["v4", "v5e", "v5p", "v6e"])
def test_a_kernel_that_the_tpu_compiler_refuses_is_refused(rows, takes, chip):
    """For as many bytes as its message names."""
    module, n_bytes = kernel((rows, 512), grid=(4, 1)), rows * 512 * 4 * 6
    if chip in takes.split():
        assert stated(module, chip) == n_bytes
    else:
        with pytest.raises(CapacityError, match=f"take {n_bytes / MIB:.2f} MiB of VMEM"):
            compiled(module, chip)


def test_what_a_kernel_asks_for_is_its_limit():
    """Less than others have, or more, also of another chip's program that is compiled anew."""
    with pytest.raises(CapacityError, match=r"may take 4\.00 MiB"):
        compiled(kernel(limit=4 * MIB))
    large = kernel((1024, 1024), grid=(4, 2), limit=64 * MIB)
    assert stated(large) == 24 * MIB
    assert stated(defuse(compiled(large, "v6e"))) == 24 * MIB


def peak_vmem_bytes(module, chip):
    """Return what a run takes of VMEM at most."""
    return tpusim.simulate(module, chip, allow_overflow=True).summary.memory.peak_vmem_bytes


def test_pages_show_what_a_kernel_takes():
    """As the peak of VMEM, where nothing else of the program lies there."""
    assert peak_vmem_bytes(kernel(), "v5e") == 6 * MIB


def test_whole_arrays_leave_a_large_kernel_its_room():
    """A kernel of 24 MiB, and 12 MiB that are needed before and after it, in 32 MiB."""
    block, array = (1024, 1536), jax.ShapeDtypeStruct((4096, 1536), "float32")
    spec = pl.BlockSpec(block, each)

    def program(kept, moved):
        call = pl.pallas_call(
            lambda one, out: out.__setitem__(..., one[...]),
            out_shape=array,
            grid=(4, 1),
            in_specs=[spec],
            out_specs=spec,
            compiler_params=pltpu.CompilerParams(vmem_limit_bytes=32 * MIB),
        )
        kept = jnp.exp(kept)
        return jnp.sin(kept) + call(moved + kept[0, 0]).max()

    module = lower_for(program, jax.ShapeDtypeStruct((1536, 2048), "float32"), array)
    assert peak_vmem_bytes(module, load_chip("v5e", {"vmem.capacity_bytes": 32 * MIB})) <= 32 * MIB
