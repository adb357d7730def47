"""The layouts that an array can have on a chip, ranked by what its users take with each, and by what they pad."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

from tpusim.compiler.layouts.orders import boundary_order, laid_out
from tpusim.errors import ConfigError
from tpusim.hardware.chip import Chip
from tpusim.hardware.load import load_chip
from tpusim.ir.module import Module
from tpusim.pipeline.answers.users import Users, stated_users, users_in
from tpusim.pipeline.chip_choice import choose_chip, provenance_of
from tpusim.pipeline.stages import load, simulate
from tpusim.shapes.layout_choices import LayoutChoice, layout_choice, ranked
from tpusim.shapes.notation import parse_shape
from tpusim.shapes.shape import ArrayShape, Shape

_MOST_RANK = 6


def layouts(
    shape: Shape | str, chip: Chip | str = "v5e", *, used_by: Sequence[str] | Users = ()
) -> tuple[LayoutChoice, ...]:
    """Return the layouts of an array with the tiles that they get on a chip, the best first.

    That is the one with which what uses the array takes least time: ``used_by`` says it in words (see
    ``stated_users``), or as found in a program (``users_in``). Each layout is compiled by tpusim, and run: other
    arguments and results lie as the users like them. Without users the least padded is the best.

    Of dimensions beyond the two that vary fastest the order is the usual one: it pads nothing. The one that is marked
    as the default is that of arguments and results. Raises ConfigError for a tuple, and for more than six dimensions.
    """
    array = parse_shape(shape) if isinstance(shape, str) else shape
    if not isinstance(array, ArrayShape) or array.rank > _MOST_RANK:
        raise ConfigError(f"layouts: expected an array of at most {_MOST_RANK} dimensions, found {shape}")
    machine = load_chip(chip) if isinstance(chip, str) else chip
    usual = boundary_order(array, machine)
    pairs = permutations(reversed(range(array.rank)), min(2, array.rank))
    orders = [(*pair, *(d for d in reversed(range(array.rank)) if d not in pair)) for pair in pairs]
    users = stated_users(array, used_by) if used_by and not isinstance(used_by, Users) else used_by
    choices = []
    for order in orders:
        users_ps = _run_ps(users.laid_out(order), machine) if isinstance(users, Users) else None
        choices.append(layout_choice(laid_out(array, order, machine), is_default=order == usual, users_ps=users_ps))
    return ranked(choices)


def layouts_in(
    program: Module | str | Path, name: str, chip: Chip | str | None = None
) -> tuple[tuple[LayoutChoice, ...], tuple[str, ...]]:
    """Return the layouts of an array of a program, the best for what uses it there first, and the names of that.

    Raises ConfigError where it is no array, or nothing that can stand alone uses it; see ``users_in``.
    """
    module = program if isinstance(program, Module) else load(program)
    machine = choose_chip(module, provenance_of(module), chip=chip)
    users = users_in(module, name)
    return layouts(users.array, machine, used_by=users), users.names


def _run_ps(module: Module, chip: Chip) -> int:
    return simulate(module, chip, schedule="compiled", allow_overflow=True).timeline.total_ps


def tiled(shape: Shape, chip: Chip | str = "v5e") -> Shape | None:
    """Return an array in the layout that it gets as an argument, None where one with tiles, or a tuple, is given."""
    if not isinstance(shape, ArrayShape) or not shape.rank or shape.actual_layout.tiles:
        return None
    machine = load_chip(chip) if isinstance(chip, str) else chip
    order = boundary_order(shape, machine) if shape.layout is None else shape.layout.minor_to_major
    return laid_out(shape, order, machine)
