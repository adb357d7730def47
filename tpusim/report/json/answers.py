"""What commands that answer a question print as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tpusim.analysis.answers.efficiency import Efficiency, efficiencies
from tpusim.analysis.answers.findings import Finding, Findings
from tpusim.analysis.answers.scaling import Largest, ScaleRow
from tpusim.analysis.explained.facts import StepExplanation
from tpusim.analysis.explanation import Explanation
from tpusim.analysis.path.critical import CriticalPath, OnPath, Slack, Stretch
from tpusim.analysis.path.hidden import Hidden, HiddenRest
from tpusim.report.json.page import Microseconds, document, fill, page, rows
from tpusim.shapes.layout_choices import LayoutChoice

ExplanationPage = document("Explanation", Explanation)
StepPage = document("StepExplanation", StepExplanation)
LongestPage = document("Longest", Explanation, "", ops=rows(str), kernels=rows(ExplanationPage), others=rows(StepPage))
AdvicePage = document(
    "Advice",
    Findings,
    "program chip time_ps tried estimates warnings",
    findings=rows(page("Finding", Finding, None, saved_ps=Microseconds, share=float)),
)
_Row = page(
    "ScaleRow",
    ScaleRow,
    None,
    {"total_ps": "time_us"},
    items_per_second=float,
    headroom_bytes=int,
    usd_per_million=float | None,
    joules_per_item=float | None,
)
_Efficiency = page("Efficiency", Efficiency)
ScalingPage = document(
    "Scaling",
    ScaleRow,
    "",
    rows=rows(_Row),
    efficiencies=rows(_Efficiency | None),
    largest=rows(page("Largest", Largest)),
)
LayoutsPage = document(
    "Layouts", LayoutChoice, "", layouts=rows(page("LayoutChoice", LayoutChoice, None, wasted_share=float))
)
PathPage = document(
    "CriticalPath",
    CriticalPath,
    "program chip device total_ps estimates warnings",
    {"total_ps": "time_us"},
    ops=rows(page("OnPath", OnPath)),
    stretches=rows(page("Stretch", Stretch)),
    slacks=rows(page("Slack", Slack)),
    hidden=rows(page("Hidden", Hidden)),
    hidden_rest=rows(page("HiddenRest", HiddenRest)),
)


def advice_page(found: Findings) -> Any:
    """Return what would make a program faster."""
    return fill(AdvicePage, found)


def scaling_page(found: Sequence[ScaleRow], largest: Sequence[Largest]) -> Any:
    """Return a family of programs side by side."""
    return fill(ScalingPage, rows=tuple(found), efficiencies=efficiencies(found), largest=tuple(largest))


def layouts_page(found: Sequence[LayoutChoice]) -> Any:
    """Return the layouts of an array."""
    return fill(LayoutsPage, layouts=tuple(found))


def explained_page(found: Explanation | StepExplanation) -> Any:
    """Return why an op takes what it takes."""
    return fill(StepPage if isinstance(found, StepExplanation) else ExplanationPage, found)


def longest_page(found: Sequence[Explanation | StepExplanation]) -> Any:
    """Return the same of several ops, kernels apart."""
    others = [isinstance(one, StepExplanation) for one in found]
    pages = [explained_page(one) for one in found]
    return LongestPage(
        ops=tuple(one.name for one in found),
        kernels=tuple(page for page, other in zip(pages, others, strict=True) if not other),
        others=tuple(page for page, other in zip(pages, others, strict=True) if other),
    )


def path_page(found: CriticalPath) -> Any:
    """Return what the end of a run waits for."""
    return fill(PathPage, found)
