"""Whatever takes time can be explained: collectives, loops, waits, copies, transfers, branches, calls."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.house.source_tree import ROOT
from tpusim.analysis.explained.facts import CollectiveFacts, InsideFacts, TransferFacts, WaitFacts
from tpusim.errors import ConfigError
from tpusim.hardware.load import load_chip
from tpusim.pipeline.answers import device_orders
from tpusim.pipeline.answers.explain import explain, explain_longest, explain_op
from tpusim.pipeline.result import Result
from tpusim.pipeline.stages import load, simulate
from tpusim.program import device_order
from tpusim.program.module import Program
from tpusim.program.steps import Algorithm, AnyStep, Branch, Call, Collective, Copy, HostTransfer, Kernel, Loop, Wait
from tpusim.program.work import Work

TRACES = sorted((ROOT / "traces").glob("*.hlo.txt.gz"))
CHIP = load_chip("v5e")
KERNEL = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e6}))
COPY = Copy(name="c", opcode="copy-start", n_bytes=1e7)
DONE = Wait(name="d", opcode="copy-done", needs=("c",))
# Of 4x4 chips: corners of squares of nine, of which every two share links.
SPREAD = tuple(tuple(first + far for far in (0, 2, 8, 10)) for first in (0, 1, 4, 5))


def result_of(*steps: AnyStep, devices: int = 1) -> Result:
    """Return a run of some steps."""
    return simulate(Program(name="p", chip="v5e", steps=steps, device_count=devices))


@pytest.mark.slow
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.partition(".")[0])
def test_every_op_above_one_percent_is_explained(path):
    """Of all models and pods: a page with its name, without an error."""
    result = simulate(path, allow_overflow=True)
    least_ps = result.timeline.total_ps / 100
    names = {op.name for op in result.summary.ops if max(op.time_ps, op.beside_ps) > least_ps}
    for name in names:
        assert str(explain_op(result, name)).startswith(name)


def test_a_collective_has_a_better_order_of_its_devices():
    """Groups of far corners take as long as squares of neighbours once their devices stand so."""
    spread = Collective(name="a", opcode="all-reduce", kind="all-reduce", n_bytes=1e8, group_size=4, groups=SPREAD)
    facts = explain_op(result_of(spread, devices=16), "a").facts
    assert isinstance(facts, CollectiveFacts)
    assert facts.algorithm == "reduce-scatter, then all-gather: lines along axis 0 and lines along axis 1, all at once"
    assert facts.sharers > 1
    assert facts.unshared_ps < facts.alone_ps
    best = facts.orders[0]
    near = tuple(tuple(best.devices[number] for number in group) for group in SPREAD)
    moved = Collective(name="a", opcode="all-reduce", kind="all-reduce", n_bytes=1e8, group_size=4, groups=near)
    assert result_of(moved, devices=16).timeline.total_ps == best.run_ps


@pytest.mark.parametrize("algorithm", [None, Algorithm("Ring"), Algorithm("BySlice", by_slice=True)])
def test_a_collective_has_the_name_that_its_compiler_gives_it(algorithm):
    """Ours gives none: what it is carried out as follows from the slice."""
    step = Collective(name="a", opcode="all-reduce", kind="all-reduce", n_bytes=1e6, group_size=4, algorithm=algorithm)
    page = str(explain_op(result_of(step, devices=4), "a"))
    assert ("the compiler calls it Ring" in page) == (algorithm == Algorithm("Ring"))
    assert "BySlice" not in page


def test_a_program_is_run_in_each_order_once(monkeypatch):
    """Three collectives in the same groups have the same best orders: what the run takes in them is known."""
    ran = list[tuple[int, ...]]()

    def moved_to(program: Program, devices: tuple[int, ...]) -> Program:
        if len(program.steps) == 3:
            ran.append(devices)
        return device_order.moved_to(program, devices)

    monkeypatch.setattr(device_orders, "moved_to", moved_to)
    spread = Collective(name="a", opcode="all-reduce", kind="all-reduce", n_bytes=1e8, group_size=4, groups=SPREAD)
    steps = tuple(structs.replace(spread, name=name) for name in "abc")
    found = explain_longest(Program(name="p", chip="v5e", steps=steps, device_count=16))
    assert len({one.facts.orders for one in found}) == 1
    assert len(ran) == len(set(ran)) == len(found[0].facts.orders) > 0


def test_others_of_a_program_are_not_moved_with_a_collective():
    """Of a hundred others two say all that they do: along which axes the devices lie, and that some are permutes."""
    step = Collective(name="a", opcode="all-reduce", kind="all-reduce", n_bytes=1e8, group_size=4, groups=SPREAD)
    ring = tuple((n, (n + 1) % 16) for n in range(16))
    sent = Collective(name="p", opcode="collective-permute", kind="collective-permute", n_bytes=1.0, pairs=ring)
    steps = tuple(structs.replace(one, name=f"{one.name}{n}") for n in range(50) for one in (step, sent))
    *own, others = device_orders.by_itself(result_of(*steps, devices=16).program, steps[0]).steps
    assert [one.name for one in own] == ["a0"]
    assert {(one.kind, one.pairs) for one in others.body} == {(step.kind, ()), (sent.kind, ring)}
    assert len(others.body) == 2


def test_a_collective_in_the_best_order_is_left_alone():
    """All sixteen devices at once: no order changes anything, and the rate is the one that can be reached."""
    everybody = (tuple(range(16)),)
    gather = Collective(name="a", opcode="all-gather", kind="all-gather", n_bytes=1e8, group_size=16, groups=everybody)
    facts = explain_op(result_of(gather, devices=16), "a").facts
    assert facts.orders == ()
    assert facts.reached_bytes_per_second == pytest.approx(facts.reachable_bytes_per_second)


def ring(number: int, devices: int) -> int:
    """Send to the next."""
    return (number + 1) % devices


def transposed(number: int, devices: int) -> int:
    """Send across a mesh of 16 rows."""
    return number % 16 * (devices // 16) + number // 16


def anywhere(number: int, devices: int) -> int:
    """Send by no pattern: squares modulo a prime are half of all numbers, the others follow in order."""
    places = sorted(range(devices), key=lambda n: (n * n + 7 * n) * 7919 % 1009)
    return places[number]


@pytest.mark.parametrize(
    ("target", "devices", "runs"),
    [
        (ring, 256, 1 + 70),
        (transposed, 256, 1 + 70),
        (ring, 2048, 1 + 2**16 // 2048),
        (anywhere, 256, 1 + 2**16 // 256 // 16),
    ],
)
def test_of_thousands_of_devices_few_orders_are_tried(monkeypatch, target, devices, runs):
    """Of 256 all: 7 shapes of two axes, 21 of three in three orders that two axes do not have; and their own order."""
    tried = list[Program]()
    monkeypatch.setattr(device_orders, "own_ps", lambda program, *_: tried.append(program) or 0)
    pairs = tuple((number, target(number, devices)) for number in range(devices))
    step = Collective(name="a", opcode="collective-permute", kind="collective-permute", n_bytes=1e6, pairs=pairs)
    program = Program(name="p", chip="v5p", steps=(step,), device_count=devices)
    device_orders.orders_by_time(program, load_chip("v5p"), None, step)
    assert len(tried) == runs


def test_a_loop_is_its_trips():
    """Twenty trips of a kernel and the jump to the next."""
    found = explain_op(result_of(Loop(name="l", opcode="while", trips=20, body=(KERNEL,))), "l")
    assert isinstance(found.facts, InsideFacts)
    assert (found.facts.trips, found.facts.times, found.facts.ops[0].count) == (20, 20, 20)
    assert found.time_ps == found.facts.jumps_ps + found.facts.ops[0].time_ps == found.run_ps
    assert found.facts.jumps_ps == 20 * round(CHIP.fixed.loop_iteration_seconds * 1e12)


def test_a_loop_has_several_names():
    """As HLO text writes it, and by its body or condition."""
    path = ROOT / "traces/memory/scan_layers.v5p.hlo.txt.gz"
    loop = next(one for one in load(path).entry if one.opcode == "while")
    names = loop.name, f"%{loop.name}", loop.attributes["body"], f"%{loop.attributes['condition']}"
    assert {explain(path, name).name for name in names} == {loop.name}


def test_what_is_left_out_of_a_loop_is_said():
    """Of fifteen kernels twelve have a line of their own."""
    body = tuple(structs.replace(KERNEL, name=f"k{number}") for number in range(15))
    text = str(explain_op(result_of(Loop(name="l", opcode="while", trips=2, body=body)), "l"))
    assert "... and 3 more" in text


def test_a_wait_says_what_was_hidden():
    """Of a copy beside a kernel the kernel's time; its operand was there before the kernel, so nobody can tell."""
    large = Copy(name="c", opcode="copy-start", n_bytes=1e9)
    found = explain_op(result_of(large, KERNEL, DONE), "d")
    assert isinstance(found.facts, WaitFacts)
    (awaited,) = found.facts.awaited
    assert awaited.took_ps == awaited.hidden_ps + found.facts.waited_ps
    assert found.time_ps == found.facts.waited_ps > 0


def test_a_copy_says_what_it_shares():
    """Two copies at once get half the rate that each could reach."""
    other = Copy(name="e", opcode="copy-start", n_bytes=1e7)
    facts = explain_op(result_of(COPY, other, DONE, Wait(name="f", opcode="", needs=("e",))), "c").facts
    assert isinstance(facts, TransferFacts)
    assert facts.shared_with == ("e",)
    assert facts.reachable_bytes_per_second / facts.reached_bytes_per_second == pytest.approx(2, rel=0.05)
    assert facts.waited_by == ("d",)


@pytest.mark.parametrize(
    ("step", "what"),
    [
        (HostTransfer(name="x", opcode="infeed", n_bytes=1e6), "a transfer to or from the host"),
        (Branch(name="x", opcode="conditional", branches=((KERNEL,),)), "a conditional"),
        (Call(name="x", opcode="call", body=(KERNEL,)), "a call"),
        (Call(name="x", opcode="async-start", body=(KERNEL,), is_async=True), "a call"),
        (
            Kernel(name="x", opcode="add", scalar=True, work=Work(ops={"scalar": 9})),
            "an instruction of the scalar core",
        ),
    ],
)
def test_every_kind_is_called_what_it_is(step, what):
    """And printed."""
    end = (Wait(name="y", opcode="", needs=("x",)),) if getattr(step, "is_async", False) else ()
    found = explain_op(result_of(step, KERNEL, *end), "x")
    assert found.what == what
    assert what in str(found)


def test_what_took_no_time_is_refused():
    """With the nearest name."""
    with pytest.raises(ConfigError, match=r"did you mean 'fusion\.7'"):
        explain(ROOT / "traces/mlp_b1024.v5e.hlo.txt.gz", "fusion.71")


def test_calls_of_one_computation_are_explained_by_its_steps():
    """Both by the kernel that they share, twenty times a visit, and not by what stands behind the second."""
    body = (Loop(name="l", opcode="while", trips=20, body=(KERNEL,)),)
    calls = [Call(name=name, opcode="call", body=body) for name in ("first", "second")]
    result = result_of(*calls, structs.replace(KERNEL, name="behind"))
    for name in ("first", "second"):
        found = explain_op(result, name)
        assert isinstance(found.facts, InsideFacts)
        assert (found.count, found.facts.times) == (2, 2)
        assert {op.name: op.count for op in found.facts.ops}["k"] == 40
        assert "behind" not in {op.name for op in found.facts.ops}
