"""Custom calls to targets of the TPU compiler's own: what they must be given, and give, to be what they are called.

A target that a user has registered means what the user says. Other targets may take and give anything.

Source: programs compiled ahead of time; XLA, approx_topk and the TPU compiler's expanders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final

from tpusim.ir.custom_calls import ASYNC_DONE, ASYNC_START, INWARD, OUTWARD, REGISTERED, registered_for
from tpusim.ir.module import Instruction, Module
from tpusim.shapes.shape import ArrayShape, BufferShape, Shape, TupleShape, leaves

_REFLECTIONS: Final = "ProductOfElementaryHouseholderReflectors"
_MATRICES: Final = (
    _REFLECTIONS,
    *"Cholesky CompactWyHelper Eigh EighTpu InvertDiagBlocksLowerTriangular InvertDiagBlocksUpperTriangular".split(),
    *"LuComplexDecompositionBlock LuDecomposition LuDecompositionBlock LuRealDecompositionBlock Qr".split(),
    "QrDecompositionBlock",
)
_WORDS: Final = "AssumeGatherIndicesInBound GatherScatterIndicesBitpacked X64Combine X64SplitHigh X64SplitLow".split()
_MOVES: Final = ("MoveToDevice", "MoveToHost")
_HANDED_ON: Final = frozenset(
    "LayoutConstraint SPMDFullToShardShape SPMDShardToFullShape Sharding annotate_device_placement".split()
)
_LEAST_RANK: Final = (
    dict.fromkeys(_MATRICES, 2) | dict.fromkeys((*_WORDS, *_MOVES), 0) | {"PartialReduce": 1, "TopK": 1}
)
"""By target the dimensions that its first operand has at least."""
_OPERAND_COUNTS: Final = {
    **dict.fromkeys(_MOVES, 1),
    "LuDecomposition": 1,
    _REFLECTIONS: 2,
    "Qr": 1,
    "X64Combine": 2,
    ASYNC_START: 1,
}
"""By target how many operands it has."""
_Sizes = tuple[int, ...]
_SIZES: Final[dict[str, Callable[[list[_Sizes], _Sizes], Sequence[_Sizes]]]] = {
    **dict.fromkeys(("AssumeGatherIndicesInBound", *_MOVES), lambda taken, given: taken[:1]),
    "LuDecomposition": lambda taken, given: (taken[0], _diagonal(taken[0]), taken[0][:-1]),
    _REFLECTIONS: lambda taken, given: taken[:1],
    "Qr": lambda taken, given: (taken[0], _diagonal(taken[0])),
    "TopK": lambda taken, given: [(*taken[0][:-1], min(taken[0][-1], given[-1]))] * 2,
}
"""By target the sizes of its results, from those of its operands and those that the first result has."""
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
    return _operand_fault(target, operands) or _result_fault(target, operands, result)


def _operand_fault(target: str, operands: Sequence[Shape]) -> str:
    if target in _HANDED_ON and not operands:
        return f"an operand of {target}"
    count = _OPERAND_COUNTS.get(target, len(operands))
    if len(operands) != count:
        return f"{count} operand{'s' if count > 1 else ''} of {target}"
    if target == ASYNC_DONE and len(operands) < 2:
        return f"what {ASYNC_START} gave as the operands of {target}"
    if target in (INWARD, OUTWARD) and min(map(_rank, operands), default=-1) < 0:
        return f"arrays as the operands of {target}"
    rank = _LEAST_RANK.get(target, -1)
    if rank >= 0 and not (operands and _rank(operands[0]) >= rank):
        return f"an array of at least {rank} dimensions as the first operand of {target}"
    if target == _REFLECTIONS and not _are_scales(*operands):
        return f"a number for each reflection as the second operand of {target}"
    return ""


def _are_scales(packed: Shape, scales: Shape) -> bool:
    """Return whether there is a number for each of some columns of matrices."""
    if not (isinstance(packed, ArrayShape) and isinstance(scales, ArrayShape) and scales.rank == packed.rank - 1):
        return False
    most = _diagonal(packed.dimensions)
    return scales.dimensions[:-1] == most[:-1] and scales.dimensions[-1] <= most[-1]


def _result_fault(target: str, operands: Sequence[Shape], result: Shape) -> str:
    if target == "AllocateBuffer" and not isinstance(result, ArrayShape | BufferShape):
        return f"an array that {target} gives room to"
    if target == "ConcatBitcast" and not (operands and min(map(_rank, (*operands, result))) > 0):
        return f"arrays of at least 1 dimensions as the operands and the result of {target}"
    if target == ASYNC_START and not isinstance(result, TupleShape):
        return f"a tuple as the result of {target}"
    if target in (INWARD, OUTWARD) and len(list(leaves(result))) != len(operands):
        return f"as many arrays as the result of {target}"
    if target == "TopK" and len(getattr(result, "elements", ())) != 2:
        return f"values and indices as the result of {target}"
    rank = min(_LEAST_RANK.get(target, -1), 1)
    first = next(iter(leaves(result)), None)
    if rank >= 0 and (first is None or _rank(first) < rank):
        return f"an array of at least {rank} dimensions as the result of {target}"
    return _size_fault(target, operands, result) if target in _SIZES else ""


def _size_fault(target: str, operands: Sequence[Shape], result: Shape) -> str:
    """Return what the sizes of a result are not that follow from those of the operands, or nothing."""
    given = [leaf.dimensions for leaf in leaves(result)]
    taken = [leaf.dimensions for operand in operands for leaf in leaves(operand)]
    wanted = _SIZES[target](taken, given[0])
    # Behind the first of several results may be missing what nothing needs.
    is_right = len(given) <= len(wanted) and given == list(wanted[: len(given)])
    if is_right and isinstance(result, TupleShape) == (len(wanted) > 1):
        return ""
    return f"{', '.join(str(list(sizes)) for sizes in wanted)} as the result of {target}"


def _diagonal(matrices: _Sizes) -> _Sizes:
    """Return the sizes of what is one for each element on the diagonal of matrices."""
    return (*matrices[:-2], min(matrices[-2:]))


def _rank(shape: Shape) -> int:
    """Return the dimensions of an array, or of the one in a buffer; -1 of anything else."""
    held = shape.element if isinstance(shape, BufferShape) else shape
    return held.rank if isinstance(held, ArrayShape) else -1
