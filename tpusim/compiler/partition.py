"""What is to run on several devices must have been cut up for them: that is the partitioner's work, not this room's.

Source: XLA, SpmdPartitioner: until it has run, an instruction's ``sharding`` says which devices hold which part of an
array that the text still has whole.
"""

from __future__ import annotations

from tpusim.errors import UnsupportedError
from tpusim.ir.module import Module


def check_partitioned(module: Module) -> None:
    """Refuse a module with an array that several devices are to share, and nobody has cut up."""
    for computation in module.computations:
        for instruction in computation:
            if "devices=" in str(instruction.attributes.get("sharding", "")):
                raise UnsupportedError(
                    f"{instruction.name}: expected a program for one device, or one that is cut up for several, found "
                    f"sharding={instruction.attributes['sharding']} of an array that is whole: write it with "
                    "jax.shard_map, or have the TPU compiler partition it (tpusim.jax.compile_for)",
                    module.where(computation, instruction),
                )
