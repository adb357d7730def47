"""What ``tpusim sweep`` prints as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from tpusim.report.json.page import SCHEMA_VERSION


class SweepPage(msgspec.Struct, frozen=True, kw_only=True):
    """A study: how many points came to what or are excluded, along which axes nothing moved, a row for each point.

    Of a search its rows alone: the machines that it tried.
    """

    simulated: Literal[True] = True
    schema_version: int = SCHEMA_VERSION
    statuses: dict[str, int]
    excluded: int
    unmoved: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]


def sweep_page(rows: Sequence[Mapping[str, Any]], unmoved: Sequence[str] = (), excluded: int = 0) -> SweepPage:
    """Return the rows of a study or of a search with what they say, and how many points constraints exclude."""
    statuses = dict(Counter(str(row["status"]) for row in rows if "status" in row))
    return SweepPage(statuses=statuses, excluded=excluded, unmoved=tuple(unmoved), rows=tuple(map(dict, rows)))
