"""Paces of the host as text."""

from __future__ import annotations

from itertools import islice
from statistics import fmean

import pytest

from tpusim.errors import ConfigError
from tpusim.program.feed import Feed, intervals_ps, parse_feed


@pytest.mark.parametrize(
    ("text", "feed"),
    [
        ("50us", Feed("constant", 50e-6)),
        ("constant:1.5ms", Feed("constant", 1.5e-3)),
        ("normal:50us:5us:7", Feed("normal", 50e-6, 5e-6, 7)),
        ("exponential:50us:7", Feed("exponential", 50e-6, 0.0, 7)),
    ],
)
def test_paces_are_read(text, feed):
    """Kind, mean, deviation, seed."""
    assert parse_feed(text) == feed


def test_a_file_gives_its_times(tmp_path):
    """In microseconds, one per line; then the host has no more."""
    path = tmp_path / "times.txt"
    path.write_text("10\n2.5\n")
    assert list(intervals_ps(parse_feed(str(path)))) == [10_000_000, 2_500_000]


@pytest.mark.parametrize("text", ["", "fast", "normal:fast", "constant:5us:3us", "exponential:5us:1us", "no/such/file"])
def test_other_paces_are_refused(text):
    """The error shows how a pace is written."""
    with pytest.raises(ConfigError, match="expected"):
        parse_feed(text)


@pytest.mark.parametrize("number", ["1_0", "\u0661\u0660", "0x10", "nan", "inf", "1e"])
def test_times_are_written_as_people_write_them(tmp_path, number):
    """In a file and by themselves; Python would take digits of other scripts, and underscores between them."""
    path = tmp_path / "times.txt"
    path.write_text(f"5\n{number}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=f"expected one time per line in microseconds, found '{number}'"):
        parse_feed(str(path))
    for text in (f"{number}us", f"normal:5us:1us:{number}"):
        with pytest.raises(ConfigError, match="expected"):
            parse_feed(text)


def test_a_queue_without_room_is_refused():
    """Nothing could ever pass through it."""
    with pytest.raises(ConfigError, match="at least 1"):
        parse_feed("5us", 0)


@pytest.mark.parametrize("kind", ["normal", "exponential"])
def test_draws_have_their_mean(kind):
    """Of a thousand, within a tenth."""
    draws = list(islice(intervals_ps(Feed(kind, 50e-6, 5e-6, 3)), 1000))
    assert fmean(draws) == pytest.approx(50e6, rel=0.1)


def test_devices_have_draws_of_their_own():
    """Hosts do not falter all at once."""
    feed = Feed("normal", 50e-6, 5e-6, 3)
    assert next(intervals_ps(feed, 0)) != next(intervals_ps(feed, 1))
