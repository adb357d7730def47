"""Collectives against published measurements."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tpusim.analysis.accuracy import mean_error
from tpusim.cli import main
from tpusim.errors import ConfigError
from tpusim.hardware.load import load_chip, override_chip
from tpusim.validation_collectives import cross_validate, predict_collectives

INDEX = Path(__file__).parents[2] / "traces" / "collectives" / "index.csv"


def test_the_mean_error_is_below_a_fifth():
    """Of all 26 rows; efficiency and launch of three chips are fitted to them, two parameters each."""
    outcomes = predict_collectives(INDEX, load_chip)
    errors = [abs(o.predicted_us / o.measured_us - 1) for o in outcomes]
    assert len(errors) == 26
    assert sum(errors) / len(errors) < 0.10


def test_rows_say_where_they_are_from():
    """Every line of the index has a source."""
    assert all(len(line.split("@")) > 1 for line in INDEX.read_text().splitlines()[1:])


def test_the_command_shows_families(capsys):
    """With --json every row is there, and only those of the chip asked for."""
    assert main(["validate", "--collectives", "--json", "--chip", "v5p", str(INDEX)]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["chip"] for row in rows] == ["v5p", "v5p"]


@pytest.mark.parametrize("text", ["", "topology,kind\nv5e:2x2,all-gather\n"])
def test_other_files_are_refused(tmp_path, text):
    """The error names the columns."""
    path = tmp_path / "index.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match="expected columns topology, kind"):
        predict_collectives(path, load_chip)


def test_a_row_without_numbers_is_refused(tmp_path):
    """File and line."""
    path = tmp_path / "index.csv"
    path.write_text("topology,kind,payload_bytes,groups,measured_us\nv5e:2x2,all-gather,many,,3\n")
    with pytest.raises(ConfigError, match=r"index.csv:2: expected numbers"):
        predict_collectives(path, load_chip)


def test_rows_and_sources_are_held_out():
    """No row draws its own prediction; without its source a chip has the usual figures."""
    by_row, by_source = cross_validate(INDEX, load_chip)
    known = predict_collectives(INDEX, load_chip)
    assert [o.measured_us for o in by_row] == [o.measured_us for o in by_source] == [o.measured_us for o in known]
    permute = next(o for o in by_source if o.chip == "v5p" and o.measured_us > 100)
    # 64 MiB at 90 GB/s of 100, a hop of 1 us, and the mean launch of v2 and v7x, of some microseconds.
    assert permute.predicted_us == pytest.approx(2**26 / 90e3 + 1 + 8, abs=5)
    assert mean_error(known) < mean_error(by_row) < 0.10 < mean_error(by_source)


def test_a_fit_finds_the_line_that_rows_lie_on(tmp_path):
    """Times made of a launch of 5 us and links at half their rate are predicted exactly when held out."""
    chip = override_chip(load_chip("v5e"), {"ici.launch_seconds": 5e-6, "ici.efficiency": 0.5})
    sizes = (10**5, 10**6, 10**7)
    lines = [f'v5e:4x4,all-gather,{size},"{{{{{",".join(map(str, range(16)))}}}}}"' for size in sizes]
    path = tmp_path / "index.csv"
    head = "topology,kind,payload_bytes,groups,measured_us\n"
    path.write_text(head + "".join(f"{line},1\n" for line in lines))
    times = [outcome.predicted_us for outcome in predict_collectives(path, lambda _: chip)]
    path.write_text(head + "".join(f"{line},{time}\n" for line, time in zip(lines, times, strict=True)))
    assert [o.predicted_us for o in cross_validate(path, load_chip)[0]] == pytest.approx(times, rel=1e-4)
