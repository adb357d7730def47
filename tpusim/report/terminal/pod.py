"""A run of many devices on a terminal: devices, collectives and links."""

from __future__ import annotations

from tpusim.analysis.communication import PodUse
from tpusim.report.tables import Printer, Table, escape, plain_table
from tpusim.units import ps_to_us

_SHOWN = 8
_ORDERS = {
    "ring": "numbered along a ring of neighbours",
    "listed": "numbered by coordinates",
    "mesh": "numbered by coordinates, placed as the program's mesh has them",
}

OPEN_ORDER = "a mesh of jax.devices() as listed, host by host, has another: `tpusim run --device-order hosts`"
"""What to say where a program states no order of its mesh's devices."""


def render_pod(use: PodUse, console: Printer) -> None:
    """Print where the time of the devices went, the bandwidth of the longest collectives, and how full links were."""
    sizes = (f"{use.slices} slices of " if use.slices > 1 else "") + "x".join(map(str, use.sizes))
    console.print()
    console.print(f"devices   {use.device_count} on {sizes} chips, {_ORDERS[use.device_order]}")
    if use.is_order_open:
        console.print(f"          the program states no order of its mesh's devices; {OPEN_ORDER}", soft_wrap=True)
    if use.copies > 1:
        console.print(f"          {use.copies} copies of the program side by side, which exchange nothing")
    console.print(_device_table(use))
    if use.collectives:
        console.print()
        console.print(_collective_table(use))
        console.print("algbw: bytes over time; busbw: what a link has to carry of them over time (as in nccl-tests)")
    if use.links:
        console.print()
        console.print(
            f"links     {use.links} used, {use.mean_share:.1%} of the time on average, "
            f"{use.busiest_share:.1%} the busiest ({use.busiest_link})"
        )


def _device_table(use: PodUse) -> Table:
    table = plain_table("devices", ">time", ">compute", ">exposed", ">hidden", ">waiting")
    for device in use.devices[:_SHOWN]:
        parts = (device.total_ps, device.compute_ps, device.exposed_ps, device.hidden_ps, device.waiting_ps)
        table.add_row(_range_text(device.devices), *(f"{ps_to_us(ps):,.2f} us" for ps in parts))
    if len(use.devices) > _SHOWN:
        table.add_row(f"... and {len(use.devices) - _SHOWN} more (--json has them all)")
    return table


def _collective_table(use: PodUse) -> Table:
    figures = (">group", ">count", ">bytes", ">time each", ">waiting", ">algbw", ">busbw")
    table = plain_table("collective", *figures)
    for one in use.collectives[:_SHOWN]:
        table.add_row(
            escape(one.name),
            str(one.group_size),
            f"{one.count:,}",
            f"{one.payload_bytes / 1e6:,.3f} MB",
            f"{ps_to_us(one.time_ps) / one.count:,.2f} us",
            f"{ps_to_us(one.waiting_ps) / one.count:,.2f} us",
            f"{one.algorithm_bytes_per_second / 1e9:,.1f} GB/s",
            f"{one.bus_bytes_per_second / 1e9:,.1f} GB/s",
        )
    if len(use.collectives) > _SHOWN:
        table.add_row(f"... and {len(use.collectives) - _SHOWN} more (--json has them all)")
    return table


def _range_text(numbers: tuple[int, ...]) -> str:
    """Return numbers as ``0-3, 8 and 12 more``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    shown = ", ".join("-".join(map(str, run)) for run in runs[:4])
    return shown + (f" and {len(runs) - 4} more runs" if len(runs) > 4 else "")
