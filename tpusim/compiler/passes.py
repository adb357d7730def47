"""The passes in their order, and what runs them."""

from __future__ import annotations

from collections.abc import Callable

from tpusim.compiler.buffers import allocate_stacks
from tpusim.compiler.collectives import combine, leave_to_slice, start_early, sum_in_place
from tpusim.compiler.decompose.run import decompose
from tpusim.compiler.devices.gathers import hide_gathers
from tpusim.compiler.devices.loops import sum_behind_loops
from tpusim.compiler.devices.reassociate import reassociate
from tpusim.compiler.devices.selection import select_locally
from tpusim.compiler.devices.sums import narrow_sums
from tpusim.compiler.flatten import flatten
from tpusim.compiler.fuse.run import fuse
from tpusim.compiler.host.annotations import name_moves, settle_moves
from tpusim.compiler.host.moves import start_moves
from tpusim.compiler.inline import inline
from tpusim.compiler.kernels.copies import copy_what_is_kept, take_apart
from tpusim.compiler.kernels.emitters import choose_emitters
from tpusim.compiler.kernels.scoped import state_scoped
from tpusim.compiler.kernels.widen import widen
from tpusim.compiler.layouts.assign import assign_layouts
from tpusim.compiler.manual import localise
from tpusim.compiler.narrow import narrow
from tpusim.compiler.place.counters import bring_counters
from tpusim.compiler.place.run import place
from tpusim.compiler.reshapes import move_reshapes
from tpusim.compiler.scatter import scatter_sums
from tpusim.compiler.schedule import follow_what_is_stated, schedule
from tpusim.compiler.simplify.invariant import move_invariants
from tpusim.compiler.simplify.run import simplify
from tpusim.compiler.softmax.rows import make_row_windows
from tpusim.compiler.softmax.shares import divide_behind_products
from tpusim.compiler.space_to_batch import cut_images
from tpusim.compiler.target import Target
from tpusim.compiler.tiles import state_tiles
from tpusim.draft import Draft
from tpusim.errors import ConfigError, did_you_mean
from tpusim.ir.module import Module
from tpusim.semantics.marks import COMPILED_FOR, with_mark

PASSES: tuple[tuple[str, Callable[[Draft, Target], None]], ...] = (
    ("manual", localise),
    ("inline", inline),
    ("flatten", flatten),
    ("host-memory", name_moves),
    ("simplify", simplify),
    ("invariant", move_invariants),
    ("reassociate", reassociate),
    ("loop-sums", sum_behind_loops),
    ("selections", select_locally),
    ("reshapes", move_reshapes),
    ("decompose", decompose),
    ("space-to-batch", cut_images),
    ("softmax", divide_behind_products),
    ("row-window", make_row_windows),
    ("narrow", narrow),
    ("clean-up", simplify),
    ("scatter", scatter_sums),
    ("host-moves", settle_moves),
    ("layouts", assign_layouts),
    ("buffers", allocate_stacks),
    ("fuse", fuse),
    ("tuples", take_apart),
    ("combine", combine),
    ("copies", copy_what_is_kept),
    ("widen", widen),
    ("emitters", choose_emitters),
    ("algorithms", leave_to_slice),
    ("order", schedule),
    ("narrow-sums", narrow_sums),
    ("gathers", hide_gathers),
    ("host-copies", start_moves),
    ("place", place),
    ("counters", bring_counters),
    ("sums", sum_in_place),
    ("scoped", state_scoped),
    ("collectives", start_early),
    ("tiles", state_tiles),
)
"""Every pass by its name, in the order in which they run."""


def compile_module(
    module: Module, target: Target, stop_after: str = "", after: Callable[[str, Draft], None] | None = None
) -> Module:
    """Return the scheduled module of an unscheduled one, or what it is after one of the passes.

    ``after`` is called with the name of each pass that has run, and the draft as it left it. Raises ConfigError if no
    pass is called ``stop_after``, UnsupportedError if a pass refuses the program.
    """
    names = [name for name, _ in PASSES]
    if stop_after and stop_after not in names:
        hint = did_you_mean(stop_after, names)
        raise ConfigError(f"expected a pass, one of {', '.join(names)}, found {stop_after!r}{hint}")
    draft = Draft(module)
    for name, run in PASSES:
        run(draft, target)
        if after is not None:
            after(name, draft)
        if name == stop_after:
            break
    if draft.attributes.get("is_scheduled"):
        draft.attributes = with_mark(draft.attributes, COMPILED_FOR, target.chip.name)
    if stop_after:
        follow_what_is_stated(draft)
    return draft.write()


def place_anew(module: Module, target: Target) -> Module:
    """Return a scheduled module that lies in HBM with its arrays placed, and fetched ahead, as the passes do."""
    draft = Draft(module)
    place(draft, target)
    return draft.write()
