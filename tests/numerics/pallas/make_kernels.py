"""Makes the Pallas kernels that the tests of values compute, and what JAX's interpreter makes of them.

``python -m tests.numerics.pallas.make_kernels [NAME ...]`` compiles each kernel ahead of time with libtpu, runs it in
JAX's interpret mode for TPUs on the CPU, and writes ``NAME.hlo.txt.gz`` and ``NAME.npz``. The tests need neither.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from jax._src.pallas.mosaic import tpu_info
from jax.experimental.pallas import tpu as pltpu

from tests.numerics.pallas.small_kernels import KERNELS
from tpusim.jax import compile_for

# Pipelines inside kernels ask for the chip, which is not there.
tpu_info.get_device_kind = lambda: "TPU v6 lite"
tpu_info.get_num_device_cores = lambda: 1

# Bodies name the files that they come from, but not where these lie.
jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")

FOLDER = Path(__file__).parents[2] / "data" / "pallas_values"


def interpreted(function, inputs):
    """Return what JAX's interpreter for TPUs gives: memory that nothing has written is NaN."""
    # What was traced for the compiler would be taken again.
    jax.clear_caches()
    with pltpu.force_tpu_interpret_mode(pltpu.InterpretParams()):
        return jax.tree.leaves(jax.jit(function)(*inputs))


def write(name, function, inputs, chip="v6e"):
    """Write a kernel's program, and its inputs and results."""
    shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in inputs]
    text = bare(compile_for(jax.jit(function), *shapes, topology=chip).text)
    (FOLDER / f"{name}.hlo.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    arrays = {f"in{at}": value for at, value in enumerate(inputs)}
    arrays |= {f"out{at}": value for at, value in enumerate(interpreted(function, inputs))}
    np.savez_compressed(FOLDER / f"{name}.npz", **{key: narrowest(value) for key, value in arrays.items()})


def bare(text):
    """Return a program without what only says where it comes from."""
    text = re.sub(r"\n(FileNames|FunctionNames|FileLocations|StackFrames)\n(.+\n)*", "", text)
    return re.sub(r", (metadata|frontend_attributes|sharding)={.*?}(?=, \w+=|$)", "", text, flags=re.MULTILINE)


def narrowest(value):
    """Return an array in the narrowest of NumPy's own types that holds it: files have those, and are small."""
    array = np.asarray(value)
    wide = array if array.dtype.isbuiltin == 1 else array.astype(np.float32)
    for dtype in (np.int8, np.int16, np.float16):
        with np.errstate(all="ignore"):
            narrow = wide.astype(dtype)
        if np.array_equal(narrow.astype(wide.dtype), wide, equal_nan=wide.dtype.kind == "f"):
            return narrow
    return wide


def main() -> None:
    """Write the kernels that are named, or all."""
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or KERNELS:
        write(name, *KERNELS[name])


if __name__ == "__main__":
    main()
