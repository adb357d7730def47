"""Errors of predictions: by hand, and the rank correlation against SciPy's where it is installed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpusim.analysis.accuracy import accuracy, kendall_tau


def naive_tau(first, second):
    """Count concordant and discordant pairs and the ties of each side, from the definition of tau-b."""
    pairs = [
        (a - c, b - d)
        for i, (a, b) in enumerate(zip(first, second, strict=True))
        for c, d in list(zip(first, second, strict=True))[:i]
    ]
    concordant = sum(x * y > 0 for x, y in pairs)
    discordant = sum(x * y < 0 for x, y in pairs)
    untied = [sum(pair[side] != 0 for pair in pairs) for side in (0, 1)]
    return (concordant - discordant) / (untied[0] * untied[1]) ** 0.5 if all(untied) else 0.0


def test_errors_are_shares_of_what_was_measured():
    """Twice as long and half as long: a mean error of 75 %, a bias of 25 %."""
    found = accuracy([20.0, 5.0], [10.0, 10.0])
    assert (found.count, found.mape, found.bias) == (2, 0.75, 0.25)


def test_nine_in_ten_are_below_the_ninth_decile():
    """Of ten errors of 1 to 10 % the largest is the only one not below it."""
    assert accuracy([100 + n for n in range(1, 11)], [100.0] * 10).p90 == pytest.approx(0.10)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=12))
def test_tau_follows_its_definition(pairs):
    """Ties on either side included."""
    first, second = zip(*pairs, strict=True)
    assert kendall_tau(first, second) == pytest.approx(naive_tau(first, second))


@pytest.mark.parametrize(("second", "tau"), [([1, 2, 3, 4], 1.0), ([4, 3, 2, 1], -1.0), ([5, 5, 5, 5], 0.0)])
def test_tau_of_the_same_reverse_and_no_order(second, tau):
    """One, minus one and nothing."""
    assert kendall_tau([1, 2, 3, 4], second) == tau
