"""Layers on a systolic array, as lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpusim.hardware.array import Array
from tpusim.program.layers import Layer
from tpusim.timeline.folds import ArrayRun, add_runs

if TYPE_CHECKING:
    # JSON does without Rich, which takes long to load.
    from rich.console import Console

_DATAFLOWS = {"ws": "weight-stationary", "os": "output-stationary", "is": "input-stationary"}
_MODELS = {"fast": "closed form", "cycle": "counted cycle by cycle"}
_TITLES = ("layer", "m", "n", "k", "folds", "cycles", "utilisation", "mapping", "compute")
_LEGEND = """\
utilisation: multiply-accumulates of what the array could do in all cycles; mapping: share of the array that the folds
cover; compute: utilisation while it computes, without the first load and the last drain"""
_SCALE_SIM_LEGEND = """\
utilisation, mapping, compute: Overall Util, Mapping Efficiency and Compute Util as SCALE-Sim defines them; no stalls"""


def print_systolic(rows: Sequence[tuple[Layer, ArrayRun]], array: Array, model: str, console: Console) -> None:
    """Print a head line, an aligned line for each layer and, of several, their total, and what the shares are of."""
    cells = [_TITLES, *(_cells(layer.name, layer, run) for layer, run in rows)]
    if len(rows) > 1:
        cells.append(_cells("total", None, add_runs(run for _, run in rows)))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    # Names to the left, figures to the right.
    padded = [[name.ljust(widths[0]), *map(str.rjust, figures, widths[1:])] for name, *figures in cells]
    lines = ["  ".join(row) for row in padded]
    legend = _LEGEND if array.overlaps else _SCALE_SIM_LEGEND
    text = "\n".join([_head(array, model), "", *lines, "", legend])
    # Names may hold what a console takes for markup.
    console.print(text, markup=False, highlight=False, soft_wrap=True)


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
        # A line break or an escape sequence in a name would break the table.
        "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name),
        *(f"{size:,}" for size in sizes),
        *([""] * (3 - len(sizes))),
        f"{run.folds:,}",
        f"{run.cycles:,}",
        *(f"{share:.2%}" for share in shares),
    )
