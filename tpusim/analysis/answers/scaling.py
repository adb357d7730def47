"""A family of programs side by side: what each takes, makes, costs and leaves of the memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tpusim.analysis.communication import DeviceUse
from tpusim.analysis.energy.price import Cost
from tpusim.analysis.explained.facts import DeviceOrder
from tpusim.analysis.summary import Summary
from tpusim.program.provenance import Provenance
from tpusim.units import PS_PER_SECOND

_MILLION = 10**6


class Along(msgspec.Struct, frozen=True, kw_only=True):
    """An axis of a slice that a collective goes along: how many chips stand on it, and whether it closes to a ring."""

    axis: int
    chips: int
    is_ring: bool


class Exposed(msgspec.Struct, frozen=True, kw_only=True):
    """A collective in which the core did nothing else for ``exposed_ps`` of the run, in all its executions.

    ``payload_bytes`` are those of one execution. A transfer between single devices has no group and no axes.
    """

    name: str
    kind: str
    group_size: int
    along: tuple[Along, ...]
    payload_bytes: float
    exposed_ps: int


class ScaleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One program on one chip or slice.

    ``items`` are what a run of all devices makes or reads (examples, tokens), 0 where nobody says. ``mfu`` is the rate
    of the program's operations over the peaks of their types, without recomputed ones. What does not fit (``fits``) has
    its figures all the same: they are those of a chip with more memory. Joules and dollars are those of all devices.
    ``bound_by`` is what most of the time went to, ``bound_share`` of 1: why a larger slice gains no more. ``flops`` are
    those of all devices. Of the time of the device that ended last ``exposed_ps`` are communication beside which its
    core did nothing, in the collectives ``exposed``, and ``waiting_ps`` waits for hosts, copies and late devices.
    ``chip`` tells it from the other chips of the family, ``chip_name`` is what it calls itself. ``provenance`` says for
    which chip the program was compiled, which need not be the one that it ran on. On a slice of
    more devices than it is for, ``copies`` of it run side by side, which exchange nothing. ``order`` is one of its
    mesh's devices in which it is faster, where some were tried; ``is_order_open`` as in ``PodUse``.
    """

    program: str
    chip: str
    topology: str
    devices: int
    variables: dict[str, Any]
    total_ps: int
    bound_by: str
    bound_share: float
    items: float
    mfu: float
    peak_hbm_bytes: int
    hbm_capacity_bytes: int
    fits: bool
    joules: float
    usd: float | None
    warnings: int
    estimates: int = 0
    flops: float = 0.0
    exposed_ps: int = 0
    waiting_ps: int = 0
    exposed: tuple[Exposed, ...] = ()
    provenance: Provenance | None = None
    copies: int = 1
    order: DeviceOrder | None = None
    is_order_open: bool = False
    chip_name: str = ""

    @property
    def compute_ps(self) -> int:
        """What is left of the time: the core's own work."""
        return self.total_ps - self.exposed_ps - self.waiting_ps

    @property
    def items_per_second(self) -> float:
        """Throughput, 0 where nobody says what is counted."""
        return self.items / self.total_ps * PS_PER_SECOND if self.total_ps else 0.0

    @property
    def headroom_bytes(self) -> int:
        """HBM that is left of a device's; below 0 for what does not fit."""
        return self.hbm_capacity_bytes - self.peak_hbm_bytes

    @property
    def usd_per_million(self) -> float | None:
        """Dollars for a million items."""
        return None if self.usd is None or not self.items else self.usd / self.items * _MILLION

    @property
    def joules_per_item(self) -> float | None:
        """Joules for one item."""
        return self.joules / self.items if self.items else None


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes for which there is no program, and why: the TPU compiler makes none that does not fit, for instance."""

    variables: dict[str, Any]
    reason: str


class Largest(msgspec.Struct, frozen=True, kw_only=True):
    """The most items that fit on a chip or slice: of those that were run, and on a line through two of these.

    ``line`` has the items of the two: the last for which there is HBM and the first for which there is not, or the two
    at that end of the runs where all are alike. ``estimate`` is None where more items need no more HBM.
    """

    chip: str
    topology: str
    items: float
    estimate: float | None
    line: tuple[float, float]


def scale_row(
    summary: Summary,
    chip: str,
    topology: str,
    devices: int,
    *,
    variables: Mapping[str, Any],
    items: float,
    joules: float,
    cost: Cost | None,
    use: DeviceUse,
    exposed: tuple[Exposed, ...],
    copies: int = 1,
) -> ScaleRow:
    """Return the row of a run on a ``chip`` so called, of which ``use`` is what the device that ended last did."""
    bound_ps = summary.utilisation.bound_ps
    return ScaleRow(
        program=summary.program,
        chip=chip,
        chip_name=summary.chip,
        topology=topology,
        devices=devices,
        variables=dict(variables),
        total_ps=summary.total_ps,
        bound_by=summary.utilisation.bound_by,
        bound_share=max(bound_ps.values(), default=0) / max(1, sum(bound_ps.values())),
        items=items,
        mfu=summary.model_flops_utilisation,
        peak_hbm_bytes=summary.memory.peak_hbm_bytes,
        hbm_capacity_bytes=summary.hbm_capacity_bytes,
        fits=summary.fits,
        joules=joules,
        usd=cost.usd if cost else None,
        warnings=len(summary.warnings),
        estimates=len(summary.unsupported),
        flops=summary.utilisation.flops * devices,
        exposed_ps=use.exposed_ps,
        waiting_ps=use.waiting_ps,
        exposed=exposed,
        provenance=summary.provenance,
        copies=copies,
    )


def largest_that_fit(rows: Sequence[ScaleRow]) -> tuple[Largest, ...]:
    """Return the most items that fit, for each chip and slice that was run with several counts of them."""
    found: dict[tuple[str, str], list[ScaleRow]] = defaultdict(list)
    for row in rows:
        if row.items:
            found[row.chip, row.topology].append(row)
    return tuple(_largest(*place, own) for place, own in found.items() if len({row.items for row in own}) > 1)


def _largest(chip: str, topology: str, rows: Sequence[ScaleRow]) -> Largest:
    # Of several programs with as many items the one that needs most.
    by_items = list({row.items: row for row in sorted(rows, key=lambda row: (row.items, row.peak_hbm_bytes))}.values())
    enough = max((number for number, row in enumerate(by_items) if row.headroom_bytes >= 0), default=0)
    first, last = by_items[min(enough, len(by_items) - 2) :][:2]
    # Arguments that do not grow, and the rest, which does.
    slope = (last.peak_hbm_bytes - first.peak_hbm_bytes) / (last.items - first.items)
    return Largest(
        chip=chip,
        topology=topology,
        items=max((row.items for row in rows if row.fits), default=0.0),
        estimate=last.items + last.headroom_bytes / slope if slope > 0 else None,
        line=(first.items, last.items),
    )
