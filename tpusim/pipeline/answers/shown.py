"""Answers that show themselves when printed, and in notebooks."""

from __future__ import annotations

from tpusim.analysis.explained.facts import StepExplanation
from tpusim.analysis.explanation import Explanation
from tpusim.analysis.tuning import Ranking


class ExplainedKernel(Explanation, frozen=True, kw_only=True):
    """An explanation that shows itself as ``tpusim explain`` prints it."""

    def __str__(self) -> str:
        """Return the report of ``tpusim explain``."""
        from tpusim.report.terminal.notebook import printed_explanation, text_of

        return text_of(printed_explanation(self))

    def _repr_html_(self) -> str:
        from tpusim.report.terminal.notebook import html_of, printed_explanation

        return html_of(printed_explanation(self))


class ExplainedStep(StepExplanation, frozen=True, kw_only=True):
    """The same of what is no kernel."""

    __str__ = ExplainedKernel.__str__
    _repr_html_ = ExplainedKernel._repr_html_


class RankedPrograms(Ranking, frozen=True, kw_only=True):
    """A ranking that shows itself as a table."""

    def __str__(self) -> str:
        """Return the table."""
        from tpusim.report.terminal.notebook import printed_ranking, text_of

        return text_of(printed_ranking(self))

    def _repr_html_(self) -> str:
        from tpusim.report.terminal.notebook import html_of, printed_ranking

        return html_of(printed_ranking(self))
