"""Indexes of published power: what they say of programs, and what they may not be."""

from __future__ import annotations

import shutil

import pytest

from tests.house.source_tree import ROOT
from tpusim.errors import ConfigError
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import simulate
from tpusim.validation.power import validate_power

SHIPPED = ROOT / "traces/power/index.csv"
MLP = ROOT / "traces/mlp_b1024.v5e.hlo.txt.gz"


@pytest.fixture
def index(tmp_path):
    """Give a function that writes an index of some rows beside a program, and returns its path."""
    shutil.copy(MLP, tmp_path / "mlp.v5e.hlo.txt.gz")
    path = tmp_path / "index.csv"

    def write(*rows: str):
        path.write_text("\n".join(("chip,mean_w,programs,least_w,most_w,of,source", *rows)) + "\n")
        return path

    return write


def test_power_is_that_of_a_chip_of_such_devices(index):
    """The least, the mean and the most of one program are its own; two devices of v4 are one chip."""
    rows = ("v5e,66,mlp.v5e.hlo.txt.gz,,,fleet,a paper", "v4,170,mlp.v5e.hlo.txt.gz mlp.v5e.hlo.txt.gz,121,192,,")
    first, second = validate_power([index(*rows)])
    watts = simulate(MLP).energy.average_power_w
    assert (first.our_least_w, first.our_mean_w, first.our_most_w) == (watts, watts, watts)
    assert first.ratio == pytest.approx(watts / 66)
    assert (first.least_w, first.most_w, first.idle_w) == (None, None, load_chip("v5e").power.idle_watts)
    core = simulate(MLP, "v4", allow_overflow=True)
    assert second.our_mean_w == pytest.approx(2 * core.energy.average_power_w)


def test_only_the_chip_that_is_named_is_run(index):
    """By any of its names; progress counts chips."""
    done = []
    path = index("v5e,66,mlp.v5e.hlo.txt.gz,,,,", "v6e,153,none.hlo,,,,")
    (found,) = validate_power([path], "TPU v5e", lambda *counts: done.append(counts))
    assert (found.chip, done) == ("v5e", [(1, 1)])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("v9,66,mlp.v5e.hlo.txt.gz,,,,", r":2: unknown chip 'v9'"),
        ("v5e,66,none.hlo,,,,", r":2: .*none\.hlo"),
        ("v5e,-1,mlp.v5e.hlo.txt.gz,,,,", "mean_w: expected a number from 1e-9 to 1e15, found '-1'"),
        ("v6e,66,mlp.v5e.hlo.txt.gz,,,,", "expected the published power of v5e, found none in 1 rows"),
    ],
)
def test_rows_that_cannot_be_run_are_refused(index, row, words):
    """By file and line."""
    with pytest.raises(ConfigError, match=words):
        validate_power([index(row)], None if "v5e" in row[:3] or "v9" in row else "v5e")


@pytest.mark.slow
def test_chips_draw_about_what_was_published():
    """Nothing is fitted to it. v4, whose idle power is published, is near; the others within a half."""
    found = {one.chip: one for one in validate_power([SHIPPED])}
    v4 = found["v4"]
    assert v4.least_w <= v4.our_least_w
    assert v4.our_most_w <= v4.most_w
    assert v4.ratio == pytest.approx(1, abs=0.15)
    assert all(0.6 < one.ratio < 1.5 for one in found.values())
