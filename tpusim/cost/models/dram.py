"""Bursts on channels and banks, one after the other; what lies alike is played once.

A stream is a pattern: where it begins against the rows of all banks, how long its runs are and how far apart, and how
much there is of it. Of long ones a part is played and stands for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tpusim.compiled import njit
from tpusim.program.work import Stream

_MOST_BURSTS = 1 << 15
"""Of a list of streams, so many are played: some turns of all rows of all banks."""


class Played(NamedTuple):
    """The seconds that each stream takes, and the rows that all of them opened."""

    seconds: tuple[float, ...]
    activations: float


def play(streams: Sequence[Stream], layout: tuple[int, ...], delays: tuple[float, ...]) -> Played:
    """Return what streams take side by side, on a memory of some ``layout`` and ``delays`` (see ``Banked``)."""
    channels, banks, row_bytes, _, burst_bytes, *_ = layout
    # Beyond this, addresses differ in their rows only, and in how far channels and banks are turned on.
    period = channels * banks * row_bytes * (banks * channels if layout[-1] else 1)
    bursts = sum(s.total_bytes / min(s.chunk_bytes or burst_bytes, burst_bytes) for s in streams)
    share = min(1.0, _MOST_BURSTS / bursts) if bursts else 1.0
    patterns = []
    for stream in streams:
        run, n_bytes = stream.chunk_bytes, max(1, round(stream.total_bytes * share))
        stride = max(run, stream.stride_bytes)
        patterns.append(((stream.address or 0) % period, stride, run, n_bytes, int(stream.is_output)))
    seconds, activations = _played(tuple(patterns), layout, delays)
    scales = [stream.total_bytes / pattern[3] for stream, pattern in zip(streams, patterns, strict=True)]
    return Played(tuple(s * scale for s, scale in zip(seconds, scales, strict=True)), activations / share)


@lru_cache(maxsize=1 << 14)
def _played(
    patterns: tuple[tuple[int, ...], ...], layout: tuple[int, ...], delays: tuple[float, ...]
) -> tuple[tuple[float, ...], int]:
    """Return the seconds of each pattern and the rows opened."""
    taken, activations = _play(np.array(patterns, np.int64).reshape(-1, 5), np.array(layout, np.int64), delays)
    return tuple(map(float, taken)), int(activations)


@njit(cache=True)
def _play(patterns, layout, delays):  # type: ignore[no-untyped-def]
    """Return the seconds of each pattern (start, stride, run, bytes, written), and the rows opened.

    Each gets the part of the slowest channel's time that it has of all channels' times together.
    """
    channels, banks, row_bytes, interleave, burst, turn_bytes, queue, hashed = layout
    activate, precharge, row_cycle, gap, turn, burst_seconds = delays
    free, last_open = np.zeros(channels), np.full(channels, -np.inf)
    wrote = np.full(channels, -1)
    open_row, opened = np.full((channels, banks), -1), np.full((channels, banks), -np.inf)
    used = np.full((channels, banks), -np.inf)
    # When the bursts ended that a channel's queue has room for.
    ended, count = np.zeros((channels, queue)), np.zeros(channels, np.int64)
    done, taken = np.zeros(len(patterns), np.int64), np.zeros(len(patterns))
    until = np.minimum(patterns[:, 3], turn_bytes)
    activations, left, s = 0, patterns[:, 3].sum(), 0
    while left > 0:
        start, stride, run, n_bytes, is_write = patterns[s]
        if done[s] == until[s]:
            until[s] = min(n_bytes, done[s] + turn_bytes)
            s = (s + 1) % len(patterns)
            continue
        place, room = start + done[s], burst
        if run:
            place = start + done[s] // run * stride + done[s] % run
            room = run - done[s] % run
        moved = min(room, burst - place % burst, until[s] - done[s])
        done[s] += moved
        left -= moved
        chunk = place // interleave
        across = chunk // channels
        q = (across * interleave + place % interleave) // row_bytes
        row = q // banks
        # Turned on by one with each row of them, so that strides of powers of two do not all meet in one.
        c = (chunk + hashed * (across + across // channels)) % channels
        b = (q + hashed * (row + row // banks)) % banks
        begin = free[c] + (turn if wrote[c] == 1 - is_write else 0.0)
        if open_row[c, b] != row:
            opened[c, b] = max(
                ended[c, count[c] % queue], last_open[c] + gap, opened[c, b] + row_cycle, used[c, b] + precharge
            )
            open_row[c, b], last_open[c] = row, opened[c, b]
            activations += 1
        end = max(begin, opened[c, b] + activate) + burst_seconds
        taken[s] += end - free[c]
        free[c], used[c, b], wrote[c] = end, end, is_write
        ended[c, count[c] % queue] = end
        count[c] += 1
    whole = free.sum()
    return (taken * (free.max() / whole) if whole > 0 else taken), activations
