"""What advice promises beside the same function with the advice followed, as JAX lowers and tpusim compiles both."""

from __future__ import annotations

import pytest

from tpusim.advice.advise import advise
from tpusim.advice.trials import Case
from tpusim.errors import CapacityError
from tpusim.hardware.load import load_chip
from tpusim.jax import lower_for
from tpusim.pipeline.stages import simulate

jax = pytest.importorskip("jax")
jnp = jax.numpy


def promises(function, *arguments):
    """Return what advice on a function promises, in ps, by rule: the first of each."""
    findings = advise(lower_for(function, *arguments)).findings
    return {finding.rule: finding.after_ps for finding in reversed(findings)}


def takes_ps(function, *arguments):
    """Return what a function takes, in ps."""
    return simulate(lower_for(function, *arguments)).timeline.total_ps


def array(*dimensions, dtype="bfloat16"):
    """Return what stands for an array."""
    return jax.ShapeDtypeStruct(dimensions, dtype)


def layer(x, w):
    """Return two products, each with a function of the vector unit."""
    return jnp.sin(jnp.tanh(x @ w) @ w)


def layers(count, *, checkpoint):
    """Return a function of a sum over some layers one after another, each computed again for the gradient, or not."""
    one = jax.checkpoint(layer) if checkpoint else layer

    def total(x, w):
        for _ in range(count):
            x = one(x, w)
        return x.sum()

    return total


SQUARE = array(2048, 2048)


@pytest.mark.parametrize(
    ("differentiated", "count", "is_found"),
    [(jax.grad, 1, False), (jax.grad, 3, True), (jax.value_and_grad, 1, True), (jax.value_and_grad, 3, True)],
)
def test_what_is_computed_once_is_not_computed_again(differentiated, count, is_found):
    """Of the last layer a gradient alone needs only what its backward pass computes, under whichever name."""
    found = promises(differentiated(layers(count, checkpoint=True)), SQUARE, SQUARE)
    assert ("recomputation" in found) == is_found
    followed_ps = takes_ps(differentiated(layers(count, checkpoint=False)), SQUARE, SQUARE)
    assert found.get("recomputation", followed_ps) == pytest.approx(followed_ps, rel=0.05)


def recurrent(x, w, h):
    """Return the last state of a recurrent layer, each of which is a product with the one before."""
    return jax.lax.scan(lambda h, now: (jnp.tanh(now + h @ w), None), h, x)[0]


def in_layers(x, w):
    """Return what goes through a stack of layers."""
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (recurrent, (array(64, 32, 256), array(256, 256), array(32, 256))),
        (in_layers, (array(128, 1024), array(12, 1024, 1024))),
    ],
)
def test_what_a_trip_reads_while_it_makes_the_next_is_copied(function, arguments):
    """A product reads all of the state for each element of the next one: no change in the code saves a second place."""
    assert "copies" not in promises(function, *arguments)


def cached(*, reads_old):
    """Return a function that writes rows into a cache, and reads it each time, as it was or as it is then."""

    def step(state, row):
        cache, place, total = state
        new = jax.lax.dynamic_update_slice(cache, row[None], (place, 0))
        ranks = jnp.sort(new.sum(0))
        return (new, place + 1, total + jnp.tanh((cache if reads_old else new) * ranks).sum(0)), None

    return lambda cache, rows: jax.lax.scan(step, (cache, 0, jnp.zeros(rows.shape[1:])), rows)[0]


def test_a_loop_that_reads_what_it_has_updated_does_not_copy_it():
    """One that reads its cache as it was copies it before it writes a row; the row is taken by a kernel either way."""
    arguments = array(1024, 1024, dtype="float32"), array(16, 1024, dtype="float32")
    promised_ps = promises(cached(reads_old=True), *arguments)["copies"]
    assert promised_ps == takes_ps(cached(reads_old=False), *arguments)
    found = advise(lower_for(cached(reads_old=False), *arguments)).findings
    assert not any("(copy" in finding.what for finding in found)


def row_by_row(rows, new):
    """Return an array with its first rows written over, one a trip."""
    write = jax.lax.dynamic_update_slice
    return jax.lax.fori_loop(0, len(new), lambda n, rows: write(rows, new[n][None], (n, 0)), rows)


@pytest.mark.parametrize("count", [64, 2048])
def test_what_only_moves_data_moves_all_of_it_at_once(count):
    """A row of 4 KiB a trip: all of them are read and written, which takes what the HBM takes at least."""
    arguments = array(16384, 1024, dtype="float32"), array(count, 1024, dtype="float32")
    one_by_one = jax.jit(row_by_row, donate_argnums=0)
    promised_ps = promises(one_by_one, *arguments)["batch loops"]
    at_once = jax.jit(lambda rows, new: jax.lax.dynamic_update_slice(rows, new, (0, 0)), donate_argnums=0)
    assert promised_ps >= 2 * count * 4096 / load_chip("v5e").hbm.bandwidth_bytes_per_second * 1e12
    assert promised_ps == pytest.approx(takes_ps(at_once, *arguments), rel=0.15)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda row: row * 2 + 1, (2048, 1024)),
        (jax.nn.softmax, (256, 128, 1024)),
        (jnp.sort, (64, 1024)),
        (lambda pair: pair[0] @ pair[1], (64, 2, 128, 128)),
    ],
    ids=["scaled", "softmax", "sort", "product"],
)
def test_what_is_mapped_saves_what_its_vmap_does(function, shape):
    """Within a fifth of it, as of the programs that were made worse on purpose."""
    one = array(*shape, dtype="float32")
    before_ps = takes_ps(lambda rows: jax.lax.map(function, rows), one)
    promised_ps = promises(lambda rows: jax.lax.map(function, rows), one)["batch loops"]
    assert before_ps - promised_ps == pytest.approx(before_ps - takes_ps(jax.vmap(function), one), rel=0.2)


def attention(q, k, v):
    """Return the sum of what a layer of attention makes."""
    return (jax.nn.softmax(q @ k.swapaxes(-1, -2) / 11) @ v).sum()


def test_what_is_narrow_is_not_to_be_cast():
    """The core computes in f32 what it is given in bf16: what tpusim has compiled says so, and not what was given."""
    one = array(16, 2048, 128)
    module = lower_for(jax.grad(attention, (0, 1, 2)), one, one, one)
    case = Case(simulate(module), None, given=module)
    assert case.run_ps(case.front_end) == case.total_ps
    assert "cast to bf16" not in promises(jax.grad(attention, (0, 1, 2)), one, one, one)


def updated(rows, new, at):
    """Return an array with some of its rows written over."""
    return jax.lax.dynamic_update_slice(rows, new, (at, 0))


def updated_and_read(rows, new, at):
    """Return as well what was made of all rows as they were."""
    return updated(rows, new, at), rows.sum(0)


def scaled_ten_times(x):
    """Return an array that ten trips of a loop have worked on."""
    return jax.lax.fori_loop(0, 10, lambda _, x: x * 1.5 + 1, x)


ROWS, ROW, PLACE = array(16384, 1024, dtype="float32"), array(1, 1024, dtype="float32"), array(dtype="int32")


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (updated, (ROWS, ROW, PLACE)),
        (updated_and_read, (ROWS, ROW, PLACE)),
        (scaled_ten_times, (array(16384, 4096, dtype="float32"),)),
        (jnp.matmul, (array(4096, 4096, dtype="float32"), array(4096, 4096, dtype="float32"))),
        (scaled_ten_times, (array(1024, 1024, dtype="float32"),)),
    ],
)
def test_what_is_to_be_donated_takes_as_long_as_it_does_then(function, arguments):
    """What is donated stays in HBM: where that takes longer it is not to be donated."""
    before_ps = takes_ps(function, *arguments)
    followed_ps = takes_ps(jax.jit(function, donate_argnums=0), *arguments)
    promised_ps = promises(function, *arguments).get("donation")
    assert promised_ps == (None if followed_ps > before_ps else followed_ps)


def test_what_does_not_fit_is_donated_though_it_takes_longer():
    """What is made of 10 GiB beside a loop that is faster in VMEM: what does not fit has no time."""
    arguments = array(2560, 1024, 1024, dtype="float32"), array(1024, 1024, dtype="float32")
    with pytest.raises(CapacityError, match=r"10.00 GiB less: donate them: .* of large.1, small.1"):
        advise(lower_for(lambda large, small: (large * 1.5, scaled_ten_times(small)), *arguments))
