"""Kernels that communicate: what they send to other devices, as transfers over the links beside them.

Each turn of sends begins when the one before has come: the semaphores that both ends wait for keep them in step. The
kernel itself runs beside the first turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tpusim.hardware.units import HBM, MemorySpace
from tpusim.ir.module import Instruction
from tpusim.lowering.pallas.walk import Transfer
from tpusim.lowering.scope import Scope
from tpusim.program.steps import AnyStep, Collective, Kernel, Wait

_MOST_DEVICES = 256
"""Devices whose targets are found one by one; in a larger slice all send as far as the first one does."""

MOST_TURNS = 64
"""Turns that are played one by one; more of them are put together."""

Pairs = tuple[tuple[int, int], ...]


class _Send(NamedTuple):
    """What every device sends, so often, each time to one other."""

    n_bytes: float
    hbm_bytes: float
    times: int
    pairs: Pairs


def with_sends(
    scope: Scope,
    instruction: Instruction,
    kernel: Kernel,
    transfers_of: Callable[[int], Sequence[Transfer]],
    space_of: Callable[[int | None], MemorySpace | None],
) -> tuple[AnyStep, ...]:
    """Return a kernel with the steps of what it sends.

    ``transfers_of`` are those of the device of a number, ``space_of`` the memory of an argument of the kernel.
    """
    own = [transfer for transfer in transfers_of(0) if transfer.target is not None]
    if not own:
        return (kernel,)
    count = max(1, scope.module.device_count)
    by_device = [transfers_of(number) for number in range(count if count <= _MOST_DEVICES else 1)]
    sends = []
    for transfer in own:
        ends = (space_of(transfer.source), space_of(transfer.destination))
        hbm_bytes = transfer.n_bytes * sum(space == HBM for space in ends)
        pairs = _pairs(scope, instruction, [_same(transfer, others) for others in by_device], count)
        times = round(float(transfer.times.sum()) * kernel.tiles / transfer.times.size)
        sends += [_Send(transfer.n_bytes, hbm_bytes, -(-times // len(pairs)), each) for each in pairs]
    return tuple(_turns(scope, instruction, kernel, sends))


def _same(transfer: Transfer, others: Sequence[Transfer]) -> Transfer | None:
    """Return the transfer of another device that the same operation starts."""
    return next((other for other in others if other.place == transfer.place), None)


def _pairs(scope: Scope, instruction: Instruction, transfers: Sequence[Transfer | None], count: int) -> list[Pairs]:
    """Return who of ``count`` devices sends to whom, one list for each distance that occurs."""
    by_distance: dict[int, list[tuple[int, int]]] = {}
    for number, transfer in enumerate(transfers):
        if transfer is None or transfer.target is None:
            continue
        if not transfer.target.is_known:
            scope.notes.warn(f"{instruction.name}: only data decides where it sends: taken as the next device")
            return [tuple((source, (source + 1) % count) for source in range(count))]
        for target in np.unique(transfer.target.numbers).tolist():
            by_distance.setdefault((target - number) % count, []).append((number, target % count))
    if len(transfers) < count:
        return [tuple((source, (source + far) % count) for source in range(count)) for far in sorted(by_distance)]
    return [tuple(pairs) for _, pairs in sorted(by_distance.items())]


def _turns(scope: Scope, instruction: Instruction, kernel: Kernel, sends: Sequence[_Send]) -> list[AnyStep]:
    """Return the turns of sends, each with all that set out together and the wait for them."""
    turns = max(send.times for send in sends)
    played = min(turns, MOST_TURNS)
    label = scope.label(instruction, "custom-call")
    steps: list[AnyStep] = []
    for turn in range(played):
        names = []
        for number, send in enumerate(sends):
            if turn < -(-send.times * played // turns):
                names.append(f"{instruction.name}.send{turn}.{number}")
                more = send.times / max(1, -(-send.times * played // turns))
                steps.append(
                    Collective(
                        **label | {"name": names[-1]},
                        kind="collective-permute",
                        n_bytes=send.n_bytes * more,
                        hbm_bytes=send.hbm_bytes * more,
                        group_size=max(2, len(send.pairs)),
                        pairs=send.pairs,
                        is_async=True,
                    )
                )
        steps += [kernel] if not turn else []
        steps.append(Wait(**label | {"name": f"{instruction.name}.wait{turn}"}, needs=tuple(names)))
    return steps
