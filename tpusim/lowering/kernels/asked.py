"""Operations that instructions ask for, before padding, with those of the computations that they apply.

Source: XLA, HloCostAnalysis. Unlike there a reduction takes one for each element that goes in, the initial value among
them, and long windows share what they have in common; conversions are moves; and transcendental functions are
operations like others.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from math import ceil, log2, prod

import msgspec

from tpusim.cost.operations.applied import by_doubling
from tpusim.errors import UnsupportedError
from tpusim.ir.attributes import Window
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import CALLS, MOVES_ONLY
from tpusim.limits import APPLIED, EXECUTIONS
from tpusim.lowering.kernels.decompositions import decomposition_of
from tpusim.nesting import walk_nested
from tpusim.shapes.shape import Shape, leaves

_MOST_COUNTED = APPLIED.most * EXECUTIONS.most
"""Far beyond the limit the number does not matter, and would have as many digits as there are calls."""


class _Asked(msgspec.Struct, frozen=True):
    """What is asked for: operations, and how many instructions run for them."""

    flops: float = 0.0
    executions: int = 0


def flops_of(module: Module, computation: Computation, instruction: Instruction) -> float:
    """Return the operations that an instruction other than a product asks for.

    Raises UnsupportedError if what it applies runs more often than figures can tell.
    """
    known: dict[str, _Asked] = {}

    def inside(name: str) -> Generator[str, _Asked, _Asked]:
        # A computation that several call, at every level twice say, is gone through once.
        if name not in known:
            own = module[name]
            yield from (called for one in own for called, _ in _applied(own, one))
            parts = [_asked(own, one, known) for one in own]
            known[name] = _Asked(sum(part.flops for part in parts), sum(part.executions for part in parts))
        return known[name]

    for called, _ in _applied(computation, instruction):
        walk_nested(inside, called)
    asked = _asked(computation, instruction, known)
    if fault := APPLIED.fault(asked.executions):
        place = module.where(computation, instruction)
        raise UnsupportedError(f"{instruction.name}: {fault}: calls in each other multiply", place)
    return asked.flops


def _asked(computation: Computation, instruction: Instruction, known: dict[str, _Asked]) -> _Asked:
    """Return what one instruction asks for; ``known`` is what a run of each computation does that it applies."""
    applied = [(known[name], times) for name, times in _applied(computation, instruction)]
    executions = 1 + sum(inside.executions * times for inside, times in applied)
    # A sort is counted by its comparisons, whatever one takes.
    if applied and instruction.opcode != "sort":
        flops = sum(inside.flops * times for inside, times in applied)
    else:
        flops = _own_flops(computation, instruction)
    return _Asked(flops, min(executions, _MOST_COUNTED))


def _own_flops(computation: Computation, instruction: Instruction) -> float:
    stated = instruction.backend_config.cost_estimate if instruction.opcode == "custom-call" else None
    if stated:
        return float(stated.flops)
    if instruction.opcode == "sort":
        return float(_comparisons(computation, instruction))
    if decomposed := decomposition_of(computation, instruction):
        return decomposed.flops
    return 0.0 if instruction.opcode in MOVES_ONLY else float(_elements(instruction.shape))


def _applied(computation: Computation, instruction: Instruction) -> list[tuple[str, int]]:
    """Return the computations that an instruction runs, each with how often it does."""
    if instruction.opcode == "select-and-scatter":
        chosen = _elements(_operand(computation, instruction, 1))
        others = prod(d.size for d in _window(instruction).dimensions) - 1
        return [(instruction.attributes["select"], chosen * others), (instruction.attributes["scatter"], chosen)]
    if instruction.opcode in CALLS:
        return [(name, 1) for name in instruction.called_computations]
    count = _TIMES.get(instruction.opcode)
    return [(instruction.attributes["to_apply"], count(computation, instruction))] if count else []


def _mapped(computation: Computation, instruction: Instruction) -> int:
    return _elements(instruction.shape)


def _reduced(computation: Computation, instruction: Instruction) -> int:
    """One application combines an element of each of several operands."""
    return _elements(_operand(computation, instruction, 0))


def _windowed(computation: Computation, instruction: Instruction) -> int:
    """Return the elements that windows take in, each once along a dimension that one of them reaches over.

    Where windows begin at every place they ask for no more than doubling takes: of thousands of elements each there
    would be more than the chip could do.
    """
    (source, *_), (target, *_) = leaves(_operand(computation, instruction, 0)), leaves(instruction.shape)
    window = _window(instruction).dimensions
    # As for a softmax or a running sum: the result for one position serves the next.
    is_whole = [d.size > 1 and d.size >= size for d, size in zip(window, source.dimensions, strict=False)]
    sliding = [d for d, whole in zip(window, is_whole, strict=True) if not whole]
    taps = prod(d.size for d in sliding)
    if taps > 1 and all(d.stride == 1 for d in sliding):
        taps = min(taps, sum(by_doubling(d.size) for d in sliding))
    whole = source.element_count if any(is_whole) else 0
    return whole if whole and taps == 1 else whole + taps * target.element_count


def _scattered(computation: Computation, instruction: Instruction) -> int:
    """The first update stands behind all operands and the indices."""
    return _elements(_operand(computation, instruction, len(instruction.operands) // 2 + 1))


def _comparisons(computation: Computation, instruction: Instruction) -> int:
    count = _elements(_operand(computation, instruction, 0))
    return count * ceil(log2(max(1, count)))


def scan_steps(computation: Computation, instruction: Instruction) -> int:
    """Return how many steps a scan makes: elements of its inputs, or else of its results, along its dimension."""
    carries, (dimension,) = instruction.attributes["num_carries"], instruction.attributes["dimensions"]
    has_inputs = len(instruction.operands) > carries
    first, *_ = leaves(_operand(computation, instruction, 0) if has_inputs else instruction.shape)
    steps: int = first.dimensions[dimension]
    return steps


_TIMES: dict[str, Callable[[Computation, Instruction], int]] = {
    "map": _mapped,
    "reduce": _reduced,
    "reduce-window": _windowed,
    "scan": scan_steps,
    "scatter": _scattered,
    "sort": _comparisons,
}
"""By opcode how often the computation is applied."""


def _window(instruction: Instruction) -> Window:
    # The text of a scalar has none.
    window: Window = instruction.attributes.get("window", Window())
    return window


def _operand(computation: Computation, instruction: Instruction, position: int) -> Shape:
    return computation[instruction.operands[position]].shape


def _elements(shape: Shape) -> int:
    return sum(leaf.element_count for leaf in leaves(shape))
