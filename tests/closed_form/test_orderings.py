"""What must hold of any collective, whoever takes part: bigger is not faster, a torus is not slower, bytes add up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.machine.collectives import collective, link_rate, pod_of, program_of, run
from tpusim.hardware.load import load_chip
from tpusim.hardware.pod import parse_topology
from tpusim.machine.run import RunOptions, simulate_pod
from tpusim.program.steps import Kernel
from tpusim.program.work import Work

TRACES = Path(__file__).parents[2] / "traces"
KINDS = ["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "ragged-all-to-all", "collective-broadcast"]
SIXTEEN = ["v5e:4x4", "v5e:2x8", "v5e:1x16", "v6e:4x4", "v4:2x2x4", "v5p:4x4", "v5e:2x4*2"]
groups = st.builds(
    lambda order, size: tuple(tuple(order[start : start + size]) for start in range(0, 16, size)),
    st.permutations(range(16)),
    st.sampled_from([2, 4, 8, 16]),
)


def time_of(text: str, step, **overrides) -> int:
    """Return how long a collective takes on a slice, in picoseconds."""
    topology = parse_topology(text)
    chip = load_chip(topology.chip, {f"ici.{key}": value for key, value in overrides.items()})
    count = topology.chip_count * chip.devices_per_chip
    run = simulate_pod([program_of(step, devices=count)], chip, topology, None, RunOptions(per_device=False))
    return run.last.total_ps


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(SIXTEEN), st.sampled_from(KINDS), groups, st.integers(0, 30), st.integers(0, 8))
def test_bigger_is_never_faster(text, kind, groups, power, more):
    """Any groups on any slice: as many bytes or more take as long or longer."""
    small, large = (collective(kind, 2.0**size, groups) for size in (power, power + more))
    assert time_of(text, small) <= time_of(text, large)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KINDS), groups, st.sampled_from([2.0**12, 2.0**20, 2.0**30]))
def test_a_mesh_is_never_faster_than_a_torus(kind, groups, n_bytes):
    """Any groups on 4x4 chips, with and without links round the back."""
    step = collective(kind, n_bytes, groups)
    torus, mesh = (time_of("v5e:4x4", step, wrap=rule) for rule in ("always", "length16"))
    assert torus <= mesh


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(SIXTEEN), st.sampled_from(KINDS), groups, st.sampled_from([2.0**12, 2.0**20, 2.0**30]))
def test_faster_links_are_never_slower(text, kind, groups, n_bytes):
    """Any groups on any slice, with links of twice the rate."""
    step, rate = collective(kind, n_bytes, groups), 1.0e11
    slow, fast = (time_of(text, step, link_bytes_per_second=times * rate) for times in (1, 2))
    assert fast <= slow


@settings(max_examples=40, deadline=None)
@given(st.permutations(range(16)), st.integers(1, 16), st.sampled_from(["v5e:4x4", "v5e:1x16", "v5p:2x2x4"]))
def test_a_permute_loads_every_link_with_the_messages_that_pass_it(order, count, text):
    """Bytes on links add up to the distances; it takes no less than its busiest link, and no more than all in turn."""
    pairs = tuple(zip(range(count), order, strict=False))
    pod, n_bytes = pod_of(text), 1e9
    done = run(text, collective("collective-permute", n_bytes, pairs=pairs), devices=16)
    on_links = {(link.chip, link.way): link.n_bytes for link in done.links if link.way[0] in "+-"}
    # Numbered along a ring only if the pairs are one.
    chips = pod.torus.ring(tuple(range(16))) if done.device_order == "ring" else pod.order
    distances = [pod.torus.distance(chips[source], chips[target]) for source, target in pairs]
    assert sum(on_links.values()) == pytest.approx(n_bytes * sum(distances))
    busiest = max(on_links.values(), default=0.0) / link_rate(text)
    assert busiest <= done.last.total_ps / 1e12 <= len(pairs) * (n_bytes / link_rate(text) + 2e-5)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=4, max_size=4), st.sampled_from(KINDS))
def test_nobody_ends_before_its_inputs_exist(delays, kind):
    """Four programs that come to a collective after any number of kernels: none ends before the last has come."""
    kernel = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e5}))
    step = collective(kind, 1e6, (tuple(range(4)),), channel_id=1)
    done = simulate_pod([program_of(*[kernel] * count, step) for count in delays], load_chip("v5e"))
    records = [next(r for r in timeline.records if r.name == "c") for timeline in done.timelines]
    last_ps = max(record.start_ps for record in records)
    assert len({record.end_ps for record in records}) == 1
    assert records[0].end_ps - last_ps >= time_of("v5e:2x2", collective(kind, 1e6, ((0, 1, 2, 3),)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pipeline.v5e_4x4", "ring_matmul.v7x_4x4x4"])
def test_processes_agree(name):
    """Bit for bit, whatever the seed of Python's hashes."""
    command = [sys.executable, "-m", "tpusim", "run", str(TRACES / f"{name}.hlo.txt.gz"), "--json"]
    found = {
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": str(seed)}, capture_output=True, check=True).stdout
        for seed in range(5)
    }
    assert len(found) == 1
