"""What lists of steps take by themselves: of branches that only data tell apart, the longest is taken."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable

from msgspec import structs

from tpusim.cost.tile import alone_ps
from tpusim.hardware.chip import Chip
from tpusim.nesting import walk_nested
from tpusim.program.module import children
from tpusim.program.steps import AnyStep, Branch, Call, ChannelTransfer, Copy, HostTransfer, Kernel, Loop, Steps, Wait
from tpusim.units import seconds_to_ps

Price = Callable[[AnyStep], int]
"""How long a step takes that is no kernel and holds no others: a chip does not say which links devices have."""


class Alone:
    """What steps take on a chip, in picoseconds, if nothing else goes on; each list and each kind of step once.

    What runs beside the core ends where something needs it, and what goes the same way waits for its turn there. A
    kernel is not slowed by what moves beside it.
    """

    def __init__(self, chip: Chip, price: Price) -> None:
        self._chip = chip
        self._price = price
        # With the steps, so that no others can take their address.
        self._lists: dict[int, tuple[int, Steps]] = {}
        self._prices: dict[AnyStep, int] = {}

    def steps_ps(self, steps: Steps) -> int:
        """Return what steps take from the first to the last."""
        return walk_nested(self._list_ps, steps)

    def _list_ps(self, steps: Steps) -> Generator[Steps, int, int]:
        # Of each list once: conditionals nest.
        if id(steps) not in self._lists:
            now_ps, ends_ps, free_ps = 0, dict[str, int](), dict[Hashable, int]()
            for step in steps:
                if step.needs:
                    now_ps = max([now_ps, *[ends_ps[name] for name in step.needs if name in ends_ps]])
                own_ps = yield from self._step_ps(step)
                if is_beside(step):
                    way = _way(step)
                    ends_ps[step.name] = free_ps[way] = max(now_ps, free_ps.get(way, 0)) + own_ps
                else:
                    now_ps += own_ps
            self._lists[id(steps)] = now_ps, steps
        return self._lists[id(steps)][0]

    def _step_ps(self, step: AnyStep) -> Generator[Steps, int, int]:
        if isinstance(step, Kernel):
            return alone_ps(step, self._chip)
        if isinstance(step, Wait):
            return 0
        if not isinstance(step, Loop | Branch | Call):
            return self._priced(step)
        total_ps = 0
        if not isinstance(step, Call):
            jumps = step.trips if isinstance(step, Loop) else 1
            total_ps += jumps * seconds_to_ps(self._chip.fixed.loop_iteration_seconds)
        for listed, times in children(step):
            total_ps += times * (yield listed)
        return total_ps

    def _priced(self, step: AnyStep) -> int:
        """Return what a step takes by its price, which those share that differ in names alone."""
        bare = structs.replace(step, name="alone", needs=(), line=0, op_name="", source="")
        if bare not in self._prices:
            self._prices[bare] = self._price(bare)
        return self._prices[bare]


def is_beside(step: AnyStep) -> bool:
    """Return whether the core goes on while a step is under way."""
    return isinstance(step, Copy | ChannelTransfer) or getattr(step, "is_async", False)


def _way(step: AnyStep) -> Hashable:
    """Return what those steps have in common that wait for each other: copies share a memory, collectives links."""
    if isinstance(step, HostTransfer):
        return HostTransfer, step.to_host
    return (ChannelTransfer, step.is_send) if isinstance(step, ChannelTransfer) else type(step)
