"""The steadiest traffic in which every op moves its bytes in its time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpusim.analysis.traffic import steady_rates


def test_ops_one_after_the_other_have_their_own_rates():
    """Bytes over time, and none where nothing moves."""
    assert steady_rates([(0, 10, 20), (10, 20, 5), (30, 40, 10)]) == [(0, 2), (10, 0.5), (20, 0), (30, 1), (40, 0)]


def test_a_copy_makes_way_for_a_kernel():
    """Of ten bytes in ten picoseconds beside a kernel that takes all of the memory in the last five."""
    assert steady_rates([(0, 10, 5), (5, 10, 5)]) == [(0, 1), (10, 0)]


def test_a_kernel_that_ends_early_is_served_first():
    """What is due at five has moved by then; the rest is steady."""
    assert steady_rates([(0, 5, 10), (0, 10, 2)]) == [(0, 2), (5, 0.4), (10, 0)]


def test_nothing_moved_is_no_traffic():
    """Nor is what takes no time."""
    assert steady_rates([(0, 5, 0), (5, 5, 3)]) == []


SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20), st.integers(0, 100)), min_size=1, max_size=12)


@given(SPANS)
def test_bounds_hold_at_all_times(spans):
    """By every op's end as much as is due, by every start no more than has begun; no rate is below 0."""
    moved = [(start, start + length, n_bytes) for start, length, n_bytes in spans]
    rates = steady_rates(moved)
    level = 0.0
    assert all(rate >= -1e-9 for _, rate in rates)
    for (at, rate), (after, _) in pairwise(rates):
        level += rate * (after - at)
        assert level >= sum(n for _, end, n in moved if end <= after) - 1e-6
        assert level <= sum(n for start, _, n in moved if start < after) + 1e-6
    assert level == pytest.approx(sum(n_bytes for _, _, n_bytes in moved))


@given(SPANS)
def test_the_highest_rate_is_the_least_possible(spans):
    """Any stretch from a start to an end has to carry what lies in it, and one of them as fast as the fastest rate."""
    moved = [(start, start + length, n_bytes) for start, length, n_bytes in spans if n_bytes]
    fastest = max((rate for _, rate in steady_rates(moved)), default=0)
    starts, ends = {start for start, _, _ in moved}, {end for _, end, _ in moved}
    due = [
        (sum(n for _, end, n in moved if end <= b) - sum(n for start, _, n in moved if start < a)) / (b - a)
        for a in starts
        for b in ends
        if a < b
    ]
    assert fastest == pytest.approx(max(due, default=0))
