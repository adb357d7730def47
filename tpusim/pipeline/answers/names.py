"""What a user calls an instruction."""

from __future__ import annotations

from tpusim.ir.module import Module


def instruction_named(name: str, module: Module | None) -> str:
    """Return the instruction that a name is of, with HLO's ``%`` or without; of a body or branch what runs it."""
    plain = name.removeprefix("%")
    computations = module.computations if module else ()
    if any(plain in computation.by_name for computation in computations):
        return plain
    callers = (one.name for computation in computations for one in computation if plain in one.called_computations)
    return next(callers, plain)
