"""A layout explained on a terminal: sizes, order, every tile's step, padding, bytes, and where an element lies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from tpusim.report.tables import Printer
from tpusim.shapes.layout_facts import ArrayFacts, ElementFacts, LayoutFacts, TileFacts


def render_layout(facts: LayoutFacts, console: Printer) -> None:
    """Print what ``layout_facts`` found: one block per array, then a tuple's sum."""
    arrays = facts.arrays
    for number, array in enumerate(arrays):
        if number:
            console.print()
        _render_array(array, console)
    # For one array the sum would repeat its last line.
    if len(arrays) != 1:
        console.print(Text(f"\nall {len(arrays)} arrays: {_bytes_line(facts)}", style="bold"))


def _render_array(array: ArrayFacts, console: Printer) -> None:
    # Text, not markup: the brackets of a shape would be taken for a style.
    console.print(Text(array.shape, style="bold"))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    # An index of many dimensions has no blanks at which a line could end.
    table.add_column(overflow="fold")
    for name, value in (*_array_rows(array), *_element_rows(array.element)):
        table.add_row(Text(name), Text(value))
    console.print(table)


def _array_rows(array: ArrayFacts) -> Iterable[tuple[str, str]]:
    """Yield the lines about the whole array as name and value."""
    dynamic = array.dynamic or [False] * array.rank
    # Sizes that are only bounds are marked as HLO marks them.
    sizes = [f"<={size}" if bound else size for size, bound in zip(array.dimensions, dynamic, strict=True)]
    yield "logical", f"{_product(sizes)} = {_count(array.logical_elements, 'element')}"
    yield "rank", f"{array.rank}, true rank {array.true_rank}"
    yield "element", f"{array.dtype}, {_count(array.element_bits, 'bit')} in memory"
    yield "memory", array.memory_space_name + (f", S({array.memory_space})" if array.memory_space else "")
    yield "physical order", _order(array)
    if array.padded_dimensions:
        yield "padded to", _product(array.padded_dimensions)
    for number, tile in enumerate(array.tiles, 1):
        yield f"tile {number}", _tile_step(tile)
    yield "padded", f"{_product(array.physical_dimensions)} = {_count(array.padded_elements, 'element')}"
    yield "bytes", _bytes_line(array)


def _order(array: ArrayFacts) -> str:
    """Return the dimensions from major to minor, with their sizes."""
    if not array.physical_order:
        return "a scalar has none"
    sizes = array.sizes_in_physical_order
    named = (f"dimension {number} ({size})" for number, size in zip(array.physical_order, sizes, strict=True))
    return f"{', '.join(named)}; the last varies fastest"


def _tile_step(tile: TileFacts) -> str:
    # The sizes between are shown only where a star changed them.
    steps = [tile.before, tile.after]
    if tile.combined != tile.before:
        steps.insert(1, tile.combined)
    return f"{tile.tile}: {' -> '.join(map(_product, steps))}"


def _bytes_line(facts: LayoutFacts | ArrayFacts) -> str:
    """Return logical and physical bytes and the share between them."""
    share = f"{100 * facts.wasted_share:.1f} % wasted"
    return f"{facts.logical_bytes:,} of data in {facts.physical_bytes:,}; {share}"


def _element_rows(element: ElementFacts | None) -> Iterable[tuple[str, str]]:
    """Yield the lines about one element, if one was asked for."""
    if element is None:
        return
    yield "at", _tuple(element.index)
    for number, place in enumerate(element.tiles, 1):
        tile, inside = _tuple(place.tile_index), _tuple(place.in_tile_index)
        yield f"  in tile {number}", f"{place.tile}: tile {tile}, inside it {inside}"
    yield "  linear index", f"{element.linear_index:,}"
    # Only narrow types lie at bits other than 0.
    bits = f", bit {element.bit_offset}" if element.bit_offset else ""
    yield "  byte offset", f"{element.byte_offset:,}{bits}"


def _product(sizes: Sequence[int | str]) -> str:
    """Return sizes as a product; a scalar has none."""
    return " x ".join(map(str, sizes)) or "scalar"


def _tuple(numbers: Sequence[int]) -> str:
    return f"({','.join(map(str, numbers))})"


def _count(number: int, unit: str) -> str:
    """Return a number with its unit, which takes an s unless there is one of it."""
    return f"{number:,} {unit}{'' if number == 1 else 's'}"
