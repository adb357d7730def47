"""What ``tpusim explain``, ``validate`` and ``systolic`` print as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Literal

import msgspec

from tpusim.analysis.accuracy import Validation
from tpusim.analysis.explanation import Explanation
from tpusim.hardware.array import Array
from tpusim.program.layers import Layer
from tpusim.report.json.page import SCHEMA_VERSION, document, fill, page, rows
from tpusim.timeline.folds import ArrayRun, MemoryRun, add_runs
from tpusim.units import ps_to_us


class ExplanationPage(Explanation, frozen=True, kw_only=True):
    """What ``tpusim explain`` prints; times in picoseconds, those of the kernel in microseconds as well."""

    alone_us: float
    in_run_us: float
    simulated: Literal[True] = True
    schema_version: int = SCHEMA_VERSION


_SHARES = {"utilisation": float, "mapping_efficiency": float, "compute_utilisation": float}
_Figures = page("ArrayFigures", ArrayRun, "cycles folds macs", **_SHARES)
_Layer = page("Layer", ArrayRun, "cycles folds macs", **_SHARES, name=str, m=int, n=int, k=int, memory=MemoryRun | None)
AccuracyPage = document("Accuracy", Validation)
SystolicPage = document("Systolic", Layer, "", array=Array, model=str, layers=rows(_Layer), total=_Figures)


def explanation_page(found: Explanation) -> ExplanationPage:
    """Return why a kernel takes what it takes."""
    times = {"alone_us": ps_to_us(found.alone_ps), "in_run_us": ps_to_us(found.in_run_ps)}
    return msgspec.convert(msgspec.structs.asdict(found) | times, ExplanationPage)


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
