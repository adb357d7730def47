"""The trace for Perfetto: well formed, with counters, and with arrows that begin and end in slices."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

import tpusim
from tpusim.analysis.memory import memory_profile
from tpusim.report.viewers.perfetto import pod_trace_json

TRACES = Path(__file__).parents[2] / "traces"
DECODE = TRACES / "llama1b_decode_b16s2048.v6e.hlo.txt.gz"
PROGRAMS = [
    "llama1b_decode_b16s2048.v6e", "mlp_b1024.v5e", "llama8b_decode_tp.v5e_2x4", "host/two_stage_pipeline.v5e",
]  # fmt: skip


def traced(name: str) -> tuple:
    """Return the run of a program, and the events of its trace."""
    result = tpusim.simulate(TRACES / f"{name}.hlo.txt.gz")
    return result, pod_trace_json(result.pod, result.program)["traceEvents"]


def slices(events: list) -> dict:
    """Return start and end of the slices of each row, in picoseconds."""
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = round(event["ts"] * 1e6)
            found[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1e6)))
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_slices_of_a_row_nest_or_follow_each_other(name):
    """As the format wants it: what overlaps in part would be drawn wrong."""
    for row in slices(traced(name)[1]).values():
        open_until = []
        for start, end in sorted(row, key=lambda piece: (piece[0], -piece[1])):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_ends_of_an_arrow_lie_in_slices(name):
    """Perfetto binds an arrow to the slice at its place, and drops one that finds none."""
    _, events = traced(name)
    rows = slices(events)
    arrows = [event for event in events if event["ph"] in "sf"]
    for event in arrows:
        at = round(event["ts"] * 1e6)
        assert any(start <= at <= end for start, end in rows[event["pid"], event["tid"]]), event
    starts = [event["id"] for event in arrows if event["ph"] == "s"]
    assert sorted(starts) == sorted(event["id"] for event in arrows if event["ph"] == "f")
    # Numbers, each of one arrow only.
    assert sorted(starts) == list(range(1, len(starts) + 1))


def test_an_arrow_leads_from_a_copy_to_who_waits_for_it():
    """The weights that the second product of a perceptron has prefetched."""
    _, events = traced("mlp_b1024.v5e")
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    start, end = (event for event in events if event["ph"] in "sf")
    assert (names[start["tid"]], names[end["tid"]]) == ("dma 0", "XLA ops")
    assert start["ts"] <= end["ts"]


def test_the_counter_of_traffic_integrates_to_all_bytes():
    """GB/s over microseconds: every byte of the report, those of the trips that are not drawn included."""
    result, events = traced("llama1b_decode_b16s2048.v6e")
    steps = [(e["ts"], e["args"]["GB/s"]) for e in events if e["name"] == "HBM traffic"]
    assert steps == sorted(steps, key=lambda step: step[0])
    n_bytes = sum(rate * 1e3 * (after - at) for (at, rate), (after, _) in pairwise(steps))
    assert n_bytes == pytest.approx(result.summary.utilisation.hbm_bytes, rel=1e-3)
    assert steps[-1][1] == pytest.approx(0, abs=1e-2)


@pytest.mark.parametrize("name", [pytest.param("resnet50_train_b64.v5e", marks=pytest.mark.slow), *PROGRAMS])
def test_traffic_never_passes_the_peak(name):
    """Of a training step whose copies share the memory with kernels, of loops, of every device of a pod."""
    result, events = traced(name)
    rates = [event["args"]["GB/s"] for event in events if event["name"] == "HBM traffic"]
    assert 0 < max(rates) <= result.chip.hbm.bandwidth_bytes_per_second / 1e9


@pytest.mark.parametrize("name", ["llama1b_decode_b16s2048.v6e", "llama8b_decode_tp.v5e_2x4"])
def test_times_by_name_are_those_of_the_run(name):
    """Of all slices of the core, as a query of Perfetto adds them up: every trip of a loop is there."""
    result, events = traced(name)
    (row,) = [e["tid"] for e in events if e["name"] == "thread_name" and e["args"]["name"] == "XLA ops"]
    times = Counter()
    for event in events:
        if event["ph"] == "X" and event["tid"] == row:
            times[event["name"]] += event["dur"]
    ours = Counter()
    for group in result.groups():
        ours[group.name] += group.time_ps / 1e6
    assert {name: time for name, time in times.items() if time} == pytest.approx({n: t for n, t in ours.items() if t})


@pytest.mark.parametrize("name", ["llama1b_decode_b16s2048.v6e", "llama8b_decode_tp.v5e_2x4"])
def test_the_critical_path_has_a_row(name):
    """From the start to the end of the run without a gap: every trip of a loop is there."""
    result, events = traced(name)
    (row,) = [e["tid"] for e in events if e["name"] == "thread_name" and e["args"]["name"] == "critical path"]
    own = sorted(slices([event for event in events if event.get("tid") == row])[1, row])
    assert [start for start, _ in own] == [0, *(end for _, end in own[:-1])]
    assert own[-1][1] == result.timeline.total_ps


@pytest.mark.parametrize(("space", "counter"), [("hbm", "HBM in use"), ("vmem", "VMEM in use")])
def test_the_counter_of_memory_stays_within_the_peak(space, counter):
    """And what an op that takes time has in use is what the memory profile says."""
    result, events = traced("llama1b_decode_b16s2048.v6e")
    profile = memory_profile(result.program, space)
    values = [event["args"]["bytes"] for event in events if event["name"] == counter]
    assert values
    assert set(values) <= set(profile.alive_bytes)
    assert max(values) <= profile.peak_bytes


@pytest.mark.parametrize("name", ["llama1b_decode_b16s2048.v6e", "mlp_b1024.v5e"])
def test_the_counter_of_power_integrates_to_all_energy(name):
    """Watts over microseconds, with the trips that are not drawn and with what runs beside the core."""
    result = tpusim.simulate(TRACES / f"{name}.hlo.txt.gz")
    events = pod_trace_json(result.pod, result.program, result.chip)["traceEvents"]
    steps = [(e["ts"], e["args"]["W"]) for e in events if e["name"] == "power"]
    joules = sum(watts * 1e-6 * (after - at) for (at, watts), (after, _) in pairwise(steps))
    assert (steps[0][0], steps[-1][0]) == pytest.approx((0, result.time_us), abs=1)
    assert joules == pytest.approx(result.energy.total_j, rel=2e-3)
    assert not [e for e in traced(name)[1] if e["name"] == "power"]
