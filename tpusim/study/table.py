"""Tables of points and outcomes: rows as dictionaries, CSV, Parquet, and the frames of pandas and polars."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tpusim.errors import ConfigError
from tpusim.study.points import Point
from tpusim.study.store import version
from tpusim.study.work import Outcome

Row = dict[str, Any]

FIGURES = ("time_us",)
"""Columns with figures of a run, of which less is better."""


def row_of(point: Point, outcome: Outcome) -> Row:
    """Return a point as a row: what it is, what it came to, and the hashes of what that follows from."""
    return {
        "program": point.program.name,
        **point.columns,
        "status": outcome.status,
        "time_us": outcome.time_us,
        "bound": outcome.bound,
        "message": outcome.message,
        "program_hash": point.program.digest,
        "chip_hash": point.chip_digest,
        "version": version(),
    }


def write_csv(rows: Sequence[Row], path: str | Path) -> None:
    """Write rows as CSV, whole or not at all."""
    beside = Path(f"{path}.part")
    with beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(beside, path)


def write_parquet(rows: Sequence[Row], path: str | Path) -> None:
    """Write rows as Parquet, by PyArrow or DuckDB. Raises ConfigError without either."""
    beside = Path(f"{path}.part")
    if find_spec("pyarrow"):
        from pyarrow import Table, parquet

        parquet.write_table(Table.from_pylist(_alike(rows)), beside)
    elif find_spec("duckdb"):
        import duckdb

        text = Path(f"{path}.csv")
        write_csv(rows, text)
        duckdb.sql(f"COPY (FROM read_csv({str(text)!r})) TO {str(beside)!r} (FORMAT parquet)")
        text.unlink()
    else:
        raise ConfigError("Parquet needs PyArrow or DuckDB: pip install 'tpusim[data]'")
    os.replace(beside, path)


def _alike(rows: Sequence[Row]) -> list[Row]:
    """Return rows whose columns have one type each: a column of numbers and texts is one of texts."""
    texts = {key for row in rows for key, value in row.items() if isinstance(value, str)}
    return [{k: str(v) if k in texts and v is not None else v for k, v in row.items()} for row in rows]


def frame_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as a frame of pandas or polars, whichever is installed, or as they are."""
    if find_spec("pandas"):
        import pandas

        return pandas.DataFrame(list(rows))
    if find_spec("polars"):
        import polars

        return polars.DataFrame(list(rows), infer_schema_length=None)
    return list(rows)
