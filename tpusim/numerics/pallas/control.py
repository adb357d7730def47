"""Operations that hold others: branches and loops; and those that only mark a place.

Source: MLIR, dialects ``scf`` and ``cf``; JAX, dialect ``tpu`` of Mosaic.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tpusim.errors import ProgramError, SimulationError
from tpusim.numerics.pallas.code import Activity, BoundWhere, Frame
from tpusim.numerics.pallas.table import Function, Where, operation


@operation("scf.if", in_frame=True)
def _if(where: BoundWhere) -> Function:
    branches = where.code(0), where.code(1)
    return lambda frame, condition: branches[0 if condition else 1].run(frame)


@operation("scf.index_switch", in_frame=True)
def _switch(where: BoundWhere) -> Function:
    """Run the region of the case that the operand is, the first region if it is none."""
    cases = {case: where.code(at) for at, case in enumerate(where.attributes["cases"], 1)}
    default = where.code(0)
    return lambda frame, chosen: cases.get(int(chosen), default).run(frame)


_LOOP = "a loop of a Pallas kernel"


@operation("scf.for", in_frame=True)
def _for(where: BoundWhere) -> Function:
    body = where.code(0)

    def loop(frame: Frame, first: Any, last: Any, step: Any, *carried: Any) -> Activity:
        values: Any = carried
        counters = range(int(first), int(last), int(step))
        frame.run.work.spend(len(counters) * len(body.steps), _LOOP)
        for counter in counters:
            values = yield from body.run(frame, (np.int32(counter), *values))
        return values

    return loop


@operation("scf.while", in_frame=True)
def _while(where: BoundWhere) -> Function:
    """Run the first region, which decides and hands on; then the second, as long as it was decided so."""
    before, after, most = where.code(0), where.code(1), where.settings.max_iterations

    def loop(frame: Frame, *carried: Any) -> Activity:
        values, turns = carried, 0
        while True:
            goes_on, *handed = yield from before.run(frame, values)
            if not goes_on:
                return handed
            if turns == most:
                raise SimulationError(f"{_LOOP} has not ended after {turns:,} (--max-iterations)")
            frame.run.work.spend(len(before.steps) + len(after.steps), _LOOP)
            values, turns = (yield from after.run(frame, handed)), turns + 1

    return loop


@operation("tpu.region", "scf.execute_region", "tpu.trace", in_frame=True)
def _region(where: BoundWhere) -> Function:
    body = where.code(0)
    return lambda frame: body.run(frame)


@operation("cf.assert", is_pure=False)
def _assert(where: Where) -> Function:
    message = str(where.attributes.get("msg", ""))

    def check(condition: Any) -> None:
        if not condition:
            raise ProgramError(f"a check in the body of a Pallas kernel does not hold: {message}")

    return check


@operation("tpu.trace_start", "tpu.trace_stop", "tpu.trace_value", "tpu.delay", "tpu.log", "tpu.log_buffer")
@operation("tpu.barrier")
def _mark(where: Where) -> Function:
    """Do nothing: these are for tools and for time."""
    return lambda *operands: None


@operation("tpu.iteration_bound", in_frame=True)
def _bound(where: Where) -> Function:
    dimension = int(where.attributes["dim"])
    return lambda frame: np.int32(frame.run.grid[dimension])


@operation("tpu.device_id", in_frame=True)
def _device(where: Where) -> Function:
    return lambda frame: np.int32(frame.run.device)


@operation("tpu.core_id", "tpu.subcore_id")
def _core(where: Where) -> Function:
    """Return the number of the core: one core runs all steps of the grid."""
    return lambda: np.int32(0)


@operation("tpu.prng_set_seed_32", in_frame=True)
def _seed(where: Where) -> Function:
    """Seed the generator."""

    def seed(frame: Frame, *words: Any) -> None:
        frame.run.seed([int(word) & 0xFFFFFFFF for word in words])

    return seed


@operation("tpu.prng_random_bits", in_frame=True)
def _random_bits(where: Where) -> Function:
    """Return random bits: of Philox by the seed, since the hardware's own generator is not published."""
    dimensions = where.result().dimensions
    return lambda frame: frame.run.random.integers(0, 1 << 32, dimensions, np.uint32).view(np.int32)
