"""Indexes as CSV files: rows whose cells are read by the types of a class, with errors by file, line and column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import cache
from os.path import normpath
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta

from tpusim.errors import ConfigError, did_you_mean
from tpusim.files import is_file, read_table

_R = TypeVar("_R", bound="Row")
_T = TypeVar("_T")

# What is larger is no measurement but inf; nan is outside of any range.
_MOST = 1e300

Amount = Annotated[float, Meta(ge=0, le=_MOST, description="a number from 0")]
Positive = Annotated[float, Meta(ge=1e-9, le=1e15, description="a number from 1e-9 to 1e15")]
Bytes = Annotated[int, Meta(ge=0, description="a number of bytes")]
FileName = Annotated[str, Meta(min_length=1, description="the name of a file beside the index")]
FileNames = Annotated[str, Meta(min_length=1, description="names of files beside the index")]
"""With blanks between them."""

_OF_FILES = (FileName, FileNames)

_MOST_COLUMNS = 1000
"""Each that is not known is held against the names that are."""

_MARK = "tpusim-indexes.txt"
"""A file of this name in the folder above that of an index lets it name files of the folders beside its own."""

_OUTSIDE = ContextVar("_OUTSIDE", default=False)


def allow_outside(allowed: bool = True) -> None:
    """Say whether indexes, files of others, may name files outside their own folders; at first they may not."""
    _OUTSIDE.set(allowed)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of an index: fields are columns, those with a default may be empty or not there; ``where`` is its line."""

    where: str = ""

    def refused(self, column: str, expected: str) -> ConfigError:
        """Return the error of a cell that is not what it should be."""
        return ConfigError(f"{self.where}: {column}: expected {expected}, found {getattr(self, column)!r}")


def read_rows(path: str | Path, kind: type[_R]) -> list[_R]:
    """Return the rows of an index; raise ConfigError for a file that is none, or a cell that is not of its type."""
    names, rows = read_table(path, "cannot read this index")
    known = {field.name: field.required for field in msgspec.structs.fields(kind)}
    needed = [name for name, required in known.items() if required]
    missing = [column for column in needed if column not in names]
    if missing:
        raise ConfigError(f"{path}: expected columns {', '.join(needed)}, found none named {', '.join(missing)}")
    absent = known.keys() - {*names, "where"}
    if len(names) > _MOST_COLUMNS:
        raise ConfigError(f"{path}: expected at most {_MOST_COLUMNS} columns, found {len(names)}")
    for name in names:
        # Other columns are the index's own; one that is misspelt would be as if it were not there.
        if name not in known and (hint := did_you_mean(name, absent)):
            raise ConfigError(f"{path}: unknown column {name!r}{hint}")
    if not rows:
        raise ConfigError(f"{path}: expected rows of measured times, found only the names of the columns")
    folder = Path(path).absolute().parent
    return [_row(folder, f"{path}:{line}", cells, kind) for line, cells in rows]


def in_turn(items: Sequence[_T], progress: Callable[[int, int], None] | None) -> Iterator[_T]:
    """Yield items one by one; ``progress`` is told how many of how many are done when the next one is asked for."""
    for done, item in enumerate(items, start=1):
        yield item
        if progress is not None:
            progress(done, len(items))


def _row(folder: Path, where: str, cells: dict[str | None, Any], kind: type[_R]) -> _R:
    if None in cells:
        found = f"{cells[None]!r} beyond the last"
        raise ConfigError(f"{where}: expected a cell for each column (lists need quotes), found {found}")
    types, values = _types_of(kind), {"where": where}
    for field in msgspec.structs.fields(kind):
        text = cells.get(field.name, "")
        if text is None:
            raise ConfigError(f"{where}: {field.name}: expected a cell for each column, found none from here on")
        if field.name in cells and (text or field.required):
            values[field.name] = _cell(f"{where}: {field.name}", text, types[field.name])
            if types[field.name] in _OF_FILES:
                _require_inside(folder, f"{where}: {field.name}", text)
    return kind(**values)


@cache
def _types_of(kind: type[Row]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _require_inside(folder: Path, where: str, names: str) -> None:
    """Refuse names of files outside the folder of an index, or outside the one above it, if that is marked."""
    if "\0" in names:
        raise ConfigError(f"{where}: expected the name of a file, found {names!r:.80}")
    root = folder.parent if is_file(folder.parent / _MARK) else folder
    for name in names.split():
        if not (_OUTSIDE.get() or Path(normpath(folder / name)).is_relative_to(root)):
            raise ConfigError(f"{where}: expected a file in the folder of the index (or --outside), found {name!r}")


def _cell(where: str, text: str, kind: Any) -> Any:
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as error:
        expected = next((one.description for one in get_args(kind) if isinstance(one, Meta)), str(error))
        raise ConfigError(f"{where}: expected {expected}, found {text!r}") from error
