"""What a user calls an instruction."""

from __future__ import annotations

from tpusim.errors import ConfigError
from tpusim.ir.module import Module


def instruction_named(name: str, module: Module | None) -> str:
    """Return the instruction that a name is of, with HLO's ``%`` or without; of a body or branch what runs it."""
    if not isinstance(name, str):
        raise ConfigError(f"op: expected the name of an instruction, found {name!r:.80}")
    plain = name.removeprefix("%")
    if module is None or plain in module.homes:
        return plain
    callers = (one.name for home in module.computations for one in home if plain in one.called_computations)
    return next(callers, plain)
