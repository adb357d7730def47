"""What ``tpusim sweep`` prints as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from tpusim.report.json.page import SCHEMA_VERSION


class SweepPage(msgspec.Struct, frozen=True, kw_only=True):
    """A study: how many points came to what, along which axes nothing moved, and a row for each point."""

    simulated: Literal[True] = True
    schema_version: int = SCHEMA_VERSION
    statuses: dict[str, int]
    unmoved: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]


def sweep_page(rows: Sequence[Mapping[str, Any]], unmoved: Sequence[str]) -> SweepPage:
    """Return a study's rows with what they say."""
    statuses = dict(Counter(str(row["status"]) for row in rows))
    return SweepPage(statuses=statuses, unmoved=tuple(unmoved), rows=tuple(map(dict, rows)))
