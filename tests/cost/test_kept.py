"""What is kept of what was computed: what was asked for last, as far as it fits."""

from __future__ import annotations

from tpusim.cost.kept import Kept


def kept(*keys: str, most_bytes: int = 10) -> Kept[str, str]:
    """Return what is kept after values of four bytes were put in, one after the other."""
    found = Kept[str, str](most_bytes)
    for key in keys:
        found.put(key, key.upper(), 4)
    return found


def test_what_fits_stays():
    """Two values of four bytes in ten."""
    found = kept("a", "b")
    assert [found.get(key) for key in "ab"] == ["A", "B"]


def test_what_was_asked_for_longest_ago_goes_first():
    """``a`` was put in first and asked for last."""
    found = kept("a", "b")
    found.get("a")
    found.put("c", "C", 4)
    assert [found.get(key) for key in "abc"] == ["A", None, "C"]


def test_the_newest_stays_however_large_it_is():
    """A run needs it, and the next one takes its place."""
    found = kept("a", "b", most_bytes=1)
    assert (len(found), found.get("b")) == (1, "B")


def test_what_was_let_go_of_counts_no_longer():
    """As much fits as at first."""
    found = kept("a", "b")
    found.clear()
    found.put("c", "C", 4)
    found.put("d", "D", 4)
    assert [found.get(key) for key in "abcd"] == [None, None, "C", "D"]
