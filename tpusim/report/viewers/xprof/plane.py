"""One plane of an XSpace, the profile that XProf reads: lines of events; names of events and figures stand in it once.

Fields as in openxla/xla, tsl/profiler/protobuf/xplane.proto.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from tpusim.report.viewers.xprof import wire

Stat = int | float | str | bytes
"""A figure; its type in Python is its type in the profile."""

_STAT_FIELDS: dict[type, int] = {float: 2, int: 4, str: 5, bytes: 6}


class Plane:
    """Gathers lines and events; ``encode`` returns the message ``XPlane``."""

    def __init__(self) -> None:
        self._stat_ids: dict[str, int] = {}
        self._metadata: list[bytes] = []
        self._lines: list[bytes] = []

    def add_metadata(self, name: str, shown: str, stats: Mapping[str, Stat], number: int | None = None) -> int:
        """Add what all events of one kind share, and return the number that events name it by."""
        number = len(self._metadata) + 1 if number is None else number
        own = wire.message({1: number, 2: name, 4: shown, 5: self._encoded(stats)})
        self._metadata.append(wire.message({1: number, 2: own}))
        return number

    def event(self, metadata: int, start_ps: int, end_ps: int, stats: Mapping[str, Stat]) -> bytes:
        """Return an event for ``add_line``."""
        return wire.message({1: metadata, 2: start_ps, 3: end_ps - start_ps, 4: self._encoded(stats)})

    def add_line(self, name: str, events: list[bytes], duration_ps: int) -> None:
        """Add a line of events, in the order in which lines are to be shown."""
        number = len(self._lines) + 1
        # Its time stamp is 0: nanoseconds since 1970 overflow the picoseconds of the reader.
        self._lines.append(wire.message({1: number, 10: number, 2: name, 11: name, 9: duration_ps, 4: events}))

    @cached_property
    def _content(self) -> bytes:
        """Lines, and what events share: the same for devices that are alike."""
        return wire.message({3: self._lines, 4: self._metadata})

    def encode(self, number: int, name: str, stats: Mapping[str, Stat]) -> bytes:
        """Return the message of a plane of that number and name: figures of its own, then what was gathered."""
        own = self._encoded(stats)
        names = [wire.message({1: one, 2: wire.message({1: one, 2: label})}) for label, one in self._stat_ids.items()]
        return wire.message({1: number, 2: name, 5: names, 6: own}) + self._content

    def _encoded(self, stats: Mapping[str, Stat]) -> list[bytes]:
        """Return figures, each under the number of its name."""
        found = []
        for name, value in stats.items():
            number = self._stat_ids.setdefault(name, len(self._stat_ids) + 1)
            found.append(wire.message({1: number, _STAT_FIELDS[type(value)]: value}))
        return found
