"""Loops of a time line as events of a profile."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import tpusim
from benchmarks import growth
from tests.semantics.hlo import parse
from tpusim.report.viewers.events import most_events, unrolled
from tpusim.timeline.records import Record, Repeat, Timeline

TRACES = Path(__file__).parents[2] / "traces"
# One loop over layers, and one with a loop inside whose first trip begins where a kernel ends.
PROGRAMS = ["llama1b_decode_b16s2048.v6e", "llama8b_decode_tp.v5e_2x4"]


def record(name: str, start_ps: int, end_ps: int, count: int = 1, row: str = "core") -> Record:
    """Return a record."""
    return Record(
        name=name, opcode="fusion", category="", row=row, start_ps=start_ps, end_ps=end_ps, count=count, bound_by="HBM"
    )


# An outer loop of 1 + 2 trips of 50 ps; in each an inner one of 1 + 3 trips of 10 ps, then 10 ps of its own.
NESTED = Timeline(
    program="p",
    chip="v5e",
    total_ps=160,
    records=(
        record("before", 0, 10),
        record("inner", 10, 20, count=12),
        record("copy", 12, 18, count=12, row="dma"),
        record("outer", 50, 60, count=3),
    ),
    repeats=(Repeat("i", 20, 50, 3), Repeat("o", 60, 160, 2)),
)


def test_every_execution_is_an_event_at_its_place():
    """The inner loop's twelve, four in each trip of the outer one."""
    starts = [e.start_ps for e in unrolled(NESTED) if e.record.name == "inner"]
    assert starts == [trip + step for trip in (10, 60, 110) for step in (0, 10, 20, 30)]


def test_the_core_is_never_left_out_nor_counted_twice():
    """Its events follow each other without gap."""
    core = [e for e in unrolled(NESTED) if e.record.row == "core"]
    assert [e.end_ps for e in core[:-1]] == [e.start_ps for e in core[1:]]
    assert core[-1].end_ps == NESTED.total_ps


def test_too_many_trips_become_one_long_one():
    """As long as all of them together, with as many executions."""
    events = unrolled(NESTED, most=4)
    assert sum(e.duration_ps for e in events if e.record.row == "core") == 160
    assert Counter({e.record.name: 0 for e in events}) | sum(
        (Counter({e.record.name: e.executions}) for e in events), Counter()
    ) == Counter(before=1, inner=12, copy=12, outer=3)


def test_loops_in_loops_do_not_double_the_events():
    """A hundred deep: a bounded number of events, which keep all executions of the core and its time."""
    run = tpusim.simulate(parse(growth.PROGRAMS["loops"].text(100)), "v5e")
    events = unrolled(run.timeline, 1000)
    assert len(events) < 2000
    assert sum(e.executions for e in events) == sum(record.count for record in run.timeline.records)
    assert sum(e.duration_ps for e in events if e.record.row == "core") == run.timeline.total_ps
    assert all(e.start_ps >= 0 and e.end_ps <= run.timeline.total_ps for e in events)


@pytest.mark.parametrize("most", [0, 50_000])
@pytest.mark.parametrize("name", PROGRAMS)
def test_executions_and_times_of_a_real_program_are_kept(name, most):
    """Decoder steps: what the time line counts, event by event."""
    timeline = tpusim.simulate(TRACES / f"{name}.hlo.txt.gz").timeline
    done, times = Counter(), Counter()
    for event in unrolled(timeline, most):
        done[id(event.record)] += event.executions
        times[id(event.record)] += event.duration_ps
    assert done == {id(r): r.count for r in timeline.records}
    assert {i: t for i, t in times.items() if t} == {id(r): r.total_ps for r in timeline.records if r.total_ps}


def test_a_file_of_devices_that_all_differ_has_no_more_events_for_that():
    """Each has as many trips as its number says: drawn one by one, they would grow as the square of the devices."""
    devices = 256
    run = tpusim.simulate(parse(growth.PROGRAMS["uneven"].text(devices)), "v5p").pod
    drawn = [len(unrolled(timeline, most_events(devices))) for timeline in run.timelines]
    records = sum(len(timeline.records) for timeline in run.timelines)
    assert len(drawn) == devices
    assert sum(drawn) <= 100_000 + 2 * records
    assert most_events(1) == 50_000
