"""Custom calls to targets of the TPU compiler's own: what they must be given, and give, to be what they are called.

A target that a user has registered means what the user says. Other targets may take and give anything.

Source: programs compiled ahead of time; XLA, approx_topk and the TPU compiler's expanders.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from tpusim.ir.custom_calls import REGISTERED, registered_for
from tpusim.ir.module import Instruction, Module
from tpusim.shapes.shape import ArrayShape, BufferShape, Shape, leaves

_MATRICES: Final = (
    "Cholesky CompactWyHelper Eigh EighTpu InvertDiagBlocksLowerTriangular InvertDiagBlocksUpperTriangular"
    " LuComplexDecompositionBlock LuDecomposition LuDecompositionBlock LuRealDecompositionBlock"
    " ProductOfElementaryHouseholderReflectors Qr QrDecompositionBlock"
).split()
_WORDS: Final = "GatherScatterIndicesBitpacked X64Combine X64SplitHigh X64SplitLow".split()
_SAME: Final = ("AssumeGatherIndicesInBound",)
_HANDED_ON: Final = frozenset(
    "LayoutConstraint MoveToDevice MoveToHost SPMDFullToShardShape SPMDShardToFullShape Sharding"
    " annotate_device_placement".split()
)
_LEAST_RANK: Final = dict.fromkeys(_MATRICES, 2) | dict.fromkeys((*_WORDS, *_SAME), 0) | {"PartialReduce": 1, "TopK": 1}
"""By target the dimensions that its first operand has at least."""
_COMPILERS: Final = frozenset(_LEAST_RANK) | _HANDED_ON | {"AllocateBuffer", "ConcatBitcast"}
"""Targets of which compiling may put calls into any program."""


def registrations_of(module: Module) -> tuple[str, ...]:
    """Return the marks of all registrations that a module's times may follow from, those of calls still to be made."""
    every = chain.from_iterable(computation.instructions for computation in module.computations)
    calls = (one for one in every if "custom_call_target" in one.attributes)
    found = [registered_for(call) for call in calls] + [REGISTERED.get(target) for target in _COMPILERS]
    return tuple(sorted({one.mark for one in found if one}))


def call_fault(call: Instruction, operands: Sequence[Shape], result: Shape) -> str:
    """Return what a target of the TPU compiler's own misses, or nothing."""
    target = str(call.attributes.get("custom_call_target", ""))
    if registered_for(call) is not None:
        return ""
    if target == "AllocateBuffer" and not isinstance(result, ArrayShape | BufferShape):
        return f"an array that {target} gives room to"
    if target == "ConcatBitcast" and not (operands and min(map(_rank, (*operands, result))) > 0):
        return f"arrays of at least 1 dimensions as the operands and the result of {target}"
    if target in _HANDED_ON and not operands:
        return f"an operand of {target}"
    if target == "X64Combine" and len(operands) != 2:
        return f"two operands of {target}"
    if target == "TopK" and len(getattr(result, "elements", ())) != 2:
        return f"values and indices as the result of {target}"
    rank = _LEAST_RANK.get(target)
    if rank is None:
        return ""
    if not operands or _rank(operands[0]) < rank:
        return f"an array of at least {rank} dimensions as the first operand of {target}"
    first = next(iter(leaves(result)), None)
    if first is None or _rank(first) < min(rank, 1):
        return f"an array of at least {min(rank, 1)} dimensions as the result of {target}"
    return ""


def _rank(shape: Shape) -> int:
    """Return the dimensions of an array, or of the one in a buffer; -1 of anything else."""
    held = shape.element if isinstance(shape, BufferShape) else shape
    return held.rank if isinstance(held, ArrayShape) else -1
