"""What ``tpusim validate --compiler`` and ``tpusim validate --steps`` print as JSON."""

from __future__ import annotations

from typing import Any

from tpusim.analysis.estimates import EstimateComparison, FarClass, KernelEstimate
from tpusim.analysis.steps import StepAccuracy, StepOutcome
from tpusim.report.json.page import document, fill, page, rows

_Kernel = page("KernelEstimate", KernelEstimate, None, ratio=float)
_FarClass = page("FarClass", FarClass, None, worst=rows(_Kernel))
_Step = page("Step", StepOutcome, None, {"bands": "accuracy"}, grade=str, ratio=float, unmeasured_share=float)
EstimatesPage = document("Estimates", EstimateComparison, None, far_off=rows(_FarClass), kernels=rows(_Kernel))
StepsPage = document("Steps", StepAccuracy, None, rows=rows(_Step))


def estimates_page(found: EstimateComparison) -> Any:
    """Return kernels beside the compiler's estimates."""
    return fill(EstimatesPage, found)


def steps_page(found: StepAccuracy) -> Any:
    """Return whole steps beside published times."""
    return fill(StepsPage, found)
