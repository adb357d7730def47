"""What of a kernel's body runs how often: conditions and loops are decided for all steps of the grid at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tpusim.ir.mosaic import Block, KernelBody, Operation
from tpusim.lowering.pallas.scalars import UNKNOWN, Scalar, computed, loaded

Times = np.ndarray[Any, Any]

_MOST_NUMBERS = 1 << 22
"""Values up to which a loop's counter is followed, in all steps of the grid; beyond, only how often it runs is."""


_MOST_FOLLOWED = 1 << 16
"""Operations of all turns of a loop up to which what it hands from turn to turn is followed."""


class Part(NamedTuple):
    """Operations that run one after another without a branch, and how often in each step of the grid."""

    operations: list[Operation]
    times: Times


class Transfer(NamedTuple):
    """A copy that the kernel starts itself: of ``n_bytes``, between the arguments of these positions (or neither).

    ``target`` is the device that it goes to, if it leaves this one; ``place`` tells apart what starts one.
    """

    n_bytes: float
    source: int | None
    destination: int | None
    times: Times
    target: Scalar | None
    place: tuple[int, ...]


class Assumptions(NamedTuple):
    """What stands for what a program does not tell: the trips of loops, and the warnings about each."""

    trips: int
    warnings: dict[str, None]

    def warn(self, text: str) -> None:
        """Note what was assumed, once."""
        self.warnings.setdefault(text)


class Walk:
    """Goes through a body; leaves its ``parts`` and ``transfers``."""

    def __init__(
        self,
        body: KernelBody,
        grid: Sequence[int],
        contents: Mapping[int, Any],
        assumed: Assumptions,
        device: int = 0,
    ):
        """Begin with the indices of a ``grid``, the ``contents`` of scalar arguments by position, and a device."""
        self._device = Scalar(np.asarray(device, np.int64))
        self._body = body
        self._types = body.main.types
        self._contents = contents
        self._assumed = assumed
        self._grid = tuple(grid)
        self._known: dict[int, Scalar] = {}
        self._roots: dict[int, int] = {number: at for at, number in enumerate(body.main.block.arguments)}
        # What references have of each dimension at most, where only the running kernel knows.
        self._extents: dict[int, tuple[int, ...]] = {}
        self._guessed: set[int] = set()
        self.parts: list[Part] = []
        self.transfers: list[Transfer] = []
        for number, index in zip(body.main.block.arguments, np.ogrid[tuple(slice(n) for n in grid)], strict=False):
            self._known[number] = Scalar(np.asarray(index, np.int64))

    def run(self) -> Walk:
        """Go through the whole body, once in each step."""
        self._block(self._body.main.block, np.ones((1,) * len(self._grid)))
        return self

    def arguments(self, operations: Sequence[Operation]) -> set[int]:
        """Return the kernel's arguments to whose memory some operations refer."""
        roots = {self._roots[n] for operation in operations for n in operation.operands if n in self._roots}
        return {self._body.main.block.arguments[at] for at in roots}

    def _block(self, block: Block, times: Times) -> list[Scalar]:
        """Go through a block; return what it hands on."""
        straight: list[Operation] = []
        for operation in block.operations:
            operands = [self._known.get(number, UNKNOWN) for number in operation.operands]
            if operation.regions:
                self._close(straight, times)
                straight = []
                handed = self._control(operation, operands, times)
            elif operation.name in ("scf.yield", "scf.condition", "tpu.yield", "func.return"):
                self._close(straight, times)
                return operands
            else:
                handed = [self._plain(operation, operands, times)] * len(operation.results)
                straight.append(operation)
            self._known.update(zip(operation.results, handed, strict=False))
        self._close(straight, times)
        return []

    def _close(self, operations: list[Operation], times: Times) -> None:
        if operations:
            self.parts.append(Part(operations, self._per_step(times)))

    def _per_step(self, times: Times) -> Times:
        """Return how often per step of the grid; loops have dimensions of their own in front of the grid's."""
        extra = times.ndim - len(self._grid)
        return np.asarray(times.sum(axis=tuple(range(extra)))) if extra else times

    def _plain(self, operation: Operation, operands: list[Scalar], times: Times) -> Scalar:
        """Return the scalar that an operation makes, if it makes one; note what it copies."""
        if operation.name in _VIEWS_OF_MEMORY:
            self._view(operation, operands)
            if (root := self._roots.get(operation.operands[0])) is not None:
                self._roots[operation.results[0]] = root
            return UNKNOWN
        if operation.name in ("tpu.enqueue_dma", "tpu.enqueue_indirect_dma"):
            self._transfer(operation, operands, times)
        if operation.name == "tpu.sem_barrier":
            self._assumed.warn("its barrier of devices takes no time: nobody published what one takes")
        if operation.name == "tpu.device_id":
            return self._device
        if operation.name == "memref.load":
            reference = operation.operands[0]
            return loaded(reference, operands[1:], self._contents.get(self._roots.get(reference, -1)))
        if len(operation.results) != 1 or self._types[operation.results[0]].kind != "scalar":
            return UNKNOWN
        return computed(operation, operands)

    def _view(self, operation: Operation, operands: list[Scalar]) -> None:
        """Note how large a part of memory can be whose size is no constant: as stated, or as what it is a part of."""
        whole, dimensions = self._extent(operation.operands[0]), self._types[operation.results[0]].dimensions
        if all(size >= 0 for size in dimensions):
            return
        if len(whole) != len(dimensions):
            # The dimensions that it has of a known size are taken out of the whole.
            rest = prod(whole) // max(1, prod(size for size in dimensions if size >= 0))
            unknown = [at for at, size in enumerate(dimensions) if size < 0]
            whole = tuple(rest if at == unknown[0] else max(1, size) for at, size in enumerate(dimensions))
        # Behind the offsets, one for each dimension, stand the sizes that are no constants.
        stated = iter(operands[1 + len(whole) :] if operation.name == "tpu.memref_slice" else ())
        sizes = []
        for size, most in zip(dimensions, whole, strict=True):
            if size < 0:
                told = next(stated, UNKNOWN)
                size = min(most, max(0, round(float(told.numbers.mean())))) if told.is_known else most
                self._guessed |= set() if told.is_known else {operation.results[0]}
            sizes.append(size)
        self._extents[operation.results[0]] = tuple(sizes)

    def _extent(self, reference: int) -> tuple[int, ...]:
        return self._extents.get(reference) or tuple(max(0, size) for size in self._types[reference].dimensions)

    def _control(self, operation: Operation, operands: list[Scalar], times: Times) -> list[Scalar]:
        """Go through what an operation holds, as often as it says."""
        if operation.name == "scf.if":
            return self._either(operation, operands[0], times)
        if operation.name == "scf.for":
            return self._loop(operation, operands, times)
        if operation.name == "scf.while":
            self._assumed.warn(f"a loop runs until something is so: taken to run {self._assumed.trips} times")
            times = times * self._assumed.trips
        for region in operation.regions:
            self._block(region, times)
        return [UNKNOWN] * len(operation.results)

    def _either(self, operation: Operation, condition: Scalar, times: Times) -> list[Scalar]:
        """Go through both sides of a branch, each in the steps that take it."""
        taken = condition.numbers != 0 if condition.is_known else self._share(condition)
        handed = []
        for region, share in zip(operation.regions, (taken, 1 - np.asarray(taken, np.float64)), strict=False):
            # What is never run is not in the kernel at all.
            held = times * share
            handed.append(self._block(region, held) if held.any() else [])
        if not condition.is_known or len(handed) < 2 or len(handed[0]) != len(handed[1]):
            return [UNKNOWN] * len(operation.results)
        pairs = zip(*handed, strict=True)
        return [Scalar(np.where(taken, a.numbers, b.numbers), a.is_known and b.is_known) for a, b in pairs]

    def _share(self, condition: Scalar) -> Times:
        """Return in which part of the steps something holds that only data decides."""
        extents = sorted(size for size in condition.numbers.shape if size > 1)
        if len(extents) < 2:
            self._assumed.warn("what only data decides is taken to hold in half of the steps")
            return np.asarray(0.5)
        # A table by two dimensions of the grid says which blocks a mask leaves; the usual one is causal.
        left = (1 + 1 / extents[-2]) / 2
        self._assumed.warn(f"only data decides which blocks a mask leaves: taken as a triangle, {left:.1%} of them")
        return np.asarray(left)

    def _loop(self, operation: Operation, operands: list[Scalar], times: Times) -> list[Scalar]:
        """Go through the body of a loop for each value of its counter."""
        (region,), (first, last, step), carried = operation.regions, operands[:3], operands[3:]
        is_known = first.is_known and last.is_known and step.is_known
        stride = np.maximum(1, step.numbers)
        trips = np.maximum(0, -(-(last.numbers - first.numbers) // stride))
        if not is_known:
            self._assumed.warn(f"only data decides how often a loop runs: taken as {self._assumed.trips}")
            trips = np.asarray(self._assumed.trips)
        most = int(trips.max(initial=0))
        values = [UNKNOWN] * len(region.arguments)
        shape = np.broadcast_shapes(times.shape, trips.shape, first.numbers.shape)
        if is_known and most * prod(shape) <= _MOST_NUMBERS:
            counts = np.arange(most).reshape((most,) + (1,) * times.ndim)
            counter, times = Scalar(first.numbers + counts * stride), times * (counts < trips)
            values = [counter, *self._carried(region, counter, carried)]
        else:
            times = times * trips
        self._known.update(zip(region.arguments, values, strict=False))
        self._block(region, times)
        return [UNKNOWN] * len(operation.results)

    def _carried(self, region: Block, counter: Scalar, carried: list[Scalar]) -> list[Scalar]:
        """Return what a loop hands from one turn to the next, in all turns: of what is no scalar nothing is known."""
        scalars = [self._types[number].kind == "scalar" for number in region.arguments[1:]]
        turns, size = len(counter.numbers), sum(1 for _ in region.walk())
        if not any(scalars) or turns * size > _MOST_FOLLOWED:
            return [UNKNOWN] * len(carried)
        before, rows = (self.parts, self.transfers, dict(self._assumed.warnings)), []
        for turn in range(turns):
            rows.append(carried)
            self._known[region.arguments[0]] = Scalar(counter.numbers[turn], counter.is_known)
            self._known.update(zip(region.arguments[1:], carried, strict=False))
            self.parts, self.transfers = [], []
            carried = self._block(region, np.ones((1,) * len(self._grid)))
        self.parts, self.transfers = before[:2]
        self._assumed.warnings.clear()
        self._assumed.warnings.update(before[2])
        columns = zip(*rows, strict=True) if rows else iter([[UNKNOWN]] * len(carried))
        return [_stacked(column, counter.numbers.ndim - 1) for column in columns]

    def _transfer(self, operation: Operation, operands: list[Scalar], times: Times) -> None:
        """Note a copy: source, semaphore of the source, target, semaphore, device, core (by segments of operands)."""
        sizes = operation.attributes.get("operandSegmentSizes", (1, 0, 1, 1, 0, 0))
        starts = [sum(sizes[:at]) for at in range(len(sizes))]
        source, target = operation.operands[0], operation.operands[starts[2]]
        # Of a size that nobody tells the smaller end has the last word: a buffer is no larger than it need be.
        count = min(prod(self._extent(source)), prod(self._extent(target)))
        if {source, target} & self._guessed:
            self._assumed.warn("only data decides how much some copies move: taken as all that they may")
        n_bytes = count * self._types[source].element_bits / 8
        device = operands[starts[4]] if sizes[4] else None
        ends = (self._roots.get(source), self._roots.get(target))
        self.transfers.append(Transfer(n_bytes, *ends, self._per_step(times), device, operation.operands))


def _stacked(turns: Sequence[Scalar], rank: int) -> Scalar:
    """Return a scalar of each turn of a loop as one, the turns as a dimension in front of ``rank`` others."""
    if not all(turn.is_known for turn in turns):
        return UNKNOWN
    shape = np.broadcast_shapes(*(turn.numbers.shape for turn in turns))
    numbers = np.stack([np.broadcast_to(turn.numbers, shape) for turn in turns])
    return Scalar(numbers.reshape((len(turns),) + (1,) * (rank - len(shape)) + shape))


_VIEWS_OF_MEMORY = frozenset(
    "tpu.memref_slice tpu.memref_squeeze tpu.memref_bitcast tpu.memref_reshape tpu.erase_memref_layout"
    " tpu.reinterpret_cast memref.cast memref.subview".split()
)
"""Make a reference to a part of what another one points to."""
