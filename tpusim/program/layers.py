"""Layers of a network as matrix products, and the CSV files ("topologies") in which SCALE-Sim describes them.

Two kinds, told apart by their header: ``Layer, M, N, K`` and the convolution columns ``Layer name, IFMAP Height, IFMAP
Width, Filter Height, Filter Width, Channels, Num Filter, Strides``. Both may end lines with a comma, and may have a
last column of sparsity ratios, N:M. Format: SCALE-Sim v3, ``topology_utils.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from tpusim.errors import ConfigError, ProgramError
from tpusim.files import read_text, shown_name
from tpusim.limits import LAYERS, SIDE, Limit, check_count
from tpusim.source import SourceText, Span

_GEMM_COLUMNS: Final = ("M", "N", "K")
_CONVOLUTION_COLUMNS: Final = tuple(
    "IFMAP Height,IFMAP Width,Filter Height,Filter Width,Channels,Num Filter,Strides".split(",")
)
# In SCALE-Sim a name with these letters means one product per channel.
_DEPTHWISE: Final = "DP"
_SPARSITY: Final = "sparsity"
_FORM: Final = "a CSV file of layers in UTF-8"
_EXTENT: Final = Limit("a whole number", SIDE.most**3)
"""Of a product: a filter's height, width and channels are one dimension of it."""
_DRAWN: Final = Limit("a number of columns that are drawn for one by one", 2**20)
_SEED: Final = Limit("a whole number", 2**32 - 1, least=0)
"""What NumPy's old generator takes."""


class Convolution(msgspec.Struct, frozen=True, kw_only=True):
    """What a window slides over, padding included. Raises ConfigError if a size is none."""

    height: int
    width: int
    filter_height: int
    filter_width: int
    channels: int
    stride: int

    def __post_init__(self) -> None:
        """Refuse what is no image."""
        for key in self.__struct_fields__:
            structs.force_setattr(self, key, check_count(f"convolution: {key}", getattr(self, key), SIDE))

    @property
    def positions(self) -> tuple[int, int]:
        """Places of the window, along the height and the width; SCALE-Sim rounds up where the stride does not fit."""
        down, along = self.height - self.filter_height, self.width - self.filter_width
        return tuple(-(-(slack + self.stride) // self.stride) for slack in (down, along))  # type: ignore[return-value]


class RowWise(msgspec.Struct, frozen=True, kw_only=True):
    """Sparsity that differs from column to column: how many each keeps of every ``group`` of rows is drawn at random.

    From one to half of them, the first ones; a column has room for half of them. Raises ConfigError where nothing can
    be drawn.
    """

    group: int
    seed: int

    def __post_init__(self) -> None:
        """Refuse what nothing can be drawn from."""
        for key, limit in (("group", SIDE._replace(what="a number of rows", least=2)), ("seed", _SEED)):
            structs.force_setattr(self, key, check_count(f"row-wise sparsity: {key}", getattr(self, key), limit))

    def kept(self, columns: int) -> list[int]:
        """Return for each column how many are kept of each group, from NumPy's old generator, as SCALE-Sim has it."""
        # NumPy loads only where numbers are drawn.
        import numpy as np

        found: list[int] = np.random.RandomState(self.seed).randint(1, self.group // 2 + 1, size=columns).tolist()
        return found


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """The product of an (m, k) and a (k, n) matrix, of whose right one each ``kept`` of so many rows are not zero.

    Raises ConfigError if a field has no meaning.
    """

    name: str
    m: int
    n: int
    k: int
    kept: tuple[int, int] = (1, 1)
    """How many rows are kept of each group of so many; the first ones, as nothing depends on which."""
    convolution: Convolution | None = None
    """What the left operand is made of, if it is an image."""
    rowwise: RowWise | None = None
    """How many rows are kept where columns differ; ``kept`` says nothing then."""

    def __post_init__(self) -> None:
        """Refuse what is no product."""
        if not isinstance(self.name, str):
            raise ConfigError(f"layer: name: expected a text, found {self.name!r:.80}")
        for key in ("m", "n", "k"):
            structs.force_setattr(self, key, check_count(f"layer {self.name!r}: {key}", getattr(self, key), _EXTENT))
        if self.rowwise:
            check_count(f"layer {self.name!r}: n", self.n, _DRAWN)
        if not _is_sparsity(self.kept):
            expected = "a tuple (N, M) of whole numbers, N from 1 to M"
            raise ConfigError(f"layer {self.name!r}: kept: expected {expected}, found {self.kept!r:.80}")

    @property
    def inner(self) -> int:
        """Rows of the right operand that there is room for: what is summed over."""
        if self.rowwise:
            return -(-self.k // (2 * self.rowwise.group)) * self.rowwise.group
        groups, rest = divmod(self.k, self.kept[1])
        return groups * self.kept[0] + min(self.kept[0], rest)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the product, those with zeros left out."""
        return self.m * self.kept_words

    @property
    def kept_words(self) -> int:
        """Elements of the right operand that are kept."""
        if not self.rowwise:
            return self.n * self.inner
        groups, rest = divmod(self.k, self.rowwise.group)
        return sum(groups * kept + min(kept, rest) for kept in self.rowwise.kept(self.n))


def _is_sparsity(kept: object) -> bool:
    """Return whether something says how many rows are kept of how many."""
    if not isinstance(kept, tuple) or len(kept) != 2 or not all(type(number) is int for number in kept):
        return False
    return bool(1 <= kept[0] <= kept[1] <= SIDE.most)


class _Cell(NamedTuple):
    """One field of a line, without blanks around it, and its place."""

    text: str
    span: Span


def load_layers(path: str | Path) -> list[Layer]:
    """Return the layers of a CSV file, or of standard input if ``path`` is ``-``; see ``parse_layers``."""
    return parse_layers(SourceText(shown_name(path), read_text(path, "cannot be read", ProgramError, _FORM)))


def parse_layers(source: SourceText) -> list[Layer]:
    """Return the layers of a CSV file, convolutions as the products that they are; depthwise ones channel by channel.

    Raises ProgramError with line, column and a caret.
    """
    rows = _rows(source)
    header = next(rows, None)
    if header is None:
        raise ProgramError(f"{source.name}: the file is empty; expected a header such as 'Layer, M, N, K'")
    columns, convert = _kind(header)
    layers: list[Layer] = []
    for row in rows:
        layers += convert(row[0], *_numbers(row, columns))
        if fault := LAYERS.fault(len(layers)):
            raise ProgramError(fault, row[0].span)
    if not layers:
        raise ProgramError(f"{source.name}: expected a line for each layer after the header, found none")
    return layers


def _rows(source: SourceText) -> Iterator[list[_Cell]]:
    """Yield the cells of every line that is not blank; the comma at the end of a line begins no cell."""
    start = 0
    for line in source.text.split("\n"):
        if line.strip(" \t,"):
            yield _cells(source, line.rstrip(" \t,"), start)
        start += len(line) + 1


def _cells(source: SourceText, line: str, start: int) -> list[_Cell]:
    """Return the cells of a line that begins at offset ``start``."""
    cells = []
    for part in line.split(","):
        text = part.strip()
        begin = start + len(part) - len(part.lstrip())
        cells.append(_Cell(text, source.span(begin, begin + max(1, len(text)))))
        start += len(part) + 1
    return cells


def _kind(header: list[_Cell]) -> tuple[tuple[str, ...], Callable[[_Cell, list[int], tuple[int, int]], list[Layer]]]:
    """Return the columns that a header announces after the name, and how a row of them becomes layers."""
    found = [_plain(cell.text) for cell in header[1:]]
    # Files of SCALE-Sim's own have this slip.
    if found[:2] == ["ifmap width"] * 2:
        found[0] = "ifmap height"
    for columns, convert in ((_GEMM_COLUMNS, _gemm), (_CONVOLUTION_COLUMNS, _convolution)):
        wanted = [_plain(column) for column in columns]
        if found[: len(wanted)] == wanted and found[len(wanted) :] in ([], [_SPARSITY]):
            return columns, convert
    expected = " or ".join(repr(", ".join(("Layer", *columns))) for columns in (_GEMM_COLUMNS, _CONVOLUTION_COLUMNS))
    raise ProgramError(f"expected a header {expected}, found {', '.join(c.text for c in header)!r}", header[0].span)


def _plain(column: str) -> str:
    """Return a column's name as headers are compared: ``num filters`` is ``Num Filter``."""
    return " ".join(column.lower().split()).removesuffix("s")


def _numbers(row: list[_Cell], columns: tuple[str, ...]) -> tuple[list[int], tuple[int, int]]:
    """Return a row's numbers, one for each column, and how many rows of the right operand are kept of how many."""
    cells, rest = row[1 : len(columns) + 1], row[len(columns) + 1 :]
    if len(rest) > 1:
        raise ProgramError(f"expected {len(columns)} numbers and a sparsity, found more", rest[1].span)
    if len(cells) < len(columns):
        expected = f"a name and {len(columns)} numbers ({', '.join(columns)})"
        raise ProgramError(f"expected {expected}, found {len(cells)} after the name", row[-1].span)
    numbers = [_number(cell, column) for cell, column in zip(cells, columns, strict=True)]
    return numbers, _kept(rest[0]) if rest and rest[0].text else (1, 1)


def _kept(cell: _Cell) -> tuple[int, int]:
    """Return the sparsity of a layer: N of M."""
    parts = cell.text.split(":")
    if len(parts) != 2:
        raise ProgramError(f"expected a sparsity N:M, as 2:4, or nothing, found {cell.text!r}", cell.span)
    kept, of = (_number(_Cell(part.strip(), cell.span), "sparsity") for part in parts)
    if kept > of:
        raise ProgramError(f"expected a sparsity N:M with N up to M, found {cell.text!r}", cell.span)
    return kept, of


def _number(cell: _Cell, column: str) -> int:
    if not (cell.text.isascii() and cell.text.isdecimal() and cell.text.strip("0")):
        raise ProgramError(f"{column}: expected a whole number from 1, found {cell.text!r}", cell.span)
    number = SIDE.number(cell.text)
    if fault := SIDE.fault(number):
        raise ProgramError(f"{column}: {fault}", cell.span)
    return number


def _gemm(name: _Cell, numbers: list[int], kept: tuple[int, int]) -> list[Layer]:
    return [Layer(name=name.text, m=numbers[0], n=numbers[1], k=numbers[2], kept=kept)]


def _convolution(name: _Cell, numbers: list[int], kept: tuple[int, int]) -> list[Layer]:
    """Return a convolution as a product: output pixels by filters, over the window."""
    height, width, filter_height, filter_width, channels, filters, stride = numbers
    if filter_height > height or filter_width > width:
        found = f"{filter_height}x{filter_width} in {height}x{width}"
        raise ProgramError(
            f"expected a filter no larger than what it slides over (padding included), found {found}", name.span
        )
    depthwise = _DEPTHWISE in name.text
    shape = Convolution(
        height=height,
        width=width,
        filter_height=filter_height,
        filter_width=filter_width,
        channels=1 if depthwise else channels,
        stride=stride,
    )
    if depthwise and (fault := LAYERS.fault(channels)):
        raise ProgramError(f"Channels of a depthwise convolution: {fault}", name.span)
    names = [f"{name.text}Channel_{i}" for i in range(channels)] if depthwise else [name.text]
    high, wide = shape.positions
    window = filter_height * filter_width * shape.channels
    return [Layer(name=one, m=high * wide, n=filters, k=window, kept=kept, convolution=shape) for one in names]
