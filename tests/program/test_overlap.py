"""Which collectives may be under way beside others."""

from __future__ import annotations

import pytest

from tests.machine.collectives import program_of
from tpusim.program.overlap import overlapping_collectives
from tpusim.program.steps import Call, Collective, Kernel, Loop, Wait

KERNEL = Kernel(name="k", opcode="fusion")
A, B = (Collective(name=name, opcode="all-reduce", kind="all-reduce", is_async=True) for name in "ab")
SYNC = Collective(name="s", opcode="all-reduce", kind="all-reduce")
A_DONE, B_DONE = (Wait(name=f"{name}-done", opcode="wait", needs=(name,)) for name in "ab")


def loop(*body) -> Loop:
    """Return a loop of some steps."""
    return Loop(name="l", opcode="while", body=body)


@pytest.mark.parametrize(
    ("steps", "names"),
    [
        ((A, KERNEL, A_DONE, SYNC, B, B_DONE), ""),
        ((A, SYNC, A_DONE, B, B_DONE), "as"),
        ((A, B, A_DONE, B_DONE, SYNC), "ab"),
        ((A, loop(KERNEL), A_DONE, SYNC), ""),
        ((A, loop(SYNC), A_DONE, B), "asb"),
        ((loop(A), A_DONE, SYNC), "as"),
        ((SYNC, A), ""),
        ((Call(name="c", opcode="async-start", body=(SYNC,), is_async=True), A, A_DONE), "as"),
        ((Call(name="c", opcode="call", body=(SYNC,)), A, A_DONE), ""),
    ],
)
def test_what_overlaps(steps, names):
    """From the start of one to the step that needs its end; all where that cannot be told."""
    found = overlapping_collectives(program_of(*steps))
    assert {step.name for step in found} == set(names)
