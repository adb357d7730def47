"""The memories that ship: ``bandwidth``, one rate with what short runs cost; ``banked``, channels of banks with rows;
``ramulator``, where that is installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tpusim.cost.models.checked import served_fault
from tpusim.cost.models.protocols import Memory, Served
from tpusim.cost.models.registry import Registry
from tpusim.cost.models.settings import (
    LEAST_INTERVAL_SECONDS,
    LEAST_LEFT,
    MOST_BYTES,
    MOST_PARTS,
    MOST_QUEUED,
    MOST_REQUESTS,
    MOST_SECONDS,
    amounts,
    switch,
    whole,
)
from tpusim.errors import ConfigError
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import CMEM, HBM
from tpusim.program.work import Stream

MEMORIES: Registry[Memory] = Registry("hbm.model", serve=served_fault)
"""By the name in a chip's file."""


def hbm_of(chip: Chip) -> Memory:
    """Return the model of a chip's HBM."""
    return MEMORIES.of(chip.hbm)


def needs_places(chip: Chip) -> bool:
    """Return whether the chip's memory asks where streams begin: what is only counted need not be placed."""
    return chip.hbm.model != "bandwidth"


def loaded_bytes(stream: Stream, memory: str, chip: Chip) -> float:
    """Return a stream's bytes as a memory of one rate feels them: each run costs something more."""
    n_bytes = stream.total_bytes
    if stream.is_output:
        n_bytes *= write_cost(memory, chip)
    return n_bytes * run_cost(stream.chunk_bytes, chip)


def write_cost(memory: str, chip: Chip) -> float:
    """Return what a byte that is written to a memory costs, a byte that is read 1: its rate is that of reads."""
    if memory == HBM:
        return chip.hbm.efficiency / chip.hbm.write_efficiency
    return chip.cmem.read_bytes_per_second / chip.cmem.write_bytes_per_second if memory == CMEM else 1.0


def run_cost(chunk_bytes: int, chip: Chip) -> float:
    """Return what a byte costs the memory if runs are ``chunk_bytes`` long (0: long enough), a byte of long ones 1."""
    if not chunk_bytes:
        return 1.0
    # Runs below the native element of the DMA engine use only a part of each (512 B: ISCA 2021, TPUv4i).
    return (max(chunk_bytes, chip.dma.min_chunk_bytes) + chip.dma.chunk_cost_bytes) / chunk_bytes


@MEMORIES.enter("bandwidth")
class Bandwidth:
    """One rate for all bytes, wherever they lie, with fitted costs of short runs, of writes and of turns between."""

    def serve(self, streams: Sequence[Stream], chip: Chip) -> Served:
        """Return the bytes of each stream as the memory feels them."""
        return Served([loaded_bytes(stream, HBM, chip) for stream in streams], chip.hbm.turn_cost)


@MEMORIES.enter("banked")
class Banked:
    """Channels that work side by side, each with banks that hold one row open, and with refresh.

    Consecutive ``interleave_bytes`` go to consecutive channels; within a channel consecutive rows to consecutive banks;
    ``hashed`` ones are turned on by one with each round of them, as controllers do to spread strides.
    A burst to an open row takes its share of the channel's rate; another row has to be opened first
    (``activate_seconds``), once the one before is closed (``precharge_seconds``), no sooner than ``row_cycle_seconds``
    after the bank's last opening and ``activate_gap_seconds`` after the channel's. That goes on behind up to ``queue``
    bursts that came before. The bus turns round between reads and writes in ``turn_seconds``. Streams take turns of
    ``turn_bytes``. All stand still for ``refresh_seconds`` of every ``refresh_interval_seconds``.

    The rate is ``hbm.bandwidth_bytes_per_second``; what of it is reached follows.
    """

    def __init__(
        self,
        *,
        channels: int,
        banks: int,
        row_bytes: int,
        interleave_bytes: int,
        burst_bytes: int,
        turn_bytes: int,
        queue: int,
        hashed: bool,
        activate_seconds: float,
        precharge_seconds: float,
        row_cycle_seconds: float,
        activate_gap_seconds: float,
        turn_seconds: float,
        refresh_seconds: float,
        refresh_interval_seconds: float,
    ) -> None:
        section = MEMORIES.section
        channels, banks = whole(section, MOST_PARTS, channels=channels, banks=banks)
        sizes = {"row_bytes": row_bytes, "interleave_bytes": interleave_bytes, "burst_bytes": burst_bytes}
        row_bytes, interleave_bytes, burst_bytes, turn_bytes = whole(
            section, MOST_BYTES, **sizes, turn_bytes=turn_bytes
        )
        (queue,) = whole(section, MOST_QUEUED, queue=queue)
        parts = channels, banks, row_bytes, interleave_bytes, burst_bytes, turn_bytes, queue
        self._layout = (*parts, int(switch(section, "hashed", hashed)))
        self._delays = amounts(
            section,
            0,
            MOST_SECONDS,
            activate_seconds=activate_seconds,
            precharge_seconds=precharge_seconds,
            row_cycle_seconds=row_cycle_seconds,
            activate_gap_seconds=activate_gap_seconds,
            turn_seconds=turn_seconds,
        )
        (refresh,) = amounts(section, 0, MOST_SECONDS, refresh_seconds=refresh_seconds)
        interval = {"refresh_interval_seconds": refresh_interval_seconds}
        self._refreshed = 1 - refresh / amounts(section, LEAST_INTERVAL_SECONDS, MOST_SECONDS, **interval)[0]
        if self._refreshed < LEAST_LEFT:
            wanted = f"at most {1 - LEAST_LEFT:g} of refresh_interval_seconds, {refresh_interval_seconds:g}"
            raise ConfigError(f"{section}.settings.refresh_seconds: expected {wanted}, found {refresh_seconds:g}")
        self._burst_share = burst_bytes * channels

    def serve(self, streams: Sequence[Stream], chip: Chip) -> Served:
        """Return what the streams take; alike ones, at places that are alike, are played once."""
        # Numba loads only where banks are asked for.
        from tpusim.cost.models.dram import play

        delays = (*self._delays, self._burst_share / chip.hbm.bandwidth_bytes_per_second)
        played = play(tuple(placed(streams)), self._layout, delays)
        rate = chip.hbm.long_read_bytes_per_second / self._refreshed
        return Served([seconds * rate for seconds in played.seconds], activations=played.activations)


@MEMORIES.enter("ramulator")
class Ramulator:
    """A DRAM of Ramulator 2, where its Python package is installed: the share of its peak that a sample reaches.

    ``standard``, ``organisation``, ``timing`` and ``controller`` are names of its own, for instance ``HBM2``,
    ``HBM2_8Gb``, ``HBM2_2000Mbps`` and ``HBM12``; one channel moves ``bytes_per_cycle``, in requests of
    ``request_bytes``. Of a list of streams at most ``sample_requests`` are played.
    """

    def __init__(
        self,
        *,
        standard: str,
        organisation: str,
        timing: str,
        controller: str,
        channels: int,
        request_bytes: int,
        bytes_per_cycle: int,
        sample_requests: int,
    ) -> None:
        channels, request_bytes, bytes_per_cycle, sample_requests = whole(
            MEMORIES.section,
            MOST_REQUESTS,
            channels=channels,
            request_bytes=request_bytes,
            bytes_per_cycle=bytes_per_cycle,
            sample_requests=sample_requests,
        )
        self._device = standard, organisation, timing, controller
        self._channels = channels
        self._request_bytes = request_bytes
        self._peak_bytes = bytes_per_cycle * channels
        self._most = sample_requests

    def serve(self, streams: Sequence[Stream], chip: Chip) -> Served:
        """Return each stream's bytes over the share that all of them reach together."""
        from tpusim.cost.models.ramulator import sample

        played = sample(tuple(placed(streams)), self._device, self._channels, self._request_bytes, self._most)
        whole = sum(stream.total_bytes for stream in streams)
        # Cycles of the sample for all bytes, at the chip's own bandwidth.
        slower = played.cycles * self._peak_bytes / max(1, played.n_bytes) * chip.hbm.efficiency
        rows = played.rows * whole / max(1, played.n_bytes)
        return Served([stream.total_bytes * slower for stream in streams], activations=rows)


def placed(streams: Sequence[Stream]) -> Iterator[Stream]:
    """Yield streams that all have an address: those whose place is not known lie one behind the other."""
    free = 0
    for stream in streams:
        address = free if stream.address is None else stream.address
        free = max(free, address + round(stream.total_bytes))
        yield msgspec.structs.replace(stream, address=address)
