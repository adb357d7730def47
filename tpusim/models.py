"""What a model of one's own is written with: the protocols of the units that can be replaced, and their vocabulary.

    class Slow:                                       # in mypackage/memory.py
        def __init__(self, *, factor: float) -> None:
            self.factor = factor

        def serve(self, streams, chip):
            return Served([self.factor * stream.total_bytes for stream in streams])

    tpusim.allow_plugin("mypackage")
    chip = {"hbm.model": "mypackage.memory:Slow", "hbm.settings.factor": 2.0}
    tpusim.simulate("step.hlo.txt.gz", "v5e", overrides=chip)

``cost/models/protocols.py`` says which key of a chip's file chooses each, and what its methods are given, with units.
``examples/`` has three. Errors: ``ConfigError`` for a name that is not known or not allowed, and for settings that a
class does not take, for a method that fails, and for an answer that cannot be (bytes that are negative or no number).
"""

from __future__ import annotations

from tpusim.cost.models.protocols import (
    Array,
    ArrayWork,
    Buffers,
    CollectiveAlgorithm,
    Energy,
    Fabric,
    Memory,
    Operations,
    Pace,
    Round,
    Served,
    TileProduct,
)
from tpusim.cost.models.registry import allow_plugin, allowed_plugins
from tpusim.hardware.chip import Chip
from tpusim.hardware.fabric import Graph
from tpusim.hardware.torus import Torus
from tpusim.ir.module import Instruction
from tpusim.program.steps import Kernel
from tpusim.program.work import Matmul, Stream, Work

__all__ = [
    "Array",
    "ArrayWork",
    "Buffers",
    "Chip",
    "CollectiveAlgorithm",
    "Energy",
    "Fabric",
    "Graph",
    "Instruction",
    "Kernel",
    "Matmul",
    "Memory",
    "Operations",
    "Pace",
    "Round",
    "Served",
    "Stream",
    "TileProduct",
    "Torus",
    "Work",
    "allow_plugin",
    "allowed_plugins",
]
