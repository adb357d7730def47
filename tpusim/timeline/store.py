"""Time lines as files: one JSON object, gzip-compressed if the name ends in ``.gz``."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec

from tpusim.errors import ProgramError
from tpusim.timeline.records import Timeline


def encode_timeline(timeline: Timeline) -> bytes:
    """Return a time line as JSON bytes; the same time line always gives the same bytes."""
    return msgspec.json.encode(timeline)


def save_timeline(timeline: Timeline, path: str | Path) -> None:
    """Write a time line to ``path``."""
    data = encode_timeline(timeline)
    # mtime=0: the time of writing would make the files of equal runs differ.
    Path(path).write_bytes(gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)


def load_timeline(path: str | Path) -> Timeline:
    """Read what ``save_timeline`` wrote. Raises ProgramError if the file is something else."""
    data = Path(path).read_bytes()
    try:
        # The first bytes decide, not the name: files get renamed and unpacked.
        return msgspec.json.decode(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data, type=Timeline)
    except (msgspec.DecodeError, gzip.BadGzipFile, EOFError) as error:
        raise ProgramError(f"{path}: not a saved time line: {error}") from error
