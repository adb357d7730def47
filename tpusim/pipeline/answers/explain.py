"""Why an op takes as long as it does: whatever takes time in a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from tpusim.errors import ConfigError, did_you_mean
from tpusim.hardware.chip import Chip
from tpusim.hardware.pod import Topology, as_topology
from tpusim.ir.module import Module
from tpusim.lowering.module import DEFAULT_TRIPS
from tpusim.pipeline.answers.device_orders import RunTimes
from tpusim.pipeline.answers.kernel import explain_kernel
from tpusim.pipeline.answers.names import instruction_named
from tpusim.pipeline.answers.shown import ExplainedKernel, ExplainedStep
from tpusim.pipeline.answers.steps import Case, explain_step
from tpusim.pipeline.result import Result
from tpusim.pipeline.stages import simulate
from tpusim.program.module import Program
from tpusim.program.steps import AnyStep, Kernel

MATTER_MOST = 3
"""Ops that are explained where none is named."""

Explained = ExplainedKernel | ExplainedStep


def explain(
    program: Module | Program | str | Path,
    op: str,
    chip: Chip | str | None = None,
    *,
    topology: Topology | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    schedule: str = "",
    default_trip_count: int = DEFAULT_TRIPS,
    allow_overflow: bool = False,
    tried: int = 5,
) -> Explained:
    """Return why an op takes as long as it does, whatever it is.

    Of a kernel: its tiles, units, memories and padding; ``tried`` is how many ways to cut it are wanted, the best of
    those that can be stated. Of a collective: its groups on the torus, the links that they share, and better orders of
    the devices. Of a loop, conditional or call: what is inside. Of a copy, transfer or wait: rates, and what waited.
    The other arguments are those of ``simulate``. Raises ConfigError if nothing of that name took any time,
    CapacityError as ``simulate`` does.
    """
    result = simulate(
        program,
        chip,
        topology=topology,
        overrides=overrides,
        default_trip_count=default_trip_count,
        schedule=schedule,
        allow_overflow=allow_overflow,
    )
    return explain_op(result, op, topology, tried)


def explain_longest(
    program: Module | Program | str | Path,
    chip: Chip | str | None = None,
    *,
    topology: Topology | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    schedule: str = "",
    default_trip_count: int = DEFAULT_TRIPS,
    allow_overflow: bool = False,
) -> tuple[Explained, ...]:
    """Return the same of the three ops to which the end of the run owes most."""
    result = simulate(
        program,
        chip,
        topology=topology,
        overrides=overrides,
        default_trip_count=default_trip_count,
        schedule=schedule,
        allow_overflow=allow_overflow,
    )
    run_ps: RunTimes = {}
    ops = result.critical_path.ops[:MATTER_MOST]
    return tuple(explain_op(result, op.name, topology, run_ps=run_ps) for op in ops)


def explain_op(
    result: Result,
    op: str,
    topology: Topology | str | None = None,
    tried: int = 5,
    *,
    run_ps: RunTimes | None = None,
) -> Explained:
    """Return why an op of a run takes as long as it does; ``topology`` is the slice that was asked for.

    ``run_ps`` is shared by several ops of a run: see ``better_orders``.
    """
    op = instruction_named(op, result.module)
    step, slice_ = _step(result, op), as_topology(topology)
    caveats = structs.asdict(result.caveats)
    if isinstance(step, Kernel) and not step.scalar:
        return structs.replace(explain_kernel(result, slice_, step, tried), **caveats)
    return ExplainedStep(**structs.asdict(explain_step(Case(result, slice_, op, step, run_ps))) | caveats)


def _step(result: Result, op: str) -> AnyStep | None:
    """Return the step of a name that took most time; None is the launch of the program."""
    steps, times = result.program.every_step, dict[int, int]()
    for record in result.timeline.records:
        if record.name == op:
            times[record.step] = times.get(record.step, 0) + record.total_ps
    # What only runs others has no record of its own.
    named = [number for number, step in enumerate(steps) if step.name == op]
    if not times and not named:
        names = [step.name for step in steps]
        hint = did_you_mean(op, names)
        raise ConfigError(
            f"{result.program.name}: expected the name of one of its {len(names)} ops that take time, "
            f"as `tpusim run` prints them, found {op!r}{hint}"
        )
    number = max(times, key=lambda number: times[number]) if times else named[0]
    return steps[number] if number >= 0 else None
