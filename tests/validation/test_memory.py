"""HBM temporaries against the TPU compiler's own (``memory_analysis``), on programs compiled for four chips."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import median

import pytest

from tpusim.analysis.accuracy import LEAST_BYTES, MemoryOutcome, memory_accuracy
from tpusim.errors import ConfigError
from tpusim.pipeline.stages import memory
from tpusim.validation.memory import memory_cases, validate_memory

INDEX = Path(__file__).parents[2] / "traces" / "memory" / "index.csv"
ROWS = list(csv.DictReader(INDEX.read_text().splitlines()))
SMALL = [row for row in ROWS if not row["program"].startswith("..")]


@pytest.mark.parametrize("row", SMALL, ids=[row["program"].removesuffix(".hlo.txt.gz") for row in SMALL])
def test_memory_is_that_of_the_compiler(row):
    """Arguments and outputs to the byte; temporaries within 5 % (the target is 10 %)."""
    use = memory(INDEX.parent / row["program"], row["chip"]).use
    stated = {key: int(row[f"{key}_size_in_bytes"]) for key in ("argument", "output", "temp")}
    assert (use.argument_bytes, use.output_bytes) == (stated["argument"], stated["output"])
    assert use.temp_bytes == pytest.approx(stated["temp"], rel=0.05)


@pytest.mark.slow
def test_half_of_all_programs_are_met_to_a_thousandth():
    """The median over every program with more than 1 MiB of temporaries; none beyond 10 %."""
    outcomes = validate_memory([INDEX])
    errors = [abs(o.error) for o in outcomes if o.error is not None and o.compiler_temp_bytes > LEAST_BYTES]
    assert len(errors) > 60
    assert median(errors) < 0.001
    assert max(errors) < 0.1


def test_a_folder_gives_the_programs_with_figures_beside_them(tmp_path):
    """The ``.json`` says what the compiler needs; a program without one is left out."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.v5e.hlo.txt.gz").write_bytes(b"")
    (tmp_path / "a.v5e.json").write_text(json.dumps({"memory": {"temp_size_in_bytes": 7}}))
    assert memory_cases([tmp_path]) == [(tmp_path / "a.v5e.hlo.txt.gz", None, 7)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("chip,program,temp_size_in_bytes\nv5e,,1\n", "program: expected the name"),
        ("program,temp_size_in_bytes\na,x\n", "expected a number of bytes"),
    ],
)
def test_slips_in_an_index_are_refused(tmp_path, content, message):
    """By file, line and column."""
    path = tmp_path / "index.csv"
    path.write_text(content)
    with pytest.raises(ConfigError, match=f"index.csv:2.*{message}"):
        memory_cases([path])


def test_a_program_of_which_nothing_is_known_is_refused(tmp_path):
    """The message names the file that was looked for."""
    with pytest.raises(ConfigError, match=r"x\.v5e\.json"):
        memory_cases([tmp_path / "x.v5e.hlo.txt.gz"])


@pytest.mark.parametrize(
    "facts", ["[" * 100_000, '{"memory":{"temp_size_in_bytes":true}}', '{"memory":{"temp_size_in_bytes":-5}}']
)
def test_facts_that_are_none_are_refused(tmp_path, facts):
    """By the file that has them."""
    (tmp_path / "x.v5e.json").write_text(facts)
    with pytest.raises(ConfigError, match=r"x\.v5e\.json"):
        memory_cases([tmp_path / "x.v5e.hlo.txt.gz"])


def test_small_programs_do_not_count():
    """An error of a few tables of tuples says nothing."""
    outcomes = [
        MemoryOutcome("a", "v5e", 2, 1),
        MemoryOutcome("b", "v5e", 11 << 20, 10 << 20),
        MemoryOutcome("c", "v5e", 0, 0),
    ]
    found = memory_accuracy(outcomes)
    assert (found.count, found.worst) == (1, "b")
    assert found.median_error == pytest.approx(0.1)
