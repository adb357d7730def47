"""Makes the Pallas kernels that the tests of values compute, and what JAX's interpreter makes of them.

``python -m tests.numerics.pallas.make_kernels [NAME ...]`` compiles each kernel ahead of time with libtpu, runs it in
JAX's interpret mode for TPUs on the CPU, and writes ``NAME.hlo.txt.gz`` and ``NAME.npz``. The tests need neither.
"""

from __future__ import annotations

import gzip
import os
import re
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from jax._src.pallas.mosaic import tpu_info
from jax.experimental.pallas import tpu as pltpu

from tests.numerics.pallas import library_kernels as library
from tests.numerics.pallas import small_kernels as small
from tests.numerics.pallas.inputs import FOLDER, narrowest, sampled, stored_input
from tpusim.jax import compile_for

# Pipelines inside kernels ask for the chip, which is not there.
tpu_info.get_device_kind = lambda: "TPU v6 lite"
tpu_info.get_num_device_cores = lambda: 1

# Bodies name the files that they come from, but not where these lie.
jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")


def expected(name, function, inputs):
    """Return what JAX's interpreter for TPUs gives, or what the library says that a kernel must equal."""
    if name in library.ORACLES:
        return jax.tree.leaves(library.ORACLES[name](*inputs))
    # What was traced for the compiler would be taken again.
    jax.clear_caches()
    with pltpu.force_tpu_interpret_mode(pltpu.InterpretParams()):
        return jax.tree.leaves(jax.jit(function)(*inputs))


def write(name, function, inputs, chip):
    """Write a kernel's program, and its inputs and results."""
    shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in inputs]
    text = bare(compile_for(jax.jit(function), *shapes, topology=chip).text)
    (FOLDER / f"{name}.hlo.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    arrays = {f"in{at}": stored_input(value, at) for at, value in enumerate(inputs)}
    results = expected(name, function, inputs)
    arrays |= {f"out{at}": narrowest(sampled(np.asarray(value))) for at, value in enumerate(results)}
    np.savez_compressed(FOLDER / f"{name}.npz", **arrays)


def bare(text):
    """Return a program without what only says where it comes from."""
    text = re.sub(r"\n(FileNames|FunctionNames|FileLocations|StackFrames)\n(.+\n)*", "", text)
    return re.sub(r", (metadata|frontend_attributes|sharding)={.*?}(?=, \w+=|$)", "", text, flags=re.MULTILINE)


def main() -> None:
    """Write the kernels that are named, or all."""
    FOLDER.mkdir(exist_ok=True)
    for chip, kernels in (("v6e", small.KERNELS), ("v5e", library.KERNELS)):
        for name in kernels.keys() & set(sys.argv[1:] or kernels):
            write(name, *kernels[name], chip)


if __name__ == "__main__":
    main()
