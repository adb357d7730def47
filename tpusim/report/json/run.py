"""What ``tpusim run`` and ``tpusim diff`` print as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from tpusim.analysis.answers.caveats import Caveats
from tpusim.analysis.bands import compiler_us
from tpusim.analysis.communication import CollectiveUse, DeviceUse, PodUse, link_map
from tpusim.analysis.compare import RESULT_FORMAT, Change, Comparison, RunFigures
from tpusim.analysis.energy.price import Cost
from tpusim.analysis.energy.run import Energy, group_joules
from tpusim.analysis.summary import Summary
from tpusim.analysis.utilisation import Group
from tpusim.program.module import Estimate
from tpusim.report.json.page import Microseconds, document, fill, page, plain, rows, save_json
from tpusim.timeline.records import PodRun
from tpusim.units import ps_to_us


def _said(what: str, kind: Any = float) -> Any:
    """Return the type of a figure with what it is, for the schema."""
    return Annotated[kind, Meta(description=what)]


_OF_ONE_DEVICE = "joules of one device, with its share of its chip's idle power"
_BESIDE = {"beside_ps": "overlapped_us"}
_OP = "name opcode category count time_ps beside_ps bound_by flops hbm_bytes line op_name source"
_Op = page("Op", Group, _OP, _BESIDE | {"total_j": "energy_j"}, compiler_estimated_us=float | None, total_j=float)
_Category = page("Category", Group, "name count time_ps beside_ps", _BESIDE | {"name": "category"}, energy_j=float)
# Which of the two names it has is as was asked for.
_Group = page(
    "Group",
    Group,
    "count time_ps beside_ps flops hbm_bytes bound_by",
    _BESIDE,
    energy_j=float,
    category=str | UnsetType,
    source=str | UnsetType,
)
_Links = page(
    "Links", PodUse, "links busiest_link busiest_share mean_share", {"links": "used", "busiest_link": "busiest"}
)
_Pod = page(
    "Pod",
    PodUse,
    "sizes slices device_count device_order is_order_open copies",
    devices=rows(page("Device", DeviceUse)),
    collectives=rows(page("Collective", CollectiveUse, None, {"opcode": "kind"})),
    links=_Links,
)
_Energy = page("Energy", Energy, "", chip_power_w=float, by_unit=dict[str, float])
_Cost = page("Cost", Cost, None, usd_per_million_tokens=float | None)
RunPage = document(
    "Run",
    Summary,
    "program chip operating_point device devices_run total_ps prefetch_wait_ps flops_utilisation "
    "model_flops_utilisation peak_types memory counts fits schedule changed provenance compiled_error bands by_hand "
    "warnings",
    {"total_ps": "time_us", "busy": "unit_utilization", "bands": "accuracy", "total_j": "energy_j"}
    | {"all_devices_j": "all_devices_energy_j"},
    bound_by=str,
    roofline_us=float,
    kernels=int,
    flops=float,
    hbm_bytes=float,
    hbm_utilisation=_said("bytes of HBM over what its advertised bandwidth moves in the time, as in reports"),
    busy=_said("busy time over the time; HBM is busy at the bandwidth that it reaches", dict[str, float]),
    bound_ps=dict[str, Microseconds],
    compiler_estimated_us=float | None,
    total_j=_said(_OF_ONE_DEVICE),
    all_devices_j=_said("joules of all devices of a slice") | UnsetType,
    average_power_w=_said("watts of one device, as energy_j"),
    energy=_Energy,
    cost=_Cost | None,
    ops=rows(_Op),
    categories=rows(_Category),
    unsupported=rows(page("Estimate", Estimate, None, {"how": "estimate"})),
    pod=_Pod | UnsetType,
    groups=rows(_Group) | UnsetType,
)
_Change = page(
    "Change", Change, None, {"beside_change_us": "overlapped_change_us"}, change_us=float, beside_change_us=float
)
_Totals = page(
    "Totals",
    RunFigures,
    "program chip time_us bound_by roofline_us flops hbm_bytes memory changed",
    energy_j=_said(_OF_ONE_DEVICE),
    caveats=Caveats,
)
ComparisonPage = document(
    "Comparison",
    Comparison,
    "",
    before=_Totals,
    after=_Totals,
    change_us=float,
    ratio=float,
    ops=rows(_Change),
    categories=rows(_Change),
)


def run_page(
    summary: Summary,
    pod: PodUse | None = None,
    groups: Mapping[str, Sequence[Group]] | None = None,
    cost: Cost | None = None,
    all_devices_j: float | None = None,
) -> Any:
    """Return a run; ``groups`` are those by ``category`` or ``source``, under that name.

    ``all_devices_j`` are the joules of all devices of a slice.
    """
    grouped = [row for by, found in (groups or {}).items() for row in _groups(_Group, summary, found, by)]
    return fill(
        RunPage,
        summary,
        summary.utilisation,
        summary.energy,
        energy=fill(_Energy, summary.energy),
        all_devices_j=UNSET if all_devices_j is None else all_devices_j,
        cost=fill(_Cost, cost) if cost else None,
        roofline_us=ps_to_us(summary.roofline.bound_ps),
        compiler_estimated_us=compiler_us(summary.compiler_cycles, summary.compiler_clock_hz),
        ops=tuple(
            fill(_Op, group, op, compiler_estimated_us=compiler_us(group.compiler_cycles, summary.compiler_clock_hz))
            for group, op in zip(summary.ops, summary.energy.ops, strict=True)
        ),
        pod=pod_page(pod) if pod else UNSET,
        categories=tuple(_groups(_Category, summary, summary.categories, "category")),
        groups=tuple(grouped) if groups else UNSET,
    )


def _groups(kind: Any, summary: Summary, groups: Sequence[Group], by: str) -> Iterator[Any]:
    """Yield groups with their energies."""
    joules = group_joules(groups, by, summary.ops, summary.energy)
    for group, energy_j in zip(groups, joules, strict=True):
        # Both names are given: a group has a category or a source beside the one that it is named by.
        yield fill(kind, group, energy_j=energy_j, **({"category": UNSET, "source": UNSET} | {by: group.name}))


def pod_page(use: PodUse) -> Any:
    """Return what devices and links did together."""
    return fill(_Pod, use, links=fill(_Links, use))


def comparison_page(comparison: Comparison) -> Any:
    """Return two runs and their changes."""
    return fill(ComparisonPage, comparison, change_us=comparison.after.time_us - comparison.before.time_us)


def save_result(
    summary: Summary,
    path: str | Path,
    cost: Cost | None = None,
    pod: PodUse | None = None,
    all_devices_j: float | None = None,
) -> None:
    """Write a run as a saved result: what ``run --json`` prints, with its format's name and version before it."""
    save_json({"format": RESULT_FORMAT, **plain(run_page(summary, pod, None, cost, all_devices_j))}, path)


def save_links(run: PodRun, path: str | Path) -> None:
    """Write the heat map of the links."""
    save_json(link_map(run, run.links), path)
