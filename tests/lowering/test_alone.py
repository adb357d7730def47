"""What lists of steps take by themselves, as sums of what their steps do."""

from __future__ import annotations

import pytest

from tpusim.cost.tile import alone_ps
from tpusim.hardware.load import load_chip
from tpusim.lowering.alone import Alone
from tpusim.program.steps import Branch, Call, ChannelTransfer, Collective, Copy, HostTransfer, Kernel, Loop, Wait
from tpusim.program.work import Work
from tpusim.units import seconds_to_ps

CHIP = load_chip("v5e")
KERNEL = Kernel(name="k", opcode="fusion", work=Work(ops={"vector": 1e6}))
KERNEL_PS = alone_ps(KERNEL, CHIP)
JUMP_PS = seconds_to_ps(CHIP.fixed.loop_iteration_seconds)
COPY = Copy(name="c", opcode="copy-start", n_bytes=8.0)
LONG_PS, SHORT_PS = 10 * KERNEL_PS, KERNEL_PS // 10


def time_ps(*steps, price=lambda _: 0):
    """Return what some steps take."""
    return Alone(CHIP, price).steps_ps(steps)


def needing(*names):
    """Return a step that waits for others."""
    return Wait(name="w", opcode="copy-done", needs=names)


def test_kernels_follow_each_other():
    """The core runs one at a time."""
    assert time_ps(KERNEL, KERNEL) == 2 * KERNEL_PS > 0


@pytest.mark.parametrize(
    ("step", "expected_ps"),
    [
        (
            Loop(name="l", opcode="while", trips=7, condition=(KERNEL,), body=(KERNEL, KERNEL)),
            22 * KERNEL_PS + 7 * JUMP_PS,
        ),
        (Loop(name="l", opcode="while", trips=0, condition=(KERNEL,), body=(KERNEL,)), KERNEL_PS),
        (Branch(name="b", opcode="conditional", taken=1, branches=((), (KERNEL,))), KERNEL_PS + JUMP_PS),
        (Call(name="d", opcode="call", body=(KERNEL,)), KERNEL_PS),
    ],
    ids=["loop", "no trip", "branch", "call"],
)
def test_what_holds_others_takes_what_it_runs(step, expected_ps):
    """The condition once more than the body, and of branches the one that is taken."""
    assert time_ps(step) == expected_ps


@pytest.mark.parametrize(("own_ps", "expected_ps"), [(LONG_PS, LONG_PS), (SHORT_PS, KERNEL_PS)])
@pytest.mark.parametrize(
    "step",
    [
        COPY,
        Collective(name="c", opcode="all-reduce-start", is_async=True),
        HostTransfer(name="c", opcode="send", is_async=True),
        ChannelTransfer(name="c", opcode="send"),
    ],
    ids=lambda step: type(step).__name__,
)
def test_what_goes_on_beside_a_kernel_adds_what_sticks_out(step, own_ps, expected_ps):
    """Not both, one after the other."""
    assert time_ps(step, KERNEL, needing("c"), price=lambda _: own_ps) == expected_ps


@pytest.mark.parametrize("step", [Collective(name="c", opcode="all-reduce"), HostTransfer(name="c", opcode="infeed")])
def test_what_holds_the_core_up_adds_all(step):
    """No kernel begins before it has ended."""
    assert time_ps(step, KERNEL, price=lambda _: LONG_PS) == LONG_PS + KERNEL_PS


def test_copies_wait_for_each_other():
    """They share the memory."""
    other = Copy(name="d", opcode="copy-start", n_bytes=8.0)
    assert time_ps(COPY, other, needing("c", "d"), price=lambda _: LONG_PS) == 2 * LONG_PS


def test_a_send_does_not_wait_for_a_receive():
    """Each way has links of its own."""
    ends = [ChannelTransfer(name=name, opcode=name, is_send=name == "send") for name in ("recv", "send")]
    assert time_ps(*ends, needing("recv", "send"), price=lambda _: LONG_PS) == LONG_PS


def test_a_price_is_asked_once_for_steps_that_differ_in_names():
    """Layers repeat their copies, and each price is a run."""
    asked = []
    sizes = {"a": 8.0, "b": 8.0, "c": 16.0}
    steps = [Copy(name=name, opcode="copy-start", n_bytes=n_bytes) for name, n_bytes in sizes.items()]
    time_ps(*steps, price=lambda step: asked.append(step.n_bytes) or 1)
    assert asked == [8.0, 16.0]


def test_each_list_is_walked_once():
    """Conditionals nest: as deep as forty that hold the same list twice there would be no end."""
    steps = (KERNEL,)
    for _ in range(40):
        steps = (Call(name="a", opcode="call", body=steps), Call(name="b", opcode="call", body=steps))
    assert time_ps(*steps) == 2**40 * KERNEL_PS
