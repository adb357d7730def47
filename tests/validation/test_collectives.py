"""Collectives against published measurements."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tpusim.analysis.accuracy import mean_error
from tpusim.cli.main import main
from tpusim.errors import ConfigError
from tpusim.hardware.load import load_chip, override_chip
from tpusim.validation.collectives import cross_validate, predict_collectives

INDEX = Path(__file__).parents[2] / "traces" / "collectives" / "index.csv"


def test_the_mean_error_is_small():
    """Of all 28 rows; efficiency and launch of three chips are fitted to 26 of them, two parameters each."""
    outcomes = predict_collectives(INDEX, load_chip)
    assert len(outcomes) == 28
    assert mean_error(outcomes) < 0.06


def test_all_reduces_are_predicted_by_what_gathers_tell():
    """No figure was fitted to them; the form of the model was chosen with them in sight."""
    errors = [
        abs(o.predicted_us / o.measured_us - 1)
        for o in predict_collectives(INDEX, load_chip)
        if "all-reduce" in o.program
    ]
    assert len(errors) == 2
    assert max(errors) < 0.12


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


HEAD = "topology,kind,payload_bytes,groups,measured_us\n"
NO_ROWS = [
    ("v5e:2x2,all-gather,many,,3", "payload_bytes: expected a number from 1e-9 to 1e15, found 'many'"),
    ("v5e:2x2,all-gather,-5,,3", "payload_bytes: expected a number from 1e-9 to 1e15, found '-5'"),
    ("v5e:2x2,all-gather,nan,,3", "payload_bytes: expected a number from 1e-9 to 1e15, found 'nan'"),
    ("v5e:2x2,all-gather,inf,,3", "payload_bytes: expected a number from 1e-9 to 1e15, found 'inf'"),
    ("v5e:2x2,all-gather,1e6,,0", "measured_us: expected a number from 1e-9 to 1e15, found '0'"),
    ("v5e:2x2,all-gather,1e6,,-10", "measured_us: expected a number from 1e-9 to 1e15, found '-10'"),
    ("v5e:2x2,allreduce,1e6,,3", "kind: expected one of all-gather, .* found 'allreduce' .did you mean 'all-reduce'"),
    ('v5e:2x2,all-gather,1e6,"{{0,99}}",3', "groups: expected groups of one size .* below 4, each once, found"),
    ('v5e:2x2,all-gather,1e6,"{{0,1},{1,2}}",3', "groups: expected groups of one size"),
    ('v5e:2x2,all-gather,1e6,"{{0,1},{2}}",3', "groups: expected groups of one size"),
    ('v5e:2x2,all-gather,1e6,"{{0,-1}}",3', "groups: expected groups of one size"),
    ("v5e:2x2,all-gather,1e6,garbage,3", r"groups: expected groups such as .* or \[2,2\]<=\[4\], found 'garbage'"),
    ('v5e:2x2,all-gather,1e6,"{{0,1}} or so",3', "groups: expected groups such as"),
    ('v5e:2x2,collective-permute,1e6,"{{0,1}}",3', "groups: expected nothing for a permute"),
    ("v5e:2x2,all-gather", "payload_bytes: expected a cell for each column, found none"),
    ("v5e:2x2,all-gather,1e6,{{0,1}},3", "expected a cell for each column .lists need quotes."),
    ("v9:2x2,all-gather,1e6,,3", "unknown chip 'v9'"),
    ("2x2,all-gather,1e6,,3", "topology: expected a slice with its chip, as in v5e:2x4, found '2x2'"),
    ("v5e:2x2x2,all-gather,1e6,,3", "topology: v5e has links along 2 axes"),
]


@pytest.mark.parametrize(("row", "words"), NO_ROWS)
def test_a_row_that_is_none_is_refused(tmp_path, row, words):
    """By file, line and column: the second row, on line 3."""
    path = tmp_path / "index.csv"
    path.write_text(f"{HEAD}v5e:2x2,all-gather,1e6,,3\n{row}\n")
    with pytest.raises(ConfigError, match=rf"index.csv:3: {words}"):
        predict_collectives(path, load_chip)
    with pytest.raises(ConfigError, match=rf"index.csv:3: {words}"):
        cross_validate(path, load_chip)


def test_names_of_columns_are_no_rows(tmp_path):
    """The columns are all there, so that the error must not miss them."""
    path = tmp_path / "index.csv"
    path.write_text(HEAD)
    with pytest.raises(ConfigError, match=r"index\.csv: expected rows of measured times, found only the names"):
        predict_collectives(path, load_chip)


def test_a_chip_without_rows_is_refused(capsys):
    """Not answered with empty tables."""
    assert main(["validate", "--collectives", "--chip", "v5e", str(INDEX)]) == 1
    assert "expected measured rows of v5e, found none" in capsys.readouterr().err


@pytest.mark.parametrize("groups", ["{{0,1},{2,3},{4,5},{6,7}}", "[4,2]<=[8]"])
def test_groups_are_read_as_in_hlo(tmp_path, groups):
    """Pairs of neighbours, listed and as an iota: 1 MB gathered by two sends half of it over one link."""
    path = tmp_path / "index.csv"
    chip = override_chip(load_chip("v5e"), {"ici.launch_seconds": 0.0, "ici.hop_latency_seconds": 0.0})
    path.write_text(f'{HEAD}v5e:2x4,all-gather,1e6,"{groups}",3\n')
    (found,) = predict_collectives(path, lambda _: chip)
    assert found.predicted_us == pytest.approx(0.5e6 / (chip.ici.link_bytes_per_second * chip.ici.efficiency) * 1e6)


def test_no_groups_are_one_of_all(tmp_path):
    """As in HLO text."""
    path = tmp_path / "index.csv"
    path.write_text(f'{HEAD}v5e:2x2,all-gather,1e6,,3\nv5e:2x2,all-gather,1e6,"{{{{0,1,2,3}}}}",3\n')
    none, all_four = predict_collectives(path, load_chip)
    assert none.predicted_us == all_four.predicted_us


def test_rows_and_sources_are_held_out():
    """No row draws its own prediction; without its source a chip has the usual figures."""
    by_row, by_source = cross_validate(INDEX, load_chip)
    known = predict_collectives(INDEX, load_chip)
    assert [o.measured_us for o in by_row] == [o.measured_us for o in by_source] == [o.measured_us for o in known]
    permute = next(o for o in by_source if o.chip == "v5p" and o.measured_us > 100)
    # 64 MiB at 90 GB/s of 100, a hop of 1 us, and the mean launch of v2 and v7x, of some microseconds.
    assert permute.predicted_us == pytest.approx(2**26 / 90e3 + 1 + 8, abs=5)
    assert mean_error(known) < mean_error(by_row) < 0.10 < mean_error(by_source)


@pytest.mark.parametrize("sizes", [("1e14", "1.0000000001e14", "1e14"), ("1000", "1000", "1000")])
def test_rows_of_one_size_tell_no_line(tmp_path, sizes):
    """Nor those of nearly one, of which rounding is all that is left."""
    path = tmp_path / "index.csv"
    head = "topology,kind,payload_bytes,groups,measured_us,source\n"
    path.write_text(head + "".join(f"v5p-8,all-reduce,{size},,100,{at}\n" for at, size in enumerate(sizes)))
    for outcomes in cross_validate(path, load_chip):
        assert all(outcome.predicted_us > 0 for outcome in outcomes)


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
