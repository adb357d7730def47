"""What a worker does: points of one program in, outcomes out."""

from __future__ import annotations

import gc
import os
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from multiprocessing import parent_process
from multiprocessing.connection import wait
from threading import Thread
from time import monotonic
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import structs

from tpusim.analysis.energy.run import action_counts, run_energy
from tpusim.analysis.utilisation import op_activities, utilisation
from tpusim.cost.models.registry import allow_plugin
from tpusim.errors import CapacityError, TpusimError, fault_text
from tpusim.hardware.chip import Chip
from tpusim.ir.custom_calls import REGISTERED
from tpusim.ir.module import Module
from tpusim.limits import COLLECTED_OBJECTS
from tpusim.pipeline.reuse import Reuse, Reusing, no_reuse
from tpusim.pipeline.stages import read_program, simulate
from tpusim.program.module import Program
from tpusim.semantics.infer.custom_calls import registrations_of
from tpusim.study.programs import ProgramText
from tpusim.study.spec import RunSettings

Status = Literal["ok", "does not fit", "error", "fault"]

_KEPT_PROGRAMS = 8


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to. ``message`` is the first line of why it has no time, ``counts`` are those of ``Result``.

    An ``error`` is one of what was given, a ``fault`` one of tpusim itself.

    Energy and mean power are those of one of the ``devices``, ``all_devices_energy_j`` and the cost those of all.
    """

    status: Status
    message: str = ""
    time_us: float | None = None
    devices: int | None = None
    energy_j: float | None = None
    all_devices_energy_j: float | None = None
    average_power_w: float | None = None
    cost_usd: float | None = None
    bound: str = ""
    warnings: int | None = None
    estimates: int | None = None
    counts: dict[str, float] = {}


class Job(NamedTuple):
    """One run of a program as a worker gets it, with the chip that it runs on."""

    chip: Chip
    topology: str | None
    schedule: str
    settings: RunSettings


def run_batch(
    program: ProgramText, jobs: Sequence[Job], seconds: float, reuse: bool = True, plugins: Sequence[str] = ()
) -> list[Outcome]:
    """Return the outcomes of the first jobs of a batch, of at least one and of as many as begin within ``seconds``.

    An error of one point is its outcome, and no reason to stop. Chips may load models from ``plugins``.
    """
    allow_plugin(*plugins)
    end, found = monotonic() + seconds, []
    for job in jobs:
        found.append(_outcome(program, job, _REUSE if reuse else no_reuse))
        if monotonic() > end:
            break
    return found


_REUSE = Reuse()
_PROGRAMS: OrderedDict[tuple[str, str], Module | Program] = OrderedDict()


def _outcome(program: ProgramText, job: Job, reuse: Reusing) -> Outcome:
    try:
        loaded = _loaded(program)
        return reuse("outcome", loaded, job[1:], job.chip, lambda chip: _run(loaded, job._replace(chip=chip), reuse))
    except CapacityError as error:
        return Outcome(status="does not fit", message=_first_line(error))
    except TpusimError as error:
        return Outcome(status="error", message=_first_line(error))
    # Of this machine, as the command line has it.
    except (OSError, MemoryError) as error:
        return Outcome(status="error", message=f"{type(error).__name__}: {_first_line(error)}")
    # A fault of ours at one point is told of there, and costs no other one its time.
    except Exception as error:
        return Outcome(status="fault", message=" ".join(fault_text(error, then="; ").split()))


def registrations(program: ProgramText) -> tuple[str, ...]:
    """Return the marks of what this process has registered, and no other one knows, that a program's times follow from.

    Of a program that cannot be read there are none.
    """
    return _registrations(program, tuple((name, one.mark) for name, one in REGISTERED.items()))


# Asked of each point.
@lru_cache(maxsize=_KEPT_PROGRAMS)
def _registrations(program: ProgramText, known: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return the same of what is ``known`` by name."""
    try:
        loaded = _loaded(program) if known else None
    except TpusimError:
        return ()
    # The steps of a lowered program have their costs.
    return registrations_of(loaded) if isinstance(loaded, Module) else ()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _run(program: Module | Program, job: Job, reuse: Reusing) -> Outcome:
    chip, topology, schedule, settings = job
    result = simulate(program, chip, topology=topology, schedule=schedule, **settings._asdict(), reuse=reuse)
    timeline = result.timeline
    # Not the summary, which has more to add up, and compares the chip with the shipped ones.
    use, energy = utilisation(timeline), run_energy(op_activities(timeline), chip, timeline.total_ps)
    return Outcome(
        status="ok",
        time_us=result.time_us,
        devices=result.pod.device_count,
        energy_j=energy.total_j,
        # Of one device that is known already.
        all_devices_energy_j=energy.total_j if result.pod.device_count == 1 else result.all_devices_j,
        average_power_w=energy.average_power_w,
        cost_usd=result.cost_usd,
        bound=use.bound_by,
        **structs.asdict(result.caveats),
        counts=action_counts(use, chip),
    )


def _loaded(program: ProgramText) -> Module | Program:
    """Return a program, read once for all its points."""
    # Variants that a function makes may have one name.
    key = program.path, program.digest
    found = _PROGRAMS.get(key)
    if found is None:
        found = _PROGRAMS[key] = read_program(program.path, program.content)
        if len(_PROGRAMS) > _KEPT_PROGRAMS:
            _PROGRAMS.popitem(last=False)
    _PROGRAMS.move_to_end(key)
    return found


def prepare_worker() -> None:
    """Make a process a worker: it ends with the process that started it, however that ends."""
    # As the command line does it: what a run makes has hardly any cycles.
    gc.set_threshold(COLLECTED_OBJECTS)
    parent: Any = parent_process()
    if parent is not None:
        # A worker waits for work at a pipe that other workers hold open as well, and would wait for ever.
        Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()
