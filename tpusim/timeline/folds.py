"""What products took on systolic arrays: cycles, and how many multiply-accumulates were done of those that could be."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class ArrayRun(msgspec.Struct, frozen=True, kw_only=True):
    """One product, or several one after the other, on the arrays of a core.

    ``slots`` are multiply-accumulates that could have been done: ``slots`` itself in all cycles, ``streamed_slots``
    while the stream of a fold entered, ``computing_slots`` from the first one done to the last (in the ``scale-sim``
    mode: as SCALE-Sim counts them, fold by fold).
    """

    cycles: int
    folds: int
    macs: int
    slots: int
    streamed_slots: int
    computing_slots: int

    @property
    def utilisation(self) -> float:
        """Share of all slots that did a multiply-accumulate, 0 to 1."""
        return _share(self.macs, self.slots)

    @property
    def mapping_efficiency(self) -> float:
        """Share of the array that a fold covers, 0 to 1: what ragged edges leave, averaged over the folds."""
        return _share(self.macs, self.streamed_slots)

    @property
    def compute_utilisation(self) -> float:
        """Share of the slots that were used while the array computed, 0 to 1: without loading first, draining last."""
        return _share(self.macs, self.computing_slots)


def add_runs(runs: Iterable[ArrayRun]) -> ArrayRun:
    """Return several runs as one, each begun when the one before has ended."""
    rows = list(runs)
    return ArrayRun(**{name: sum(getattr(row, name) for row in rows) for name in ArrayRun.__struct_fields__})


def _share(part: int, whole: int) -> float:
    """Return ``part`` of ``whole``; nothing of nothing is nothing."""
    return part / whole if whole else 0.0


class Accesses(msgspec.Struct, frozen=True, kw_only=True):
    """What one SRAM saw on both sides: words, and the cycles of the first and the last ones; below 0: prefetch."""

    sram_start: int
    sram_stop: int
    sram_words: int
    dram_start: int
    dram_stop: int
    dram_words: int

    @property
    def dram_words_per_cycle(self) -> float:
        """Words per cycle from the first to the last."""
        return self.dram_words / (self.dram_stop - self.dram_start + 1)


class MemoryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What one product took with the memory beside the array."""

    cycles_with_prefetch: int
    """From the first word from DRAM to the last one to it."""
    cycles: int
    """From the first line that the array asks for, stalls included."""
    stall_cycles: int
    ifmap: Accesses
    filter: Accesses
    ofmap: Accesses
