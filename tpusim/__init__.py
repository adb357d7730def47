"""Cycle-approximate simulator for TPU programs given as XLA HLO text.

    HLO text -text-> [ir] -lowering-> [program] -machine-> [timeline] -analysis-> numbers -report-> text, plot, file

The rooms in reading order. Nouns are frozen data; verbs are functions from noun to noun, and do not know each other.

    errors.py      what has to change, and what the message says    ground floor
    source.py      a text, a place in it, the caret under it
    units.py       time is an integer number of picoseconds
    shapes/        what any tensor looks like                       nouns
    ir/            the HLO program as given
    hardware/      chips and pods as data, from configs/*.toml
    program/       the HLO program cut up into steps
    timeline/      what happened
    frontends/     StableHLO and serialised HLO to HLO text         verbs
    text/          HLO text to and from ir
    compiler/      unscheduled ir to scheduled ir
    lowering/      scheduled ir and hardware to program
    machine/       program and hardware to timeline
    numerics/      ir to the values that it computes
    analysis/      timeline to numbers
    report/        numbers to text, plots and files
    pipeline/      the flat list of stages: where the verbs meet
    study/         many runs over many machines
    advice/        what would make a program faster
    plot.py        pictures of what the pipeline returns
    models.py      what a user's own model of a unit is written with
    export.py      files of it for viewers
    cli/           options of the command line to calls of the pipeline

First calls: ``program = tpusim.load("step.hlo.txt.gz")``, then ``tpusim.simulate(program, "v5e")``.
CONTRIBUTING.md says which room a new line belongs to. The names below load their room when first asked for, so that
``import tpusim`` stays free of NumPy and Numba.
"""

from __future__ import annotations

# As typing's. Nothing is loaded here that takes a while: an interrupt would not be quiet yet.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tpusim import export as export
    from tpusim import models as models
    from tpusim import plot as plot
    from tpusim.advice.advise import Advice as Advice
    from tpusim.advice.advise import advise as advise
    from tpusim.analysis.accuracy import Validation as Validation
    from tpusim.analysis.compare import Comparison as Comparison
    from tpusim.analysis.explained.grid import KernelGrid as KernelGrid
    from tpusim.analysis.explanation import Explanation as Explanation
    from tpusim.analysis.memory import MemoryReport as MemoryReport
    from tpusim.cost.models.registry import allow_plugin as allow_plugin
    from tpusim.cost.models.registry import allowed_plugins as allowed_plugins
    from tpusim.errors import CapacityError as CapacityError
    from tpusim.errors import ConfigError as ConfigError
    from tpusim.errors import ProgramError as ProgramError
    from tpusim.errors import SimulationError as SimulationError
    from tpusim.errors import TpusimError as TpusimError
    from tpusim.errors import UnsupportedError as UnsupportedError
    from tpusim.hardware.array import Array as Array
    from tpusim.hardware.buffers import Buffers as Buffers
    from tpusim.hardware.buffers import Rates as Rates
    from tpusim.hardware.chip import Chip as Chip
    from tpusim.hardware.load import load_chip as load_chip
    from tpusim.hardware.pod import Topology as Topology
    from tpusim.ir.custom_calls import register_custom_call as register_custom_call
    from tpusim.pipeline.answers.explain import explain as explain
    from tpusim.pipeline.answers.grid import kernel_grid as kernel_grid
    from tpusim.pipeline.answers.tuning import rank as rank
    from tpusim.pipeline.compile import compile as compile
    from tpusim.pipeline.device_order import with_device_order as with_device_order
    from tpusim.pipeline.layers import run_layers as run_layers
    from tpusim.pipeline.layers import run_layers_with_memory as run_layers_with_memory
    from tpusim.pipeline.modules import Builder as Builder
    from tpusim.pipeline.modules import Module as Module
    from tpusim.pipeline.result import Result as Result
    from tpusim.pipeline.stages import check as check
    from tpusim.pipeline.stages import diff as diff
    from tpusim.pipeline.stages import execute as execute
    from tpusim.pipeline.stages import load as load
    from tpusim.pipeline.stages import lower as lower
    from tpusim.pipeline.stages import memory as memory
    from tpusim.pipeline.stages import simulate as simulate
    from tpusim.program.layers import Layer as Layer
    from tpusim.program.module import Program as Program
    from tpusim.program.steps import Branch as Branch
    from tpusim.program.steps import Call as Call
    from tpusim.program.steps import ChannelTransfer as ChannelTransfer
    from tpusim.program.steps import Collective as Collective
    from tpusim.program.steps import Copy as Copy
    from tpusim.program.steps import HostTransfer as HostTransfer
    from tpusim.program.steps import Kernel as Kernel
    from tpusim.program.steps import Loop as Loop
    from tpusim.program.steps import TileLoop as TileLoop
    from tpusim.program.steps import Wait as Wait
    from tpusim.program.stored import load_program as load_program
    from tpusim.program.stored import save_program as save_program
    from tpusim.program.work import Matmul as Matmul
    from tpusim.program.work import Stream as Stream
    from tpusim.program.work import Work as Work
    from tpusim.shapes.notation import parse_shape as parse_shape
    from tpusim.study.scale import Scaling as Scaling
    from tpusim.study.scale import scale as scale
    from tpusim.study.study import Study as Study
    from tpusim.timeline.records import Timeline as Timeline
    from tpusim.validation.times import validate as validate

__version__ = "0.1.0"

_NAMES = {
    "tpusim": ("export", "models", "plot"),
    "tpusim.advice.advise": ("Advice", "advise"),
    "tpusim.analysis.accuracy": ("Validation",),
    "tpusim.analysis.compare": ("Comparison",),
    "tpusim.analysis.explanation": ("Explanation",),
    "tpusim.analysis.explained.grid": ("KernelGrid",),
    "tpusim.analysis.memory": ("MemoryReport",),
    "tpusim.cost.models.registry": ("allow_plugin", "allowed_plugins"),
    "tpusim.errors": tuple(
        "CapacityError ConfigError ProgramError SimulationError TpusimError UnsupportedError".split()
    ),
    "tpusim.hardware.array": ("Array",),
    "tpusim.hardware.buffers": ("Buffers", "Rates"),
    "tpusim.hardware.chip": ("Chip",),
    "tpusim.hardware.load": ("load_chip",),
    "tpusim.hardware.pod": ("Topology",),
    "tpusim.ir.custom_calls": ("register_custom_call",),
    "tpusim.pipeline.compile": ("compile",),
    "tpusim.pipeline.answers.explain": ("explain",),
    "tpusim.pipeline.answers.grid": ("kernel_grid",),
    "tpusim.pipeline.device_order": ("with_device_order",),
    "tpusim.pipeline.layers": ("run_layers", "run_layers_with_memory"),
    "tpusim.pipeline.modules": ("Builder", "Module"),
    "tpusim.pipeline.result": ("Result",),
    "tpusim.pipeline.answers.tuning": ("rank",),
    "tpusim.pipeline.stages": tuple("check diff execute load lower memory simulate".split()),
    "tpusim.program.layers": ("Layer",),
    "tpusim.program.module": ("Program",),
    "tpusim.program.steps": tuple(
        "Branch Call ChannelTransfer Collective Copy HostTransfer Kernel Loop TileLoop Wait".split()
    ),
    "tpusim.program.stored": ("load_program", "save_program"),
    "tpusim.program.work": ("Matmul", "Stream", "Work"),
    "tpusim.shapes.notation": ("parse_shape",),
    "tpusim.study.scale": ("Scaling", "scale"),
    "tpusim.study.study": ("Study",),
    "tpusim.timeline.records": ("Timeline",),
    "tpusim.validation.times": ("validate",),
}
"""The public names by the module that they live in, as type checkers read them above; a test compares the two."""

_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = sorted(["__version__", *_HOMES])


def __getattr__(name: str) -> Any:
    """Return a public name from the room that it lives in (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tpusim' has no attribute {name!r}; its public names are {', '.join(__all__)}")
    from importlib import import_module

    # Pictures, exports and models are modules.
    return import_module(f"tpusim.{name}") if _HOMES[name] == "tpusim" else getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted({*globals(), *__all__})
