"""What computations that are called again leave on the time line, against the same told by a plain recursion."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tpusim.machine import recording
from tpusim.machine.recorder import Recorder
from tpusim.program.module import Program
from tpusim.program.steps import Kernel

STEPS = [Kernel(name=f"k{number}", opcode="add") for number in range(4)]
NOTHING = Program(name="p", chip="v5e", steps=())

actions = st.one_of(
    st.tuples(st.just("step"), st.integers(0, 3), st.integers(0, 2)),
    st.tuples(st.just("call"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("loop"), st.integers(0, 9), st.integers(1, 3)),
)
bodies = st.lists(st.lists(actions, max_size=5), min_size=1, max_size=6)


def inner(bodies, level, number):
    """Return the level of the body that a call at a level means: one below, or none at the lowest."""
    return number % level if level else None


class Machine:
    """Runs the last of some bodies as the core does: what was visited before is replayed, loops jump over trips."""

    def __init__(self, bodies):
        self.bodies, self.recorder, self.now_ps, self.visits = bodies, Recorder(NOTHING), 0, {}
        self.run(len(bodies) - 1)

    def run(self, level):
        """Run a body."""
        for what, number, amount in self.bodies[level]:
            below = inner(self.bodies, level, number)
            if what == "step":
                self.now_ps += amount
                record = self.recorder.record(STEPS[number], "core", self.now_ps - amount, self.now_ps, "", {})
                self.recorder.whole.items.append(record)
            elif below is not None and what == "call":
                self.visit(below)
            elif below is not None:
                begin_ps, mark = self.now_ps, self.recorder.whole.mark()
                self.visit(below)
                end_ps = self.now_ps + amount * (self.now_ps - begin_ps)
                span = mark, self.recorder.whole.mark()
                self.recorder.whole.repeat(f"l{level}", span, (self.now_ps, end_ps), amount)
                self.now_ps = end_ps

    def visit(self, level):
        """Run a body for the first time, or let the clock jump over it."""
        begin_ps = self.now_ps
        if level in self.visits:
            known, duration_ps = self.visits[level]
            self.now_ps += duration_ps
            self.recorder.whole.replay(known, begin_ps)
            return
        mark = self.recorder.whole.mark()
        self.run(level)
        self.visits[level] = self.recorder.whole.fold(mark, begin_ps), self.now_ps - begin_ps


def told(bodies, level, now_ps, times, rows, repeats):
    """Append what a body does from a moment on, so many times; return when it ends."""
    for what, number, amount in bodies[level]:
        below = inner(bodies, level, number)
        if what == "step":
            rows.append((f"k{number}", now_ps, now_ps + amount, times))
            now_ps += amount
        elif below is not None and what == "call":
            now_ps = told(bodies, below, now_ps, times, rows, repeats)
        elif below is not None:
            end_ps = told(bodies, below, now_ps, times * (1 + amount), rows, repeats)
            until_ps = end_ps + amount * (end_ps - now_ps)
            repeats.append((f"l{level}", end_ps, until_ps, amount))
            now_ps = until_ps
    return now_ps


def shown(recorder):
    """Return the records and repetitions of a recorder as the recursion tells them."""
    records = [(one.name, one.start_ps, one.end_ps, one.count) for one in recorder.records_of(0)]
    return records, [(one.name, one.start_ps, one.end_ps, one.trips) for one in recorder.repeats]


@settings(max_examples=300)
@given(bodies)
def test_visits_stand_where_they_happened(bodies):
    """Each in its place, with the trips of all loops around it."""
    rows, repeats = [], []
    machine = Machine(bodies)
    assert told(bodies, len(bodies) - 1, 0, 1, rows, repeats) == machine.now_ps
    assert shown(machine.recorder) == (rows, repeats)


@settings(max_examples=300)
@given(bodies)
def test_of_very_many_visits_the_first_stand_for_all(bodies):
    """Every step runs as often in all; records stand where the step ran first, loops where they are in no visit."""
    rows, repeats = [], []
    machine = Machine(bodies)
    told(bodies, len(bodies) - 1, 0, 1, rows, repeats)
    recording._count_first(recording._inner_first(machine.recorder.whole))
    counted = list(recording._first_places(machine.recorder.whole))
    records = [item for item in counted if hasattr(item, "count")]
    assert totals((one.name, one.duration_ps, one.count) for one in records) == totals(
        (name, end_ps - start_ps, times) for name, start_ps, end_ps, times in rows
    )
    assert {(one.name, one.start_ps, one.end_ps) for one in records} <= {row[:3] for row in rows}
    assert len(records) <= sum(len(body) for body in bodies)
    assert [(one.name, one.start_ps, one.end_ps, one.trips) for one in counted if not hasattr(one, "count")] == [
        repeat for repeat in repeats if repeat[0] == f"l{len(bodies) - 1}"
    ]


def totals(amounts):
    """Return how often each kind of record happened."""
    found = Counter()
    for name, duration_ps, times in amounts:
        found[name, duration_ps] += times
    return found
