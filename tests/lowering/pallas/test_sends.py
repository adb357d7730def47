"""Pallas kernels that communicate: turns of sends between devices."""

from __future__ import annotations

import pytest

import tpusim
from tests.lowering.pallas.bodies import PROGRAMS, kernels, program
from tpusim.hardware.load import load_chip
from tpusim.program.steps import Collective

pytest.importorskip("jaxlib")

RING = "ring.v5e_2x2"
SHARD = 4 * 2**20


def sends():
    """Return what the devices of a ring of four send."""
    return [step for step in program(RING).every_step if isinstance(step, Collective)]


def test_every_device_sends_to_the_next_one_in_each_step_of_the_grid():
    """Three steps, each a shard of a result that the compiler has put into VMEM."""
    assert [(step.n_bytes, step.pairs) for step in sends()] == [(SHARD, ((0, 1), (1, 2), (2, 3), (3, 0)))] * 3
    assert [step.hbm_bytes for step in sends()] == [0.0] * 3


def test_what_stays_on_a_device_is_copied_once():
    """The first step puts a device's own shard where it belongs."""
    (kernel,) = kernels(RING)
    assert [(stream.total_bytes, stream.is_output) for stream in kernel.streams] == [(SHARD, False), (SHARD, True)]


def test_turns_of_a_ring_follow_each_other():
    """At least three times a shard over one link."""
    chip = load_chip("v5e")
    result = tpusim.simulate(PROGRAMS / f"{RING}.hlo.txt.gz")
    least_ps = 3 * SHARD / chip.ici.link_bytes_per_second * 1e12
    (copied,) = [r.duration_ps for r in result.timeline.records if r.name.startswith("copy")]
    assert least_ps < result.summary.total_ps - copied < 1.3 * least_ps
