"""A body bound to functions: each operation a step that reads its operands from the frame and puts its results there.

Binding happens once per kernel. What nothing uses is left out, such as the loads that come before every store. A step
that has to wait for a semaphore, or that holds one that has to, is a generator of what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from math import prod
from types import GeneratorType
from typing import Any, NamedTuple

from tpusim.errors import TpusimError, UnsupportedError
from tpusim.hardware.units import SMEM, VMEM
from tpusim.ir.mosaic import Block, Function, Operation, Type
from tpusim.limits import KERNEL_BYTES
from tpusim.numerics.pallas.table import Entry, Where, entry_of
from tpusim.numerics.site import Settings

Activity = Generator[Any, None, Any]
Step = Callable[["Frame"], Activity | None]


class Frame(list[Any]):
    """The values of a function by number, and the ``run`` that they belong to."""

    __slots__ = ("run",)

    def __init__(self, size: int, run: Any) -> None:
        """Begin with nothing defined."""
        super().__init__([None] * size)
        self.run = run


class Code(NamedTuple):
    """A block: the numbers of its arguments, its steps with their operations, and the numbers that it hands on.

    ``size`` is how many values its function has.
    """

    size: int
    arguments: tuple[int, ...]
    steps: tuple[Step, ...]
    operations: tuple[Operation, ...]
    hands_on: tuple[int, ...]

    def run(self, frame: Frame, arguments: Iterable[Any] = ()) -> Activity:
        """Run the block; returns the values that it hands on."""
        for number, value in zip(self.arguments, arguments, strict=False):
            frame[number] = value
        step: Any = None
        try:
            for step in self.steps:
                waiting = step(frame)
                if waiting is not None:
                    yield from waiting
        except TpusimError:
            raise
        except Exception as error:
            name = self.operations[self.steps.index(step)].name
            raise UnsupportedError(
                f"{name} in the body of a Pallas kernel: its rule ended in {type(error).__name__}"
            ) from error
        return [frame[number] for number in self.hands_on]


class BoundWhere(Where):
    """An operation with regions, which its rule binds."""

    def code(self, position: int) -> Code:
        """Return a region of the operation, bound; one that is left out does nothing."""
        regions = self.operation.regions
        if position >= len(regions):
            return Code(len(self.types), (), (), (), ())
        return _bound_block(regions[position], self.types, self.settings)


def bind(function: Function, settings: Settings) -> Code:
    """Return a function bound; raise UnsupportedError for an operation that is not computed, and for huge values."""
    for kind in function.types:
        # A size that only the run knows is a negative number.
        size = prod([max(extent, 0) for extent in kind.dimensions]) * kind.element_bits // 8
        if kind.space in _ON_CHIP and (fault := KERNEL_BYTES.fault(size)):
            raise UnsupportedError(f"a value in the body of a Pallas kernel: {fault}")
    return _bound_block(function.block, function.types, settings)


# Vectors have no space of their own; arrays in HBM are the program's.
_ON_CHIP = frozenset({"", VMEM, SMEM})
_ENDS = frozenset("func.return scf.condition scf.yield tpu.yield".split())


def _bound_block(block: Block, types: tuple[Type, ...], settings: Settings) -> Code:
    handed = next((item.operands for item in block.operations if item.name in _ENDS), ())
    used = {number for item in block.walk() for number in item.operands}
    steps, kept = [], []
    for item in block.operations:
        if item.name in _ENDS:
            break
        entry = entry_of(item)
        if entry.is_pure and used.isdisjoint(item.results):
            continue
        steps.append(_step(entry, entry.rule(BoundWhere(item, types, settings)), item))
        kept.append(item)
    return Code(len(types), block.arguments, tuple(steps), tuple(kept), handed)


def _step(entry: Entry, function: Callable[..., Any], item: Operation) -> Step:
    """Return the step of an operation whose function is known."""
    operands, results = item.operands, item.results
    if entry.in_frame:
        return lambda frame: _begun(function(frame, *[frame[number] for number in operands]), frame, results)
    if not results:
        return lambda frame: function(*[frame[number] for number in operands])
    if len(results) > 1:
        return lambda frame: _put(frame, results, function(*[frame[number] for number in operands]))
    (result,) = results

    def step(frame: Frame) -> None:
        frame[result] = function(*[frame[number] for number in operands])

    return step


def _begun(value: Any, frame: Frame, results: tuple[int, ...]) -> Activity | None:
    """Put what a step returned into the frame, or return what is left of it."""
    if isinstance(value, GeneratorType):
        return _ended(value, frame, results)
    _put(frame, results, value if len(results) > 1 else (value,))
    return None


def _ended(activity: Activity, frame: Frame, results: tuple[int, ...]) -> Activity:
    _put(frame, results, (yield from activity))


def _put(frame: Frame, results: tuple[int, ...], values: Any) -> None:
    for number, value in zip(results, values or (), strict=False):
        frame[number] = value
