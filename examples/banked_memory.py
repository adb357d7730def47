"""A memory of banks with open rows: a run in another row of the same bank waits for it to close and open again.

PYTHONPATH=examples tpusim run traces/mlp_b1024.v5e.hlo.txt.gz --plugin banked_memory \
        -o hbm.model=banked_memory:Banked -o hbm.settings.banks=64
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tpusim.models import Chip, Served, Stream


class Banked:
    """``banks`` of rows of ``row_bytes``, side by side; a row that is not open takes ``row_seconds``."""

    def __init__(self, *, banks: int = 16, row_bytes: int = 1024, row_seconds: float = 48e-9) -> None:
        self.banks = banks
        self.row_bytes = row_bytes
        self.row_seconds = row_seconds

    def serve(self, streams: Sequence[Stream], chip: Chip) -> Served:
        """Return the longer of the bytes at the full rate and the openings of the busiest bank, for each stream."""
        loads, opened = [], 0.0
        for stream in streams:
            rows, busiest = self._openings(stream)
            # In bytes of long reads, as all loads are: seconds times the rate that these reach.
            waiting = busiest * self.row_seconds * chip.hbm.long_read_bytes_per_second
            loads.append(max(stream.total_bytes, waiting))
            opened += rows
        return Served(loads, activations=opened)

    def _openings(self, stream: Stream) -> tuple[float, float]:
        """Return the rows that a stream opens, and those of them in the bank that opens most."""
        counts = [0] * self.banks
        sample = list(self._rows(stream, runs=256))
        for before, row in zip([None, *sample], sample, strict=False):
            counts[row % self.banks] += row != before
        share = stream.total_bytes / max(1.0, min(stream.total_bytes, 256 * (stream.chunk_bytes or self.row_bytes)))
        return sum(counts) * share, max(counts) * share

    def _rows(self, stream: Stream, runs: int) -> Iterator[int]:
        """Yield the rows of the first runs of a stream; what is in one piece comes row by row."""
        run = stream.chunk_bytes or self.row_bytes
        for number in range(min(runs, max(1, round(stream.total_bytes / run)))):
            start = (stream.address or 0) + number * max(run, stream.stride_bytes)
            yield from range(start // self.row_bytes, (start + run - 1) // self.row_bytes + 1)
