"""Pallas kernels, compiled by libtpu, against JAX's interpret mode: ``make_kernels`` writes both.

Without a product or a function of the transcendental unit results are equal bit by bit. Functions differ by the last
bits of two libraries on the CPU; f32 operands of a product are rounded to bf16 here, as the matrix unit does, and not
there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tpusim
from tpusim.shapes.dtype import numpy_dtype

pytest.importorskip("jaxlib")

FOLDER = Path(__file__).parents[2] / "data" / "pallas_values"
NAMES = sorted(path.name.partition(".")[0] for path in FOLDER.glob("*.hlo.txt.gz"))

FUNCTIONS = dict.fromkeys(
    "erf_gelu exp_log if_2 log1p_expm1 power roots sine_cosine softmax tan_atan2 tanh_logistic".split(), 1e-6
)
# Eight bits of mantissa: products of two operands of 1 % more than eighths, 64 of them added up.
TOLERANCES = FUNCTIONS | {"matmul_f32": 2**-8, "matmul_highest": 1e-6}
"""How far a result may be from the interpreter's, as a part of the largest element; others must be equal."""


def stored(name):
    """Return a kernel's module, and what was stored for it: inputs and results."""
    data = np.load(FOLDER / f"{name}.npz")
    module = tpusim.load(FOLDER / f"{name}.hlo.txt.gz")
    types = [numpy_dtype(parameter.shape.dtype) for parameter in module.entry.parameters]
    inputs = [data[f"in{number}"].astype(dtype) for number, dtype in enumerate(types)]
    return module, inputs, [data[key] for key in data.files if key.startswith("out")]


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_computes_what_the_interpreter_does(name):
    """Every element, and NaN where memory is not defined."""
    module, inputs, expected = stored(name)
    found = tpusim.execute(module, inputs)
    for one, other in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        values, wanted = one.astype(np.float64), other.astype(np.float64)
        if name in TOLERANCES:
            limit = TOLERANCES[name] * np.nanmax(np.abs(wanted))
            np.testing.assert_allclose(values, wanted, rtol=0, atol=limit)
        else:
            np.testing.assert_array_equal(values, wanted)
