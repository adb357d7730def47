"""Layers on a systolic array, as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from tpusim.errors import printable
from tpusim.hardware.array import Array
from tpusim.program.layers import Layer
from tpusim.report.tables import Printer
from tpusim.timeline.folds import ArrayRun, MemoryRun, add_runs

_DATAFLOWS = {"ws": "weight-stationary", "os": "output-stationary", "is": "input-stationary"}
_MODELS = {"fast": "closed form", "cycle": "counted cycle by cycle"}
_TITLES = ("layer", "m", "n", "k", "folds", "cycles", "utilisation", "mapping", "compute")
_LEGEND = """\
utilisation: multiply-accumulates of what the array could do in all cycles; mapping: share of the array that the folds
cover; compute: utilisation while it computes, without the first load and the last drain"""
_SCALE_SIM_LEGEND = """\
utilisation, mapping, compute: Overall Util, Mapping Efficiency and Compute Util as SCALE-Sim has them; no stalls"""

_MEMORY_TITLES = ("layer", "cycles", "stalls", "with prefetch", "SRAM words", "DRAM ifmap", "DRAM filter", "DRAM ofmap")
_MEMORY_LEGEND = """\
cycles: with stalls; with prefetch: from DRAM's first word to its last; words: read or written by array or DRAM"""


def print_systolic(
    rows: Sequence[tuple[Layer, ArrayRun]], memories: Sequence[MemoryRun], array: Array, model: str, console: Printer
) -> None:
    """Print a head line, an aligned line for each layer and, of several, their total, and what the shares are of.

    With ``memories``, what each layer took with its SRAMs, a second table of these follows.
    """
    cells = [_TITLES, *(_cells(layer.name, layer, run) for layer, run in rows)]
    if len(rows) > 1:
        cells.append(_cells("total", None, add_runs(run for _, run in rows)))
    legend = _LEGEND if array.overlaps else _SCALE_SIM_LEGEND
    lines = [_head(array, model), "", *_table(cells), "", legend]
    if memories:
        names = [layer.name for layer, _ in rows]
        kept = [_MEMORY_TITLES, *map(_memory_cells, names, memories)]
        if len(rows) > 1:
            kept.append(_memory_total(memories))
        lines += ["", *_table(kept), "", _MEMORY_LEGEND]
    # Names may hold what a console takes for markup.
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _table(cells: Sequence[Sequence[str]]) -> list[str]:
    """Return aligned lines: names to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    padded = [[name.ljust(widths[0]), *map(str.rjust, figures, widths[1:])] for name, *figures in cells]
    return ["  ".join(row) for row in padded]


def _memory_cells(name: str, memory: MemoryRun) -> tuple[str, ...]:
    """Return the fields of a layer's line in the table of SRAMs."""
    words = (memory.ifmap, memory.filter, memory.ofmap)
    figures = [memory.cycles, memory.stall_cycles, memory.cycles_with_prefetch]
    figures += [sum(one.sram_words for one in words), *(one.dram_words for one in words)]
    return (printable(name, kept=""), *(f"{figure:,}" for figure in figures))


def _memory_total(memories: Sequence[MemoryRun]) -> tuple[str, ...]:
    """Return the last line of that table."""
    lines = [_memory_cells("", memory)[1:] for memory in memories]
    sums = (sum(int(cell.replace(",", "")) for cell in column) for column in zip(*lines, strict=True))
    return ("total", *(f"{figure:,}" for figure in sums))


def _head(array: Array, model: str) -> str:
    """Return what was simulated, in a line; what is as usual is not said."""
    arrays = f"{array.count} arrays of " if array.count > 1 else ""
    parts = [f"{arrays}{array.rows} x {array.columns}", _DATAFLOWS[array.dataflow], array.mode]
    parts += [f"{array.rows_per_cycle} rows per cycle"] if array.rows_per_cycle > 1 else []
    parts += [f"{array.passes} passes"] if array.passes > 1 else []
    return f"{', '.join(parts)} ({_MODELS[model]}; simulated)"


def _cells(name: str, layer: Layer | None, run: ArrayRun) -> tuple[str, ...]:
    """Return the fields of a line; the total has no dimensions."""
    sizes = (layer.m, layer.n, layer.k) if layer else ()
    shares = (run.utilisation, run.mapping_efficiency, run.compute_utilisation)
    return (
        printable(name, kept=""),
        *(f"{size:,}" for size in sizes),
        *([""] * (3 - len(sizes))),
        f"{run.folds:,}",
        f"{run.cycles:,}",
        *(f"{share:.2%}" for share in shares),
    )
