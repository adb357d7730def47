"""Every way in, with the same mutated inputs on each run; and inputs that once broke the contract."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.robust.surfaces
from tests.robust import contract
from tests.robust.contract import SURFACES, Hang, Surface, Wrong, ends_well, run_seeds
from tests.robust.mutations import mutated_text
from tests.robust.programs import OF_HLO, mutated_hlo, scheduled
from tests.robust.surfaces.hlo import take_scheduled

CRASHERS = sorted((Path(__file__).parents[1] / "data" / "crashers").iterdir())
CASES = 25
GROUPS = 8
"""Processes, each for some of the surfaces: to load what a surface needs takes longer than most cases."""
ROOT = Path(__file__).parents[2]

assert tests.robust.surfaces


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_any_input_ends_in_a_result_or_in_one_error(group):
    """In time, in little memory, with no other exception, and with no result that cannot be right."""
    names = sorted(SURFACES)[group::GROUPS]
    surfaces = [word for name in names for word in ("--surface", name)]
    # Not forked from this process: JAX, which other tests load, has threads, and what they hold would stay held.
    command = [sys.executable, "-m", "tests.robust", *surfaces, "--long", "0", "--batch", str(CASES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert f"\n{CASES * len(names)} cases" in done.stdout


@pytest.mark.parametrize("path", CRASHERS, ids=lambda path: path.name)
def test_what_once_broke_the_contract_keeps_it(path, tmp_path):
    """Files are named after their surface."""
    surface = SURFACES[path.name.partition(".")[0]]
    assert ends_well(surface.take, path.read_bytes(), tmp_path) in ("result", "refused")


@pytest.mark.slow
@settings(max_examples=20)
@given(random=st.randoms(use_true_random=False))
def test_mutated_programs_shrink_to_the_smallest_that_fails(tmp_path_factory, random):
    """The mutations are Hypothesis' own choices here, so that a failure is as small as it can be."""
    content = mutated_hlo(random, scheduled()[:10])
    assert ends_well(take_scheduled, content, tmp_path_factory.getbasetemp()) in ("result", "refused")


@pytest.mark.parametrize(
    ("kind", "fault"),
    [("traceback", KeyError), ("hang", Hang), ("memory", MemoryError), ("wrong", Wrong)],
)
def test_the_contract_notices(kind, fault):
    """A case that breaks it is told with its seed, and the others are run all the same."""

    def take(content, folder):
        if content == b"3":
            raise fault("x")

    report = run_seeds(Surface("made", lambda random: b"3", take, 1), range(2))
    assert [(found.kind, found.seed) for found in report.faults] == [(kind, 0), (kind, 1)]


def test_the_contract_notices_a_death():
    """Of a process that a signal ends, the case is known that it died of, and the next ones run."""

    def take(content, folder):
        if content == b"1":
            os.kill(os.getpid(), signal.SIGKILL)

    report = run_seeds(Surface("made", lambda random: b"%d" % (random.random() < 0.5), take, 1), range(8))
    assert {found.kind for found in report.faults} == {"died"}
    assert report.ended.total() == 8


def test_the_contract_notices_a_wait(monkeypatch):
    """For what never comes, which takes no CPU time."""
    monkeypatch.setattr(contract, "_WAIT_SECONDS", 1)
    report = run_seeds(Surface("made", lambda random: b"x", lambda content, folder: signal.pause(), 1), [0])
    assert [found.kind for found in report.faults] == ["died"]


def test_the_contract_notices_memory():
    """Beyond 64 MiB and 40 bytes for each of the input."""
    report = run_seeds(Surface("made", lambda random: b"x", lambda content, folder: bytearray(80 << 20), 1), [0])
    assert [found.kind for found in report.faults] == ["memory"]


def test_any_mutant_can_be_mutated_again():
    """Also one whose sizes have more digits than Python reads."""
    text = f"HloModule m\nENTRY e {{\n  ROOT x = f32[{'9' * 5000},8] parameter(0)\n}}\n"
    assert len({mutated_text(Random(seed), text, OF_HLO) for seed in range(2000)}) > 100
