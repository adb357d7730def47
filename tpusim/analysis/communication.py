"""What devices and links did together: communication exposed and hidden, bandwidths reached, how full links were."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from tpusim.hardware.torus import Torus
from tpusim.hardware.units import HOST, ICI, UNITS
from tpusim.timeline.records import CORE, ICI_LATENCY, LATE, WAITING_FOR, LinkUse, PodRun, Record, Timeline
from tpusim.units import PS_PER_SECOND

_COMMUNICATION_WAITS = ("waiting for a collective", "waiting for a channel", "waiting for a recv", LATE)
_COMMUNICATION_BOUNDS = (UNITS[ICI].bound, ICI_LATENCY)


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """Where a device's time went, in picoseconds; ``devices`` are those that did exactly the same.

    Communication is ``exposed`` where the core did nothing else, ``hidden`` where it ran beside the core's own work;
    ``waiting_ps`` is for copies, the host, and devices that others need and that have not come yet.
    """

    devices: tuple[int, ...]
    total_ps: int
    compute_ps: int
    exposed_ps: int
    hidden_ps: int
    waiting_ps: int


class CollectiveUse(msgspec.Struct, frozen=True, kw_only=True):
    """One collective of the program on the device that ended last: bandwidths in bytes per second.

    The algorithm's is the larger side's bytes over the time; the bus's is what the links of one device have to carry
    for it over the time, which tells collectives of different kinds and sizes apart from slow links (NCCL tests,
    PERFORMANCE.md). ``waiting_ps`` of the time is for devices that came later; the bandwidths are of the rest.
    """

    name: str
    opcode: str
    count: int
    group_size: int
    payload_bytes: float
    time_ps: int
    waiting_ps: int
    algorithm_bytes_per_second: float
    bus_bytes_per_second: float


class PodUse(msgspec.Struct, frozen=True, kw_only=True):
    """A run of many devices in numbers. Shares of links are of the time of the run.

    On a slice of more devices than a program is for, ``copies`` of it run side by side, which exchange nothing.
    ``is_order_open`` says that the program states no order of its devices, and that ``jax.devices()`` has another one.
    """

    sizes: tuple[int, ...]
    slices: int
    device_count: int
    device_order: str
    devices: tuple[DeviceUse, ...]
    collectives: tuple[CollectiveUse, ...]
    links: int
    busiest_link: str
    busiest_share: float
    mean_share: float
    copies: int = 1
    is_order_open: bool = False


def pod_use(run: PodRun, needed: int = 0) -> PodUse:
    """Return the numbers of a run of a pod; ``needed`` is how many devices its program is for, where that is known."""
    total_ps = max(1, run.last.total_ps)
    count, busy_ps, busiest = _ici_use(run.links)
    return PodUse(
        sizes=run.sizes,
        slices=run.slices,
        device_count=run.device_count,
        device_order=run.device_order,
        devices=tuple(_device(timeline, devices) for timeline, devices in classes(run)),
        collectives=_collectives(run.last.records),
        links=count,
        busiest_link=f"chip {busiest.chip} {busiest.way}" if busiest else "",
        busiest_share=busiest.busy_ps / total_ps if busiest else 0.0,
        mean_share=busy_ps / max(1, count) / total_ps,
        copies=run.device_count // needed if needed and run.program_count == 1 else 1,
        is_order_open=run.is_order_open,
    )


def _ici_use(links: Iterable[LinkUse]) -> tuple[int, int, LinkUse | None]:
    """Return how many links between chips there are, how long they were busy in all, and the first of the busiest."""
    count, busy_ps, busiest = 0, 0, None
    # One after the other, and none kept: a large slice has hundreds of thousands.
    for link in links:
        if link.way[0] in "+->":
            count, busy_ps = count + 1, busy_ps + link.busy_ps
            if busiest is None or link.busy_ps > busiest.busy_ps:
                busiest = link
    return count, busy_ps, busiest


def classes(run: PodRun) -> list[tuple[Timeline, tuple[int, ...]]]:
    """Return the time lines that differ, each with the devices that it is of; one alone may stand for all."""
    if len(run.timelines) == 1:
        return [(run.timelines[0], tuple(range(run.device_count)))]
    shared: dict[int, list[Timeline]] = defaultdict(list)
    for timeline in run.timelines:
        # Devices that were simulated as one share their records: looked at once.
        shared[id(timeline.records)].append(timeline)
    found: dict[bytes, list[Timeline]] = defaultdict(list)
    for alike in shared.values():
        # Which devices they send to makes no difference.
        plain = sorted((r.start_ps, r.end_ps, r.name, r.row, r.count, r.late_ps) for r in alike[0].records)
        # As JSON, whose whole numbers have no end: times may be beyond 64 bits.
        found[msgspec.json.encode((alike[0].program, plain))] += alike
    return [(alike[0], tuple(timeline.device for timeline in alike)) for alike in found.values()]


def _device(timeline: Timeline, devices: tuple[int, ...]) -> DeviceUse:
    spent = {"compute": 0, "exposed": 0, "waiting": 0}
    for record in timeline.records:
        if record.row == CORE:
            spent["waiting"] += record.late_ps * record.count
            spent[core_time(record)] += together_ps(record)
    beside_ps = _covered_ps(record for record in timeline.records if record.row == ICI)
    waited_ps = sum(together_ps(r) for r in timeline.records if r.row == CORE and r.bound_by in _COMMUNICATION_WAITS)
    return DeviceUse(
        devices=devices,
        total_ps=timeline.total_ps,
        compute_ps=spent["compute"],
        exposed_ps=spent["exposed"],
        # What ran beside the core while it did not wait for it.
        hidden_ps=max(0, beside_ps - waited_ps),
        waiting_ps=spent["waiting"],
    )


def core_time(record: Record) -> str:
    """Return what the core did in a record once all devices that it needs had come.

    That is ``compute``, ``exposed`` communication, or ``waiting``.
    """
    if record.bound_by in (*_COMMUNICATION_WAITS, *_COMMUNICATION_BOUNDS):
        return "exposed"
    by_host = record.bound_by in (UNITS[HOST].bound, "infeed starved", "outfeed full")
    return "waiting" if by_host or record.bound_by.startswith(WAITING_FOR) else "compute"


def together_ps(record: Record) -> int:
    """Return how long all executions of a record took once all devices that they need had come."""
    return (record.duration_ps - record.late_ps) * record.count


def _covered_ps(records: Iterable[Record]) -> int:
    """Return how long bytes of at least one of some records could move, those that repeat as often as they do."""
    total_ps = until_ps = 0
    for arrived_ps, record in sorted(((r.start_ps + r.late_ps, r) for r in records), key=lambda p: (p[0], p[1].end_ps)):
        begin_ps = max(until_ps, arrived_ps)
        if record.end_ps > begin_ps:
            total_ps += (record.end_ps - begin_ps) * record.count
            until_ps = record.end_ps
    return total_ps


def _collectives(records: Iterable[Record]) -> tuple[CollectiveUse, ...]:
    """Return the use of every collective, longest first."""
    found: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.group_size:
            found[record.name].append(record)
    uses = [_collective(name, alike) for name, alike in found.items()]
    return tuple(sorted(uses, key=lambda use: -use.time_ps))


def _collective(name: str, records: list[Record]) -> CollectiveUse:
    first, count = records[0], sum(record.count for record in records)
    time_ps = sum(record.total_ps for record in records)
    met_ps = sum(map(together_ps, records))
    rate = first.payload_bytes * count / max(1, met_ps) * PS_PER_SECOND
    return CollectiveUse(
        name=name,
        opcode=first.category or first.opcode,
        count=count,
        group_size=first.group_size,
        payload_bytes=first.payload_bytes,
        time_ps=time_ps,
        waiting_ps=time_ps - met_ps,
        algorithm_bytes_per_second=rate,
        bus_bytes_per_second=rate * bus_factor(first.category or first.opcode, first.group_size),
    )


def bus_factor(kind: str, group_size: int) -> float:
    """Return the bytes that have to leave a device, or enter it, per byte of a collective's larger side."""
    share = (group_size - 1) / group_size
    factors = {"all-reduce": 2 * share, "collective-permute": 1.0, "collective-broadcast": 1.0}
    return factors.get(kind.removesuffix("-start"), share)


def link_map(run: PodRun, links: Iterable[LinkUse]) -> dict[str, object]:
    """Return the heat map of a run's links as plain data: for every link its chip, coordinates, bytes and share."""
    total_ps = max(1, run.last.total_ps)
    torus = Torus(run.sizes, (False,) * len(run.sizes))
    rows = [
        {
            "chip": link.chip,
            # A switch stands nowhere in the torus.
            "coordinates": list(torus.coordinates(link.chip)) if link.chip < torus.chip_count * run.slices else [],
            "link": link.way,
            "bytes": link.n_bytes,
            "busy": link.busy_ps / total_ps,
        }
        for link in links
    ]
    return {"sizes": list(run.sizes), "slices": run.slices, "links": rows, "simulated": True}
