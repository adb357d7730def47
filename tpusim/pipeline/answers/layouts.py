"""The layouts that an array can have on a chip, ranked by what they pad."""

from __future__ import annotations

from itertools import permutations

from tpusim.compiler.layouts.orders import boundary_order, laid_out
from tpusim.errors import ConfigError
from tpusim.hardware.chip import Chip
from tpusim.hardware.load import load_chip
from tpusim.shapes.layout_choices import LayoutChoice, layout_choice, ranked
from tpusim.shapes.notation import parse_shape
from tpusim.shapes.shape import ArrayShape, Shape

_MOST_RANK = 6


def layouts(shape: Shape | str, chip: Chip | str = "v5e") -> tuple[LayoutChoice, ...]:
    """Return the layouts of an array with the tiles that they get on a chip, the least padded first.

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
    return ranked([layout_choice(laid_out(array, order, machine), is_default=order == usual) for order in orders])


def tiled(shape: Shape, chip: Chip | str = "v5e") -> Shape | None:
    """Return an array in the layout that it gets as an argument, None where one with tiles, or a tuple, is given."""
    if not isinstance(shape, ArrayShape) or not shape.rank or shape.actual_layout.tiles:
        return None
    machine = load_chip(chip) if isinstance(chip, str) else chip
    order = boundary_order(shape, machine) if shape.layout is None else shape.layout.minor_to_major
    return laid_out(shape, order, machine)
