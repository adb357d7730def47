"""What ``tpusim validate`` and ``systolic`` print as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from tpusim.analysis.accuracy import Validation
from tpusim.hardware.array import Array
from tpusim.program.layers import Layer
from tpusim.report.json.page import document, fill, page, rows
from tpusim.timeline.folds import ArrayRun, MemoryRun, add_runs

_SHARES = {"utilisation": float, "mapping_efficiency": float, "compute_utilisation": float}
_Figures = page("ArrayFigures", ArrayRun, "cycles folds macs", **_SHARES)
_Layer = page("Layer", ArrayRun, "cycles folds macs", **_SHARES, name=str, m=int, n=int, k=int, memory=MemoryRun | None)
AccuracyPage = document("Accuracy", Validation)
SystolicPage = document("Systolic", Layer, "", array=Array, model=str, layers=rows(_Layer), total=_Figures)


def accuracy_page(found: Validation) -> Any:
    """Return predictions beside measured times."""
    return fill(AccuracyPage, found)


def systolic_page(
    rows: Sequence[tuple[Layer, ArrayRun]], memories: Sequence[MemoryRun], array: Array, model: str
) -> Any:
    """Return layers on an array; ``memories``: of each what it took with its SRAMs, if there are any."""
    layers = tuple(fill(_Layer, *row, memory=one) for row, one in zip_longest(rows, memories))
    total = fill(_Figures, add_runs(run for _, run in rows))
    return SystolicPage(array=array, model=model, layers=layers, total=total)
