"""Kernels of JAX's own library and documentation, at small sizes; ``KERNELS`` as in ``small_kernels``."""

from __future__ import annotations

from functools import partial
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu import example_kernel, matmul
from jax.experimental.pallas.ops.tpu import flash_attention as flash
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention_kernel
from jax.experimental.pallas.ops.tpu.ragged_paged_attention import kernel as ragged_kernel
from jax.experimental.pallas.ops.tpu.random import philox, threefry
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

from tests.numerics.pallas.inputs import eighths, integers
from tests.numerics.pallas.small_kernels import BF16, F32, I32, out

megablox = import_module("jax.experimental.pallas.ops.tpu.megablox.gmm")
megablox.common = import_module("jax.experimental.pallas.ops.tpu.megablox.common")
# It asks which chip there is.
megablox.common.tpu_kind = lambda: "TPU v6 lite"
megablox.common.is_tpu = lambda: True

KERNELS = {}
ORACLES = {}
"""What a kernel must equal, where JAX's interpreter does not run it, by name."""


def enter(name, function, *inputs):
    """Enter a function under a name, with its inputs."""
    KERNELS[name] = (function, inputs)


few = partial(eighths, bound=9)


def tokens(length, *, heads=(1, 1), dtype=BF16, batch=()):
    """Return queries, keys and values, of so many heads the queries and the others."""
    return [few(*batch, heads[seed > 0], length, 128, seed=seed, dtype=dtype) for seed in range(3)]


# Flash attention
def flash_sizes(block):
    """Return blocks of so many tokens, forward and backward."""
    names = "q k_major k q_major_dkv k_major_dkv k_dkv q_dkv k_major_dq k_dq q_dq".split()
    return flash.BlockSizes(block_b=1, **{f"block_{name}": block for name in names})


def flash_gradients(q, k, v):
    """Return the gradients of causal flash attention."""
    attention = partial(flash.flash_attention, causal=True, block_sizes=flash_sizes(128))
    return jax.grad(lambda *a: (attention(*a).astype(F32) ** 2).sum(), argnums=(0, 1, 2))(q, k, v)


def flash_segments(q, k, v, segments):
    """Return attention within segments."""
    return flash.flash_attention(
        q, k, v, segment_ids=flash.SegmentIds(segments, segments), block_sizes=flash_sizes(128)
    )


enter("flash", partial(flash.flash_attention, sm_scale=0.1, block_sizes=flash_sizes(128)), *tokens(256, batch=(1,)))
enter(
    "flash_causal",
    partial(flash.flash_attention, causal=True, sm_scale=0.1, block_sizes=flash_sizes(128)),
    *tokens(256, batch=(1,)),
)
enter(
    "flash_f32",
    partial(flash.flash_attention, causal=True, sm_scale=0.1, block_sizes=flash_sizes(128)),
    *tokens(256, batch=(1,), dtype=np.float32),
)
enter("flash_gradients", flash_gradients, *tokens(256, batch=(1,)))
enter("flash_segments", flash_segments, *tokens(256, batch=(1,)), np.repeat(np.arange(4, dtype=np.int32), 64)[None])


# Splash attention
def splash_kernel(mask, length, heads, *, fused=False, block=128):
    """Return splash attention under a mask."""
    names = "q kv kv_compute q_dkv kv_dkv kv_dkv_compute".split() + ([] if fused else ["q_dq", "kv_dq"])
    sizes = splash.BlockSizes(**{f"block_{name}": block for name in names}, use_fused_bwd_kernel=fused)
    both = masks.MultiHeadMask([mask((length, length)) for _ in range(heads)])
    return splash.make_splash_mha(both, block_sizes=sizes, head_shards=1, q_seq_shards=1)


def splash_forward(*a, mask=masks.CausalMask, length=256, heads=2):
    """Return splash attention."""
    return splash_kernel(mask, length, heads)(*a)


def splash_gradients(*a, fused):
    """Return the gradients of splash attention."""
    kernel = splash_kernel(masks.CausalMask, 256, 1, fused=fused)
    return jax.grad(lambda *b: (kernel(*b).astype(F32) ** 2).sum(), argnums=(0, 1, 2))(*a)


enter("splash_causal", splash_forward, *tokens(256, heads=(2, 2)))
enter(
    "splash_local",
    partial(splash_forward, mask=lambda s: masks.LocalMask(s, (64, 64), 0), heads=1, length=384),
    *tokens(384),
)
enter("splash_grouped", splash_forward, *tokens(256, heads=(2, 1)))
enter("splash_gradients", partial(splash_gradients, fused=False), *tokens(256))
enter("splash_fused_gradients", partial(splash_gradients, fused=True), *tokens(256))


# Paged attention: two sequences of up to four pages of 16 tokens.
def paged(q, keys, values, lengths, pages, *, inline):
    """Return attention to pages of tokens."""
    return paged_attention_kernel.paged_attention(
        q, keys, values, lengths, pages, pages_per_compute_block=2, inline_seq_dim=inline
    )


PAGES = (
    few(2, 8, 128),
    few(2, 8, 16, 128, seed=1),
    few(2, 8, 16, 128, seed=2),
    np.array([37, 64], np.int32),
    np.array([[3, 1, 0, 2], [7, 5, 4, 6]], np.int32),
)
enter("paged_inline", partial(paged, inline=True), *PAGES)
enter("paged_grid", partial(paged, inline=False), *PAGES)
# The interpreter does not know the views of memory that this one takes.
ORACLES["ragged_paged"] = ragged_kernel.ref_ragged_paged_attention
enter(
    "ragged_paged",
    partial(ragged_kernel.ragged_paged_attention, num_kv_pages_per_block=2, num_queries_per_block=8),
    few(24, 4, 128, dtype=BF16),
    few(8, 16, 4, 128, dtype=BF16, seed=1),
    np.array([37, 20], np.int32),
    np.array([[3, 1, 0], [7, 5, 4]], np.int32),
    np.array([0, 9, 24], np.int32),
    np.array([2], np.int32),
)

# Grouped products
SIZES = np.array([100, 0, 156], np.int32)
enter(
    "gmm",
    partial(megablox.gmm, preferred_element_type=F32, tiling=(128, 128, 128)),
    few(256, 128, dtype=BF16),
    few(3, 128, 128, dtype=BF16, seed=1),
    SIZES,
)
enter(
    "gmm_transposed",
    partial(megablox.gmm, preferred_element_type=BF16, tiling=(128, 128, 128), transpose_rhs=True),
    few(256, 128, dtype=BF16),
    few(3, 128, 128, dtype=BF16, seed=1),
    SIZES,
)
enter(
    "tgmm",
    partial(megablox.tgmm, preferred_element_type=F32, tiling=(128, 128, 128)),
    few(128, 256, dtype=BF16),
    few(256, 128, dtype=BF16, seed=1),
    SIZES,
)

# Products, doubling, random bits
enter(
    "matmul_bf16",
    partial(matmul.matmul, block_shape=(128, 128), block_k=128),
    few(128, 256, dtype=BF16),
    few(256, 128, dtype=BF16, seed=1),
)
enter(
    "matmul_bytes",
    partial(matmul.matmul, block_shape=(128, 128), block_k=128, out_dtype=I32),
    integers(128, 128, low=-9, high=9, dtype=np.int8),
    integers(128, 128, low=-9, high=9, dtype=np.int8),
)
enter("double", example_kernel.double, few(16, 128))
enter("philox", lambda key: philox.philox_4x32_kernel(key, (16, 128), (16, 128), (8, 128)), np.array([3, 5], np.uint32))
enter(
    "threefry",
    lambda key: threefry.threefry_2x32_count(key, (16, 128), (16, 128), (8, 128)),
    np.array([3, 5], np.uint32),
)


# JAX documentation: matrix products, pipelining, sparse computation
def _product(x, y, z, sums, *, activation):
    @pl.when(pl.program_id(2) == 0)
    def _():
        sums[...] = jnp.zeros_like(sums)

    sums[...] += jnp.dot(x[...], y[...], preferred_element_type=F32)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _():
        z[...] = activation(sums[...]).astype(z.dtype)


def documented_product(x, y, activation):
    """Return a product in blocks, through a function."""
    return pl.pallas_call(
        partial(_product, activation=activation),
        out_shape=out(128, 128, dtype=BF16),
        grid=(2, 1, 2),
        in_specs=[pl.BlockSpec((64, 128), lambda i, j, k: (i, k)), pl.BlockSpec((128, 128), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((64, 128), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((64, 128), F32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
    )(x, y)


def sparse_product(blocks, dense, rows, columns):
    """Return a block-sparse matrix times a dense one."""

    def kernel(rows_ref, columns_ref, x, y, _, o, sums):
        at = pl.program_id(1)

        @pl.when((at == 0) | (rows_ref[at] != rows_ref[jnp.maximum(at - 1, 0)]))
        def _():
            sums[...] = jnp.zeros_like(sums)

        sums[...] += jnp.dot(x[0], y[...], preferred_element_type=F32)

        @pl.when((at == 5) | (rows_ref[at] != rows_ref[jnp.minimum(at + 1, 5)]))
        def _():
            o[...] = sums[...].astype(o.dtype)

    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=2,
        grid=(2, 6),
        in_specs=[
            pl.BlockSpec((1, 32, 32), lambda j, b, rows, columns: (b, 0, 0)),
            pl.BlockSpec((32, 128), lambda j, b, rows, columns: (columns[b], j)),
            pl.BlockSpec((32, 128), lambda j, b, rows, columns: (rows[b], j)),
        ],
        out_specs=pl.BlockSpec((32, 128), lambda j, b, rows, columns: (rows[b], j)),
        scratch_shapes=[pltpu.VMEM((32, 128), F32)],
    )
    return pl.pallas_call(kernel, grid_spec=spec, out_shape=out(128, 256, dtype=BF16), input_output_aliases={4: 0})(
        rows, columns, blocks, dense, jnp.zeros((128, 256), BF16)
    )


def rms_norm(x, scale):
    """Return rows divided by their root mean square."""

    def kernel(x_ref, scale_ref, o_ref):
        rows = x_ref[...].astype(F32)
        mean = jnp.mean(rows * rows, axis=-1, keepdims=True)
        o_ref[...] = (rows * jax.lax.rsqrt(mean + 1e-6) * scale_ref[...]).astype(o_ref.dtype)

    block = pl.BlockSpec((16, 256), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        grid=(2,),
        in_specs=[block, pl.BlockSpec((1, 256), lambda i: (0, 0))],
        out_specs=block,
        out_shape=out(32, 256, dtype=BF16),
    )(x, scale)


def top_k(x):
    """Return the four largest of each row and where they stand, one after another."""

    def kernel(x_ref, values_ref, places_ref):
        rows, places = x_ref[...], jax.lax.broadcasted_iota(I32, x_ref.shape, 1)
        for k in range(4):
            best = jnp.max(rows, axis=-1, keepdims=True)
            place = jnp.min(jnp.where(rows == best, places, 1 << 20), axis=-1, keepdims=True)
            values_ref[:, k : k + 1], places_ref[:, k : k + 1] = best, place
            rows = jnp.where(places == place, -jnp.inf, rows)

    return pl.pallas_call(kernel, out_shape=(out(8, 4), out(8, 4, dtype=I32)))(x)


enter(
    "documented_product",
    partial(documented_product, activation=lambda x: x),
    few(128, 256, dtype=BF16),
    few(256, 128, dtype=BF16, seed=1),
)
enter(
    "documented_relu",
    partial(documented_product, activation=jax.nn.relu),
    few(128, 256, dtype=BF16),
    few(256, 128, dtype=BF16, seed=1),
)
enter(
    "sparse_product",
    sparse_product,
    few(6, 32, 32, dtype=BF16),
    few(128, 256, dtype=BF16, seed=1),
    np.array([0, 0, 1, 2, 2, 3], np.int32),
    np.array([1, 3, 0, 2, 3, 1], np.int32),
)
enter("rms_norm", rms_norm, few(32, 256, dtype=BF16), few(1, 256, seed=1))
enter("top_k", top_k, few(8, 256))
