"""Rich's console: what pages are printed on that go to a terminal, or that it has to lay out."""

from __future__ import annotations

from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

from tpusim.errors import printable


class PageConsole(Console):
    """A console that cuts no line, and whose reader may go, which Rich would end with exit code 1."""

    def print(self, *objects: Any, **settings: Any) -> None:
        """Print as Rich does, also what is wider: a terminal goes on in the next line, and no figure is lost."""
        super().print(*objects, **{"crop": False} | settings)

    def on_broken_pipe(self) -> None:
        """Leave it to the command line, as for what is written without a console."""
        raise BrokenPipeError


def make_console(width: int | None) -> Console:
    """Return a console of Rich on standard output, as wide as the terminal if that is not told."""
    return visible(PageConsole(width=width, highlight=False, emoji=False, soft_wrap=False))


def visible(console: Console) -> Console:
    """Return a console that makes visible what would drive a terminal."""
    console.push_render_hook(_Printable())
    return console


class _Printable(RenderHook):
    """Changes what is printed: names come from files of others."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Return what is to be printed, without escape sequences but for those of Rich."""
        return list(map(_Visible, renderables))


class _Visible:
    """What another renderable prints, made visible."""

    def __init__(self, inner: ConsoleRenderable) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._inner, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
