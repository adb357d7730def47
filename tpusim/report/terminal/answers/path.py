"""The critical path of a run on a terminal: what its end waits for, what could come later, what hides behind what."""

from __future__ import annotations

from tpusim.analysis.path.critical import CriticalPath
from tpusim.hardware.units import ICI, UNITS
from tpusim.report.tables import Printer, Table, escape, plain_table, print_caveats, time_text
from tpusim.timeline.records import CORE, SPARSECORE

_SHOWN = 12
_SHOWN_DEVICES = 8
_ROWS = {CORE: "the core", ICI: "links", SPARSECORE: "sparse cores", "dma": "DMA"}
_LEAST_SHARE = 1e-4


def render_path(found: CriticalPath, console: Printer) -> None:
    """Print what the end of a run waits for, what could start later for nothing, and what ran behind what."""
    console.print(f"[bold]{escape(found.program)}[/bold] on {escape(found.chip)}: critical path (simulated)")
    console.print()
    beside_ps = sum(op.time_ps for op in found.ops if op.row != CORE)
    total_ps = max(1, found.total_ps)
    shown_ps = sum(op.time_ps for op in found.ops)
    share = "all" if shown_ps == found.total_ps else f"{shown_ps / total_ps:.1%}"
    console.print(f"  time      {time_text(found.total_ps)}, {share} of it accounted for below")
    console.print(
        f"  beside    {beside_ps / total_ps:.1%} of it runs beside the core, which may have other work meanwhile"
    )
    console.print("            (how long it had none is `exposed` and `waiting` in `tpusim run`)")
    if len(found.devices) > 1:
        shown = ", ".join(map(str, found.devices[-_SHOWN_DEVICES:]))
        more = "..., " if len(found.devices) > _SHOWN_DEVICES else ""
        console.print(f"  devices   {more}{shown}: which of them the others waited for, the last one last")
    console.print()
    console.print(_path_table(found))
    console.print()
    console.print(_slack_table(found))
    if found.hidden:
        console.print()
        console.print(_hidden_table(found))
    print_caveats(console, (found.estimates, found.warnings))


def _path_table(found: CriticalPath) -> Table:
    table = plain_table(
        "the end waits for", ">adds", ">share", ">count", "on", "category", "<source", cut=("category",)
    )
    for op in found.ops[:_SHOWN]:
        share = f"{op.time_ps / max(1, found.total_ps):.1%}"
        on = _ROWS.get(op.row, UNITS[op.row].label if op.row in UNITS else op.row)
        cells = (time_text(op.time_ps), share, f"{op.count:,}", on, escape(op.category), escape(op.source))
        table.add_row(escape(op.name), *cells)
    rest = found.ops[_SHOWN:]
    if rest:
        table.add_row(f"... and {len(rest)} more", time_text(sum(op.time_ps for op in rest)))
    return table


def _slack_table(found: CriticalPath) -> Table:
    """Return the table of what could start later without moving the end; each op by itself."""
    table = plain_table("could start later for nothing", ">by", ">takes", "on", "<source")
    least_ps = found.total_ps * _LEAST_SHARE
    ops = [slack for slack in found.slacks if slack.slack_ps > least_ps]
    for slack in ops[:_SHOWN]:
        on = _ROWS.get(slack.row, slack.row)
        table.add_row(escape(slack.name), time_text(slack.slack_ps), time_text(slack.time_ps), on, escape(slack.source))
    if len(ops) > _SHOWN:
        table.add_row(f"... and {len(ops) - _SHOWN} more")
    if not ops:
        table.add_row("nothing: each op holds up the end")
    return table


def _hidden_table(found: CriticalPath) -> Table:
    title = "runs behind the core"
    table = plain_table(title, ">for", "behind", "<source", wraps=(title, "behind"))
    for pair in found.hidden[:_SHOWN]:
        table.add_row(escape(pair.name), time_text(pair.time_ps), escape(pair.behind), escape(pair.source))
    count = len(found.hidden[_SHOWN:]) + sum(one.ops for one in found.hidden_rest)
    if count:
        rest_ps = sum(p.time_ps for p in found.hidden[_SHOWN:]) + sum(one.time_ps for one in found.hidden_rest)
        table.add_row(f"... and {count} more", time_text(rest_ps))
    return table
