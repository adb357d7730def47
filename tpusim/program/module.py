"""A lowered program: its steps, its buffers, and what lowering could not treat by a rule."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tpusim.program.buffers import Buffer
from tpusim.program.provenance import Provenance
from tpusim.program.steps import AnyStep, Branch, Call, Loop

FORMAT = "tpusim-program-2"


class Estimate(msgspec.Struct, frozen=True, gc=False):
    """An instruction whose time was estimated without a rule of its own, and how."""

    name: str
    opcode: str
    how: str


class Program(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """What the machine runs. ``chip`` is the name of the chip it was lowered for, ``file`` what the lines count in.

    ``argument_bytes`` and ``output_bytes`` are physical: tiles padded, a tuple result's table of addresses included.
    ``alias_bytes`` are those of outputs that are written over arguments. ``schedule`` names the instruction at each
    position that buffers count in: what a loop, call or conditional runs stands before it.
    """

    name: str
    chip: str
    steps: tuple[AnyStep, ...]
    buffers: tuple[Buffer, ...] = ()
    schedule: tuple[str, ...] = ()
    argument_bytes: int = 0
    output_bytes: int = 0
    alias_bytes: int = 0
    temp_bytes: int = 0
    device_count: int = 1
    unsupported: tuple[Estimate, ...] = ()
    warnings: tuple[str, ...] = ()
    file: str = ""
    provenance: Provenance | None = None
    format: str = FORMAT


def walk(steps: tuple[AnyStep, ...], count: int = 1) -> Iterator[tuple[AnyStep, int]]:
    """Yield every step, outer before inner, with the number of times that it runs."""
    for step in steps:
        yield step, count
        # Trips are a factor, not a loop: ten million of them walk as fast as ten.
        for inner, times in children(step):
            yield from walk(inner, count * times)


def children(step: AnyStep) -> tuple[tuple[tuple[AnyStep, ...], int], ...]:
    """Return the lists of steps that a step runs, each with how often it runs them."""
    if isinstance(step, Loop):
        # The condition runs once more than the body, to find that it no longer holds.
        return ((step.condition, step.trips + 1), (step.body, step.trips))
    if isinstance(step, Branch):
        # The other branches stay in the file for those who edit which one is taken.
        return ((step.branches[step.taken], 1),) if step.branches else ()
    if isinstance(step, Call):
        return ((step.body, 1),)
    return ()


def every_step(steps: tuple[AnyStep, ...]) -> Iterator[AnyStep]:
    """Yield every step, those of branches that are not taken included."""
    for step in steps:
        yield step
        inner = step.branches if isinstance(step, Branch) else [listed for listed, _ in children(step)]
        for listed in inner:
            yield from every_step(listed)
