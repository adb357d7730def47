"""One plane of an XSpace, the profile that XProf reads: lines of events; names of events and figures stand in it once.

Fields as in openxla/xla, tsl/profiler/protobuf/xplane.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tpusim.report.viewers.xprof import wire

Stat = int | float | str | bytes
"""A figure; its type in Python is its type in the profile."""

_STAT_FIELDS: dict[type, tuple[int, Callable[[int, Any], bytes]]] = {
    float: (2, wire.double),
    int: (4, wire.integer),
    str: (5, wire.text),
    bytes: (6, wire.data),
}


class Plane:
    """Gathers lines and events; ``encode`` returns the message ``XPlane``."""

    def __init__(self, number: int, name: str) -> None:
        self._head = wire.integer(1, number) + wire.text(2, name)
        self._stat_ids: dict[str, int] = {}
        self._metadata: list[bytes] = []
        self._stats: list[bytes] = []
        self._lines: list[bytes] = []

    def add_stats(self, stats: Mapping[str, Stat]) -> None:
        """Add figures of the whole plane."""
        self._stats += [wire.data(6, self._stat(name, value)) for name, value in stats.items()]

    def add_metadata(self, name: str, shown: str, stats: Mapping[str, Stat], number: int | None = None) -> int:
        """Add what all events of one kind share, and return the number that events name it by."""
        number = len(self._metadata) + 1 if number is None else number
        own = wire.join(
            wire.integer(1, number),
            wire.text(2, name),
            wire.text(4, shown),
            (wire.data(5, self._stat(key, value)) for key, value in stats.items()),
        )
        self._metadata.append(wire.data(4, wire.integer(1, number) + wire.data(2, own)))
        return number

    def event(self, metadata: int, start_ps: int, end_ps: int, stats: Mapping[str, Stat]) -> bytes:
        """Return an event for ``add_line``."""
        return wire.join(
            wire.integer(1, metadata),
            wire.integer(2, start_ps),
            wire.integer(3, end_ps - start_ps),
            (wire.data(4, self._stat(key, value)) for key, value in stats.items()),
        )

    def add_line(self, name: str, events: list[bytes], duration_ps: int) -> None:
        """Add a line of events, in the order in which lines are to be shown."""
        number = len(self._lines) + 1
        # Its time stamp is 0: nanoseconds since 1970 overflow the picoseconds of the reader.
        own = wire.join(
            wire.integer(1, number),
            wire.integer(10, number),
            wire.text(2, name),
            wire.text(11, name),
            wire.integer(9, duration_ps),
            (wire.data(4, event) for event in events),
        )
        self._lines.append(wire.data(3, own))

    def encode(self) -> bytes:
        """Return the message: lines, what events share, the names of figures, the figures of the plane."""
        names = [
            wire.data(5, wire.integer(1, number) + wire.data(2, wire.integer(1, number) + wire.text(2, name)))
            for name, number in self._stat_ids.items()
        ]
        return wire.join(self._head, self._lines, self._metadata, names, self._stats)

    def _stat(self, name: str, value: Stat) -> bytes:
        """Return a figure by its name."""
        number = self._stat_ids.setdefault(name, len(self._stat_ids) + 1)
        field, encode = _STAT_FIELDS[type(value)]
        return wire.integer(1, number) + encode(field, value)
