"""Answers that show themselves when printed, and in notebooks."""

from __future__ import annotations

from tpusim.analysis.explained.facts import StepExplanation
from tpusim.analysis.explanation import Explanation
from tpusim.analysis.tuning import Ranking
from tpusim.report.shown import Shown
from tpusim.report.tables import Printer


class ExplainedKernel(Shown, Explanation, frozen=True, kw_only=True):
    """An explanation that shows itself as ``tpusim explain`` prints it."""

    def _render(self, console: Printer) -> None:
        from tpusim.report.terminal.answers.explain import render_explained

        render_explained(self, console)


class ExplainedStep(Shown, StepExplanation, frozen=True, kw_only=True):
    """The same of what is no kernel."""

    _render = ExplainedKernel._render


class RankedPrograms(Shown, Ranking, frozen=True, kw_only=True):
    """A ranking that shows itself as a table."""

    def _render(self, console: Printer) -> None:
        from tpusim.report.terminal.explain import render_ranking

        render_ranking(self, console)
