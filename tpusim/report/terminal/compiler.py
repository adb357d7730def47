"""Our compiler on a terminal: what it made of a program, and how near it comes to the TPU's own."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tpusim.analysis.compiled import FAR, NEAR, CompiledAccuracy
from tpusim.analysis.summary import Summary
from tpusim.hardware.units import CMEM, HBM, UNITS, VMEM
from tpusim.program.compilation import Compilation, Contents
from tpusim.report.tables import plain_table, size_text, time_text, us_text


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


def render_compiled(found: CompiledAccuracy, console: Console) -> None:
    """Print a line for each pair, then how far off they are together."""
    hbm = UNITS[HBM].label
    columns = (">ours", ">TPU compiler's", ">ratio", ">kernels", ">theirs", f">{hbm}", ">theirs")
    table = plain_table("program", "chip", *columns)
    for pair in found.pairs:
        ours, theirs = pair.ours, pair.theirs
        times = (us_text(ours.time_us), us_text(theirs.time_us), f"{pair.ratio:.2f}")
        kernels = (f"{ours.kernels:,}", f"{theirs.kernels:,}")
        table.add_row(
            escape(pair.program),
            escape(pair.chip),
            *(*times, *kernels, size_text(ours.hbm_bytes), size_text(theirs.hbm_bytes)),
        )
    console.print(table)
    console.print()
    console.print(
        f"off by a factor of {found.factor:.2f} (geometric mean of {len(found.pairs)} pairs, both simulated); "
        f"within {NEAR:.0%}: {found.near:.0%}, within {FAR:.0%}: {found.not_far:.0%}"
    )
    console.print(f"by chip: {', '.join(f'{escape(chip)} {factor:.2f}' for chip, factor in found.by_chip.items())}")
    medians = ", ".join(f"{name} {factor:.2f}" for name, factor in found.medians.items())
    console.print(f"median factors: {medians}")
