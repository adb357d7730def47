"""Tables of points and outcomes: rows as dictionaries, CSV, Parquet, and the frames of pandas and polars."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from tpusim.cost.area import area_mm2
from tpusim.errors import ConfigError
from tpusim.files import utf8_text, whole_file
from tpusim.study.points import Point
from tpusim.study.store import version
from tpusim.study.work import Outcome

Row = dict[str, Any]

FIGURES = {"time_us": "time", "all_devices_energy_j": "energy"}
"""What a machine is judged by, by column; less is better."""


def rows_of(points: Sequence[Point], outcomes: Sequence[Outcome]) -> list[Row]:
    """Return points as rows: what each is, what it came to, the hashes of what that follows from, and its counts."""
    counted = sorted({key for outcome in outcomes for key in outcome.counts})
    both = zip(points, outcomes, strict=True)
    return [written_row(_row(*one) | {f"count.{key}": _count(one[1], key) for key in counted}) for one in both]


def written_row(row: Row) -> Row:
    """Return a row whose texts every file holds: some are names of files, or what an option says."""
    return {key: utf8_text(value) if isinstance(value, str) else value for key, value in row.items()}


def _count(outcome: Outcome, key: str) -> float | None:
    return outcome.counts.get(key, 0.0) if outcome.status == "ok" else None


def _row(point: Point, outcome: Outcome) -> Row:
    return {
        "program": point.program.name,
        **point.columns,
        "status": outcome.status,
        "time_us": outcome.time_us,
        "devices": outcome.devices,
        "energy_j": outcome.energy_j,
        "all_devices_energy_j": outcome.all_devices_energy_j,
        "average_power_w": outcome.average_power_w,
        "area_mm2": area_mm2(point.chip) if point.chip else None,
        "cost_usd": outcome.cost_usd,
        "bound": outcome.bound,
        "warnings": outcome.warnings,
        "estimates": outcome.estimates,
        "message": outcome.message,
        "program_hash": point.program.digest,
        "chip_hash": point.chip_digest,
        "version": version(),
    }


def write_csv(rows: Sequence[Row], path: str | Path, columns: Sequence[str] = ()) -> None:
    """Write rows as CSV, whole or not at all; ``columns`` are those of a table that may have no rows."""
    with whole_file(path) as beside, beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def check_parquet() -> None:
    """Raise ConfigError where nothing is installed that writes Parquet."""
    if not (find_spec("pyarrow") or find_spec("duckdb")):
        raise ConfigError("Parquet needs PyArrow or DuckDB: pip install 'tpusim[data]'")


def write_parquet(rows: Sequence[Row], path: str | Path) -> None:
    """Write rows as Parquet, by PyArrow or DuckDB. Raises ConfigError without either."""
    check_parquet()
    if find_spec("pyarrow"):
        from pyarrow import Table, parquet

        with whole_file(path) as beside:
            parquet.write_table(Table.from_pylist(_alike(rows)), beside)
    else:
        import duckdb

        with whole_file(path) as beside, NamedTemporaryFile(suffix=".csv") as text:
            write_csv(rows, text.name)
            duckdb.sql(f"COPY (FROM read_csv({text.name!r})) TO {str(beside)!r} (FORMAT parquet)")


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
