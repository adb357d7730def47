"""A lowered program: its steps, its buffers, and what lowering could not treat by a rule."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from tpusim.errors import ProgramError
from tpusim.program.buffers import Buffer
from tpusim.program.steps import AnyStep, Branch, Call, Kernel, Loop, Step

FORMAT = "tpusim-program-1"

_MOST = 1e24
"""No count of anything is larger; beyond it arithmetic on floats loses itself."""


class Estimate(msgspec.Struct, frozen=True, gc=False):
    """An instruction whose time was estimated without a rule of its own, and how."""

    name: str
    opcode: str
    how: str


class Program(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """What the machine runs. ``chip`` is the name of the chip it was lowered for, ``file`` what the lines count in.

    ``argument_bytes`` and ``output_bytes`` are physical: tiles padded, a tuple result's table of addresses included.
    ``alias_bytes`` are those of outputs that are written over arguments.
    """

    name: str
    chip: str
    steps: tuple[AnyStep, ...]
    buffers: tuple[Buffer, ...] = ()
    argument_bytes: int = 0
    output_bytes: int = 0
    alias_bytes: int = 0
    device_count: int = 1
    unsupported: tuple[Estimate, ...] = ()
    warnings: tuple[str, ...] = ()
    file: str = ""
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
    # Defaults are left out, but for the version: who reads the file must see it.
    data = {"format": program.format, **msgspec.to_builtins(program)}
    return msgspec.json.format(msgspec.json.encode(data), indent=1).decode() + "\n"


def load_program(path: str | Path) -> Program:
    """Read what ``save_program`` wrote, or a file written by hand in the same form.

    Raises ProgramError with the path inside the object if a field is missing, unknown or of the wrong type.
    """
    try:
        program = msgspec.json.decode(Path(path).read_bytes(), type=Program)
        verify_program(program)
    except (msgspec.DecodeError, UnicodeDecodeError, ProgramError) as error:
        raise ProgramError(f"{path}: not a lowered program ({FORMAT}): {error}") from error
    return program


def verify_program(program: Program) -> None:
    """Raise ProgramError if a program's steps cannot run: a format, count or branch that does not exist."""
    if program.format != FORMAT:
        raise ProgramError(f"expected the format {FORMAT!r}, found {program.format!r}")
    for step in every_step(program.steps):
        wrong = _wrong_with(step)
        if wrong:
            raise ProgramError(f"{step.name!r}: {wrong}")


def every_step(steps: tuple[AnyStep, ...]) -> Iterator[AnyStep]:
    """Yield every step, those of branches that are not taken included."""
    for step in steps:
        yield step
        inner = step.branches if isinstance(step, Branch) else [listed for listed, _ in children(step)]
        for listed in inner:
            yield from every_step(listed)


def _wrong_with(step: AnyStep) -> str:
    """Say what keeps a step from running, or return an empty string."""
    if isinstance(step, Branch) and not 0 <= step.taken < max(1, len(step.branches)):
        return f"expected taken to be one of {len(step.branches)} branches, found {step.taken}"
    if isinstance(step, Loop | Branch):
        most = len(step.branches) - 1 if isinstance(step, Branch) else _MOST
        for choice in step.choices:
            if not choice.values or not all(0 <= value <= most for value in choice.values):
                return f"choices: expected numbers from 0 to {most:.4g}, found {list(choice.values)}"
    if isinstance(step, Kernel):
        for stream in step.streams:
            if stream.fetches < 1:
                return f"stream {stream.operand!r}: expected at least one fetch, found {stream.fetches}"
        if step.tiles < 1 or step.cores < 1:
            return f"expected at least one tile and one core, found {step.tiles} and {step.cores}"
        if step.loops and prod(loop.trips for loop in step.loops) != step.tiles:
            return f"expected loops whose trips multiply to {step.tiles} tiles, found {[x.trips for x in step.loops]}"
    return next(_misfit_numbers(step), "")


def _misfit_numbers(value: Any, place: str = "") -> Iterator[str]:
    """Yield what is wrong with the numbers of a step: none may be negative or beyond all bounds."""
    for name in value.__struct_fields__:
        found, where = getattr(value, name), f"{place}{name}"
        if isinstance(found, (int, float)) and not 0 <= found <= _MOST:
            yield f"{where}: expected a number from 0 to {_MOST:.0e}, found {found}"
        elif isinstance(found, msgspec.Struct):
            yield from _misfit_numbers(found, f"{where}.")
        elif isinstance(found, tuple):
            for number, item in enumerate(found):
                # Steps inside a step are verified by themselves.
                if isinstance(item, msgspec.Struct) and not isinstance(item, Step):
                    yield from _misfit_numbers(item, f"{where}[{number}].")
