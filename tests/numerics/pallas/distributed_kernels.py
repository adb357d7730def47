"""Pallas kernels that devices run together, after JAX's documentation (Pallas: Distributed Computing)."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu import all_gather

from tests.numerics.pallas.entries import ANY, F32, VMEM
from tpusim.jax import devices_of

SIZE = 4
MESH = pl.DeviceIdType.MESH
CUT = jax.sharding.PartitionSpec("x")


def shift(x):
    """Return the array of the device on the left."""

    def kernel(x_ref, o_ref, sent, received):
        right = lax.rem(lax.axis_index("x") + 1, SIZE)
        copy = pltpu.make_async_remote_copy(x_ref, o_ref, sent, received, device_id=(right,), device_id_type=MESH)
        copy.start()
        copy.wait()

    semaphores = [pltpu.SemaphoreType.DMA] * 2
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(kernel, out_shape=shape, in_specs=[ANY], out_specs=ANY, scratch_shapes=semaphores)(x)


def total(x):
    """Return the sum of all devices' arrays: handed round a ring into two buffers, behind a barrier."""

    def kernel(x_ref, o_ref, buffers, sent, received, free):
        me, step = lax.axis_index("x"), pl.program_id(0)
        left, right = lax.rem(me + SIZE - 1, SIZE), lax.rem(me + 1, SIZE)
        signal = partial(pl.semaphore_signal, device_id_type=MESH)

        @pl.when(step == 0)
        def _():
            barrier = pltpu.get_barrier_semaphore()
            signal(barrier, device_id=(left,))
            signal(barrier, device_id=(right,))
            pl.semaphore_wait(barrier, 2)
            o_ref[...] = buffers[0] = x_ref[...]
            signal(free, device_id=(left,))

        # The neighbour has taken what the buffer held.
        pl.semaphore_wait(free, 1)
        ends = buffers.at[step % 2], buffers.at[(step + 1) % 2]
        copy = pltpu.make_async_remote_copy(*ends, sent, received, device_id=(right,), device_id_type=MESH)
        copy.start()
        copy.wait()
        o_ref[...] += buffers[(step + 1) % 2]
        signal(free, device_id=(left,))

        @pl.when(step == SIZE - 2)
        def _():
            pl.semaphore_wait(free, 1)

    semaphores = [pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.REGULAR]
    return pl.pallas_call(
        kernel,
        grid=(SIZE - 1,),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        in_specs=[VMEM],
        out_specs=VMEM,
        scratch_shapes=[pltpu.VMEM((2, *x.shape), x.dtype), *semaphores],
        compiler_params=pltpu.CompilerParams(collective_id=0),
    )(x)


KERNELS = {"shift": shift, "total": total, "all_gather": all_gather.all_gather}


def of_four(name):
    """Return a function on the devices of a slice of four, and the shape that it takes."""
    mesh = jax.sharding.Mesh(np.array(devices_of("v5e:2x2")), ("x",))
    function = KERNELS[name]
    if name == "all_gather":
        shared = partial(function, mesh=mesh, axis_name="x")
    else:
        shared = jax.shard_map(function, mesh=mesh, in_specs=CUT, out_specs=CUT, check_vma=False)
    shape = jax.ShapeDtypeStruct((32, 128), F32, sharding=jax.sharding.NamedSharding(mesh, CUT))
    return jax.jit(shared), shape
