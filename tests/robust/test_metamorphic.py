"""What must not matter does not: names, dead code, the order of what is independent, printing, a scale of all rates."""

from __future__ import annotations

import gzip
import re
from functools import cache
from pathlib import Path

import pytest

from tpusim.hardware.load import chip_facts, load_chip
from tpusim.ir.module import Module
from tpusim.pipeline.result import Result
from tpusim.pipeline.stages import lower, read_program, simulate
from tpusim.program.stored import decode_program, encode_program

TRACES = Path(__file__).parents[2] / "traces"
PROGRAMS = "mlp_b1024.v5e lstm_b64t128.v5e sampler_v32000.v6e sort_kv_1m.v5e linalg_512.v7x gnn_n4096.v7x".split()
# Each part of a step is rounded by itself.
ROUNDING_PS = 3


@cache
def text_of(name: str) -> str:
    """Return the text of a program."""
    return gzip.decompress((TRACES / f"{name}.hlo.txt.gz").read_bytes()).decode()


def run(name: str, text: str | None = None, **settings) -> Result:
    """Run a program, or what a test has made of it."""
    return simulate(read(name, text_of(name) if text is None else text), name.rpartition(".")[2], **settings)


def read(name: str, text: str) -> Module:
    """Read a text as that of a program."""
    found = read_program(f"{name}.hlo.txt", text.encode())
    assert isinstance(found, Module)
    return found


@cache
def time_of(name: str) -> int:
    """Return the picoseconds of a program as it stands."""
    return run(name).timeline.total_ps


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_names_of_instructions_do_not_matter(name):
    """Each is another one, of another length, in another order of the alphabet."""
    names = sorted(set(re.findall(r"%[\w.\-]+", text_of(name))))
    other = {old: f"%n{len(names) - number}" for number, old in enumerate(names)}
    # Kernels name the computations of other instructions in their notes, without the sign.
    renamed = re.sub(r"%[\w.\-]+", lambda found: other[found[0]], text_of(name))
    assert abs(run(name, renamed).timeline.total_ps - time_of(name)) <= time_of(name) * 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_code_that_nobody_calls_does_not_matter(name):
    """A computation beside those that run."""
    dead = "%nobody (p: f32[8]) -> f32[8] {\n  ROOT %p_of_nobody = f32[8]{0} parameter(0)\n}\n\nENTRY "
    assert run(name, text_of(name).replace("\nENTRY ", f"\n{dead}", 1)).timeline.total_ps == time_of(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_what_it_prints(name):
    """Read again, printed HLO takes as long; so does a lowered program as JSON."""
    assert run(name, read(name, text_of(name)).text).timeline.total_ps == time_of(name)
    program = lower(read(name, text_of(name)), name.rpartition(".")[2])
    again = decode_program(encode_program(program).encode(), "again.json")
    assert simulate(again).timeline.total_ps == time_of(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_half_of_every_rate_takes_twice_the_time(name):
    """Nothing depends on the length of a second: rates by half, durations twice."""
    chip = name.rpartition(".")[2]
    scaled = {}
    for fact in chip_facts(chip):
        if fact.unit in ("B/s", "Hz") and fact.value:
            scaled[fact.key] = fact.value / 2
        elif fact.unit == "s":
            scaled[fact.key] = fact.value * 2
    result = simulate(read(name, text_of(name)), load_chip(chip, scaled))
    rounding = ROUNDING_PS * sum(record.count for record in result.timeline.records)
    assert abs(result.timeline.total_ps - 2 * time_of(name)) <= rounding


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_devices_that_do_not_talk_take_the_time_of_one(name):
    """Four replicas of a program without collectives."""
    many = text_of(name).replace("is_scheduled=true", "is_scheduled=true, replica_count=4", 1)
    result = run(name, many)
    assert [timeline.total_ps for timeline in result.pod.timelines] == [time_of(name)] * len(result.pod.timelines)
    assert result.pod.device_count == 4
