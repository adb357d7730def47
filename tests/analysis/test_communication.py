"""Numbers of a run of many devices, from time lines written by hand."""

from __future__ import annotations

import pytest

from tpusim.analysis.communication import bus_factor, classes, link_map, pod_use
from tpusim.timeline.records import LATE, LinkUse, PodRun, Record, Timeline


def record(name: str, start_ps: int, end_ps: int, bound_by: str = "matrix", **fields) -> Record:
    """Return a record of the core unless a row is given."""
    row = fields.pop("row", "core")
    return Record(
        name=name, opcode=name, category=name, row=row, start_ps=start_ps, end_ps=end_ps, bound_by=bound_by, **fields
    )


def timeline(device: int, *records: Record) -> Timeline:
    """Return the time line of a device."""
    total_ps = max(r.end_ps for r in records)
    return Timeline(program="p", chip="v5e", total_ps=total_ps, records=records, device=device)


def run_of(*timelines: Timeline, links: tuple[LinkUse, ...] = ()) -> PodRun:
    """Return a run on 2x2 chips."""
    count = len(timelines) if len(timelines) > 1 else 4
    return PodRun(sizes=(2, 2), slices=1, device_count=count, timelines=timelines, links=links)


def test_time_is_told_apart():
    """Kernels, exposed and hidden communication, and waits for others."""
    (device,) = pod_use(
        run_of(
            timeline(
                0,
                record("k", 0, 100),
                record("start", 20, 150, "ICI", row="ici"),
                record("done", 100, 150, "waiting for a collective"),
                record("copy", 150, 170, "waiting for a copy"),
                record("all-reduce", 170, 200, "ICI"),
            )
        )
    ).devices
    assert (device.compute_ps, device.exposed_ps, device.hidden_ps, device.waiting_ps) == (100, 80, 80, 20)
    assert device.devices == (0, 1, 2, 3)


def test_collectives_that_overlap_hide_once():
    """Two permutes under way at once cover their union."""
    beside = [record("a", 0, 60, "ICI", row="ici"), record("b", 40, 100, "ICI", row="ici")]
    assert pod_use(run_of(timeline(0, record("k", 0, 100), *beside))).devices[0].hidden_ps == 100


def test_bandwidths_are_bytes_over_time():
    """8 MB in 100 us are 80 GB/s; an all-reduce of four puts 1.5 times that on the bus."""
    reduce = record("all-reduce", 0, 100_000_000, "ICI", payload_bytes=8e6, group_size=4, count=3)
    (use,) = pod_use(run_of(timeline(0, reduce))).collectives
    assert use.count == 3
    assert use.algorithm_bytes_per_second == pytest.approx(80e9)
    assert use.bus_bytes_per_second == pytest.approx(120e9)


# NCCL tests, PERFORMANCE.md.
@pytest.mark.parametrize(
    ("kind", "factor"),
    [("all-reduce", 1.75), ("all-gather", 0.875), ("reduce-scatter", 0.875), ("all-to-all", 0.875)],
)
def test_bus_factors_are_those_of_nccl(kind, factor):
    """For groups of eight."""
    assert bus_factor(kind, 8) == bus_factor(f"{kind}-start", 8) == factor


def test_equal_devices_are_one_class():
    """Three of four did the same."""
    alike = [timeline(device, record("k", 0, 100 if device != 2 else 90)) for device in range(4)]
    assert [devices for _, devices in classes(run_of(*alike))] == [(0, 1, 3), (2,)]


def test_devices_that_waited_unlike_are_no_class():
    """They came and went at the same moments, but one had to wait for the other's neighbour."""
    parts = {LATE: 40, "ICI": 60}
    alike = [timeline(device, record("c", 0, 100, "ICI", parts=parts if device else {})) for device in range(3)]
    uses = pod_use(run_of(*alike)).devices
    assert [(use.devices, use.exposed_ps, use.waiting_ps) for use in uses] == [((0,), 100, 0), ((1, 2), 60, 40)]


LINKS = (LinkUse(0, "+0", 100.0, 50), LinkUse(3, "-1", 200.0, 100), LinkUse(0, "local", 1e9, 1000))


def test_the_busiest_link_is_named():
    """Of the links between chips; what passes inside of a chip is none of them."""
    use = pod_use(run_of(timeline(0, record("k", 0, 200)), links=LINKS))
    assert (use.links, use.busiest_link, use.busiest_share, use.mean_share) == (2, "chip 3 -1", 0.5, 0.375)


def test_the_heat_map_places_links():
    """Chip 3 of 2x2 is at (1, 1)."""
    rows = link_map(run_of(timeline(0, record("k", 0, 200))), LINKS)["links"]
    assert rows[1] == {"chip": 3, "coordinates": [1, 1], "link": "-1", "bytes": 200.0, "busy": 0.5}
