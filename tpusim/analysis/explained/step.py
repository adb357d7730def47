"""What the records of a run say of one op: its time, what it went to, what is inside it, what it waited for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from tpusim.analysis.explained.facts import AnyFacts, InnerOp, InsideFacts, StepExplanation, TransferFacts
from tpusim.analysis.path.critical import CriticalPath
from tpusim.program.steps import Step
from tpusim.timeline.records import CORE, Record, executions, totals
from tpusim.units import PS_PER_SECOND


def step_explanation(
    op: Step | Record, what: str, facts: AnyFacts, path: CriticalPath, records: Sequence[Record]
) -> StepExplanation:
    """Return what is said of an op with ``records``, those of what it runs included."""
    own = [record for record in records if record.name == op.name]
    names = {(record.name, record.line) for record in records}
    slacks = [slack.slack_ps for slack in path.slacks if (slack.name, slack.line) in names]
    return StepExplanation(
        name=op.name,
        opcode=op.opcode,
        what=what,
        program=path.program,
        chip=path.chip,
        source=op.source,
        op_name=op.op_name,
        line=op.line,
        count=executions(own) or sum(record.count for record in own) or _visits(facts),
        run_ps=path.total_ps,
        time_ps=_time_ps(records),
        beside_ps=sum(record.total_ps for record in records if record.row != CORE),
        path_ps=sum(op.time_ps for op in path.ops if (op.name, op.line) in names),
        slack_ps=min(slacks, default=0),
        bounds_ps=totals(records, lambda record: record.bounds_ps),
        facts=facts,
    )


def inside_facts(own: Sequence[Record], inside: Sequence[Record], times: int, **what: Any) -> InsideFacts:
    """Return what a loop, branch or call runs; ``own`` are its own records, what the scalar core jumps.

    ``what`` are fields of the facts that tell a loop or a branch.
    """
    found: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in inside:
        found[record.name, record.line].append(record)
    ops = sorted(map(_inner, found.values()), key=lambda op: -op.time_ps)
    jumps_ps = _time_ps(own)
    return InsideFacts(times=times, ops=tuple(ops), jumps_ps=jumps_ps, **what)


def _inner(records: Sequence[Record]) -> InnerOp:
    bounds = totals(records, lambda record: record.bounds_ps)
    return InnerOp(
        name=records[0].name,
        opcode=records[0].opcode,
        source=records[0].source,
        time_ps=_time_ps(records) or sum(record.total_ps for record in records),
        count=executions(records) or sum(record.count for record in records),
        bound_by=max(bounds, key=lambda name: bounds[name]),
    )


def transfer_facts(
    own: Sequence[Record],
    others: Sequence[Record],
    waits: Sequence[Record],
    *,
    memory: str,
    n_bytes: float,
    ends: tuple[str, str],
    latency_ps: int,
    run_bytes: int,
    reachable_bytes_per_second: float,
) -> TransferFacts:
    """Return what is said of a transfer; ``waits`` are those for it, ``others`` all records of its device."""
    count = max(1, sum(record.count for record in own))
    moved_ps = sum(record.total_ps for record in own) / count
    return TransferFacts(
        n_bytes=n_bytes,
        origin=ends[0],
        target=ends[1],
        latency_ps=latency_ps,
        run_bytes=run_bytes,
        reached_bytes_per_second=n_bytes / moved_ps * PS_PER_SECOND if moved_ps else 0.0,
        reachable_bytes_per_second=reachable_bytes_per_second,
        exposed_ps=sum(record.total_ps for record in waits),
        waited_by=tuple(dict.fromkeys(record.name for record in waits if record.duration_ps)),
        shared_with=tuple(_sharers(own, others, memory)),
    )


def _sharers(own: Sequence[Record], others: Iterable[Record], memory: str) -> list[str]:
    """Return the ops that used a memory while one of some records did, the longest together first."""
    shared: dict[str, int] = defaultdict(int)
    for record in others:
        if memory not in record.activity or any(record is one for one in own):
            continue
        for one in own:
            together_ps = min(one.end_ps, record.end_ps) - max(one.start_ps, record.start_ps)
            if together_ps > 0 and record.name != one.name:
                shared[record.name] += together_ps * min(one.count, record.count)
    return sorted(shared, key=lambda name: -shared[name])


def _visits(facts: AnyFacts) -> int:
    """Return how often something ran that has no record of its own."""
    return facts.times if isinstance(facts, InsideFacts) else 0


def _time_ps(records: Iterable[Record]) -> int:
    return sum(record.total_ps for record in records if record.row == CORE)
