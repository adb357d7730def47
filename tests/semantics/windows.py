"""Windows of every kind, and what they meet by the definition: the twin of ``semantics.windows``."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from tpusim.ir.attributes import WindowDimension

WINDOWS = st.builds(
    WindowDimension,
    size=st.integers(1, 5),
    stride=st.integers(1, 3),
    pad_low=st.integers(-2, 5),
    pad_high=st.integers(-2, 5),
    lhs_dilate=st.integers(1, 4),
    rhs_dilate=st.integers(1, 3),
    reversal=st.booleans(),
)
BATCHES = st.integers(1, 5).map(lambda n: (n, WindowDimension(n, stride=max(1, n - 1), lhs_dilate=n)))
OUTER = st.integers(1, 5).map(lambda n: (1, WindowDimension(n, pad_low=n - 1, pad_high=n - 1, reversal=True)))
DEPTHS = st.integers(2, 6).map(lambda n: (n, WindowDimension(n)))
ROWS = st.integers(2, 6).map(lambda n: (n, WindowDimension(1)))
DIMENSIONS = st.one_of(st.tuples(st.integers(1, 7), WINDOWS), BATCHES, OUTER)


def naive_meetings(window, input_size, size):
    """Return every (output, kernel position, input) that meet, one by one, from the definition."""
    places = product(range(size), range(window.size))
    at = ((o, k, o * window.stride - window.pad_low + k * window.rhs_dilate) for o, k in places)
    return {
        (o, k, p // window.lhs_dilate)
        for o, k, p in at
        if p % window.lhs_dilate == 0 and 0 <= p // window.lhs_dilate < input_size
    }
