"""Small products and arrays for Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from tpusim.hardware.array import DATAFLOWS, MODES, Array
from tpusim.program.layers import Layer

SIDES = st.integers(1, 6)
SIZES = st.integers(1, 20)
LAYERS = st.builds(Layer, name=st.just(""), m=SIZES, n=SIZES, k=SIZES)
SPARSITIES = st.integers(1, 8).flatmap(lambda of: st.tuples(st.integers(1, of), st.just(of)))
SPARSE_LAYERS = st.builds(Layer, name=st.just(""), m=SIZES, n=SIZES, k=SIZES, kept=SPARSITIES)
ARRAYS = st.builds(
    Array,
    rows=SIDES,
    columns=SIDES,
    dataflow=st.sampled_from(DATAFLOWS),
    mode=st.sampled_from(MODES),
)
WIDER_ARRAYS = st.builds(
    Array,
    rows=SIDES,
    columns=SIDES,
    dataflow=st.sampled_from(DATAFLOWS),
    mode=st.sampled_from(MODES),
    rows_per_cycle=st.integers(1, 3),
    count=st.integers(1, 4),
    passes=st.integers(1, 3),
)


def layer(m: int, n: int, k: int) -> Layer:
    """Return a product without a name."""
    return Layer(name="", m=m, n=n, k=k)
