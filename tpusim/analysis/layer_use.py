"""The layers of a program: what the core's time went to in each, and how busy units and memories were meanwhile."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from tpusim.analysis.utilisation import GROUPINGS
from tpusim.timeline.records import CORE, busy_ps, totals

if TYPE_CHECKING:
    from tpusim.timeline.records import Record, Timeline


class LayerUse(msgspec.Struct, frozen=True, kw_only=True):
    """The core's records of one op, category or source: picoseconds by what they went to, and busy shares by unit."""

    name: str
    time_ps: int
    parts_ps: dict[str, int]
    busy: dict[str, float]


def layer_use(timeline: Timeline, by: str = "source") -> tuple[LayerUse, ...]:
    """Return the use of every layer, the longest first; ``by`` says what a layer is, as in ``group_records``."""
    if by not in GROUPINGS:
        raise ValueError(f"expected by to be one of {', '.join(GROUPINGS)}, found {by!r}")
    found: dict[str, list[Record]] = defaultdict(list)
    for record in timeline.records:
        if record.row == CORE and record.duration_ps:
            name = record.name if by == "op" else getattr(record, by)
            found[name or "(none stated)"].append(record)
    layers = [_layer(name, records) for name, records in found.items()]
    return tuple(sorted(layers, key=lambda layer: -layer.time_ps))


def _layer(name: str, records: list[Record]) -> LayerUse:
    # Only kernels are taken apart; of all else the whole is known.
    parts = totals(records, lambda record: record.parts or {record.bound_by: record.duration_ps})
    time_ps = sum(record.total_ps for record in records)
    shares = {unit: min(1.0, unit_ps / time_ps) for unit, unit_ps in busy_ps(records).items()}
    return LayerUse(name=name, time_ps=time_ps, parts_ps=dict(parts), busy=shares)
