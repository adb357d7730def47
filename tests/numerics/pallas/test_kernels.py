"""Pallas kernels, compiled by libtpu, against JAX's interpret mode: ``make_kernels`` writes both.

Without a rounded product or a function of the transcendental unit results are equal bit by bit.
"""

from __future__ import annotations

import numpy as np
import pytest

import tpusim
from tests.numerics.pallas.inputs import FOLDER, read_kernel, sampled

pytest.importorskip("jaxlib")

NAMES = sorted(path.name.partition(".")[0] for path in FOLDER.glob("*.hlo.txt.gz"))

# Two libraries differ in the last bits of functions, and in the order of sums.
FUNCTIONS = "erf_gelu exp_log if_2 log1p_expm1 matmul_highest power roots sine_cosine softmax tan_atan2 tanh_logistic"
# f32 operands of a product are rounded to bf16 here, as the matrix unit does, and not there; results may be bf16, too.
PRODUCTS = (
    "flash flash_causal flash_f32 flash_gradients flash_segments matmul_f32 paged_grid paged_inline ragged_paged"
    " splash_causal splash_fused_gradients splash_gradients splash_grouped splash_local"
)
TOLERANCES = dict.fromkeys(FUNCTIONS.split(), 2e-6) | dict.fromkeys(PRODUCTS.split(), 2**-7)
"""How far a result may be from the interpreter's, as a part of the largest element; others must be equal."""


def results(name, **options):
    """Return what a kernel computes, sampled, beside what was stored: both as f64, in pairs."""
    module, inputs, expected = read_kernel(name)
    found = tpusim.execute(module, inputs, **options)
    arrays = [sampled(each) for each in (found if isinstance(found, tuple) else (found,))]
    pairs = zip(arrays, expected, strict=True)
    return [(one.astype(np.float64), other.astype(one.dtype).astype(np.float64)) for one, other in pairs]


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_computes_what_the_interpreter_does(name):
    """Every element, and NaN where memory is not defined."""
    for values, wanted in results(name):
        largest = np.max(np.abs(wanted), where=np.isfinite(wanted), initial=0)
        np.testing.assert_allclose(values, wanted, rtol=0, atol=TOLERANCES.get(name, 0) * largest)


@pytest.mark.parametrize("name", ["flash_f32", "matmul_f32", "paged_grid", "splash_fused_gradients"])
def test_exact_products_are_the_interpreters(name):
    """Without the rounding to bf16 only the order of sums is left, but for gradients that are stored as bf16."""
    for values, wanted in results(name, precision="exact"):
        tolerance = 2e-4 if "gradients" in name else 1e-6
        np.testing.assert_allclose(values, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())
