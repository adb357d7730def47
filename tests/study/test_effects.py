"""Effects: what an axis does to a program, whatever the programs, chips and variants beside it are called."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import geometric_mean

import pytest

import tpusim
from tests.study.cases import BANDWIDTH, LSTM, MLP, kernel_module
from tpusim.errors import ConfigError
from tpusim.study.effects import effects, pareto
from tpusim.study.names import chips_apart
from tpusim.study.spec import BASES, make_spec

AXES = {"clock_hz": ["x1", "x2"], BANDWIDTH: ["x1", "x2"]}


def alike_named(folder: Path) -> list[str]:
    """Return the paths of two programs in folders of their own, under one name: one computes, one waits for HBM."""
    found = []
    for name, source in (("A", LSTM), ("B", MLP)):
        place = folder / name / "step.v5e.hlo.txt.gz"
        place.parent.mkdir()
        place.write_bytes(Path(source).read_bytes())
        found.append(str(place))
    return found


def study_of(programs, **more) -> tpusim.Study:
    """Return a study of some programs with two axes."""
    return tpusim.Study(**{"programs": programs, "axes": AXES, "jobs": 1} | more)


def by_axis(study: tpusim.Study, program: str = "") -> dict[tuple[str, str, str], float]:
    """Return the effects on a program, as multiples of the mean, by figure, axis and end of the axis."""
    rows = [row for row in study.effect_table() if row["program"] == program]
    return {(row["figure"], row["parameter"], end): 1 + row[end] / 100 for row in rows for end in ("low", "high")}


@pytest.mark.parametrize("is_pattern", [False, True])
def test_programs_of_one_name_are_told_apart(tmp_path, is_pattern):
    """The effects on each are those on it alone, and the front of each is its own."""
    paths = alike_named(tmp_path)
    both = study_of(str(tmp_path / "{d}" / "step.v5e.hlo.txt.gz") if is_pattern else paths)
    for name, path in zip(["A/step.v5e.hlo.txt.gz", "B/step.v5e.hlo.txt.gz"], paths, strict=True):
        alone = study_of(path)
        assert by_axis(both, name) == pytest.approx(by_axis(alone))
        fronts = [pareto(one.rows(), "clock_hz", "time_us", per="program") for one in (both, alone)]
        assert [row["time_us"] for row in fronts[0] if row["program"] == name] == [r["time_us"] for r in fronts[1]]


def test_an_axis_that_moves_one_of_two_is_not_named(tmp_path):
    """And one that moves none is, though the two differ."""
    axes = {"ici.dimensions": [1, 2], "mxu.count": ["x1", "x2"]}
    study = study_of(alike_named(tmp_path), axes=axes)
    assert study.unmoved() == ["ici.dimensions: no time or energy changed under schedule=given"]


def test_variants_under_one_name_are_told_by_their_variables(tmp_path):
    """A variable that is no axis holds as well: the effect on both is the mean of that on each."""
    paths = alike_named(tmp_path)
    both = by_axis(study_of({"net": str(tmp_path / "{d}" / "step.v5e.hlo.txt.gz")}), "net")
    each = [by_axis(study_of(path)) for path in paths]
    assert both == pytest.approx({key: geometric_mean(one[key] for one in each) for key in both})


def test_sizes_of_one_model_are_no_variants_of_another(tmp_path):
    """A variable that is an axis moves each model by itself, whichever pattern names them."""
    for name, wide in (("bert", 1), ("gpt", 64)):
        for batch in (1, 4):
            text = kernel_module().text.replace("f32[1024,", f"f32[{1024 * batch * wide},")
            (tmp_path / f"{name}_b{batch}.v5e.hlo.txt").write_text(text, encoding="utf-8")
    axes = {"batch": [1, 4]}
    each = [by_axis(study_of(str(tmp_path / f"{name}_b{{batch}}.v5e.hlo.txt"), axes=axes)) for name in ("bert", "gpt")]
    both = by_axis(study_of(str(tmp_path / "*_b{batch}.v5e.hlo.txt"), axes=axes))
    assert both == pytest.approx({key: geometric_mean(one[key] for one in each) for key in both})
    assert both


def slow_chip(folder: Path) -> str:
    """Return the file of a chip that calls itself v5e and has half its clock and bandwidth."""
    path = folder / "slow.toml"
    path.write_text(f'base = "v5e"\nname = "v5e"\nclock_hz = 750e6\n{BANDWIDTH} = 400e9\n', encoding="utf-8")
    return str(path)


def test_chips_of_one_name_are_told_apart(tmp_path):
    """In the table as in the effects of the chip and of other axes."""
    axes = {"chip": ["v5e", slow_chip(tmp_path)], "ici.dimensions": [1, 2]}
    study = study_of(MLP, axes=axes)
    assert [row["chip"] for row in study.rows()] == ["v5e", "v5e", "v5e (slow.toml)", "v5e (slow.toml)"]
    assert study.unmoved() == ["ici.dimensions: no time or energy changed under schedule=given"]
    effect = study.effects()[0]
    assert effect.axis == "chip"
    assert effect.low < 0 < effect.high


def test_files_of_one_chip_s_name_are_told_by_their_folders(tmp_path):
    """A file that states its own name is called by that; the same chip in two spellings is one."""
    (tmp_path / "A").mkdir()
    one, other = slow_chip(tmp_path), slow_chip(tmp_path / "A")
    assert chips_apart([one, other]) == {one: f"v5e ({tmp_path.name}/slow.toml)", other: "v5e (A/slow.toml)"}
    assert chips_apart(["v5e", "TPU v5 lite", "no chip"]) == {"v5e": "v5e", "TPU v5 lite": "v5e"}


def test_points_that_take_no_time_have_no_effect_to_tell():
    """Of no time nothing is a share."""
    spec = make_spec({"programs": [MLP], "axes": {BANDWIDTH: [1.0, 2.0]}}, Path())
    rows = [
        {"program": "p", BANDWIDTH: at, "time_us": time, **dict.fromkeys(BASES)} for at, time in ((1, 0), (2, -1.0))
    ]
    assert effects(rows, spec, "time_us") == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (lambda study: study.pareto("area_mm", "time_us"), "unknown column 'area_mm' (did you mean 'area_mm2'?)"),
        (lambda study: study.pareto("area_mm2", "tim_us"), "unknown column 'tim_us' (did you mean 'time_us'?)"),
        (lambda study: study.pareto("area_mm2", "time_us", per="progam"), "'progam' (did you mean 'program'?)"),
        (lambda study: study.effects("zzz"), "unknown column 'zzz' (known: program, chip, "),
        (lambda study: study.effects(5), "unknown column 5 (known: program, chip, "),
        (lambda study: study.effects("bound"), "expected a column of numbers, found 'bound'"),
        (lambda study: study.pareto("schedule", "time_us"), "expected a column of numbers, found 'schedule'"),
    ],
)
def test_what_is_no_column_is_refused(asked, said):
    """An empty answer would look like one; what is of no use to sort by is said as well."""
    with pytest.raises(ConfigError, match=re.escape(said)):
        asked(study_of(MLP, axes={"mxu.count": [2, 4]}))


def test_a_column_that_no_row_has_a_number_in_is_one():
    """Of points that do not run there is no time."""
    study = study_of(LSTM, axes={"vmem.capacity_bytes": ["4Mi", "8Mi"]})
    assert {row["status"] for row in study.rows()} == {"does not fit"}
    assert study.effects() == []
    assert len(study.pareto("area_mm2", "time_us")) == 0
