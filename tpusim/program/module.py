"""A lowered program: its steps, its buffers, and what lowering could not treat by a rule."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tpusim.errors import ProgramError
from tpusim.program.buffers import Buffer
from tpusim.program.steps import AnyStep, Branch, Call, Loop

FORMAT = "tpusim-program-1"


class Estimate(msgspec.Struct, frozen=True, gc=False):
    """An instruction whose time was estimated without a rule of its own, and how."""

    name: str
    opcode: str
    how: str


class Program(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the machine runs. ``chip`` is the name of the chip it was lowered for.

    ``argument_bytes`` and ``output_bytes`` are physical: tiles padded, a tuple result's table of addresses included.
    """

    name: str
    chip: str
    steps: tuple[AnyStep, ...]
    buffers: tuple[Buffer, ...] = ()
    argument_bytes: int = 0
    output_bytes: int = 0
    device_count: int = 1
    unsupported: tuple[Estimate, ...] = ()
    warnings: tuple[str, ...] = ()
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


def save_program(program: Program, path: str | Path) -> None:
    """Write a program as indented JSON: one object, fields as in the classes, defaults left out, steps tagged by
    ``type``.
    """
    Path(path).write_text(encode_program(program), encoding="utf-8")


def encode_program(program: Program) -> str:
    """Return the text that ``save_program`` writes."""
    return msgspec.json.format(msgspec.json.encode(program), indent=1).decode() + "\n"


def load_program(path: str | Path) -> Program:
    """Read what ``save_program`` wrote, or a file written by hand in the same form.

    Raises ProgramError with the path inside the object if a field is missing, unknown or of the wrong type.
    """
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Program)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProgramError(f"{path}: not a lowered program ({FORMAT}): {error}") from error
