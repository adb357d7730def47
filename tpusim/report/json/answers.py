"""What commands that answer a question print as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from tpusim.analysis.explained.facts import StepExplanation
from tpusim.analysis.explanation import Explanation
from tpusim.analysis.path.critical import CriticalPath, Hidden, OnPath, Slack, Stretch
from tpusim.report.json.page import SCHEMA_VERSION, document, fill, page, rows
from tpusim.units import ps_to_us


class ExplanationPage(Explanation, frozen=True, kw_only=True):
    """What ``tpusim explain`` prints of a kernel; times in picoseconds, those of the kernel in microseconds as well."""

    alone_us: float
    in_run_us: float
    simulated: Literal[True] = True
    schema_version: int = SCHEMA_VERSION


StepPage = document("StepExplanation", StepExplanation)
LongestPage = document("Longest", Explanation, "", ops=rows(str), kernels=rows(ExplanationPage), others=rows(StepPage))
PathPage = document(
    "CriticalPath",
    CriticalPath,
    "program chip device total_ps",
    {"total_ps": "time_us"},
    ops=rows(page("OnPath", OnPath)),
    stretches=rows(page("Stretch", Stretch)),
    slacks=rows(page("Slack", Slack)),
    hidden=rows(page("Hidden", Hidden)),
)


def explained_page(found: Explanation | StepExplanation) -> Any:
    """Return why an op takes what it takes."""
    if isinstance(found, StepExplanation):
        return fill(StepPage, found)
    times = {"alone_us": ps_to_us(found.alone_ps), "in_run_us": ps_to_us(found.in_run_ps)}
    return msgspec.convert(msgspec.structs.asdict(found) | times, ExplanationPage)


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
