"""Restating one quantity of a chip file leaves all else as it was."""

from __future__ import annotations

import tomllib

import pytest

from tpusim.hardware.fields import Fact

pytest.importorskip("tomlkit")

from tpusim.hardware.edit import restate

TEXT = '''# A chip.
clock_hz = { value = 1e9, confidence = "published", source = "a" }

[hbm]
# Fast.
efficiency = { value = 0.8, confidence = "fitted", source = "b", note = """
  Over two lines \\
  of text.""" }
granule_bytes = { value = 32, confidence = "published", source = "c" }

[dma]
efficiency = { value = 0.5, confidence = "published", source = "d" }
'''


def fact(key):
    """Return a fitted quantity."""
    return Fact(key, 0.9, "", "fitted", "somebody", "On many rows of a long list of things that were measured. " * 3)


@pytest.mark.parametrize("key", ["hbm.efficiency", "hbm.write_efficiency", "new.efficiency", "dma.efficiency"])
def test_only_the_one_quantity_changes(key):
    """Whether it was there, its section was there, or neither."""
    section, name = key.split(".")
    before, after = tomllib.loads(TEXT), tomllib.loads(restate(TEXT, fact(key)))
    assert after[section].pop(name)["value"] == 0.9
    before.setdefault(section, {}).pop(name, None)
    assert after == before


def test_comments_stay():
    """What the author wrote between the quantities is still there."""
    assert "# Fast." in restate(TEXT, fact("hbm.efficiency"))


def test_lines_are_not_longer_than_the_files_are_wide():
    """A long note is broken into lines that TOML joins again."""
    text = restate(TEXT, fact("hbm.efficiency"))
    assert max(len(line) for line in text.splitlines()) <= 120
    assert "  " not in tomllib.loads(text)["hbm"]["efficiency"]["note"].strip()


def test_a_bare_number_is_replaced():
    """A user's own file may state a quantity without a source."""
    text = restate("[hbm]\nefficiency = 0.5  # mine\ngranule_bytes = 32\n", fact("hbm.efficiency"))
    assert tomllib.loads(text)["hbm"]["efficiency"]["value"] == 0.9
    assert tomllib.loads(text)["hbm"]["granule_bytes"] == 32


@pytest.mark.parametrize(
    "text", ['a"b', 'x", confidence = "published', "two\nlines", "\x1b[0m", "a\\b", "\\", 'a"""b', "\x7f"]
)
def test_texts_from_outside_stay_texts(text):
    """Whatever TOML means by what stands in them."""
    stated = Fact("hbm.efficiency", 0.9, "", "fitted", text, f"On rows of {text}.")
    found = tomllib.loads(restate(TEXT, stated))["hbm"]["efficiency"]
    assert (found["source"], found["confidence"]) == (text, "fitted")
    assert found["note"].split() == f"On rows of {text}.".split()
