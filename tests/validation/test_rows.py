"""Indexes are read by the types of their columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpusim.errors import ConfigError
from tpusim.validation.rows import Amount, Bytes, FileName, Positive, Row, read_rows


class Measured(Row, frozen=True, kw_only=True):
    """A row with a cell of every kind."""

    program: FileName
    measured_us: Positive
    floor_us: Amount = 0.0
    size: Bytes = 0


def read(folder: Path, *lines: str) -> list[Measured]:
    """Return the rows of an index of these lines."""
    path = folder / "index.csv"
    path.write_text("\n".join(lines) + "\n")
    return read_rows(path, Measured)


def test_cells_have_the_types_of_their_columns(tmp_path: Path) -> None:
    """What is empty or not there has its default; other columns are passed over."""
    (row,) = read(tmp_path, "program,other,measured_us,floor_us", "a.hlo,x,3.5,")
    assert row == Measured(where=f"{tmp_path}/index.csv:2", program="a.hlo", measured_us=3.5)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (",3,0,0", "program: expected the name of a file beside the index, found ''"),
        ("a,0,0,0", "measured_us: expected a number from 1e-9 to 1e15, found '0'"),
        ("a,nan,0,0", "measured_us: expected a number from 1e-9 to 1e15, found 'nan'"),
        ("a,3,inf,0", "floor_us: expected a number from 0, found 'inf'"),
        ("a,3,0,1.5", "size: expected a number of bytes, found '1.5'"),
        ("a,3", "floor_us: expected a cell for each column, found none from here on"),
        ("a,3,0,0,7", r"expected a cell for each column \(lists need quotes\), found \['7'\] beyond the last"),
    ],
)
def test_a_cell_of_another_type_is_refused(tmp_path: Path, cells: str, words: str) -> None:
    """By file, line and column, with what was expected and what was found."""
    with pytest.raises(ConfigError, match=rf"index.csv:3: {words}"):
        read(tmp_path, "program,measured_us,floor_us,size", "a,1,0,0", cells)


def test_a_row_may_go_over_several_lines(tmp_path: Path) -> None:
    """Errors name the line that it ends on."""
    with pytest.raises(ConfigError, match=r"index\.csv:3: measured_us"):
        read(tmp_path, "program,measured_us", '"a', '.hlo",fast')


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    """And so is one without the columns, or no file."""
    with pytest.raises(ConfigError, match="expected rows of measured times, found only"):
        read(tmp_path, "program,measured_us")
    with pytest.raises(ConfigError, match=r"expected columns program, measured_us, found none named measured_us"):
        read(tmp_path, "program", "a.hlo")
    with pytest.raises(ConfigError, match="cannot read this index"):
        read_rows(tmp_path / "none.csv", Measured)


def test_a_misspelt_column_is_refused(tmp_path: Path) -> None:
    """Its cells would have no effect; a column that is like none of ours is the index's own."""
    with pytest.raises(ConfigError, match=r"index.csv: unknown column 'floor_uS'.*floor_us"):
        read(tmp_path, "program,measured_us,floor_uS", "a,1,2")
