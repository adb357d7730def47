"""Custom calls to targets of the TPU compiler's own: what they must be given, and give, to be what they are called.

A target that a user has registered means what the user says. Other targets may take and give anything.

Source: programs compiled ahead of time; XLA, approx_topk and the TPU compiler's expanders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final

from tpusim.ir.custom_calls import ASYNC_DONE, ASYNC_START, INWARD, OUTWARD, REGISTERED, registered_for
from tpusim.ir.module import Instruction, Module
from tpusim.shapes.shape import ArrayShape, BufferShape, Shape, TupleShape, compatible, leaves

_REFLECTIONS: Final = "ProductOfElementaryHouseholderReflectors"
_MATRICES: Final = (
    _REFLECTIONS,
    *"Cholesky CompactWyHelper Eigh EighTpu InvertDiagBlocksLowerTriangular InvertDiagBlocksUpperTriangular".split(),
    *"LuComplexDecompositionBlock LuDecomposition LuDecompositionBlock LuRealDecompositionBlock Qr".split(),
    "QrDecompositionBlock",
)
_WORDS: Final = "AssumeGatherIndicesInBound GatherScatterIndicesBitpacked X64Combine X64SplitHigh X64SplitLow".split()
_MOVES: Final = ("MoveToDevice", "MoveToHost")
_CROSSINGS: Final = (INWARD, OUTWARD)
_ROWS: Final = ("PartialReduce", "TopK")
_MARKS: Final = ("LayoutConstraint", "Sharding", "annotate_device_placement")
_PARTS: Final = ("SPMDFullToShardShape", "SPMDShardToFullShape")
_Sizes = tuple[int, ...]
_SIZES: Final[dict[str, Callable[[list[_Sizes], _Sizes], Sequence[_Sizes]]]] = {
    "LuDecomposition": lambda taken, given: (taken[0], _diagonal(taken[0]), taken[0][:-1]),
    _REFLECTIONS: lambda taken, given: taken[:1],
    "Qr": lambda taken, given: (taken[0], _diagonal(taken[0])),
    "TopK": lambda taken, given: [(*taken[0][:-1], min(taken[0][-1], given[-1]))] * 2,
}
"""By target the sizes of its results, from those of its operands and those that the first result has."""


_Holds = Callable[[Sequence[Shape], Shape], bool]


def _operands(count: int) -> tuple[str, _Holds]:
    return f"{count} operand{'s' if count > 1 else ''} of {{}}", lambda taken, given: len(taken) == count


def _rank_of_first(least: int) -> tuple[str, _Holds]:
    wanted = f"an array of at least {least} dimensions as the first operand of {{}}"
    return wanted, lambda taken, given: bool(taken) and _rank(taken[0]) >= least


def _rank_of_result(least: int) -> tuple[str, _Holds]:
    wanted = f"an array of at least {least} dimensions as the result of {{}}"
    return wanted, lambda taken, given: _rank((*leaves(given), given)[0]) >= least


_RULES: Final[tuple[tuple[Iterable[str], str, _Holds], ...]] = (
    ((*_MARKS, *_MOVES, *_PARTS, "LuDecomposition", "Qr", ASYNC_START), *_operands(1)),
    (
        (*_MARKS, *_MOVES, "AssumeGatherIndicesInBound"),
        "what it is given as the result of {}",
        lambda taken, given: bool(taken) and compatible(taken[0], given),
    ),
    ((_REFLECTIONS, "X64Combine"), *_operands(2)),
    ((ASYNC_DONE,), f"what {ASYNC_START} gave as the operands of {{}}", lambda taken, given: len(taken) > 1),
    (_CROSSINGS, "arrays as the operands of {}", lambda taken, given: min(map(_rank, taken), default=-1) >= 0),
    (_MATRICES, *_rank_of_first(2)),
    (_ROWS, *_rank_of_first(1)),
    ((*_WORDS, *_MOVES, *_PARTS), *_rank_of_first(0)),
    (
        (_REFLECTIONS,),
        "a number for each reflection as the second operand of {}",
        lambda taken, given: _are_scales(*taken),
    ),
    (("AllocateBuffer",), "an array that {} gives room to", lambda taken, given: _rank(given) >= 0),
    (
        ("ConcatBitcast",),
        "arrays of at least 1 dimensions as the operands and the result of {}",
        lambda taken, given: bool(taken) and min(map(_rank, (*taken, given))) > 0,
    ),
    ((ASYNC_START,), "a tuple as the result of {}", lambda taken, given: isinstance(given, TupleShape)),
    (_CROSSINGS, "as many arrays as the result of {}", lambda taken, given: len(leaves(given)) == len(taken)),
    (
        ("TopK",),
        "values and indices as the result of {}",
        lambda taken, given: len(getattr(given, "elements", ())) == 2,
    ),
    ((*_MATRICES, *_ROWS), *_rank_of_result(1)),
    (_WORDS, *_rank_of_result(0)),
    (_PARTS, "as many dimensions as the result of {}", lambda taken, given: _rank(taken[0]) == _rank(given)),
)
"""By targets what they want, with a gap for their name, and whether operands and a result are like that.

In the order in which it is asked: what stands later relies on what stands before.
"""
_COMPILERS: Final = frozenset(
    (*_MARKS, *_MOVES, *_PARTS, *_MATRICES, *_WORDS, *_ROWS, "AllocateBuffer", "ConcatBitcast")
)
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
    for targets, wanted, holds in _RULES:
        if target in targets and not holds(operands, result):
            return wanted.format(target)
    return _size_fault(target, operands, result) if target in _SIZES else ""


def _are_scales(packed: Shape, scales: Shape) -> bool:
    """Return whether there is a number for each of some columns of matrices."""
    if not (isinstance(packed, ArrayShape) and isinstance(scales, ArrayShape) and scales.rank == packed.rank - 1):
        return False
    most = _diagonal(packed.dimensions)
    return scales.dimensions[:-1] == most[:-1] and scales.dimensions[-1] <= most[-1]


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
