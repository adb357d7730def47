"""What a program has the host do, or lie there, that a run does not have."""

from __future__ import annotations

from collections.abc import Iterator

from tpusim.ir.module import Module
from tpusim.semantics.host_memory import MOVES_LOST, host_work, states_memory
from tpusim.semantics.marks import mark_of


def host_warnings(given: Module, run: Module) -> Iterator[str]:
    """Yield what is missing of the host in the ``run`` module that was made of a ``given`` one."""
    if name := host_work(given):
        yield (
            f"{name!r} is work that the program has the host's processor do: its time there is not known, and it is "
            "timed as if a core of the chip did it"
        )
    if mark_of(given, MOVES_LOST):
        yield (
            "partitioning has dropped where the program moves arrays to and from host memory: its arguments and "
            "results are moved, and what it keeps there in between is free and counted in HBM; "
            "tpusim.jax.compile_for has all of it"
        )
    calling = (computation for computation in run.computations if "custom-call" in computation.opcodes)
    calls = (i for computation in calling for i in computation if i.opcode == "custom-call")
    if name := next((call.name for call in calls if states_memory(call.attributes)), ""):
        yield (
            f"{name!r} says in which memory an array is to lie, and the schedule has no copy that brings it there: it "
            "costs nothing here"
        )
