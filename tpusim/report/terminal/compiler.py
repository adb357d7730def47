"""Our compiler on a terminal: what it made of a program, and how near it comes to the TPU's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tpusim.analysis.compiled import FAR, NEAR, CompiledAccuracy
from tpusim.analysis.summary import Summary
from tpusim.hardware.units import CMEM, HBM, UNITS, VMEM
from tpusim.program.compilation import Compilation, Contents, Note, PassFigures
from tpusim.report.tables import Printer, Table, escape, plain_table, size_text, time_text, us_text

_NAMED = 3
"""So many of the arrays that a pass did the same with are named."""


def render_compilation(found: Compilation, run: Summary | None, console: Printer) -> None:
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
    if found.notes:
        console.print()
        console.print(_decisions(found.notes))


def _passes(found: Compilation) -> Table:
    # Bytes of whole arrays, each loop once: what a pass changes, not what a run moves.
    table = plain_table("pass", ">CPU", ">instructions", ">kernels", f">arrays in {UNITS[HBM].label}")
    rows: list[tuple[str, str, Contents | PassFigures]] = [("(as given)", "", found.before)]
    rows += [(one.name, f"{one.cpu_seconds * 1e3:.1f} ms", one) for one in found.passes]
    for name, cpu, left in rows:
        table.add_row(name, cpu, f"{left.instructions:,}", f"{left.kernels:,}", size_text(left.hbm_bytes))
    return table


def _decisions(notes: Sequence[Note]) -> Table:
    """Return what passes did with arrays and did not do, counted by reason, with the largest by name."""
    by_reason: dict[tuple[str, bool, str], list[Note]] = {}
    for note in notes:
        by_reason.setdefault((note.pass_name, not note.is_done, note.reason), []).append(note)
    texts = ("what was done, or why not", "the largest")
    table = plain_table("pass", ">arrays", ">bytes", *texts, wraps=texts)
    # A stable order: passes as they ran, done before not done, most bytes first.
    order = {name: at for at, name in enumerate(dict.fromkeys(note.pass_name for note in notes))}
    for (name, is_not, reason), found in sorted(
        by_reason.items(), key=lambda item: (order[item[0][0]], item[0][1], -sum(note.n_bytes for note in item[1]))
    ):
        largest = sorted(found, key=lambda note: -note.n_bytes)[:_NAMED]
        what = f"not: {reason}" if is_not else reason
        size = size_text(sum(note.n_bytes for note in found))
        table.add_row(escape(name), f"{len(found):,}", size, escape(what), escape(", ".join(map(_named, largest))))
    return table


def _named(note: Note) -> str:
    return f"{note.name} for {note.user}" if note.user else note.name


def _lines(found: Compilation) -> Iterator[str]:
    after: Contents = found.after
    yield f"kernels   {found.before.kernels:,} before, {after.kernels:,} after"
    yield (
        f"fusions   {after.fusions:,}, of which {after.product_fusions:,} have a product and {after.multi_output:,} "
        "several results"
    )
    yield f"tiles     stated for {after.tiled:,} kernels"
    fast = f"{UNITS[VMEM].label} or {UNITS[CMEM].label}"
    yield f"placed    {after.fast_results:,} results in {fast}, {after.prefetches:,} asynchronous copies and slices"


def render_compiled(found: CompiledAccuracy, console: Printer) -> None:
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
