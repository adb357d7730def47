"""Pallas kernels of kinds that come up less often: types, sizes, windows, views of memory, whole algorithms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tests.numerics.pallas.entries import ANY, BF16, F32, I8, I32, SMEM, VMEM, call, enter, few, out, whole
from tests.numerics.pallas.inputs import eighths, integers

X, Y = eighths(8, 128), eighths(8, 128, seed=1)
N, M = integers(8, 128).view(np.uint32), integers(8, 128, seed=1, low=1, high=20).view(np.uint32)
ROWS = pl.BlockSpec((8, 128), lambda i: (i, 0))

# Types
whole("int4", lambda x: x.astype(I8).astype(I32) * 3, few(64, 128).astype(jnp.int4), result=out(64, 128, dtype=I32))
whole("f8", lambda x: x.astype(F32) * 2, few(32, 128, dtype=jnp.float8_e4m3fn), result=out(32, 128))
whole("uint8", lambda x: x.astype(I32) + 1, few(32, 128).astype(np.uint8), result=out(32, 128, dtype=I32))
whole("bool_result", lambda x, y: x > y, X, Y, result=out(8, 128, dtype=jnp.bool_))
whole("bool_operand", lambda m, x: jnp.where(m, x, -x), X > 0, Y, result=out(8, 128))
whole("bf16_arithmetic", lambda x, y: x * y + x, few(16, 128, dtype=BF16), few(16, 128, dtype=BF16, seed=1))
whole("bf16_maximum", lambda x: x.max(-1, keepdims=True), few(16, 128, dtype=BF16), result=out(16, 1, dtype=BF16))
whole("unsigned_less", lambda a, b: jnp.where(a < b, jnp.minimum(a, b), a - b), N, M)
# JAX's own "not equal" is true of NaN.
whole("not_numbers", lambda x, y: jnp.isnan(x / y).astype(F32) + jnp.isinf(x / y), np.round(X), np.round(Y / 4))

# Sizes that fill no registers
whole("odd_softmax", lambda x: jax.nn.softmax(x, axis=-1), few(13, 77))
whole("odd_sum", lambda x: x.sum(1), few(3, 50, 200), result=out(3, 200))
whole(
    "odd_product",
    lambda x, y: jnp.dot(x, y, preferred_element_type=F32),
    few(13, 77, dtype=BF16),
    few(77, 50, dtype=BF16, seed=1),
    result=out(13, 50),
)
whole(
    "product_of_queries",
    lambda q, k: jnp.einsum("bqd,bkd->bqk", q, k, preferred_element_type=F32),
    few(2, 16, 64, dtype=BF16),
    few(2, 32, 64, dtype=BF16, seed=1),
    result=out(2, 16, 32),
)


# Windows
def _twice(*refs):
    refs[-1][...] = refs[-2][...] * 2


def _neighbours(x, o):
    o[...] = x[0:8] + x[8:16]


def _copy_and_sum(x, a, b):
    a[...] = x[...] * 2

    @pl.when(pl.program_id(1) == 0)
    def _():
        b[...] = jnp.zeros_like(b)

    b[...] += x[...]


def _count(x, o, count):
    @pl.when(pl.program_id(0) == 0)
    def _():
        count[0] = 0

    count[0] += pl.program_id(0) + 1
    o[...] = x[...] + count[0].astype(F32)


def _sum_to_scalar(x, o):
    o[pl.program_id(0)] = jnp.sum(x[...])


def _dynamic_grid(n, x):
    return pl.pallas_call(_twice, grid=(n[0],), in_specs=[ROWS], out_specs=ROWS, out_shape=out(32, 128))(x)


def _twice_in_blocks(x):
    return pl.pallas_call(_twice, grid=(2,), in_specs=[ROWS], out_specs=ROWS, out_shape=out(16, 128))(x)


LINE = pl.BlockSpec((128,), lambda i: (i,))
BOTH = pl.BlockSpec((8, 128), lambda i, j: (i, j))
OVERLAPPING = pl.BlockSpec((pl.Element(16), pl.Element(128)), lambda i: (i * 8, 0))
# The last step's result is never written: NaN, as in the interpreter.
enter("dynamic_grid", _dynamic_grid, np.array([3], np.int32), few(32, 128, seed=1))
enter("batched_by_vmap", jax.vmap(_twice_in_blocks), few(3, 16, 128))
call("line", _twice, few(300), grid=(3,), in_specs=[LINE], out_specs=LINE)
call("overlapping", _neighbours, few(40, 128), result=out(24, 128), grid=(3,), in_specs=[OVERLAPPING], out_specs=ROWS)
call("aliased_blocks", _twice, few(32, 128), grid=(2,), in_specs=[ROWS], out_specs=ROWS, input_output_aliases={0: 0})
call("sums_to_scalars", _sum_to_scalar, few(32, 128), result=out(4), grid=(4,), in_specs=[ROWS], out_specs=SMEM)
call(
    "two_results",
    _copy_and_sum,
    few(16, 256),
    result=(out(16, 256), out(16, 128)),
    grid=(2, 2),
    in_specs=[BOTH],
    out_specs=(BOTH, pl.BlockSpec((8, 128), lambda i, j: (i, 0))),
)
call(
    "scalar_scratch",
    _count,
    few(32, 128),
    grid=(4,),
    in_specs=[ROWS],
    out_specs=ROWS,
    scratch_shapes=[pltpu.SMEM((1,), I32)],
)


# Memory
def _dynamic_roll(n, x, o):
    o[...] = pltpu.roll(x[...], n[0], 1)


def _dynamic_size(n, x, o, buffer, semaphore):
    rows = pl.ds(0, pl.multiple_of(n[0], 8))
    buffer[...] = jnp.zeros_like(buffer)
    pltpu.async_copy(x.at[rows], buffer.at[rows], semaphore).wait()
    o[...] = buffer[...]


def _fetch_while(n, x, o, buffer, semaphore):
    o[...] = jnp.zeros_like(o)

    def turn(i):
        pltpu.async_copy(x.at[pl.ds(i * 8, 8)], buffer, semaphore).wait()
        o[...] += buffer[...]
        return i + 1

    lax.while_loop(lambda i: i < n[0], turn, 0)


def _exchange(x, o, semaphores):
    first = pltpu.make_async_copy(x.at[pl.ds(0, 8)], o.at[pl.ds(8, 8)], semaphores.at[0])
    second = pltpu.make_async_copy(x.at[pl.ds(8, 8)], o.at[pl.ds(0, 8)], semaphores.at[1])
    first.start()
    second.start()
    second.wait()
    first.wait()


def _swap_words(x, o):
    o.bitcast(I32)[0:4, :] = x.bitcast(I32)[4:8, :]
    o.bitcast(I32)[4:8, :] = x.bitcast(I32)[0:4, :]


def _reshaped(x, o):
    o[...] = x.reshape(16, 128)[...] + 1


def _scalar_floats(n, x, o):
    value = n[0] * 2.5 - n[1]
    o[...] = x[...] * jnp.where(value > 0, jnp.maximum(value, 1.0), value * value)


DMA = pltpu.SemaphoreType.DMA
call("dynamic_roll", _dynamic_roll, np.array([37], np.int32), Y, result=out(8, 128), in_specs=[SMEM, VMEM])
call(
    "copy_of_dynamic_size",
    _dynamic_size,
    np.array([16], np.int32),
    few(32, 128, seed=1),
    result=out(32, 128),
    in_specs=[SMEM, ANY],
    scratch_shapes=[pltpu.VMEM((32, 128), F32), DMA],
)
call(
    "copies_in_while",
    _fetch_while,
    np.array([3], np.int32),
    few(32, 128, seed=1),
    result=out(8, 128),
    in_specs=[SMEM, ANY],
    scratch_shapes=[pltpu.VMEM((8, 128), F32), DMA],
)
call("exchange", _exchange, few(16, 128), in_specs=[ANY], out_specs=ANY, scratch_shapes=[pltpu.SemaphoreType.DMA((2,))])
call("scalar_floats", _scalar_floats, np.array([1.5, 2.25], np.float32), Y, result=out(8, 128), in_specs=[SMEM, VMEM])
# The interpreter does not know these views of memory.
call("swapped_words", _swap_words, few(16, 128, dtype=BF16), oracle=lambda x: np.roll(x, 8, 0))
call("reshaped", _reshaped, few(2, 8, 128), result=out(16, 128), oracle=lambda x: x.reshape(16, 128) + 1)


# Whole algorithms
def _nested(n, x, o):
    """Loop so often as data says, within a branch, within a loop."""

    def outer(i, total):
        def inner(j, sums):
            return sums + x[pl.ds(i, 1), :] * j.astype(F32)

        return lax.cond(i % 2 == 0, lambda: lax.fori_loop(0, n[i], inner, total), lambda: total - 1.0)

    o[...] = lax.fori_loop(0, 4, outer, jnp.zeros((1, 128), F32))


def _bitonic(x, o):
    """Sort each 16 neighbours."""
    values, lanes = x[...], lax.broadcasted_iota(I32, x.shape, 1)
    for size in (2, 4, 8, 16):
        distance = size // 2
        while distance:
            partner = jnp.where(
                lanes & distance == 0, pltpu.roll(values, 128 - distance, 1), pltpu.roll(values, distance, 1)
            )
            takes_least = (lanes & size == 0) == (lanes & distance == 0)
            values = jnp.where(takes_least, jnp.minimum(values, partner), jnp.maximum(values, partner))
            distance //= 2
    o[...] = values


def _state_space(x, a, o, state):
    """Carry a state from row to row, and from block to block."""

    @pl.when(pl.program_id(0) == 0)
    def _():
        state[...] = jnp.zeros_like(state)

    @pl.loop(0, 8)
    def _(t):
        state[...] = state[...] * a[pl.ds(t, 1), :] + x[pl.ds(t, 1), :]
        o[pl.ds(t, 1), :] = state[...]


def _byte_weights(x, w, scale, o):
    o[...] = jnp.dot(x[...], w[...].astype(BF16), preferred_element_type=F32) * scale[...]


def _pipelined_product(x, y, o, sums):
    """Multiply in a pipeline inside the kernel."""

    def inner(x_block, y_block, o_block):
        @pl.when(pl.program_id(1) == 0)
        def _():
            sums[...] = jnp.zeros_like(sums)

        sums[...] += jnp.dot(x_block[...], y_block[...], preferred_element_type=F32)

        @pl.when(pl.program_id(1) == 1)
        def _():
            o_block[...] = sums[...].astype(o_block.dtype)

    blocks = [pl.BlockSpec((16, 128), lambda i, k: (i, k)), pl.BlockSpec((128, 128), lambda i, k: (k, 0))]
    result = pl.BlockSpec((16, 128), lambda i, k: (i, 0))
    pltpu.emit_pipeline(inner, grid=(2, 2), in_specs=blocks, out_specs=[result])(x, y, o)


def _on_a_core(x):
    """Run on a mesh of one core."""

    def stateful(refs):
        source, target = refs

        @pl.core_map(pltpu.create_tensorcore_mesh("core", num_cores=1))
        def _():
            def inner(buffer):
                pltpu.sync_copy(source, buffer)
                buffer[...] = buffer[...] * 2
                pltpu.sync_copy(buffer, target)

            pl.run_scoped(inner, pltpu.VMEM((8, 128), F32))

    return pl.run_state(stateful)((x, jnp.zeros_like(x)))[1]


COLUMNS = pl.BlockSpec((128, 128), lambda i: (0, i))
call("nested_loops", _nested, np.array([3, 1, 2, 0], np.int32), Y, result=out(1, 128), in_specs=[SMEM, VMEM])
call("bitonic_sort", _bitonic, X)
call(
    "state_space",
    _state_space,
    few(24, 128),
    few(24, 128, seed=1),
    grid=(3,),
    in_specs=[ROWS, ROWS],
    out_specs=ROWS,
    scratch_shapes=[pltpu.VMEM((1, 128), F32)],
)
call(
    "byte_weights",
    _byte_weights,
    few(16, 128, dtype=BF16),
    few(128, 256, dtype=np.int8, seed=1),
    few(1, 256, seed=2),
    result=out(16, 256),
    grid=(2,),
    in_specs=[pl.BlockSpec((16, 128), lambda i: (0, 0)), COLUMNS, pl.BlockSpec((1, 128), lambda i: (0, i))],
    out_specs=pl.BlockSpec((16, 128), lambda i: (0, i)),
)
call(
    "pipelined_product",
    _pipelined_product,
    few(32, 256, dtype=BF16),
    few(256, 128, dtype=BF16, seed=1),
    result=out(32, 128, dtype=BF16),
    in_specs=[ANY, ANY],
    out_specs=ANY,
    scratch_shapes=[pltpu.VMEM((16, 128), F32)],
)
enter("on_a_core", _on_a_core, X)
