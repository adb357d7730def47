"""Our figures of memory beside the compiler's: a line per program, median and worst."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from tpusim.analysis.accuracy import LEAST_BYTES, MemoryOutcome, memory_accuracy
from tpusim.report.tables import plain_table, size_text


def render_memory_accuracy(outcomes: Sequence[MemoryOutcome], console: Console) -> None:
    """Print the table of programs, and median and worst error of those with enough temporaries."""
    table = plain_table("program", "chip", ">heap", ">ours, bytes", ">compiler's", ">error")
    for outcome in outcomes:
        error = "-" if outcome.error is None else f"{outcome.error:+.2%}"
        figures = (f"{outcome.heap_bytes:,}", f"{outcome.temp_bytes:,}", f"{outcome.compiler_temp_bytes:,}", error)
        table.add_row(escape(outcome.program), escape(outcome.chip), *figures)
    console.print(table)
    console.print(
        "ours: the heap, and once more what of it is unused where it is fullest, as memory_analysis counts it"
    )
    console.print()
    total = memory_accuracy(outcomes)
    least = size_text(LEAST_BYTES)
    if not total.count:
        console.print(f"HBM temporaries: no program has more than {least} of them")
        return
    console.print(
        f"HBM temporaries of {total.count} programs with more than {least}: "
        f"median error {total.median_error:.2%}, worst {total.worst_error:.2%} ({escape(total.worst)})"
    )
