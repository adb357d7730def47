"""When devices had met, and what of a stretch of communication was waiting for the last of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from tpusim.timeline.records import LATE


class Met(NamedTuple):
    """When communication ended for a device, and when the last of those whom it needed for that had come."""

    end_ps: int
    complete_ps: int

    def since(self, start_ps: int) -> tuple[int, int]:
        """Return how long it took a device that came at ``start_ps``, and how much of that it waited for others."""
        return self.end_ps - start_ps, max(0, self.complete_ps - start_ps)


def split_late(bound_by: str, duration_ps: int, late_ps: int) -> dict[str, Any]:
    """Return what bounds a record of so long, the fields of ``Record``; its parts where others came so late."""
    if late_ps <= 0:
        return {"bound_by": bound_by, "parts": {}}
    parts = {LATE: late_ps, bound_by: duration_ps - late_ps}
    longest = max(parts, key=lambda part: parts[part])
    return {"bound_by": longest, "parts": {name: part_ps for name, part_ps in parts.items() if part_ps}}


def late_since(start_ps: int, met: dict[int, Met] | None) -> dict[int, int]:
    """Return how long each device waited for others from ``start_ps`` on; None is of what needs nobody else."""
    return {number: one.since(start_ps)[1] for number, one in (met or {}).items()}
