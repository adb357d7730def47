"""Cycle-approximate simulator for TPU programs given as XLA HLO text.

    HLO text -text-> [ir] -lowering-> [program] -machine-> [timeline] -analysis-> numbers -report-> text, plot, file

The rooms in reading order. Nouns are frozen data; verbs are functions from noun to noun, and do not know each other.

    errors.py      who must act, and what the message says          ground floor
    source.py      a text, a place in it, the caret under it
    units.py       time is an integer number of picoseconds
    shapes/        what any tensor looks like                       nouns
    ir/            the HLO program as given
    hardware/      chips and pods as data, from configs/*.toml
    program/       the HLO program cut up into steps
    timeline/      what happened
    text/          HLO text to and from ir                          verbs
    compiler/      unscheduled ir to scheduled ir
    lowering/      scheduled ir and hardware to program
    machine/       program and hardware to timeline
    numerics/      ir to the values that it computes
    analysis/      timeline to numbers
    report/        numbers to text, plots and files
    pipeline/      the flat list of stages: where the verbs meet
    plot.py        pictures of what the pipeline returns
    export.py      files of it for viewers
    cli/           options of the command line to calls of the pipeline

First calls: ``program = tpusim.load("step.hlo.txt.gz")``, then ``tpusim.simulate(program, "v5e")``.
CONTRIBUTING.md says which room a new line belongs to. The names below load their room when first asked for, so that
``import tpusim`` stays free of NumPy and Numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpusim import export, plot
    from tpusim.build.builder import Builder
    from tpusim.errors import ConfigError, ProgramError, SimulationError, TpusimError, UnsupportedError
    from tpusim.hardware.chip import Chip
    from tpusim.hardware.load import load_chip
    from tpusim.ir.custom_calls import register_custom_call
    from tpusim.pipeline.explain import explain
    from tpusim.pipeline.result import Result
    from tpusim.pipeline.stages import check, execute, load, memory, simulate
    from tpusim.shapes.notation import parse_shape

__version__ = "0.1.0"

__all__ = [
    "Builder",
    "Chip",
    "ConfigError",
    "ProgramError",
    "Result",
    "SimulationError",
    "TpusimError",
    "UnsupportedError",
    "__version__",
    "check",
    "execute",
    "explain",
    "export",
    "load",
    "load_chip",
    "memory",
    "parse_shape",
    "plot",
    "register_custom_call",
    "simulate",
]

_HOMES = {
    "Builder": "tpusim.build.builder",
    "Chip": "tpusim.hardware.chip",
    "ConfigError": "tpusim.errors",
    "ProgramError": "tpusim.errors",
    "Result": "tpusim.pipeline.result",
    "SimulationError": "tpusim.errors",
    "TpusimError": "tpusim.errors",
    "UnsupportedError": "tpusim.errors",
    "check": "tpusim.pipeline.stages",
    "execute": "tpusim.pipeline.stages",
    "explain": "tpusim.pipeline.explain",
    "export": "tpusim.export",
    "load": "tpusim.pipeline.stages",
    "load_chip": "tpusim.hardware.load",
    "memory": "tpusim.pipeline.stages",
    "parse_shape": "tpusim.shapes.notation",
    "plot": "tpusim.plot",
    "register_custom_call": "tpusim.ir.custom_calls",
    "simulate": "tpusim.pipeline.stages",
}


def __getattr__(name: str) -> Any:
    """Return a public name from the room that it lives in (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tpusim' has no attribute {name!r}; its public names are {', '.join(__all__)}")
    home = import_module(_HOMES[name])
    # Pictures and exports are modules of functions.
    return home if name in ("export", "plot") else getattr(home, name)


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted({*globals(), *__all__})
