"""Small Pallas kernels, each for some of the operations that bodies are made of.

``KERNELS`` has a function of arrays and its inputs by name.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tests.numerics.pallas.inputs import eighths, integers

F32, BF16, I32, I8 = jnp.float32, jnp.bfloat16, jnp.int32, jnp.int8
ANY = pl.BlockSpec(memory_space=pl.ANY)
SMEM = pl.BlockSpec(memory_space=pltpu.SMEM)
KERNELS = {}


def out(*sizes, dtype=F32):
    """Return the shape of a result."""
    return jax.ShapeDtypeStruct(sizes, dtype)


def enter(name, function, *inputs):
    """Enter a function under a name, with its inputs."""
    KERNELS[name] = (function, inputs)


def whole(name, function, *inputs, result=None):
    """Enter a kernel that is one expression of all of its operands."""
    shape = result or out(*inputs[0].shape, dtype=inputs[0].dtype)

    def kernel(*refs):
        refs[-1][...] = function(*(ref[...] for ref in refs[:-1])).astype(refs[-1].dtype)

    call(name, kernel, *inputs, result=shape)


def call(name, kernel, *inputs, result=None, **options):
    """Enter a kernel that is a function of references."""
    shape = result or out(*inputs[0].shape, dtype=inputs[0].dtype)
    # Whether it is interpreted is decided where it is made.
    enter(name, lambda *arrays: pl.pallas_call(kernel, out_shape=shape, **options)(*arrays), *inputs)


X, Y = (eighths(8, 128, seed=seed) for seed in (0, 1))
POSITIVE = np.abs(X) + np.float32(0.125)
N, M = integers(8, 128), integers(8, 128, seed=1, low=1, high=20)
B = X.astype(jnp.bfloat16)

# arith
whole("add_multiply", lambda x, y: x * y + x - y, X, Y)
whole("divide", lambda x, y: x / y, X, np.abs(Y) + 1)
whole("maximum_minimum", lambda x, y: jnp.maximum(x, 0) + jnp.minimum(x, y), X, Y)
whole("integers", lambda n, m: (n + m) * 3 - lax.div(n, m) * 7 + lax.rem(n, m), N, M)
whole("bits", lambda n, m: ((n << 3) ^ (n >> 2)) | (~m & lax.shift_right_logical(n, jnp.full_like(n, 5))), N, M)
whole(
    "unsigned",
    lambda a, b: lax.div(a, b) + lax.rem(a, b) + jnp.maximum(a, b) * (a > b).astype(jnp.uint32),
    N.view(np.uint32),
    M.view(np.uint32),
)
whole("compare_select", lambda x, y: jnp.where((x > y) & (x != 0.5), x, jnp.where(x <= 0, y, -y)), X, Y)
whole("negate_abs_sign", lambda x: jnp.abs(x) + lax.sign(x) * 4 - (-x) / 2, X)
whole("clamp", lambda x: jnp.clip(x, -1.5, 2.25), X)
whole("convert_int", lambda x: x.astype(I32) * 2 + (x > 1).astype(I32), X, result=out(8, 128, dtype=I32))
whole("convert_bf16", lambda x: (x * 1.01).astype(BF16), X, result=out(8, 128, dtype=BF16))
whole("int_to_float", lambda n: n.astype(F32) * 0.5, N, result=out(8, 128))
whole("nan_and_infinity", lambda x, y: jnp.where(jnp.isfinite(x / y), jnp.maximum(x / y, 1), lax.rem(x, y)), X, Y)

# math
whole("exp_log", lambda x, p: jnp.exp(x) + jnp.log(p), X, POSITIVE)
whole("roots", lambda p: lax.rsqrt(p) + jnp.sqrt(p), POSITIVE)
whole("tanh_logistic", lambda x: jnp.tanh(x) + jax.nn.sigmoid(x), X)
whole("tanh_bf16", jnp.tanh, B)
whole("sine_cosine", lambda x: jnp.sin(x) + jnp.cos(x), X)
whole("power", lambda p, x: p**x, POSITIVE, X / 4)
whole("erf_gelu", lambda x: lax.erf(x) + jax.nn.gelu(x), X)
whole("log1p_expm1", lambda p: jnp.log1p(p) + jnp.exp2(p), POSITIVE)
whole("round_floor_ceil", lambda x: jnp.round(x) + 100 * jnp.floor(x) + 10_000 * jnp.ceil(x), X)
whole("count_bits", lambda n: lax.clz(n) * 64 + lax.population_count(n), N)
whole("tan_atan2", lambda x, y: jnp.tan(x / 4) + jnp.arctan2(x, y), X, Y)

# vector
whole("sum_lanes", lambda x: x.sum(-1, keepdims=True), X, result=out(8, 1))
whole("sum_sublanes", lambda x: x.sum(0, keepdims=True), X, result=out(1, 128))
whole("max_both", lambda x: jnp.full((8, 128), x.max()) + x.min(), X)
whole("max_int", lambda n: n.max(-1, keepdims=True) + n.sum(-1, keepdims=True), N, result=out(8, 1, dtype=I32))
whole("sum_bf16", lambda b: b.astype(F32).sum(-1, keepdims=True), B, result=out(8, 1))
whole("argmax", lambda x: jnp.argmax(x, axis=-1, keepdims=True).astype(I32), X, result=out(8, 1, dtype=I32))
whole("argmin_sublanes", lambda x: jnp.argmin(x, axis=0, keepdims=True).astype(I32), X, result=out(1, 128, dtype=I32))
whole("any_all", lambda x: jnp.where(jnp.any(x > 3.9), 1.0, 0.0) + jnp.where(jnp.all(x < 9), 2.0, 0.0) + x, X)
whole("broadcast", lambda x: jnp.broadcast_to(x, (16, 128)) * 2, eighths(1, 128), result=out(16, 128))
whole("broadcast_lanes", lambda x: jnp.broadcast_to(x, (8, 256)), eighths(8, 1), result=out(8, 256))
whole("shape_cast", lambda x: x.reshape(2, 8, 128) + 1, eighths(16, 128), result=out(2, 8, 128))
whole("reshape_lanes", lambda x: x.reshape(16, 128), eighths(8, 256), result=out(16, 128))
whole("slice", lambda x: x[2:6, 16:48] * 2, X, result=out(4, 32))
whole("extract_scalar", lambda x: x + x[3, 5], X)
whole(
    "softmax",
    lambda x: jnp.exp(x - x.max(-1, keepdims=True)) / jnp.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True),
    X,
)
whole("iota", lambda n: lax.broadcasted_iota(I32, (8, 128), 1) * 2 + lax.broadcasted_iota(I32, (8, 128), 0) + n, N)


# tpu
def fine(*sizes):
    """Return numbers that do not fit bf16."""
    return few(*sizes) * np.float32(1.01)


def product(name, lhs, rhs, result, contracted, batch=((), ()), dtype=F32, **options):
    """Enter a kernel that is one product, contracted over a dimension of each side."""
    dimensions = (tuple((each,) for each in contracted), batch)
    dot = partial(lax.dot_general, dimension_numbers=dimensions, preferred_element_type=dtype, **options)
    whole(name, dot, lhs, rhs, result=out(*result, dtype=dtype))


few = partial(eighths, bound=9)
narrow = partial(few, dtype=BF16)
bytes_ = partial(integers, low=-9, high=9, dtype=np.int8)
product("matmul", narrow(16, 64), narrow(64, 32), (16, 32), (1, 0))
product("matmul_f32", fine(8, 64), fine(64, 16), (8, 16), (1, 0))
product("matmul_highest", fine(8, 64), fine(64, 16), (8, 16), (1, 0), precision="highest")
product("matmul_rhs_transposed", narrow(16, 64), narrow(32, 64), (16, 32), (1, 1))
product("matmul_lhs_transposed", narrow(32, 16), narrow(32, 64), (16, 64), (0, 0))
product("matmul_batched", narrow(2, 8, 64), narrow(2, 64, 16), (2, 8, 16), (2, 1), ((0,), (0,)))
product("matmul_int8", bytes_(32, 64), bytes_(64, 32), (32, 32), (1, 0), dtype=I32)
whole("concatenate", lambda x, y: jnp.concatenate([x, y, x], axis=1), X, Y, result=out(8, 384))
whole("concatenate_rows", lambda x, y: jnp.concatenate([x[:4], y[2:], x], axis=0), X, Y, result=out(18, 128))
whole("roll_lanes", lambda x: pltpu.roll(x, 5, 1), X)
whole("roll_rows", lambda x: pltpu.roll(x, 3, 0), X)
whole("roll_strided", lambda x: pltpu.roll(x, 2, 1, stride=3, stride_axis=0), X)
whole("transpose", lambda x: x.T, eighths(16, 128), result=out(128, 16))
whole("transpose_batched", lambda x: jnp.swapaxes(x, 1, 2), eighths(2, 8, 128), result=out(2, 128, 8))
whole("repeat", lambda x: jnp.tile(x, (1, 2)), X, result=out(8, 256))
whole("gather_lanes", lambda x, i: jnp.take_along_axis(x, i, axis=1), X, integers(8, 128, low=0, high=128))
whole("gather_rows", lambda x, i: jnp.take_along_axis(x, i, axis=0), X, integers(8, 128, low=0, high=8))
whole("bitcast", lambda x: lax.bitcast_convert_type(x, I32) + 1, X, result=out(8, 128, dtype=I32))
whole("bitcast_packed", lambda b: pltpu.bitcast(b, I32), eighths(16, 128, dtype=BF16), result=out(8, 128, dtype=I32))
whole("reciprocal", lambda p: pl.reciprocal(p, approx=False), POSITIVE)


# memory: loads, stores, references
def _dynamic(n, x, o):
    """Load and store rows at places that are data."""
    o[...] = jnp.zeros_like(o)
    o[pl.ds(n[0], 4), :] = x[pl.ds(n[1], 4), :] * 2


def _strided(x, o):
    """Load every other row, store every third."""
    o[...] = jnp.zeros_like(o)
    o[pl.ds(1, 5, stride=3), :] = x[pl.ds(0, 5, stride=2), :]


def _masked(x, o):
    """Store where a mask says so."""
    o[...] = jnp.zeros_like(o)
    lanes = lax.broadcasted_iota(I32, o.shape, 1)
    pltpu.store(o.at[...], x[...] + 1, mask=lanes % 3 == 1)


def _scalars(n, x, o, p):
    """Read scalars, and write some."""
    o[...] = x[...] * n[2].astype(F32)
    p[0], p[1] = n[0] + n[1], lax.select(n[0] > n[1], n[0], n[1])


def _views(x, o):
    """Read and write through references to parts of memory."""
    part = x.at[1]
    o.at[0][...] = part[...] + 1
    o[1, 2:6] = x.at[0, pl.ds(2, 4)][...]
    o[1, 0:2], o[1, 6:8] = part[0:2], part[6:8]


def _in_place(x, o, buffer, semaphore):
    """Change some rows of a result that begins as an operand."""
    pltpu.async_copy(x.at[pl.ds(8, 8)], buffer, semaphore).wait()
    buffer[...] *= 2
    pltpu.async_copy(buffer, o.at[pl.ds(8, 8)], semaphore).wait()


call(
    "dynamic_rows",
    _dynamic,
    np.array([3, 1], np.int32),
    X,
    result=out(8, 128),
    in_specs=[SMEM, pl.BlockSpec(memory_space=pltpu.VMEM)],
)
call("strided_rows", _strided, eighths(16, 128), result=out(16, 128))
call("masked_store", _masked, X)
call(
    "scalars",
    _scalars,
    np.array([3, 7, 2], np.int32),
    X,
    result=(out(8, 128), out(2, dtype=I32)),
    in_specs=[SMEM, pl.BlockSpec(memory_space=pltpu.VMEM)],
    out_specs=(pl.BlockSpec(memory_space=pltpu.VMEM), SMEM),
)
call("views", _views, eighths(2, 8, 128))
call(
    "in_place",
    _in_place,
    eighths(16, 128),
    in_specs=[ANY],
    out_specs=ANY,
    input_output_aliases={0: 0},
    scratch_shapes=[pltpu.VMEM((8, 128), F32), pltpu.SemaphoreType.DMA],
)


# scf and cf
def _for(x, o):
    """Add rows up in a loop, from a carried value."""
    o[...] = lax.fori_loop(0, 8, lambda i, total: total + x[pl.ds(i, 1), :] * i.astype(F32), jnp.ones((1, 128), F32))


def _while(n, o):
    """Double until something is so; the count is data."""
    o[...] = lax.while_loop(lambda s: s[1].sum() < 5000, lambda s: (s[0] + 1, s[1] * 2), (0, jnp.abs(n[...])))[1]


def _if(n, x, o):
    """Choose one of two expressions."""
    o[...] = lax.cond(n[0] > 3, lambda: x[...] * 2, lambda: jnp.exp(x[...]))


def _switch(n, x, o):
    """Choose one of three, in a loop."""

    def turn(i, value):
        return lax.switch(n[i], [lambda v: v + 1, lambda v: v * 2, lambda v: v - x[...]], value)

    o[...] = lax.fori_loop(0, 3, turn, x[...])


call("for_loop", _for, X, result=out(1, 128))
call("while_loop", _while, N)
for taken in (2, 5):
    call(
        f"if_{taken}",
        _if,
        np.array([taken], np.int32),
        X,
        result=out(8, 128),
        in_specs=[SMEM, pl.BlockSpec(memory_space=pltpu.VMEM)],
    )
call(
    "switch",
    _switch,
    np.array([2, 0, 1], np.int32),
    X,
    result=out(8, 128),
    in_specs=[SMEM, pl.BlockSpec(memory_space=pltpu.VMEM)],
)


# grids and blocks
def _sums(x, o, total):
    """Add blocks up in scratch, write at the end."""

    @pl.when(pl.program_id(1) == 0)
    def _():
        total[...] = jnp.zeros_like(total)

    total[...] += x[...]

    @pl.when(pl.program_id(1) == pl.num_programs(1) - 1)
    def _():
        o[...] = total[...]


def _copy(*refs):
    refs[-1][...] = refs[-2][...] + 1


call(
    "grid_sums",
    _sums,
    few(16, 512),
    result=out(16, 128),
    grid=(2, 4),
    in_specs=[pl.BlockSpec((8, 128), lambda i, j: (i, j))],
    out_specs=pl.BlockSpec((8, 128), lambda i, j: (i, 0)),
    scratch_shapes=[pltpu.VMEM((8, 128), F32)],
)
call(
    "grid_edges",
    _copy,
    few(20, 200),
    grid=(3, 2),
    in_specs=[pl.BlockSpec((8, 128), lambda i, j: (i, j))],
    out_specs=pl.BlockSpec((8, 128), lambda i, j: (i, j)),
)
call(
    "grid_squeezed",
    _copy,
    few(3, 8, 128),
    grid=(3,),
    in_specs=[pl.BlockSpec((None, 8, 128), lambda i: (2 - i, 0, 0))],
    out_specs=pl.BlockSpec((None, 8, 128), lambda i: (i, 0, 0)),
)
call(
    "block_gather",
    _copy,
    np.array([3, 0, 3, 1], np.int32),
    few(32, 128),
    result=out(32, 128),
    grid_spec=pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(4,),
        in_specs=[pl.BlockSpec((8, 128), lambda i, n: (n[i], 0))],
        out_specs=pl.BlockSpec((8, 128), lambda i, n: (i, 0)),
    ),
)


# copies and semaphores
def _dma(x, o, buffer, semaphore):
    """Fetch rows, and write them."""
    copy = pltpu.make_async_copy(x.at[pl.ds(8, 8)], buffer, semaphore)
    copy.start()
    copy.wait()
    o[...] = buffer[...] * 2


def _double_buffered(x, o, buffers, semaphores):
    """Fetch the next rows while some are added up."""

    def copy(i):
        return pltpu.make_async_copy(x.at[pl.ds(i * 8, 8)], buffers.at[i % 2], semaphores.at[i % 2])

    copy(0).start()
    o[...] = jnp.zeros_like(o)

    @pl.loop(0, 4)
    def _(i):
        @pl.when(i < 3)
        def _():
            copy(i + 1).start()

        copy(i).wait()
        o[...] += buffers[i % 2] * (i + 1).astype(F32)


def _scoped(x, o):
    """Take memory for a while."""

    def body(buffer, semaphore):
        pltpu.async_copy(x, buffer, semaphore).wait()
        o[...] = buffer[...] + 1

    pl.run_scoped(body, pltpu.VMEM((8, 128), F32), pltpu.SemaphoreType.DMA)


def _semaphores(x, o, semaphore):
    """Signal and wait on this device."""
    pl.semaphore_signal(semaphore, 3)
    pl.semaphore_wait(semaphore, 1)
    o[...] = x[...] + 1
    pl.semaphore_wait(semaphore, 2)


def _pipeline(x, o):
    """Run a pipeline of copies inside a kernel."""

    def inner(x_block, o_block):
        o_block[...] = x_block[...] * 2

    block = pl.BlockSpec((8, 128), lambda i, j: (i, j))
    pltpu.emit_pipeline(inner, grid=(2, 2), in_specs=[block], out_specs=[block])(x, o)


call(
    "dma",
    _dma,
    few(32, 128),
    result=out(8, 128),
    in_specs=[ANY],
    scratch_shapes=[pltpu.VMEM((8, 128), F32), pltpu.SemaphoreType.DMA],
)
call(
    "double_buffered",
    _double_buffered,
    few(32, 128),
    result=out(8, 128),
    in_specs=[ANY],
    scratch_shapes=[pltpu.VMEM((2, 8, 128), F32), pltpu.SemaphoreType.DMA((2,))],
)
call("run_scoped", _scoped, X, in_specs=[ANY])
call("semaphores", _semaphores, X, scratch_shapes=[pltpu.SemaphoreType.REGULAR])
call("emit_pipeline", _pipeline, few(16, 256), in_specs=[ANY], out_specs=ANY)
