"""What the machine takes of SimPy; all of the room that uses it takes it from here."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_METADATA = "importlib.metadata"


def _load_simpy() -> None:
    """Load SimPy, but not what it asks for its own version; that is asked when somebody wants to know it.

    For this one answer the standard library loads 60 modules (mail, archives, sockets): a tenth of the time in which
    a small program is run.
    """
    if "simpy" in sys.modules or _METADATA in sys.modules:
        return
    unasked: Any = ModuleType(_METADATA)
    unasked.version, unasked.PackageNotFoundError = _not_yet, LookupError
    sys.modules[_METADATA] = importlib.metadata = unasked
    try:
        simpy: Any = importlib.import_module("simpy")
    finally:
        del sys.modules[_METADATA], importlib.metadata
    simpy.__getattr__ = _attribute


def _not_yet(package: str) -> str:
    raise LookupError(package)


def _attribute(name: str) -> str:
    """Return SimPy's version, as its module does that has it; there is no other name that it lacks."""
    if name != "__version__":
        raise AttributeError(f"module 'simpy' has no attribute {name!r}")
    from importlib.metadata import version

    return version("simpy")


_load_simpy()

from simpy import Environment, Event, Store  # noqa: E402 (after it is loaded in that way)
from simpy.core import StopSimulation  # noqa: E402

__all__ = ["Environment", "Event", "StopSimulation", "Store"]
