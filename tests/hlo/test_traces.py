"""The programs of traces/, as the TPU compiler left them: each runs, within its bounds, and needs the bytes it says."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

import tpusim
from tpusim.timeline.records import encode_timeline

TRACES = Path(__file__).parents[2] / "traces"
PROGRAMS = sorted(TRACES.glob("*.hlo.txt.gz"))
NAMES = [path.name.removesuffix(".hlo.txt.gz") for path in PROGRAMS]


@cache
def run(path: Path) -> tpusim.Result:
    """Return the run of a program on its own chip; the tests of one program share it."""
    return tpusim.simulate(path)


def facts(path: Path) -> dict:
    """Return what is known of a program."""
    return json.loads(path.with_name(path.name.replace(".hlo.txt.gz", ".json")).read_text())


every_program = pytest.mark.parametrize("path", PROGRAMS, ids=NAMES)


@every_program
def test_nothing_is_without_a_rule(path):
    """Every instruction that takes time has a rule of its own."""
    assert run(path).program.unsupported == ()


@every_program
def test_time_is_within_its_bounds(path):
    """No faster than its highest roof, and not 20 times slower beyond 2 us per kernel."""
    result = run(path)
    bound_us = result.summary.roofline.bound_ps / 1e6
    assert bound_us <= result.time_us <= 20 * bound_us + 2 * result.summary.utilisation.kernels


@every_program
def test_arguments_and_outputs_are_those_of_the_compiler(path):
    """To the byte: tiles padded, the table of a tuple result included."""
    memory, stated = run(path).summary.memory, facts(path)["memory"]
    found = (memory.argument_bytes, memory.output_bytes)
    assert found == (stated["argument_size_in_bytes"], stated["output_size_in_bytes"])


@every_program
def test_chip_is_found_without_being_named(path):
    """From the .json beside the program."""
    assert run(path).chip.name == facts(path)["chip"]


@every_program
def test_core_time_adds_up(path):
    """The ops' times on the core are the whole run, nothing lost and nothing twice."""
    result = run(path)
    assert sum(group.time_ps for group in result.summary.ops) == result.timeline.total_ps


@every_program
def test_every_loop_tells_its_trips(path):
    """None of these loops needs the default."""
    assert not [warning for warning in run(path).summary.warnings if "trip count" in warning]


def test_lstm_runs_its_steps():
    """128 time steps, each with two products."""
    result = run(TRACES / "lstm_b64t128.v5e.hlo.txt.gz")
    assert {group.count for group in result.summary.ops if group.category == "convolution fusion"} == {128}


def test_ten_runs_give_one_time_line():
    """Bit for bit."""
    path = TRACES / "lstm_b64t128.v5e.hlo.txt.gz"
    assert len({encode_timeline(tpusim.simulate(path).timeline) for _ in range(10)}) == 1


def test_more_bandwidth_is_never_slower():
    """Doubling HBM's bandwidth makes a memory-bound program faster and no program slower."""
    path = TRACES / "llama1b_decode_b16s2048.v6e.hlo.txt.gz"
    faster = tpusim.simulate(path, overrides={"hbm.bandwidth_bytes_per_second": 3.276e12})
    assert faster.time_us < 0.75 * run(path).time_us


@pytest.mark.parametrize("name", ["step.v5e.hlo.txt", "step.v5e_2x4.hlo.txt", "my.big.step.v5e.txt"])
def test_chip_is_found_in_the_name(tmp_path, name):
    """The last part of the name that is a chip."""
    (tmp_path / name).write_text("HloModule m, is_scheduled=true\n\nENTRY e {\n  ROOT x = f32[8] parameter(0)\n}\n")
    assert tpusim.simulate(tmp_path / name).chip.name == "v5e"


def test_unknown_chip_asks_for_one(tmp_path):
    """The error says how to name it."""
    (tmp_path / "step.txt").write_text(
        "HloModule m, is_scheduled=true\n\nENTRY e {\n  ROOT x = f32[8] parameter(0)\n}\n"
    )
    with pytest.raises(tpusim.ConfigError, match="use --chip"):
        tpusim.simulate(tmp_path / "step.txt")
