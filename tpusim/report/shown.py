"""Answers that show themselves when printed, and in notebooks."""

from __future__ import annotations

from tpusim.report.tables import Printer


class Shown:
    """What shows itself as a page of the terminal."""

    __slots__ = ()

    def _render(self, console: Printer) -> None:
        """Print the page: the one thing that each kind of answer says for itself."""
        raise NotImplementedError

    def __str__(self) -> str:
        """Return the page as the command line prints it."""
        # Rich takes longer to load than a small program to run, and few answers are printed.
        from tpusim.report.terminal.notebook import text_of

        return text_of(self._render)

    def _repr_html_(self) -> str:
        from tpusim.report.terminal.notebook import html_of

        return html_of(self._render)
