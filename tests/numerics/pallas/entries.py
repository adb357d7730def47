"""The table of kernels that ``make_kernels`` compiles and interprets, and what fills it."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tests.numerics.pallas.inputs import eighths

F32, BF16, I32, I8 = jnp.float32, jnp.bfloat16, jnp.int32, jnp.int8
ANY, SMEM, VMEM = (pl.BlockSpec(memory_space=space) for space in (pl.ANY, pltpu.SMEM, pltpu.VMEM))

few = partial(eighths, bound=9)


class Entry(NamedTuple):
    """A function of arrays and what it is called on; ``oracle`` where JAX's interpreter does not run its kernel."""

    function: Any
    inputs: tuple[np.ndarray, ...]
    chip: str
    oracle: Any = None


KERNELS: dict[str, Entry] = {}


def out(*sizes, dtype=F32):
    """Return the shape of a result."""
    return jax.ShapeDtypeStruct(sizes, dtype)


def enter(name, function, *inputs, chip="v6e", oracle=None):
    """Enter a function under a name, with its inputs."""
    KERNELS[name] = Entry(function, inputs, chip, oracle)


def call(name, kernel, *inputs, result=None, oracle=None, **options):
    """Enter a kernel that is a function of references."""
    shape = result or out(*inputs[0].shape, dtype=inputs[0].dtype)
    # Whether it is interpreted is decided where it is made.
    enter(name, lambda *arrays: pl.pallas_call(kernel, out_shape=shape, **options)(*arrays), *inputs, oracle=oracle)


def whole(name, function, *inputs, result=None, oracle=None):
    """Enter a kernel that is one expression of all of its operands."""

    def kernel(*refs):
        refs[-1][...] = function(*(ref[...] for ref in refs[:-1])).astype(refs[-1].dtype)

    call(name, kernel, *inputs, result=result, oracle=oracle)
