"""Inputs of kernels, and what of them and of results is stored: random numbers are made anew, large results sampled."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tpusim
from tpusim.shapes.dtype import numpy_dtype

FOLDER = Path(__file__).parents[2] / "data" / "pallas_values"

_MOST_STORED = 1024


def eighths(*sizes, seed=0, dtype=np.float32, bound=33):
    """Return random multiples of 1/8, less than ``bound`` of them either way."""
    numbers = np.random.default_rng([seed, *sizes]).integers(1 - bound, bound, sizes)
    return (numbers / 8).astype(dtype)


def integers(*sizes, seed=0, low=-100, high=100, dtype=np.int32):
    """Return random integers."""
    return np.random.default_rng([seed, *sizes]).integers(low, high, sizes).astype(dtype)


def stored_input(array, position):
    """Return what is stored of an input: nothing but the bound where ``eighths`` makes it of its position."""
    for bound in (9, 33):
        if np.array_equal(array, eighths(*array.shape, seed=position, dtype=array.dtype, bound=bound)):
            return np.int8(bound)
    return narrowest(array)


def sampled(array):
    """Return a result, or some elements of a large one."""
    return array if array.size <= _MOST_STORED else array.reshape(-1)[:: array.size // _MOST_STORED | 1]


def narrowest(array):
    """Return an array in the narrowest of NumPy's own types that holds it: files have those, and are small."""
    wide = array if array.dtype.isbuiltin == 1 else array.astype(np.float32)
    for dtype in (np.int8, np.int16, np.float16):
        with np.errstate(all="ignore"):
            narrow = wide.astype(dtype)
        if np.array_equal(narrow.astype(wide.dtype), wide, equal_nan=wide.dtype.kind == "f"):
            return narrow
    return wide


def read_kernel(name):
    """Return a kernel's module, its inputs, and what the interpreter made of them, sampled."""
    with np.load(FOLDER / f"{name}.npz") as file:
        data = dict(file)
    module = tpusim.load(FOLDER / f"{name}.hlo.txt.gz")
    shapes = [parameter.shape for parameter in module.entry.parameters]
    inputs = [_input(data[f"in{at}"], shape, at) for at, shape in enumerate(shapes)]
    return module, inputs, [data[f"out{at}"] for at in range(len(data) - len(inputs))]


def _input(stored, shape, position):
    dtype = numpy_dtype(shape.dtype)
    if stored.shape == shape.dimensions:
        return stored.astype(dtype)
    return eighths(*shape.dimensions, seed=position, dtype=dtype, bound=int(stored))
