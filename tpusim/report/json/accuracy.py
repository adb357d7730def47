"""What ``tpusim validate --compiler``, ``--compiled``, ``--steps`` and ``--power`` print as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tpusim.analysis.compiled import CompiledAccuracy, CompiledPair
from tpusim.analysis.energy.measured import ChipPower, ProgramPower
from tpusim.analysis.estimates import EstimateComparison, FarClass, KernelEstimate
from tpusim.analysis.steps import StepAccuracy, StepOutcome
from tpusim.report.json.page import document, fill, page, rows

_Kernel = page("KernelEstimate", KernelEstimate, None, ratio=float)
_FarClass = page("FarClass", FarClass, None, worst=rows(_Kernel))
_Step = page("Step", StepOutcome, None, {"bands": "accuracy"}, grade=str, ratio=float, unmeasured_share=float)
_Pair = page("CompiledPair", CompiledPair, None, ratio=float)
EstimatesPage = document("Estimates", EstimateComparison, None, far_off=rows(_FarClass), kernels=rows(_Kernel))
CompiledPage = document("Compiled", CompiledAccuracy, None, pairs=rows(_Pair))
StepsPage = document("Steps", StepAccuracy, None, rows=rows(_Step))
_ChipPower = page(
    "ChipPower",
    ChipPower,
    None,
    programs=rows(page("ProgramPower", ProgramPower)),
    our_least_w=float,
    our_mean_w=float,
    our_most_w=float,
    ratio=float,
)
PowerPage = document("Power", ChipPower, "", chips=rows(_ChipPower))


def estimates_page(found: EstimateComparison) -> Any:
    """Return kernels beside the compiler's estimates."""
    return fill(EstimatesPage, found)


def compiled_page(found: CompiledAccuracy) -> Any:
    """Return programs of our compiler beside those of the TPU's."""
    return fill(CompiledPage, found)


def steps_page(found: StepAccuracy) -> Any:
    """Return whole steps beside published times."""
    return fill(StepsPage, found)


def power_page(found: Sequence[ChipPower]) -> Any:
    """Return power beside the published one."""
    return fill(PowerPage, chips=tuple(found))
