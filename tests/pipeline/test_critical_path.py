"""The critical path and slack of small programs, against programs in which the op really comes later."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import msgspec
import pytest

import tpusim
from tpusim.analysis.path.critical import CriticalPath, critical_path
from tpusim.hardware.load import load_chip
from tpusim.hardware.pod import parse_topology
from tpusim.machine.run import RunOptions, simulate_pod
from tpusim.program.module import Program
from tpusim.program.steps import AnyStep, Branch, Call, Choice, Collective, Copy, Kernel, Loop, Wait
from tpusim.program.work import Work

CHIP = load_chip("v5e")
OP_PS = CHIP.fixed.scalar_op_cycles / CHIP.clock_hz * 1e12
ALL = (tuple(range(4)),)


def scalar(name: str, us: float) -> Kernel:
    """Return a step of the scalar core that takes so many microseconds and disturbs nothing."""
    return Kernel(name=name, opcode="add", scalar=True, work=Work(ops={"scalar": us * 1e6 / OP_PS}))


def beside(name: str, us: float) -> Call:
    """Return what takes so many microseconds beside the core."""
    return Call(name=name, opcode="async-start", is_async=True, body=(scalar(f"{name}-body", us),))


def done(name: str) -> Wait:
    """Return the wait for what was started beside the core."""
    return Wait(name=f"{name}-done", opcode="async-done", needs=(name,))


def run(*steps: AnyStep, devices: int = 1) -> CriticalPath:
    """Return the critical path of some steps, on devices that are simulated one by one."""
    program = Program(name="p", chip="v5e", steps=steps, device_count=devices)
    slice_ = parse_topology("v5e:2x2") if devices > 1 else None
    pod = simulate_pod([program], CHIP, slice_, options=RunOptions(per_device=devices > 1))
    return critical_path(program, pod)


def slack_us(found: CriticalPath, name: str) -> float:
    """Return the slack of an op in microseconds."""
    return next(slack.slack_ps for slack in found.slacks if slack.name == name) / 1e6


def random_steps(seed: int) -> list[AnyStep]:
    """Return steps on the core and beside it, each of these waited for somewhere behind."""
    draw, steps, open_ = random.Random(seed), list[AnyStep](), list[str]()
    for number in range(12):
        kind = draw.choice(("core", "core", "start", "wait"))
        if kind == "wait" and open_:
            steps.append(done(open_.pop(draw.randrange(len(open_)))))
        elif kind == "start":
            open_.append(f"a{number}")
            steps.append(beside(open_[-1], draw.choice((1, 3, 9, 27))))
        else:
            steps.append(scalar(f"k{number}", draw.choice((1, 2, 8, 20))))
    return [*steps, *map(done, open_)]


def delayed(steps: list[AnyStep], name: str, us: float) -> list[AnyStep]:
    """Return the steps with one of them so much later: the core waits before it, or it begins with a wait."""
    late: list[AnyStep] = []
    for step in steps:
        if isinstance(step, Call) and f"{step.name}-body" == name:
            late.append(msgspec.structs.replace(step, body=(scalar("delay", us), *step.body)))
        else:
            late += [scalar("delay", us), step] if step.name == name else [step]
    return late


@pytest.mark.parametrize("seed", range(20))
def test_later_by_its_slack_is_free_and_by_more_is_not(seed):
    """Each op of a random program, one after the other; a microsecond is more than all rounding."""
    steps = random_steps(seed)
    found = run(*steps)
    for slack in found.slacks:
        us = slack.slack_ps / 1e6
        assert run(*delayed(steps, slack.name, us - 0.01) if us > 0.01 else steps).total_ps == found.total_ps
        assert run(*delayed(steps, slack.name, us + 1)).total_ps > found.total_ps


@pytest.mark.parametrize("seed", range(20))
def test_the_path_adds_up(seed):
    """Its stretches follow each other from the start of the run to its end."""
    found = run(*random_steps(seed))
    ends = [0, *(stretch.end_ps for stretch in found.stretches)]
    assert [stretch.start_ps for stretch in found.stretches] == ends[:-1]
    assert ends[-1] == found.total_ps == sum(op.time_ps for op in found.ops)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("pipeline.v5e_4x4", {",{14,15}}": "}"}),
        ("pipeline.v5e_4x4", {"{7,8},": ""}),
        ("ring_matmul.v7x_4x4x4", {"{30,31},": "", "{64,65},": "", "{58,59}": "{58,100}", "{99,100}": "{99,59}"}),
    ],
)
def test_a_path_through_devices_that_meet_others_at_other_times_adds_up(tmp_path, name, changes):
    """Who sends to one and receives from another has met each at a moment of its own, and is in a trip of its own."""
    traces = Path(__file__).parents[2] / "traces"
    text = gzip.decompress((traces / f"{name}.hlo.txt.gz").read_bytes()).decode()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / f"{name}.hlo.txt"
    path.write_text(text)
    result = tpusim.simulate(path)
    assert sum(stretch.total_ps for stretch in result.critical_path.stretches) == result.timeline.total_ps


def test_trips_that_were_not_played_count():
    """A loop of ten trips, of which the longer of two branches is on the path ten times."""
    loop = Loop(name="l", opcode="while", trips=10, body=(beside("a", 5), scalar("k", 2), done("a")))
    found = run(loop, scalar("end", 1))
    assert {op.name: op.count for op in found.ops} == {"a-body": 10, "l": 10, "end": 1}
    assert sum(op.time_ps for op in found.ops) == found.total_ps
    assert slack_us(found, "k") == pytest.approx(3, rel=1e-3)


def test_the_path_goes_to_the_device_that_came_last():
    """Device 2 works for 30 us before an all-gather, the others for 10: theirs could wait 20."""
    slow = Choice(values=(1,), devices=(2,))
    work = Branch(
        name="b", opcode="conditional", choices=(slow,), branches=((scalar("short", 10),), (scalar("long", 30),))
    )
    gather = Collective(name="g", opcode="all-gather", kind="all-gather", n_bytes=1e6, group_size=4, groups=ALL)
    found = run(work, gather, devices=4)
    assert next(op.name for op in found.ops) == "long"
    assert {stretch.device for stretch in found.stretches if stretch.name == "long"} == {2}
    assert slack_us(found, "short") == pytest.approx(20, rel=1e-3)


def test_what_hides_behind_what():
    """Ten microseconds beside the core, of which two kernels hide three and four, and a wait nothing."""
    found = run(beside("a", 10), scalar("k", 3), scalar("m", 4), done("a"))
    pairs = {pair.behind: round(pair.time_ps / 1e6, 2) for pair in found.hidden}
    assert pairs == {"k": 3.0, "m": 4.0}


def test_what_nothing_waits_for_may_end_with_the_run():
    """A call of 4 us that nothing needs, in a run of 10."""
    found = run(beside("a", 4), scalar("k", 10))
    assert slack_us(found, "a-body") == pytest.approx(6, rel=1e-3)


def test_nothing_moves_before_a_loop_that_a_second_call_has():
    """The second visit is not played; its trips hold what comes before as the first one's do."""
    body = (Loop(name="l", opcode="while", trips=20, body=(scalar("k", 3),)), scalar("e", 1))
    calls = [Call(name=name, opcode="call", body=body) for name in ("first", "second")]
    found = run(calls[0], scalar("between", 1), calls[1], scalar("end", 1))
    assert sum(stretch.total_ps for stretch in found.stretches) == found.total_ps
    assert slack_us(found, "between") == 0


def test_calls_that_share_their_steps_are_waited_for_each():
    """One computation, started twice: 10 us behind 3 of a kernel, then 10 behind 8, and both ends are waited for."""
    body = (scalar("w", 10),)
    a, b = (Call(name=name, opcode="async-start", is_async=True, body=body) for name in "ab")
    found = run(a, scalar("k", 3), done("a"), b, scalar("m", 8), done("b"), scalar("end", 1))
    assert {op.name: op.count for op in found.ops} == {"w": 2, "end": 1}
    assert sum(op.time_ps for op in found.ops) == found.total_ps
    assert slack_us(found, "k") == pytest.approx(7, rel=1e-3)


def accounted_ps(found: CriticalPath) -> int:
    """Return how long the stretches of a path are together."""
    return sum((stretch.end_ps - stretch.start_ps) * stretch.count for stretch in found.stretches)


def long_loop(name: str, *body: AnyStep) -> Loop:
    """Return a loop of more trips than are played beside the core."""
    return Loop(name=name, opcode="while", trips=100_000, body=body)


@pytest.mark.parametrize(
    "body",
    [
        (long_loop("l", scalar("w", 2)),),
        (long_loop("l", long_loop("m", scalar("w", 2)), scalar("v", 1)),),
        (scalar("w", 2), beside("b", 5), scalar("v", 1), done("b"), scalar("u", 1)),
        (beside("b", 5), done("b"), long_loop("l", scalar("w", 2))),
    ],
    ids=["a loop", "loops in loops", "a call", "a call at first"],
)
def test_the_path_goes_through_calls(body):
    """Trips that were jumped over there, and calls that start calls."""
    call = Call(name="a", opcode="async-start", is_async=True, body=body)
    found = run(call, scalar("k", 3), done("a"), scalar("last", 1))
    assert accounted_ps(found) == found.total_ps


def test_a_copy_inside_of_a_call_is_waited_for_there():
    """The call's own core waits for what it has started, and with it the program."""
    copy = Copy(name="c", opcode="copy-start", n_bytes=8.1e6)
    wait = Wait(name="c-done", opcode="copy-done", needs=("c",))
    call = Call(name="a", opcode="async-start", is_async=True, body=(scalar("first", 1), copy, scalar("w", 2), wait))
    found = run(call, scalar("k", 3), done("a"))
    assert [op.name for op in found.ops] == ["c", "first"]
    assert sum(op.time_ps for op in found.ops) == found.total_ps
