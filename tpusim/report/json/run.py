"""What ``tpusim run`` and ``tpusim diff`` print as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType, field

from tpusim.analysis.bands import Band
from tpusim.analysis.communication import link_map
from tpusim.analysis.compare import RESULT_FORMAT, MemoryFigures, OpFigures
from tpusim.analysis.memory import MemoryUse
from tpusim.program.provenance import Provenance
from tpusim.report.json.page import Document, Microseconds, Page, fill, plain, save_json
from tpusim.units import ps_to_us

if TYPE_CHECKING:
    from tpusim.analysis.communication import PodUse
    from tpusim.analysis.compare import Comparison
    from tpusim.analysis.summary import Summary
    from tpusim.analysis.utilisation import Group
    from tpusim.timeline.records import PodRun


class OpRow(Page, frozen=True, kw_only=True):
    """All executions of one op; ``time_us`` on the core, ``overlapped_us`` beside it, ``line`` in the HLO text."""

    name: str
    opcode: str
    category: str
    count: int
    time_ps: Microseconds
    beside_ps: Microseconds = field(name="overlapped_us")
    bound_by: str
    flops: float
    hbm_bytes: float
    compiler_estimated_us: float | None
    line: int
    op_name: str
    source: str


class CategoryRow(Page, frozen=True, kw_only=True):
    """All ops of one category."""

    name: str = field(name="category")
    count: int
    time_ps: Microseconds
    beside_ps: Microseconds = field(name="overlapped_us")


class GroupRow(Page, frozen=True, kw_only=True):
    """All ops of one category or of one source line, by which of the two was asked for."""

    category: str | UnsetType = UNSET
    source: str | UnsetType = UNSET
    count: int
    time_ps: Microseconds
    beside_ps: Microseconds = field(name="overlapped_us")
    flops: float
    hbm_bytes: float
    bound_by: str


class EstimateRow(Page, frozen=True, kw_only=True):
    """An instruction without a rule of its own."""

    name: str
    opcode: str
    how: str = field(name="estimate")


class DeviceRow(Page, frozen=True, kw_only=True):
    """Where the time of devices that did the same went."""

    devices: tuple[int, ...]
    total_ps: Microseconds
    compute_ps: Microseconds
    exposed_ps: Microseconds
    hidden_ps: Microseconds
    waiting_ps: Microseconds


class CollectiveRow(Page, frozen=True, kw_only=True):
    """All executions of one collective."""

    name: str
    opcode: str = field(name="kind")
    count: int
    group_size: int
    payload_bytes: float
    time_ps: Microseconds
    waiting_ps: Microseconds
    algorithm_bytes_per_second: float
    bus_bytes_per_second: float


class LinkTotals(Page, frozen=True, kw_only=True):
    """How full the links were."""

    links: int = field(name="used")
    busiest_link: str = field(name="busiest")
    busiest_share: float
    mean_share: float


class PodPage(Page, frozen=True, kw_only=True):
    """What devices and links did together."""

    sizes: tuple[int, ...]
    slices: int
    device_count: int
    device_order: str
    devices: tuple[DeviceRow, ...]
    collectives: tuple[CollectiveRow, ...]
    links: LinkTotals


class RunPage(Document, frozen=True, kw_only=True):
    """What ``tpusim run`` prints; of a pod the figures are those of ``device``, the first of those that ended last."""

    program: str
    chip: str
    device: int
    devices_run: int
    total_ps: Microseconds = field(name="time_us")
    bound_by: str
    roofline_us: float
    kernels: int
    flops: float
    hbm_bytes: float
    flops_utilisation: float
    hbm_utilisation: float
    busy: dict[str, float] = field(name="unit_utilization")
    bound_ps: dict[str, Microseconds]
    compiler_estimated_us: float | None
    ops: tuple[OpRow, ...]
    categories: tuple[CategoryRow, ...]
    memory: MemoryUse
    provenance: Provenance | None
    bands: tuple[Band, ...] = field(name="accuracy")
    unsupported: tuple[EstimateRow, ...]
    warnings: tuple[str, ...]
    pod: PodPage | UnsetType = UNSET
    groups: tuple[GroupRow, ...] | UnsetType = UNSET


def run_page(
    summary: Summary, pod: PodUse | None = None, groups: Mapping[str, Sequence[Group]] | None = None
) -> RunPage:
    """Return a run; ``groups`` are those by ``category`` or ``source``, under that name."""
    named = ((by, group) for by, found in (groups or {}).items() for group in found)
    # Both names are given: a group has a category or a source beside the one that it is named by.
    rows = [fill(GroupRow, group, **({"category": UNSET, "source": UNSET} | {by: group.name})) for by, group in named]
    return fill(
        RunPage,
        summary,
        summary.utilisation,
        roofline_us=ps_to_us(summary.roofline.bound_ps),
        compiler_estimated_us=compiler_us(summary.compiler_cycles, summary.compiler_clock_hz),
        ops=tuple(
            fill(OpRow, group, compiler_estimated_us=compiler_us(group.compiler_cycles, summary.compiler_clock_hz))
            for group in summary.ops
        ),
        pod=pod_page(pod) if pod else UNSET,
        groups=tuple(rows) if groups else UNSET,
    )


def pod_page(use: PodUse) -> PodPage:
    """Return what devices and links did together."""
    return fill(PodPage, use, links=fill(LinkTotals, use))


def compiler_us(cycles: int, clock_hz: float) -> float | None:
    """Return the compiler's estimate in microseconds, or None if it made none for this chip."""
    # No cycles mean no estimate: none takes no time. No clock means that they are of another chip.
    return cycles / clock_hz * 1e6 if cycles and clock_hz else None


class RunTotals(Page, frozen=True, kw_only=True):
    """The totals of one run."""

    program: str
    chip: str
    time_us: float
    bound_by: str
    roofline_us: float
    flops: float
    hbm_bytes: float
    memory: MemoryFigures


class ChangeRow(Page, frozen=True, kw_only=True):
    """An op or category in both runs, null where a run has none of it."""

    name: str
    category: str
    change_us: float
    beside_change_us: float = field(name="overlapped_change_us")
    before: OpFigures | None
    after: OpFigures | None


class ComparisonPage(Document, frozen=True, kw_only=True):
    """What ``tpusim diff`` prints; changes are from before to after."""

    before: RunTotals
    after: RunTotals
    change_us: float
    ratio: float
    ops: tuple[ChangeRow, ...]
    categories: tuple[ChangeRow, ...]


def comparison_page(comparison: Comparison) -> ComparisonPage:
    """Return two runs and their changes."""
    return fill(ComparisonPage, comparison, change_us=comparison.after.time_us - comparison.before.time_us)


def save_result(summary: Summary, path: str | Path) -> None:
    """Write a run as a saved result: what ``run --json`` prints, with its format's name and version before it."""
    save_json({"format": RESULT_FORMAT, **plain(run_page(summary))}, path)


def save_links(run: PodRun, path: str | Path) -> None:
    """Write the heat map of the links."""
    save_json(link_map(run, run.links), path)
