"""How a program was compiled, on a terminal: its passes, what it consists of before and after, and what it takes."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tpusim.analysis.summary import Summary
from tpusim.hardware.units import CMEM, HBM, UNITS, VMEM
from tpusim.program.compilation import Compilation, Contents
from tpusim.report.tables import plain_table, size_text, time_text


def render_compilation(found: Compilation, run: Summary | None, console: Console) -> None:
    """Print the passes, what the program consists of before and after, its run if it has a schedule, and notes."""
    name = escape(found.program)
    console.print(f"[bold]{name}[/bold] compiled by tpusim for {escape(found.chip)} in {found.cpu_seconds:.2f} s CPU")
    console.print()
    console.print(_passes(found))
    console.print()
    for line in _lines(found):
        console.print(line)
    if run is None:
        console.print("schedule  none: the passes stopped before it")
    else:
        console.print(f"time      {time_text(run.total_ps)} (simulated)")
        use = run.memory
        traffic = size_text(run.utilisation.hbm_bytes)
        console.print(f"memory    {traffic} of {UNITS[HBM].label} traffic, peak {size_text(use.peak_hbm_bytes)}")
    for note in found.notes:
        console.print(f"note      {escape(note)}")


def _passes(found: Compilation) -> Table:
    table = plain_table("pass", ">CPU", ">instructions", ">kernels")
    table.add_row("(as given)", "", f"{found.before.instructions:,}", f"{found.before.kernels:,}")
    for one in found.passes:
        table.add_row(escape(one.name), f"{one.cpu_seconds * 1e3:.1f} ms", f"{one.instructions:,}", f"{one.kernels:,}")
    return table


def _lines(found: Compilation) -> Iterator[str]:
    after: Contents = found.after
    yield (
        f"kernels   {found.before.kernels:,} before, {after.kernels:,} after: {after.fusions:,} fusions, "
        f"{after.product_fusions:,} of them around a product, {after.multi_output:,} with several results"
    )
    yield f"tiles     stated for {after.tiled:,} kernels"
    fast = f"{UNITS[VMEM].label} or {UNITS[CMEM].label}"
    yield f"placed    {after.fast_results:,} results in {fast}, {after.prefetches:,} asynchronous copies and slices"
