"""What ``tpusim explain``, ``validate`` and ``systolic`` print as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from tpusim.analysis.accuracy import Accuracy, Outcome
from tpusim.analysis.explanation import Explanation
from tpusim.hardware.array import Array
from tpusim.report.json.page import SCHEMA_VERSION, Document, Page, fill
from tpusim.timeline.folds import add_runs
from tpusim.units import ps_to_us

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpusim.analysis.accuracy import Validation
    from tpusim.program.layers import Layer
    from tpusim.timeline.folds import ArrayRun


class ExplanationPage(Explanation, frozen=True, kw_only=True):
    """What ``tpusim explain`` prints; times in picoseconds, those of the kernel in microseconds as well."""

    alone_us: float
    in_run_us: float
    simulated: Literal[True] = True
    schema_version: int = SCHEMA_VERSION


def explanation_page(found: Explanation) -> ExplanationPage:
    """Return why a kernel takes what it takes."""
    times = {"alone_us": ps_to_us(found.alone_ps), "in_run_us": ps_to_us(found.in_run_ps)}
    return msgspec.convert(msgspec.structs.asdict(found) | times, ExplanationPage)


class AccuracyPage(Document, frozen=True, kw_only=True):
    """What ``tpusim validate`` prints: errors by predictor and family, mean errors, and every row."""

    families: dict[str, dict[str, Accuracy]]
    mean_error: dict[str, float]
    rows: tuple[Outcome, ...]


def accuracy_page(found: Validation) -> AccuracyPage:
    """Return predictions beside measured times."""
    return fill(AccuracyPage, found)


class ArrayFigures(Page, frozen=True, kw_only=True):
    """What products took on an array."""

    cycles: int
    folds: int
    macs: int
    utilisation: float
    mapping_efficiency: float
    compute_utilisation: float


class LayerRow(ArrayFigures, frozen=True, kw_only=True):
    """What one (m, k) times (k, n) product took."""

    name: str
    m: int
    n: int
    k: int


class SystolicPage(Document, frozen=True, kw_only=True):
    """What ``tpusim systolic`` prints."""

    array: Array
    model: str
    layers: tuple[LayerRow, ...]
    total: ArrayFigures


def systolic_page(rows: Sequence[tuple[Layer, ArrayRun]], array: Array, model: str) -> SystolicPage:
    """Return layers on an array."""
    layers = tuple(fill(LayerRow, layer, run) for layer, run in rows)
    total = fill(ArrayFigures, add_runs(run for _, run in rows))
    return SystolicPage(array=array, model=model, layers=layers, total=total)
