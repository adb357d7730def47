"""What advice promises beside the same function with the advice followed, as JAX lowers and tpusim compiles both."""

from __future__ import annotations

import pytest

from tpusim.advice.advise import advise
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
