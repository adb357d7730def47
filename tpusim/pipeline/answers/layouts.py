"""The layouts that an array can have on a chip, ranked by what its users take with each, and by what they pad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

from msgspec import structs

from tpusim.compiler.layouts.orders import boundary_order, laid_out
from tpusim.compiler.passes import compile_module
from tpusim.errors import ConfigError
from tpusim.hardware.chip import Chip
from tpusim.hardware.load import load_chip
from tpusim.ir.module import Module, with_own_names
from tpusim.pipeline.answers.users import Users, instruction_of, stated_users, users_in
from tpusim.pipeline.chip_choice import choose_chip, provenance_of
from tpusim.pipeline.result import Result
from tpusim.pipeline.schedules import front_end_form
from tpusim.pipeline.stages import load_module, lower, own_ps, simulate
from tpusim.pipeline.targets import target_of
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.layout_choices import LayoutChoice, UsedLayouts, layout_choice, ranked
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

    Of dimensions beyond the two that vary fastest the order is the usual one: it pads nothing. Marked are the default,
    that of arguments and results of which nobody says how they lie, and the one that the array has.
    Raises ConfigError for a tuple, and for more than six dimensions.
    """
    array = parse_shape(shape) if isinstance(shape, str) else shape
    if not isinstance(array, ArrayShape) or not array.dtype.is_array_type or array.rank > _MOST_RANK:
        raise ConfigError(f"layouts: expected an array of at most {_MOST_RANK} dimensions, found {shape}")
    machine = load_chip(chip) if isinstance(chip, str) else chip
    usual = boundary_order(array, machine)
    orders = _orders(array)
    here = array.layout.minor_to_major if array.layout else ()
    orders += [here] if here and here not in orders else []
    users = stated_users(array, used_by) if used_by and not isinstance(used_by, Users) else used_by
    if isinstance(users, Users) and users.fixed:
        orders = [users.fixed.order]
    choices = []
    for order in orders:
        users_ps = _users_ps(users, order, machine) if isinstance(users, Users) else None
        marks = {"is_default": order == usual, "is_present": order == here}
        choices.append(layout_choice(laid_out(array, order, machine), users_ps=users_ps, **marks))
    return ranked(choices)


def layouts_in(program: Module | str | Path, name: str, chip: Chip | str | None = None) -> UsedLayouts:
    """Return the layouts of an array of a program, the best for what uses it there first.

    What uses it in a scheduled program takes with the present layout what it takes in a run, and with others more or
    less in proportion to what it takes as tpusim compiles it. A name that only the compiled program has, as that of a
    fusion, is looked up there. ``NAME#0`` is the first element of a tuple.
    Raises ConfigError where it is no array, or nothing that can stand alone uses it; see ``users_in``.
    """
    module = load_module(program)
    if module.is_scheduled:
        users = users_in(module, name)
        return _as_run(users, simulate(module, chip, allow_overflow=True))
    machine = choose_chip(module, provenance_of(module), chip=chip)
    # What calls hand over is used where it is called.
    own = with_own_names(front_end_form(module))
    inlined = compile_module(own, target_of(machine), stop_after="inline")
    plain = instruction_of(name)
    if plain not in inlined.homes and plain not in module.homes:
        result = simulate(module, machine, allow_overflow=True)
        if result.module is not None and plain in result.module.homes:
            return _as_run(users_in(result.module, name), result)
    users = users_in(inlined if plain in inlined.homes else module, name)
    # Before any compiler a layout is a habit of printing, and says nothing.
    array = structs.replace(users.array, layout=None)
    return UsedLayouts(layouts(array, machine, used_by=users), users.names, 0, users.fixed.by if users.fixed else "")


def _as_run(users: Users, result: Result) -> UsedLayouts:
    """Return the layouts of an array by what its users take in a run."""
    choices = layouts(users.array, result.chip, used_by=users)
    groups = [group for group in result.summary.ops if group.name in users.ops]
    run_ps = sum(group.time_ps for group in groups)
    # What a run never comes to has no time there.
    here_ps = next((one.users_ps or 0 for one in choices if one.is_present), 0) if run_ps else 0
    if here_ps:
        times = [(one.users_ps or 0) * run_ps // here_ps for one in choices]
        choices = tuple(structs.replace(one, users_ps=ps) for one, ps in zip(choices, times, strict=True))
    # What is made in a loop is made in every trip.
    runs = min((group.count // users.ops[group.name] for group in groups), default=0)
    return UsedLayouts(choices, users.names, here_ps * max(1, runs), users.fixed.by if users.fixed else "")


def least_padded_ps(module: Module, name: str, chip: Chip) -> tuple[int, int]:
    """Return what the users of an array of a scheduled module take as it lies, and where it is padded least.

    As tpusim compiles them; nothing where no other layout is padded less. Raises what ``layouts_in`` does.
    """
    users = users_in(module, name)
    here = users.array.actual_layout.minor_to_major
    orders = [here] if users.fixed else [here, *_orders(users.array)]
    stored = {order: physical_bytes(laid_out(users.array, order, chip)) for order in orders}
    least = [order for order in orders if stored[order] == min(stored.values())]
    if here in least:
        return 0, 0
    return _users_ps(users, here, chip), min(_users_ps(users, order, chip) for order in least)


def _orders(array: ArrayShape) -> list[tuple[int, ...]]:
    """Return the orders of dimensions that differ in the two that vary fastest, which come first."""
    pairs = permutations(reversed(range(array.rank)), min(2, array.rank))
    return [(*pair, *(d for d in reversed(range(array.rank)) if d not in pair)) for pair in pairs]


def _users_ps(users: Users, order: Sequence[int], chip: Chip) -> int:
    """Return what everything that uses an array takes, without the launches of the programs that it is made."""
    # What is asked for lies in HBM.
    target = replace(target_of(chip), across_programs=False)
    modules = [(part.times, compile_module(part.laid_out(order), target)) for part in users.parts]
    return sum(times * own_ps(lower(module, chip), chip, None) for times, module in modules)


def tiled(shape: Shape, chip: Chip | str = "v5e") -> Shape | None:
    """Return an array in the layout that it gets as an argument, None where one with tiles, or a tuple, is given."""
    if not isinstance(shape, ArrayShape) or not shape.rank or shape.actual_layout.tiles:
        return None
    machine = load_chip(chip) if isinstance(chip, str) else chip
    order = boundary_order(shape, machine) if shape.layout is None else shape.layout.minor_to_major
    return laid_out(shape, order, machine)
