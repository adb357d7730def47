"""Layers of a network as matrix products, and the CSV files ("topologies") in which SCALE-Sim describes them.

Two kinds, told apart by their header: ``Layer, M, N, K`` and the convolution columns ``Layer name, IFMAP Height, IFMAP
Width, Filter Height, Filter Width, Channels, Num Filter, Strides``. Both may end lines with a comma, and may have a
last column of sparsity ratios. Format: SCALE-Sim v3, ``topology_utils.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tpusim.errors import ProgramError, UnsupportedError
from tpusim.source import SourceText, Span

_GEMM_COLUMNS: Final = ("M", "N", "K")
_CONVOLUTION_COLUMNS: Final = tuple(
    "IFMAP Height,IFMAP Width,Filter Height,Filter Width,Channels,Num Filter,Strides".split(",")
)
_DENSE: Final = "1:1"
# In SCALE-Sim a name with these letters means one product per channel.
_DEPTHWISE: Final = "DP"


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """The product of an (m, k) and a (k, n) matrix."""

    name: str
    m: int
    n: int
    k: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the product."""
        return self.m * self.n * self.k


class _Cell(NamedTuple):
    """One field of a line, without blanks around it, and its place."""

    text: str
    span: Span


def load_layers(path: str | Path) -> list[Layer]:
    """Return the layers of a CSV file, or of standard input if ``path`` is ``-``; see ``parse_layers``."""
    name = "<stdin>" if str(path) == "-" else str(path)
    try:
        text = sys.stdin.read() if name == "<stdin>" else Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ProgramError(f"{name}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ProgramError(
            f"{name}: expected a CSV file of layers in UTF-8, found the byte {error.object[error.start]:#04x}"
        ) from error
    return parse_layers(SourceText(name, text))


def parse_layers(source: SourceText) -> list[Layer]:
    """Return the layers of a CSV file, convolutions as the products that they are; depthwise ones channel by channel.

    Raises ProgramError with line, column and a caret, and UnsupportedError for sparse layers.
    """
    rows = _rows(source)
    header = next(rows, None)
    if header is None:
        raise ProgramError(f"{source.name}: the file is empty; expected a header such as 'Layer, M, N, K'")
    columns, convert = _kind(header)
    layers = [layer for row in rows for layer in convert(row[0], _numbers(row, columns))]
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


def _kind(header: list[_Cell]) -> tuple[tuple[str, ...], Callable[[_Cell, list[int]], list[Layer]]]:
    """Return the columns that a header announces after the name, and how a row of them becomes layers."""
    found = [cell.text.lower() for cell in header[1:]]
    if found[:3] == ["m", "n", "k"]:
        return _GEMM_COLUMNS, _gemm
    if found[:1] == ["ifmap height"]:
        return _CONVOLUTION_COLUMNS, _convolution
    expected = " or ".join(repr(", ".join(("Layer", *columns))) for columns in (_GEMM_COLUMNS, _CONVOLUTION_COLUMNS))
    raise ProgramError(f"expected a header {expected}, found {', '.join(c.text for c in header)!r}", header[0].span)


def _numbers(row: list[_Cell], columns: tuple[str, ...]) -> list[int]:
    """Return a row's numbers, one for each column."""
    cells = row[1 : len(columns) + 1]
    if len(cells) < len(columns):
        expected = f"a name and {len(columns)} numbers ({', '.join(columns)})"
        raise ProgramError(f"expected {expected}, found {len(cells)} after the name", row[-1].span)
    for cell in row[len(columns) + 1 :]:
        if cell.text != _DENSE:
            what = f"{cell.span.source.name}:{cell.span.line}: {cell.text!r} after the last number"
            raise UnsupportedError(f"{what}: only dense layers ({_DENSE}) are treated, take the column out")
    return [_number(cell, column) for cell, column in zip(cells, columns, strict=True)]


def _number(cell: _Cell, column: str) -> int:
    # Longer ones are no sizes, and Python refuses to read numbers of thousands of digits.
    if not (cell.text.isascii() and cell.text.isdecimal() and len(cell.text) < 16 and int(cell.text)):
        raise ProgramError(f"{column}: expected a whole number from 1, found {cell.text!r}", cell.span)
    return int(cell.text)


def _gemm(name: _Cell, numbers: list[int]) -> list[Layer]:
    return [Layer(name=name.text, **dict(zip("mnk", numbers, strict=True)))]


def _convolution(name: _Cell, numbers: list[int]) -> list[Layer]:
    """Return a convolution as a product: output pixels by filters, over the window."""
    height, width, filter_height, filter_width, channels, filters, stride = numbers
    if filter_height > height or filter_width > width:
        found = f"{filter_height}x{filter_width} in {height}x{width}"
        raise ProgramError(
            f"expected a filter no larger than what it slides over (padding included), found {found}", name.span
        )
    m = _positions(height, filter_height, stride) * _positions(width, filter_width, stride)
    window = filter_height * filter_width
    if _DEPTHWISE in name.text:
        return [Layer(name=f"{name.text}Channel_{i}", m=m, n=filters, k=window) for i in range(channels)]
    return [Layer(name=name.text, m=m, n=filters, k=window * channels)]


def _positions(size: int, window: int, stride: int) -> int:
    """Return the places that a window takes along an axis; SCALE-Sim rounds up where the stride does not fit."""
    return -(-(size - window + stride) // stride)
