"""The networks that ``benchmarks/numerics.py`` runs, as JAX functions with random weights: GPT-2 and ResNet-50."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

_LAYERS, _HEADS, _WIDTH, _VOCABULARY, _TOKENS = 12, 12, 768, 50304, 256
_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))


def gpt2() -> tuple[Any, tuple[Any, ...]]:
    """Return the forward pass of the 12-layer GPT-2 over 256 tokens, and its arguments, in bf16."""
    keys = iter(jax.random.split(jax.random.key(0), 8 * _LAYERS + 8))
    tokens = jax.random.randint(next(keys), (1, _TOKENS), 0, _VOCABULARY)
    weights = {
        "tokens": _weight(next(keys), _VOCABULARY, _WIDTH),
        "positions": _weight(next(keys), _TOKENS, _WIDTH),
        "norm": _norm(_WIDTH),
        "layers": [_layer(keys) for _ in range(_LAYERS)],
    }
    return _gpt2, (weights, tokens)


def resnet50() -> tuple[Any, tuple[Any, ...]]:
    """Return the forward pass of ResNet-50 over one image of 224 x 224, and its arguments, in bf16."""
    keys = iter(jax.random.split(jax.random.key(0), 64))
    image = jax.random.normal(next(keys), (1, 224, 224, 3), jnp.bfloat16)
    blocks, width = [], 64
    for stage, (count, channels) in enumerate(_STAGES):
        for number in range(count):
            stride = 2 if stage and not number else 1
            blocks.append(_block(keys, width, channels, has_shortcut=not number) | {"stride": stride})
            width = 4 * channels
    strides = tuple(block.pop("stride") for block in blocks)
    stem = {"conv": _kernel(next(keys), 7, 3, 64), "norm": _norm(64)}
    weights = {"stem": stem, "blocks": blocks, "head": _weight(next(keys), width, 1000)}
    return partial(_resnet50, strides), (weights, image)


def _weight(key: Any, *sizes: int) -> Any:
    """Return small random bf16 numbers."""
    return jax.random.normal(key, sizes, jnp.bfloat16) * 0.02


def _kernel(key: Any, size: int, inputs: int, outputs: int) -> Any:
    """Return a random convolution kernel that keeps the variance of what it is given."""
    scale = (2 / (size * size * inputs)) ** 0.5
    return (jax.random.normal(key, (size, size, inputs, outputs)) * scale).astype(jnp.bfloat16)


def _norm(width: int) -> dict[str, Any]:
    """Return the scale and offset of a normalisation."""
    return {"scale": jnp.ones(width, jnp.bfloat16), "offset": jnp.zeros(width, jnp.bfloat16)}


def _layer(keys: Any) -> dict[str, Any]:
    """Return the weights of a transformer layer."""
    return {
        "norm1": _norm(_WIDTH),
        "norm2": _norm(_WIDTH),
        "qkv": _weight(next(keys), _WIDTH, 3 * _WIDTH),
        "out": _weight(next(keys), _WIDTH, _WIDTH),
        "up": _weight(next(keys), _WIDTH, 4 * _WIDTH),
        "down": _weight(next(keys), 4 * _WIDTH, _WIDTH),
    }


def _normalised(x: Any, norm: dict[str, Any], axes: tuple[int, ...]) -> Any:
    """Normalise over ``axes`` in f32."""
    wide = x.astype(jnp.float32)
    mean = wide.mean(axes, keepdims=True)
    variance = jnp.square(wide - mean).mean(axes, keepdims=True)
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-5)).astype(x.dtype) * norm["scale"] + norm["offset"]


def _gpt2(weights: dict[str, Any], tokens: Any) -> Any:
    """Return the logits of every token."""
    x = weights["tokens"][tokens] + weights["positions"]
    for layer in weights["layers"]:
        x = x + _attention(layer, _normalised(x, layer["norm1"], (-1,)))
        hidden = jax.nn.gelu(_normalised(x, layer["norm2"], (-1,)) @ layer["up"], approximate=True)
        x = x + hidden @ layer["down"]
    return _normalised(x, weights["norm"], (-1,)) @ weights["tokens"].T


def _attention(layer: dict[str, Any], x: Any) -> Any:
    """Return causal attention over the heads."""
    q, k, v = (part.reshape(1, _TOKENS, _HEADS, -1) for part in jnp.split(x @ layer["qkv"], 3, -1))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) / 8
    causal = jnp.tril(jnp.ones((_TOKENS, _TOKENS), bool))
    chosen = jax.nn.softmax(jnp.where(causal, scores, -1e30), -1).astype(x.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", chosen, v).reshape(1, _TOKENS, _WIDTH) @ layer["out"]


def _block(keys: Any, width: int, channels: int, *, has_shortcut: bool) -> dict[str, Any]:
    """Return the weights of a bottleneck block."""
    sizes = ((1, width, channels), (3, channels, channels), (1, channels, 4 * channels))
    block = {"convs": [{"conv": _kernel(next(keys), *size), "norm": _norm(size[-1])} for size in sizes]}
    if has_shortcut:
        block["shortcut"] = {"conv": _kernel(next(keys), 1, width, 4 * channels), "norm": _norm(4 * channels)}
    return block


def _convolved(x: Any, part: dict[str, Any], stride: int = 1) -> Any:
    """Return a normalised convolution of an image ``[batch, height, width, features]``."""
    layout = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, part["conv"], (stride, stride), "SAME", dimension_numbers=layout)
    return _normalised(y, part["norm"], (0, 1, 2))


def _resnet50(strides: tuple[int, ...], weights: dict[str, Any], image: Any) -> Any:
    """Return the logits of an image."""
    x = jax.nn.relu(_convolved(image, weights["stem"], 2))
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for block, stride in zip(weights["blocks"], strides, strict=True):
        first, second, third = block["convs"]
        y = jax.nn.relu(_convolved(x, first))
        y = jax.nn.relu(_convolved(y, second, stride))
        shortcut = _convolved(x, block["shortcut"], stride) if "shortcut" in block else x
        x = jax.nn.relu(_convolved(y, third) + shortcut)
    return x.mean((1, 2)) @ weights["head"]
