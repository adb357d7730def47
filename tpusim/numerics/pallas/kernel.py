"""A kernel bound to functions, and its run on one device: its memory, its grid step by step, its results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tpusim.errors import ProgramError, SimulationError
from tpusim.ir.mosaic import DYNAMIC, KernelBody, Operation, Type, read_body

# Importing the modules of rules fills the table.
from tpusim.numerics.pallas import arithmetic, control, products, vectors  # noqa: F401
from tpusim.numerics.pallas.blocks import Blocks
from tpusim.numerics.pallas.code import Activity, Code, Frame, bind
from tpusim.numerics.pallas.memory import new_memory
from tpusim.numerics.pallas.references import Reference
from tpusim.numerics.pallas.table import SEMAPHORES, dtype_of, seen_as, undefined
from tpusim.numerics.pallas.transfers import BARRIER, Waits
from tpusim.numerics.registry import Array
from tpusim.numerics.site import Settings, Work


class Kernel(NamedTuple):
    """A body bound to functions: its code, and that of its windows' transforms by name."""

    body: KernelBody
    code: Code
    transforms: dict[str, Code]
    meets_others: bool


# The same kernel stands in a program for every layer that is not in a loop.
@lru_cache(maxsize=64)
def bound_kernel(encoded: str, settings: Settings) -> Kernel:
    """Return the kernel of an encoded body, bound; raises ``Unreadable`` for what cannot be read here."""
    body = read_body(encoded)
    transforms = {name: bind(function, settings) for name, function in body.functions.items()}
    meets_others = any(map(_reaches_others, body.main.block.walk()))
    return Kernel(body, bind(body.main, settings), transforms, meets_others)


def _reaches_others(operation: Operation) -> bool:
    """Return whether an operation meets other devices: a barrier, or a copy or signal with a device as operand."""
    at = {"tpu.enqueue_dma": 4, "tpu.sem_signal": 2}.get(operation.name)
    if at is None:
        return operation.name == "tpu.sem_barrier"
    return any(operation.attributes.get("operandSegmentSizes", ())[at : at + 1])


class Call(NamedTuple):
    """What a kernel is called on: its operands, the dimensions of its results, and which operand a result lies on."""

    operands: Sequence[Array]
    results: Sequence[tuple[int, ...]]
    aliases: dict[int, int]


class KernelRun:
    """A kernel on one device.

    ``memory`` has its references by key, ``company`` the runs on all devices by number. ``results`` are the arrays that
    it makes, which are defined when it has ended.
    """

    def __init__(self, kernel: Kernel, call: Call, device: int, seed: int, work: Work) -> None:
        """Begin on the device of a number; ``seed`` is that of random bits for which the kernel states none."""
        self._kernel = kernel
        self.device = device
        self.work = work
        self.company: dict[int, KernelRun] = {}
        self.seed([seed, device])
        bounds = iter(call.operands)
        self.grid = tuple(int(next(bounds)) if bound == DYNAMIC else bound for bound in kernel.body.grid)
        self.memory: dict[Any, Any] = {BARRIER: new_memory((), SEMAPHORES[0], BARRIER)}
        self._moved: list[tuple[Blocks, Code | None]] = []
        self.results: list[Array] = []
        self._arguments = self._references(call, len(call.operands) - len(list(bounds)))
        self.memory |= {reference.key: reference for reference in self._arguments}

    def seed(self, words: Sequence[int]) -> None:
        """Begin the random bits anew."""
        self.random = np.random.Generator(np.random.Philox(np.random.SeedSequence(words)))

    def _references(self, call: Call, first: int) -> list[Reference]:
        """Return what the arguments after the grid's indices refer to; operands begin with number ``first``."""
        body = self._kernel.body
        count = body.prefetched + len(body.windows) - len(call.results)
        if count < body.prefetched or len(call.operands) < first + count:
            windows = f"{len(body.windows)} for {len(call.operands)} operands and {len(call.results)} results"
            raise ProgramError(f"expected a window of its Pallas kernel for each operand and result, found {windows}")
        types = [body.main.types[number] for number in body.main.block.arguments[len(self.grid) :]]
        arrays = [_as_elements(array, kind) for array, kind in zip(call.operands[first:], types[:count], strict=False)]
        # Copied to SMEM before the kernel begins, which may write there.
        arrays[: body.prefetched] = [array.copy() for array in arrays[: body.prefetched]]
        for number, (dimensions, kind) in enumerate(zip(call.results, types[count:], strict=False)):
            operand = call.aliases.get(number, -1) - first
            if 0 <= operand < count:
                # One memory for both, and the caller's own array is left alone.
                arrays[operand] = arrays[operand].copy()
            self.results.append(arrays[operand] if 0 <= operand < count else undefined(dimensions, dtype_of(kind)))
        arrays += self.results
        found = [self._reference(array, number) for number, array in enumerate(arrays)]
        scratch = enumerate(types[len(arrays) :], len(arrays))
        return found + [new_memory(kind.dimensions, kind.element, number) for number, kind in scratch]

    def _reference(self, array: Array, number: int) -> Reference:
        """Return the reference to an operand or result, or to the buffer that its blocks go through."""
        body = self._kernel.body
        at = number - body.prefetched
        if at < 0 or not body.windows[at].bounds:
            return Reference(array, number)
        window = body.windows[at]
        blocks = Blocks(window, array, number, is_output=at >= len(body.windows) - len(self.results))
        self._moved.append((blocks, self._kernel.transforms.get(window.transform)))
        return blocks.reference

    def activity(self) -> Activity:
        """Run all steps of the grid, the last dimension fastest; yields what the device has to wait for."""
        code, scalars = self._kernel.code, self._arguments[: self._kernel.body.prefetched]
        frame = Frame(code.size, self)
        self.work.spend(prod(self.grid) * len(code.steps), "the grid of a Pallas kernel")
        for step in np.ndindex(self.grid):
            indices = [np.int32(index) for index in step]
            places = []
            for blocks, transform in self._moved:
                place: Any = (0,) * blocks.reference.array.ndim
                if transform is not None:
                    place = yield from transform.run(Frame(transform.size, self), (*indices, *scalars))
                places.append(tuple(map(int, place)))
            for (blocks, _), place in zip(self._moved, places, strict=True):
                blocks.leave(place)
            for (blocks, _), place in zip(self._moved, places, strict=True):
                blocks.enter(place)
            yield from code.run(frame, (*indices, *self._arguments))
        for blocks, _ in self._moved:
            blocks.write_back()


def drive(runs: dict[int, KernelRun]) -> None:
    """Run a kernel on its devices until all have ended; each stops where it has to wait for a semaphore."""
    for run in runs.values():
        run.company = runs
    activities = {number: run.activity() for number, run in sorted(runs.items())}
    wishes: dict[int, Waits | None] = dict.fromkeys(activities)
    while wishes:
        ready = [number for number, wish in wishes.items() if wish is None or wish.is_over()]
        if not ready:
            lines = [f"device {number} waits for {wish.amount:,}" for number, wish in wishes.items() if wish]
            raise SimulationError(f"semaphores of a Pallas kernel that nothing signals: {'; '.join(lines)}")
        for number in ready:
            try:
                wishes[number] = next(activities[number])
            except StopIteration:
                del wishes[number]


def _as_elements(array: Array, kind: Type) -> Array:
    """Return an operand as a kernel sees it, not to be written to: signed, and of its own width."""
    seen = seen_as(array, dtype_of(kind))
    seen.flags.writeable = False
    return seen
