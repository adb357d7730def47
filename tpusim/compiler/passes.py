"""The passes in their order, and what runs them."""

from __future__ import annotations

from collections.abc import Callable

from tpusim.compiler.decompose.run import decompose
from tpusim.compiler.fuse import fuse
from tpusim.compiler.graph import Draft
from tpusim.compiler.inline import inline
from tpusim.compiler.layouts import assign_layouts
from tpusim.compiler.manual import localise
from tpusim.compiler.place.run import place
from tpusim.compiler.row_window import make_row_windows
from tpusim.compiler.schedule import schedule
from tpusim.compiler.simplify import simplify
from tpusim.compiler.target import Target
from tpusim.compiler.tiles import split_over_cores
from tpusim.ir.module import Module

PASSES: tuple[tuple[str, Callable[[Draft, Target], None]], ...] = (
    ("manual", localise),
    ("inline", inline),
    ("simplify", simplify),
    ("decompose", decompose),
    ("clean-up", simplify),
    ("row-window", make_row_windows),
    ("layouts", assign_layouts),
    ("fuse", fuse),
    ("tiles", split_over_cores),
    ("order", schedule),
    ("place", place),
)
"""Every pass by its name, in the order in which they run."""


def compile_module(module: Module, target: Target, stop_after: str = "") -> Module:
    """Return the scheduled module of an unscheduled one, or what it is after one of the passes."""
    draft = Draft(module)
    for name, run in PASSES:
        run(draft, target)
        if name == stop_after:
            break
    return draft.write()
