"""Makes the programs of this folder: Pallas kernels, compiled ahead of time by JAX 0.10.2 and libtpu.

``python tests/data/pallas/make.py`` writes them anew; the tests need neither libtpu nor the kernels of JAX.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes, flash_attention
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

from tpusim.jax import compile_for, devices_of

FOLDER = Path(__file__).parent


def multiply(x_ref, y_ref, z_ref, sums_ref, *, steps):
    """Add one product of blocks to the sums; write these behind the last (JAX documentation, Pallas)."""

    @pl.when(pl.program_id(2) == 0)
    def _():
        sums_ref[...] = jnp.zeros_like(sums_ref)

    sums_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == steps - 1)
    def _():
        z_ref[...] = sums_ref[...].astype(z_ref.dtype)


def matmul(x, y, rows, depth, columns):
    """Return the product of two matrices, in blocks."""
    m, k, n = *x.shape, y.shape[1]
    return pl.pallas_call(
        partial(multiply, steps=k // depth),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(m // rows, n // columns, k // depth),
        in_specs=[
            pl.BlockSpec((rows, depth), lambda i, j, k: (i, k)),
            pl.BlockSpec((depth, columns), lambda i, j, k: (k, j)),
        ],
        out_specs=pl.BlockSpec((rows, columns), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((rows, columns), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
    )(x, y)


def attention(q, k, v, block):
    """Return causal attention in blocks of so many tokens."""
    return flash_attention(q, k, v, causal=True, block_sizes=BlockSizes(block, block, block, 1))


def capped(q, k, v, block):
    """Return attention with capped scores, whose rows have one maximum and one sum each."""

    def kernel(q_ref, k_ref, v_ref, o_ref, most_ref, sum_ref, total_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            most_ref[...] = jnp.full_like(most_ref, -1e30)
            sum_ref[...] = jnp.zeros_like(sum_ref)
            total_ref[...] = jnp.zeros_like(total_ref)

        scores = jnp.dot(q_ref[0], k_ref[0].T, preferred_element_type=jnp.float32)
        scores = 30.0 * jnp.tanh(scores / 30.0)
        most = jnp.maximum(most_ref[...], scores.max(-1, keepdims=True))
        shares, kept = jnp.exp(scores - most), jnp.exp(most_ref[...] - most)
        sum_ref[...] = kept * sum_ref[...] + shares.sum(-1, keepdims=True)
        product = jnp.dot(shares.astype(v_ref.dtype), v_ref[0], preferred_element_type=jnp.float32)
        total_ref[...] = kept * total_ref[...] + product
        most_ref[...] = most

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            o_ref[0] = (total_ref[...] / sum_ref[...]).astype(o_ref.dtype)

    heads, tokens, size = q.shape
    rows = pl.BlockSpec((1, block, size), lambda h, i, j: (h, i, 0))
    columns = pl.BlockSpec((1, block, size), lambda h, i, j: (h, j, 0))
    return pl.pallas_call(
        kernel,
        grid=(heads, tokens // block, tokens // block),
        in_specs=[rows, columns, columns],
        out_specs=rows,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        scratch_shapes=[pltpu.VMEM((block, width), jnp.float32) for width in (1, 1, size)],
        name="capped",
    )(q, k, v)


def splash_gradients(q, k, v):
    """Return the gradients of causal splash attention: three kernels."""
    names = "q kv kv_compute q_dkv kv_dkv kv_dkv_compute q_dq kv_dq".split()
    sizes = {f"block_{name}": 512 for name in names}
    mask = masks.MultiHeadMask([masks.CausalMask((q.shape[1],) * 2) for _ in range(q.shape[0])])
    kernel = splash.make_splash_mha(mask, block_sizes=splash.BlockSizes(**sizes), head_shards=1, q_seq_shards=1)
    return jax.grad(lambda *a: kernel(*a).astype(jnp.float32).sum(), argnums=(0, 1, 2))(q, k, v)


def twice(x):
    """Return twice the first rows, which the kernel fetches itself."""

    def kernel(x_ref, o_ref, rows_ref, semaphore):
        copy = pltpu.make_async_copy(x_ref.at[:256], rows_ref, semaphore)
        copy.start()
        copy.wait()
        o_ref[...] = rows_ref[...] * 2

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((256, 1024), x.dtype),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[pltpu.VMEM((256, 1024), x.dtype), pltpu.SemaphoreType.DMA],
    )(x)


def gather(rows, places):
    """Return the blocks of rows that are asked for."""

    def kernel(places_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...]

    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(16,),
        in_specs=[pl.BlockSpec((128, 512), lambda i, places: (places[i], 0))],
        out_specs=pl.BlockSpec((128, 512), lambda i, places: (i, 0)),
    )
    return pl.pallas_call(kernel, grid_spec=spec, out_shape=jax.ShapeDtypeStruct((2048, 512), rows.dtype))(places, rows)


def fused(x, bias, weights):
    """Return a product whose left operand is computed on its way in, and whose right one is cut out."""

    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32).astype(o_ref.dtype)

    return pl.pallas_call(
        kernel,
        grid=(8,),
        in_specs=[pl.BlockSpec((128, 1024), lambda i: (i, 0)), pl.BlockSpec((1024, 1024), lambda i: (0, 0))],
        out_specs=pl.BlockSpec((128, 1024), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16),
        compiler_params=pltpu.CompilerParams(allow_input_fusion=[True, True]),
    )((x + bias).astype(jnp.bfloat16), weights[1024:])


def ring(x, size):
    """Return the rows of all devices, handed round a ring (JAX documentation, Pallas: Distributed Computing)."""

    def kernel(x_ref, o_ref, own, sent, received):
        step, me = pl.program_id(0), jax.lax.axis_index("x")
        slot = jax.lax.rem(me - step + size, size)

        @pl.when(step == 0)
        def _():
            copy = pltpu.make_async_copy(x_ref, o_ref.at[me], own)
            copy.start()
            copy.wait()

        right = pltpu.make_async_remote_copy(
            o_ref.at[slot],
            o_ref.at[slot],
            sent.at[step],
            received.at[step],
            device_id=(jax.lax.rem(me + 1, size),),
            device_id_type=pl.DeviceIdType.MESH,
        )
        right.start()
        right.wait()

    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    semaphores = [pltpu.SemaphoreType.DMA, *[pltpu.SemaphoreType.DMA((size - 1,))] * 2]
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=0, grid=(size - 1,), in_specs=[anywhere], out_specs=anywhere, scratch_shapes=semaphores
    )
    return pl.pallas_call(kernel, grid_spec=spec, out_shape=jax.ShapeDtypeStruct((size, *x.shape), x.dtype))(x)


def ring_of_four():
    """Return the ring on the devices of a slice of four, and what it takes."""
    mesh = jax.sharding.Mesh(np.array(devices_of("v5e:2x2")), ("x",))
    cut = jax.sharding.PartitionSpec("x")
    shard = jax.sharding.NamedSharding(mesh, cut)
    whole = jax.sharding.PartitionSpec(None, "x")
    function = jax.shard_map(partial(ring, size=4), mesh=mesh, in_specs=cut, out_specs=whole, check_vma=False)
    return function, [jax.ShapeDtypeStruct((4 * 1024, 1024), jnp.float32, sharding=shard)]


def main() -> None:
    """Compile and write every program."""

    def shape(*sizes, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(sizes, dtype)

    tokens = [shape(1, 8, 2048, 128)] * 3
    programs = {
        "matmul_1024_b128.v5e": (partial(matmul, rows=128, depth=128, columns=128), [shape(1024, 1024)] * 2),
        "matmul_4096_b512.v5e": (partial(matmul, rows=512, depth=1024, columns=1024), [shape(4096, 4096)] * 2),
        "matmul_4096_b512.v5p": (partial(matmul, rows=512, depth=1024, columns=1024), [shape(4096, 4096)] * 2),
        "flash_2048_b512.v5e": (partial(attention, block=512), tokens),
        "flash_2048_b128.v5e": (partial(attention, block=128), tokens),
        "capped_2048_b128.v5e": (partial(capped, block=128), [shape(8, 2048, 128)] * 3),
        "capped_2048_b512.v5e": (partial(capped, block=512), [shape(8, 2048, 128)] * 3),
        "splash_2048.v5p": (splash_gradients, [shape(8, 2048, 128)] * 3),
        "twice.v6e": (twice, [shape(4096, 1024, dtype=jnp.float32)]),
        "ring.v5e_2x2": ring_of_four(),
        "fused.v5e": (fused, [shape(1024, 1024, dtype=jnp.float32), shape(1024, dtype=jnp.float32), shape(2048, 1024)]),
        "gather.v5e": (gather, [shape(4096, 512, dtype=jnp.float32), shape(16, dtype=jnp.int32)]),
    }
    for name, (function, arguments) in programs.items():
        topology = name.partition(".")[2].replace("_", ":")
        compile_for(jax.jit(function), *arguments, topology=topology).save(FOLDER / f"{name}.hlo.txt.gz")


if __name__ == "__main__":
    main()
