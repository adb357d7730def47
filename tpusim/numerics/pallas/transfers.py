"""Copies that a kernel starts itself, and semaphores.

A copy is done when it starts. That gives what the machine gives: a program that reads the target, or changes the
source, before it has waited for the copy has no defined result there. A semaphore of copies counts bytes.

Source: JAX documentation, Pallas: TPU details (async operations, distributed computing); dialect ``tpu`` of Mosaic.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from tpusim.errors import ProgramError
from tpusim.ir.mosaic import Type
from tpusim.numerics.pallas.code import Activity, Frame
from tpusim.numerics.pallas.references import Reference
from tpusim.numerics.pallas.table import Function, Where, operation

BARRIER = "barrier"
"""What names the memory of the semaphore that all devices share a barrier by."""


class Waits(NamedTuple):
    """What a device waits for: a semaphore to reach an amount."""

    semaphore: Reference
    amount: int

    def is_over(self) -> bool:
        """Return whether the semaphore has reached the amount."""
        return bool(self.semaphore.array >= self.amount)

    def take(self) -> Activity:
        """Wait, then take the amount."""
        while not self.is_over():
            yield self
        self.semaphore.array[...] -= self.amount


def _bytes(kind: Type, reference: Any) -> int:
    """Return the bytes of a part of memory, whose extents may be known only now."""
    return prod(reference.array.shape) * kind.element_bits // 8


def _memory(frame: Frame, device: Any, where: Where) -> Any:
    """Return the memory of a device; None for this one."""
    if not device or int(device[0]) == frame.run.device:
        return None
    number = int(device[0])
    if number not in frame.run.company:
        raise ProgramError(f"{where.operation.name}: expected a device of {sorted(frame.run.company)}, found {number}")
    return frame.run.company[number].memory


@operation("tpu.enqueue_dma", in_frame=True)
def _start(where: Where) -> Function:
    """Copy, here or to another device, and signal both ends."""
    groups, kind = where.segments(1, 0, 1, 1, 0, 0), where.operand()

    def start(frame: Frame, *values: Any) -> None:
        (source,), sent, (target,), (received,), device, *_ = (values[group] for group in groups)
        moved = _bytes(kind, source)
        memory = _memory(frame, device, where)
        if memory is not None:
            target, received = target.on(memory), received.on(memory)
        if source.array.shape != target.array.shape:
            found = f"{list(source.array.shape)} to {list(target.array.shape)}"
            raise ProgramError(f"{where.operation.name}: expected equal sizes at both ends, found {found}")
        target.write(..., source.array)
        for semaphore in (*sent, received):
            semaphore.array[...] += moved

    return start


@operation("tpu.wait_dma2", "tpu.wait_dma", in_frame=True)
def _wait(where: Where) -> Function:
    """Wait for as many bytes as the target has."""
    last = 2 if where.operation.name == "tpu.wait_dma2" else 1
    kind = where.operand(last)
    return lambda frame, *values: Waits(values[0], _bytes(kind, values[last])).take()


@operation("tpu.sem_signal", in_frame=True)
def _signal(where: Where) -> Function:
    """Add to a semaphore, here or on another device."""
    groups = where.segments(1, 1, 0, 0)

    def signal(frame: Frame, *values: Any) -> None:
        (semaphore,), (amount,), device, *_ = (values[group] for group in groups)
        memory = _memory(frame, device, where)
        semaphore = semaphore if memory is None else semaphore.on(memory)
        semaphore.array[...] += int(amount)

    return signal


@operation("tpu.sem_wait", in_frame=True)
def _take(where: Where) -> Function:
    return lambda frame, semaphore, amount: Waits(semaphore, int(amount)).take()


@operation("tpu.sem_read", in_frame=True)
def _read(where: Where) -> Function:
    return lambda frame, semaphore: semaphore.array.astype("i4")[()]


@operation("tpu.sem_barrier", in_frame=True)
def _barrier(where: Where) -> Function:
    return lambda frame: frame.run.memory[BARRIER]
