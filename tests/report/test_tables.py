"""Quantities beside each other, and lists that are cut."""

from __future__ import annotations

import pytest

from tpusim.report.tables import changed_text, size_text, some_text, times_text, whole_text


@pytest.mark.parametrize(
    ("times_us", "texts"),
    [
        ((1330, 680), ["1.330 ms", "0.680 ms"]),
        ((5, 36), ["5.00 us", "36.00 us"]),
        ((2_000_000, 900_000), ["2.000 s", "0.900 s"]),
        # In one unit a hundredth and less would have no digits left.
        ((1330, 2), ["1.33 ms", "2.00 us"]),
        ((1330, 0), ["1.330 ms", "0.000 ms"]),
    ],
)
def test_times_that_are_compared_have_one_unit(times_us, texts):
    """That of the longest."""
    assert times_text(*(us * 10**6 for us in times_us)) == texts


def test_a_list_that_is_cut_says_so():
    """With how many are left out."""
    assert some_text(["a", "b"], 2) == "a, b"
    assert some_text(["a", "b", "c", "d"], 2) == "a, b, and 2 more"


def test_figures_are_written_as_an_option_sets_them():
    """None is no text."""
    assert changed_text({"clock_hz": 2e9, "mxu.count": 8}) == " with clock_hz=2e+09, mxu.count=8"
    assert changed_text({}) == ""


def test_a_time_of_ages_leaves_room_for_others():
    """Nobody reads fifty digits of it."""
    assert times_text(10**60, 1) == ["1.000e+48 s", "0.00 us"]
    assert size_text(1e40) == "9.313e+30 GiB"
    assert (whole_text(123_456_789), whole_text(10**60)) == ("123,456,789", "1.000e+60")
