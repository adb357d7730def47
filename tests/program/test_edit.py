"""Lowered programs with some of their steps changed."""

from __future__ import annotations

from collections import Counter

from msgspec import structs

from tpusim.program.edit import with_steps
from tpusim.program.module import Program
from tpusim.program.steps import Call, Wait


def test_what_calls_share_is_changed_once():
    """A thousand levels of calling twice: two steps a level, and one at last, which has its new name."""
    steps = (Wait(name="w", opcode=""),)
    for _ in range(1000):
        steps = tuple(Call(name=name, opcode="call", body=steps) for name in ("a", "b"))
    renamed = with_steps(
        Program(name="p", chip="v5e", steps=steps),
        lambda listed: tuple(structs.replace(step, name="x") if isinstance(step, Wait) else step for step in listed),
    )
    assert Counter(step.name for step in renamed.every_step) == {"a": 1000, "b": 1000, "x": 1}
