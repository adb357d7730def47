"""Values of the custom calls of an approximate top-k: the best of every bin, and the best of all.

Which elements share a bin only the device knows: what is promised is a recall. Here a bin is one lane of so many
consecutive registers. ``ApproxTopK`` itself, before the compiler has cut it up, gives the exact answer.

Source: F. Chern et al., TPU-KNN: K Nearest Neighbor Search at Peak FLOP/s, algorithm 1; XLA, approx_topk.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tpusim.errors import ProgramError
from tpusim.ir.module import Instruction
from tpusim.numerics.custom_calls.table import target
from tpusim.numerics.ops.sorting import sorted_together
from tpusim.numerics.registry import Array, array_shape
from tpusim.numerics.scalar_computation import apply_lifted
from tpusim.numerics.site import Site
from tpusim.shapes.shape import leaves

_LANES = 128
_LINEAR_TILE = 1024
"""Elements of a vector that fill one register."""


@target("PartialReduce")
def _partial_reduce(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the best element of every bin by the called comparator; operands are the arrays, then their fillings."""
    half, axis = len(operands) // 2, _axis(instruction, operands[0])
    count = 1 << int(instruction.backend_config.fields.get("log2_reduction", 0))
    tile = _LINEAR_TILE if operands[0].ndim == 1 else _LANES
    binned = []
    for operand, fill in zip(operands[:half], operands[half:], strict=True):
        # The last dimension as (groups of registers, registers of a group, lanes), filled up at its end.
        array = np.moveaxis(operand, axis, -1)
        padding = np.broadcast_to(fill, (*array.shape[:-1], -array.shape[-1] % (count * tile)))
        binned.append(np.concatenate([array, padding], -1).reshape(*array.shape[:-1], -1, count, tile))
    best = [array[..., 0, :] for array in binned]
    for place in range(1, count):
        others = [array[..., place, :] for array in binned]
        sides = [side for pair in zip(others, best, strict=True) for side in pair]
        is_better = apply_lifted(site, instruction.called_computations[0], sides)
        best = [np.where(is_better, other, one) for other, one in zip(others, best, strict=True)]
    results = [np.moveaxis(array.reshape(*array.shape[:-2], -1), -1, axis) for array in best]
    return _checked(instruction, results)


@target("ApproxTopK")
def _approx_top_k(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the first elements in the called comparator's order."""
    half, axis = len(operands) // 2, _axis(instruction, operands[0])
    ordered = sorted_together(site, instruction.called_computations[0], operands[:half], axis)
    wanted = array_shape(leaves(instruction.shape)[0]).dimensions[axis]
    return _checked(instruction, [np.take(array, range(min(wanted, array.shape[axis])), axis) for array in ordered])


def _axis(instruction: Instruction, operand: Array) -> int:
    """Return the dimension that becomes shorter: the one that the call names, else the one whose size changes."""
    sizes = array_shape(leaves(instruction.shape)[0]).dimensions
    changed = [i for i, (old, new) in enumerate(zip(operand.shape, sizes, strict=False)) if old != new]
    axis = instruction.backend_config.fields.get("reduction_dim", changed[0] if changed else -1)
    return int(axis) % operand.ndim


def _checked(instruction: Instruction, results: list[Array]) -> tuple[Array, ...]:
    """Return the results if they have the sizes that the instruction states."""
    stated = [leaf.dimensions for leaf in leaves(instruction.shape)]
    if stated != [array.shape for array in results]:
        name, found = instruction.attributes["custom_call_target"], [list(array.shape) for array in results]
        raise ProgramError(f"{instruction.name}: expected results of {name!r} with sizes {found}, found {stated}")
    return tuple(results)
