"""Whose schedule runs: the one that a text has, the same with tiles chosen anew, or one that tpusim makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast, get_args

from msgspec import structs

from tpusim.errors import ConfigError, UnsupportedError, did_you_mean
from tpusim.hardware.chip import Chip
from tpusim.hardware.load import load_chip
from tpusim.hardware.pod import Topology
from tpusim.ir.module import Module
from tpusim.limits import RANK
from tpusim.lowering.module import DEFAULT_TRIPS
from tpusim.program.module import Program
from tpusim.program.provenance import Provenance, Schedule
from tpusim.semantics.verify.module import verify_module
from tpusim.shapes.shape import leaves

Price = Callable[[Module], float]
"""What a scheduled module takes on the chip: time, or infinity if it does not fit."""

SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
"""As the text has it; the same kernels with tiles and places chosen anew for the chip; compiled anew for the chip."""


def check_schedule(schedule: Any) -> None:
    """Refuse a schedule that is none of ``SCHEDULES``; an empty one leaves the choice to the program."""
    if schedule not in ("", None, *SCHEDULES):
        hint = did_you_mean(schedule, SCHEDULES) if isinstance(schedule, str) else ""
        raise ConfigError(f"schedule: expected one of {', '.join(SCHEDULES)}, found {schedule!r:.80}{hint}")


def check_lowered(program: Program, schedule: str, default_trip_count: int) -> None:
    """Refuse what a lowered program no longer takes: another schedule than it has, and trips of loops without any."""
    check_schedule(schedule)
    if default_trip_count != DEFAULT_TRIPS:
        raise ConfigError(
            f"default_trip_count: expected none, since {program.name} is lowered already and its loops have their "
            f"trips, found {default_trip_count}: give it when the program is lowered (tpusim lower)"
        )
    if schedule not in ("", "given", program.whose_schedule):
        own = program.whose_schedule
        raise ConfigError(f"schedule: expected {own}, since {program.name} is lowered already, found {schedule!r}")


def resolved_schedule(program: Module | Program, schedule: str) -> Schedule:
    """Return the schedule that a program runs under: the one that is asked for, else its own, else ours."""
    check_schedule(schedule)
    if isinstance(program, Program) and schedule in ("", None, "given"):
        return program.whose_schedule
    if schedule:
        return cast("Schedule", schedule)
    return "compiled" if isinstance(program, Module) and not program.is_scheduled else "given"


def other_schedules(program: Module | Program, used: str) -> tuple[str, ...]:
    """Return the schedules made for a chip that a program could have instead of the one that is used."""
    if isinstance(program, Program):
        return ()
    return tuple(each for each in SCHEDULES[1:] if each != used and (program.is_scheduled or each != "retiled"))


def with_schedule(
    module: Module,
    made_by: Provenance,
    chip: Chip,
    schedule: str = "",
    price: Price | None = None,
    *,
    topology: Topology | None = None,
) -> tuple[Module, Provenance]:
    """Return the scheduled module that runs on a chip, of a slice if one is given, and what made it.

    Without a ``schedule`` a module that has one keeps it, and any other is compiled. In a retiled module arrays lie
    where they did or where our own passes put them, whichever has the lower ``price``, so that more memory does not
    make it slower as a rule; without a price they stay. Raises ProgramError if the module is wrong, UnsupportedError
    if it cannot be had as is wanted.
    """
    schedule = resolved_schedule(module, schedule)
    if schedule == "given" and module.is_scheduled:
        return module, made_by
    # The compiler loads where something is compiled.
    from tpusim.compiler.passes import compile_module, place_anew
    from tpusim.compiler.target import Target
    from tpusim.pipeline.targets import target_of
    from tpusim.undo.unplace import unplace
    from tpusim.undo.untile import untile

    if schedule == "compiled":
        with placed(module):
            compiled = compile_module(front_end_form(module), target_of(chip, topology))
        return compiled, structs.replace(made_by, compiler="tpusim", chip=chip.name, possible=(chip.name,), signs=())
    if not module.is_scheduled:
        place = module.source.name if module.source else module.name
        raise UnsupportedError(
            f"{place}: expected a scheduled program for --schedule {schedule}, found one that nobody has compiled: "
            "leave the option out and tpusim compiles it, or give what the TPU compiler makes (tpusim.jax.compile_for)"
        )
    verify_module(module)
    # Of a program that no chip is known for, what it says of its kernels is all that there is.
    cores = load_chip(made_by.chip).cores_per_device if made_by.chip else chip.cores_per_device
    retiled = untile(module, chip, cores)
    if price is not None:
        retiled = min(place_anew(unplace(retiled), Target(chip)), retiled, key=price)
    return retiled, structs.replace(made_by, retiled_for=chip.name)


@contextmanager
def placed(module: Module) -> Iterator[None]:
    """Give the place of its instruction to an error of compiling a module, which begins with its name.

    A compiler's graph no longer knows where its nodes come from, but they keep their names.
    """
    try:
        yield
    except UnsupportedError as error:
        home = module.homes.get(name := error.message.partition(":")[0])
        if error.span is not None or home is None:
            raise
        raise UnsupportedError(error.message, module.where(home, home[name])) from error


def front_end_form(module: Module) -> Module:
    """Return a module as a front end would have made it: itself, or with what a compiler did or might do undone.

    Raises UnsupportedError for arrays of too many dimensions to compile.
    """
    from tpusim.undo.defuse import defuse, is_plain, made_at_once
    from tpusim.undo.host import name_moves

    verify_module(module)
    for instruction in (one for computation in module.computations for one in computation):
        if fault := RANK.fault(max([leaf.rank for leaf in leaves(instruction.shape)], default=0)):
            raise UnsupportedError(f"{instruction.name}: {fault}")
    named = name_moves(module)
    return made_at_once(named) if is_plain(named) else defuse(named)
