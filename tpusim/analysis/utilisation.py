"""Where the time went: the records of a run added up by op, by category or by source."""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec

from tpusim.cost.peaks import flops_by_type
from tpusim.errors import ConfigError, did_you_mean
from tpusim.hardware.units import HBM
from tpusim.ir.frames import is_recomputed
from tpusim.timeline.records import CORE, LATE, Record, Timeline, activity_of, busy_ps, totals

GROUPINGS = ("op", "category", "source")


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one op, category or source together.

    ``time_ps`` is what the core spent; ``beside_ps`` what ran beside the core (copies, collectives); ``activity`` what
    all of them did, by unit as in records. ``bound_by`` names
    what most of the time went to. ``compiler_cycles`` is the compiler's estimate of all executions, 0 if it made none.
    """

    name: str
    opcode: str
    category: str
    count: int
    time_ps: int
    beside_ps: int
    bound_by: str
    flops: float
    hbm_bytes: float
    activity: dict[str, float]
    compiler_cycles: int
    line: int
    op_name: str
    source: str


class OpActivity(msgspec.Struct, frozen=True, kw_only=True):
    """What one op did, and its time on the core: as much of a ``Group`` as energies take."""

    name: str
    line: int
    time_ps: int
    activity: dict[str, float]


class Utilisation(msgspec.Struct, frozen=True, kw_only=True):
    """How busy units and memories were over the whole run, as shares of its time between 0 and 1, and what they did.

    ``flops`` are all that is done, ``model_flops`` those that compute nothing again and that were asked for: kernels
    whose result JAX or XLA has named so are left out, and what a hand-written kernel does beyond what it states. Both
    are by the type of operands as well.
    """

    total_ps: int
    kernels: int
    busy: dict[str, float]
    bound_ps: dict[str, int]
    bound_by: str
    flops: float
    model_flops: float
    flops_by_type: dict[str, float]
    model_flops_by_type: dict[str, float]
    hbm_bytes: float
    activity: dict[str, float]


def check_grouping(by: object) -> None:
    """Raise ConfigError for what records cannot be added up by."""
    if by not in GROUPINGS:
        hint = did_you_mean(by, GROUPINGS) if isinstance(by, str) else ""
        raise ConfigError(f"by: expected one of {', '.join(GROUPINGS)}, found {by!r:.80}{hint}")


def group_records(timeline: Timeline, by: str = "op") -> tuple[Group, ...]:
    """Return the groups of a run by ``op``, ``category`` or ``source``, longest core time first, ties by first seen."""
    check_grouping(by)
    found: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in timeline.records:
        found[_key(record, by)].append(record)
    groups = [_group(name, records, by) for (name, _), records in found.items()]
    # Sorting is stable, so ties keep the order of the run on every host.
    return tuple(sorted(groups, key=lambda group: (-group.time_ps, -group.beside_ps)))


def op_activities(timeline: Timeline) -> list[OpActivity]:
    """Return what each op of a run did; the ops are those of ``group_records``, in the order of the run."""
    found: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in timeline.records:
        found[record.name, record.line].append(record)
    return [
        OpActivity(
            name=name,
            line=line,
            time_ps=sum(record.total_ps for record in records if record.row == CORE),
            activity=activity_of(records),
        )
        for (name, line), records in found.items()
    ]


def utilisation(timeline: Timeline) -> Utilisation:
    """Return how busy the machine was and what the core's time went to."""
    records = timeline.records
    # Only the rows of the core add up to the time of the run; others overlap it.
    bound = totals((r for r in records if r.row == CORE), lambda record: record.bounds_ps)
    total_ps = max(1, timeline.total_ps)
    flops, model_flops = defaultdict[str, float](float), defaultdict[str, float](float)
    for record in records:
        _add(flops, record, max(record.flops, record.product_flops))
        if record.flops and not is_recomputed(record.name, record.op_name):
            _add(model_flops, record, record.flops)
    return Utilisation(
        total_ps=timeline.total_ps,
        kernels=sum(r.count for r in records if r.is_kernel),
        busy={unit: unit_ps / total_ps for unit, unit_ps in sorted(busy_ps(records).items())},
        bound_ps=dict(Counter(bound).most_common()),
        bound_by=max(bound, key=lambda name: bound[name], default=""),
        flops=sum(flops.values()),
        model_flops=sum(model_flops.values()),
        flops_by_type=dict(flops),
        model_flops_by_type=dict(model_flops),
        hbm_bytes=sum(r.hbm_bytes * r.count for r in records),
        activity=activity_of(records),
    )


def _add(sums: defaultdict[str, float], record: Record, flops: float) -> None:
    """Add operations of a record, which happened so often, to sums by type."""
    for name, count in flops_by_type(record, flops).items():
        sums[name] += count * record.count


def _key(record: Record, by: str) -> tuple[str, int]:
    """Return what groups a record; ops of one name in different computations differ by their line."""
    return (record.name, record.line) if by == "op" else (group_name(record, by), 0)


def group_name(one: Record | Group, by: str) -> str:
    """Return the name of the group ``by`` op, category or source that a record, or an op's records, are in."""
    if by == "category":
        return one.category
    # Copies and prefetches that the compiler put in have no line of the framework.
    return one.source or "(unknown)" if by == "source" else one.name


def _group(name: str, records: list[Record], by: str) -> Group:
    first = records[0]
    # The records of one op agree in these fields; those of a category or a source do not.
    single = by == "op"
    # One loop for all sums, and no property in it: there are thousands of groups, most of them of one record.
    count = time_ps = beside_ps = compiler_cycles = 0
    flops = hbm_bytes = 0.0
    for record in records:
        times = record.count
        length_ps = (record.end_ps - record.start_ps) * times
        if record.row == CORE:
            time_ps += length_ps
        else:
            beside_ps += length_ps
        count += 0 if record.is_wait else times
        flops += record.flops * times
        hbm_bytes += record.activity.get(HBM, 0.0) * times
        compiler_cycles += record.compiler_cycles * times
    return Group(
        name=name,
        opcode=first.opcode if single else "",
        category=first.category if by != "source" else "",
        count=count,
        time_ps=time_ps,
        beside_ps=beside_ps,
        bound_by=_bound_by(records),
        flops=flops,
        hbm_bytes=hbm_bytes,
        activity=activity_of(records),
        compiler_cycles=compiler_cycles,
        line=first.line if single else 0,
        op_name=first.op_name if single else "",
        source=first.source if by != "category" else "",
    )


def _bound_by(records: list[Record]) -> str:
    """Return what most of the time of some records went to."""
    if len(records) == 1 and LATE not in records[0].parts:
        return records[0].bound_by
    # No Counter, as in ``totals``.
    bound = dict.fromkeys((record.bound_by for record in records), 0)
    for record in records:
        # So that records that took no time name what bounds them all the same.
        bound[record.bound_by] += 1
        for name, bound_ps in record.bounds_ps.items():
            bound[name] = bound.get(name, 0) + bound_ps * record.count
    return max(bound, key=bound.__getitem__)


class LayerUse(msgspec.Struct, frozen=True, kw_only=True):
    """The core's records of one op, category or source: picoseconds by what they went to, and busy shares by unit."""

    name: str
    time_ps: int
    parts_ps: dict[str, int]
    busy: dict[str, float]


def layer_use(timeline: Timeline, by: str = "source") -> tuple[LayerUse, ...]:
    """Return the use of every layer, the longest first; ``by`` says what a layer is, as in ``group_records``."""
    check_grouping(by)
    found: dict[str, list[Record]] = defaultdict(list)
    for record in timeline.records:
        if record.row == CORE and record.duration_ps:
            name = record.name if by == "op" else getattr(record, by)
            found[name or "(none stated)"].append(record)
    layers = [_layer(name, records) for name, records in found.items()]
    return tuple(sorted(layers, key=lambda layer: -layer.time_ps))


def _layer(name: str, records: list[Record]) -> LayerUse:
    # Only kernels are taken apart; of all else the whole is known.
    parts = totals(records, lambda record: record.parts or {record.bound_by: record.duration_ps})
    time_ps = sum(record.total_ps for record in records)
    shares = {unit: min(1.0, unit_ps / time_ps) for unit, unit_ps in busy_ps(records).items()}
    return LayerUse(name=name, time_ps=time_ps, parts_ps=parts, busy=shares)
