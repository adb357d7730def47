"""Runs a whole module for its values: fills the table of rules, sets devices up, and drives them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from math import inf
from typing import Any

import numpy as np

from tpusim.errors import ProgramError, UnsupportedError
from tpusim.ir.module import Module
from tpusim.limits import COMPUTED_INSTRUCTIONS, LOOPED_INSTRUCTIONS

# Importing the modules of rules fills the table.
from tpusim.numerics import collectives, host  # noqa: F401
from tpusim.numerics.custom_calls import approx_top_k, block_calls, table  # noqa: F401
from tpusim.numerics.evaluate import evaluate
from tpusim.numerics.files import apart_from, check_inputs, check_size, flat_values, in_types_of
from tpusim.numerics.host import make_devices
from tpusim.numerics.ops import (  # noqa: F401
    contraction,
    control,
    convert,
    convolution,
    dynamic,
    elementwise,
    fft,
    indexed,
    linear_algebra,
    movement,
    normalisation,
    random,
    reduction,
    sorting,
)
from tpusim.numerics.pallas import call  # noqa: F401
from tpusim.numerics.registry import RULES
from tpusim.numerics.site import Settings, Work
from tpusim.numerics.values.f32_pairs import widen_module
from tpusim.semantics.verify.module import Verified

__all__ = ["RULES", "execute_module"]


def execute_module(
    verified: Verified,
    inputs: Sequence[Any],
    settings: Settings,
    infeed: Iterable[Any] | None = None,
    outfeed: list[Any] | None = None,
) -> list[Any]:
    """Return what each device's run of a module returns, replicas outermost, partitions within.

    There are as many devices as the module's first line says in ``replica_count`` and ``num_partitions``.
    ``inputs`` are the parameters' values: one list for all devices, or a list of such lists, one per device. ``infeed``
    is what every device's infeeds read, in order; what devices feed out is appended to ``outfeed``, device by device.
    """
    module = verified.module
    for computation in module.computations:
        for instruction in computation:
            check_size(instruction.name, instruction.shape)
    counts = _most_computed(module)
    if fault := COMPUTED_INSTRUCTIONS.fault(counts[module.entry_name]):
        raise UnsupportedError(f"{module.name}: {fault}: calls of calls multiply")
    # Each device reads the whole infeed: what one takes is not gone for the others.
    fed = [] if infeed is None else list(infeed)
    feeds = [fed] * (module.replica_count * module.partition_count) if infeed is not None else []
    work = Work(counts, LOOPED_INSTRUCTIONS if settings.max_iterations is None else inf)
    devices = [replace(device, work=work) for device in make_devices(module, feeds, module.replica_count)]
    shapes = [parameter.shape for parameter in module.entry.parameters]
    per_device = _per_device(inputs, len(devices), len(shapes))
    arguments = [check_inputs(values, shapes) for values in per_device]
    # The TPU's own roundings stay where the compiler put them; exact values leave them out.
    computed = module if settings.precision == "tpu" else widen_module(module)
    wide_shapes = [parameter.shape for parameter in computed.entry.parameters]
    entered = [list(map(in_types_of, values, wide_shapes)) for values in arguments]
    results = evaluate(computed, entered, settings, devices)
    # Here, since inside values are shared freely: no rule writes to its operands.
    others = [array for array in flat_values((*map(tuple, arguments), *fed)) if isinstance(array, np.ndarray)]
    if outfeed is not None:
        outfeed.extend(apart_from(value, others) for device in devices for value in device.outfeed)
    return [apart_from(in_types_of(result, module.entry.root.shape), others) for result in results]


def _most_computed(module: Module) -> dict[str, int]:
    """Return how many instructions computations compute, each loop one trip long, and all branches the longest."""
    called = {one.name: [name for i in one for name in i.called_computations] for one in module.computations}
    counts = dict[str, int]()
    for name in TopologicalSorter(called).static_order():
        counts[name] = len(module[name].instructions)
        for instruction in module[name]:
            inner = [counts[other] for other in instruction.called_computations]
            counts[name] += max(inner, default=0) if instruction.opcode == "conditional" else sum(inner)
    return counts


def _per_device(inputs: Sequence[Any], devices: int, parameters: int) -> list[Sequence[Any]]:
    """Return the inputs of each device: the same for all, unless there is a list for each."""
    if not isinstance(inputs, list | tuple):
        raise ProgramError(f"inputs: expected a list of arrays or a mapping by name, found {type(inputs).__name__}")
    are_lists = len(inputs) == devices and all(isinstance(i, list) and len(i) == parameters for i in inputs)
    # With one device and one parameter a list could be either; the plain reading comes first.
    return list(inputs) if are_lists and devices > 1 else [inputs] * devices
