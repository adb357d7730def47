"""How far our figures of memory are from the compiler's own: per program, and over all of them."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_BYTES = 2**20
"""Temporaries up to this are left out of the errors: a few tables of tuples decide over them."""


class MemoryOutcome(msgspec.Struct, frozen=True):
    """A program's HBM temporaries in bytes, as we and as the compiler count them; ``heap_bytes`` is our heap alone."""

    program: str
    chip: str
    temp_bytes: int
    compiler_temp_bytes: int
    heap_bytes: int = 0

    @property
    def error(self) -> float | None:
        """Ours against the compiler's, above 0 if ours are more; None if the compiler needs none."""
        if not self.compiler_temp_bytes:
            return None
        return self.temp_bytes / self.compiler_temp_bytes - 1

    @property
    def is_counted(self) -> bool:
        """Whether the program has enough temporaries for its error to say something."""
        return self.compiler_temp_bytes > LEAST_BYTES


class MemoryAccuracy(msgspec.Struct, frozen=True):
    """Errors over all programs that are counted; ``worst`` is the name of the one with the largest."""

    count: int
    median_error: float
    worst_error: float
    worst: str


def memory_accuracy(outcomes: Sequence[MemoryOutcome]) -> MemoryAccuracy:
    """Return the absolute errors of the programs with more than 1 MiB of temporaries."""
    errors = [(abs(o.error or 0.0), o.program) for o in outcomes if o.is_counted]
    worst = max(errors, default=(0.0, ""))
    return MemoryAccuracy(len(errors), median(error for error, _ in errors) if errors else 0.0, *worst)
