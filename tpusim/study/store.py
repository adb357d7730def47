"""Where outcomes are kept: a row a point in SQLite, by what they follow from, so that studies find each other's."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from importlib import metadata
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path
from threading import Lock

import msgspec

import tpusim
from tpusim.cost.models.registry import allowed_plugins, plugin_places
from tpusim.errors import ConfigError
from tpusim.study.points import Point
from tpusim.study.programs import digest
from tpusim.study.work import Outcome, registrations

_FILE = "outcomes.sqlite"
TRIALS = "optuna.sqlite"
"""Where a search keeps its trials, beside the outcomes."""
_TABLE = "CREATE TABLE IF NOT EXISTS outcomes (key TEXT PRIMARY KEY, outcome BLOB NOT NULL) WITHOUT ROWID"
_BUSY_SECONDS = 60.0
_KINDS = ("*.py", "*.toml", "*.so", "*.pyd")
"""Of files that hold code or tables."""
_LOADED = ("ramulator",)
"""What no chip names as a plug-in, and is loaded all the same: small enough to be read."""
_READER = "jaxlib"
"""Without it Pallas kernels take what they state of themselves; another one may read programs otherwise."""


def kept_files(folder: Path) -> list[Path]:
    """Return the files of a study's folder, those that SQLite has beside its own while it writes included."""
    return [folder / f"{name}{end}" for name in (_FILE, TRIALS) for end in ("", "-wal", "-shm", "-journal")]


def version() -> str:
    """Return the version of tpusim and a hash of its code, tables, plug-ins, reader: others may come to other times."""
    return _version(allowed_plugins())


@cache
def _version(plugins: tuple[str, ...]) -> str:
    package = Path(tpusim.__file__).parent
    places = [package, package.parent / "configs"]
    for name in (*plugins, *_LOADED):
        # One that is not there has no code, and is refused where a chip names it.
        with suppress(ConfigError):
            places += plugin_places(name)
    files = [place for place in places if place.is_file()]
    files += [path for place in places for kind in _KINDS for path in place.rglob(kind)]
    found = sha256(_installed(_READER))
    for path in sorted(files):
        found.update(path.read_bytes())
    return f"{tpusim.__version__}+{found.hexdigest()[:12]}"


def _installed(package: str) -> bytes:
    """Return what tells an installed package from another version of it and from none, without loading it."""
    spec = find_spec(package)
    if spec is None:
        return b""
    # One that stands on PYTHONPATH has no version, and may hide another one that has.
    begins = Path(spec.origin).read_bytes() if spec.has_location and spec.origin else b""
    with suppress(PackageNotFoundError):
        return metadata.version(package).encode() + begins
    return package.encode() + begins


def key_of(point: Point) -> str:
    """Return what a point's outcome is kept under: all that it follows from, and no name."""
    run = point.topology or "", point.schedule, *point.settings, *registrations(point.program)
    return digest(repr((version(), point.program.digest, point.chip_digest, *run)).encode())


class Store:
    """A folder of outcomes, or with none memory. One process writes; a row is there once ``put`` has returned.

    Any thread may ask and keep. A write-ahead log keeps what was put through any end of the process.
    """

    def __init__(self, folder: Path | None) -> None:
        self._place = folder / _FILE if folder else ":memory:"
        self._is_closed, self._lock = False, Lock()
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            # Any thread may ask and keep, one at a time: a study may be made in one and run in another.
            self._rows = sqlite3.connect(self._place, timeout=_BUSY_SECONDS, check_same_thread=False)
            # From 3.13 on Python warns of what nobody has closed.
            weakref.finalize(self, self._rows.close)
            self._rows.execute("PRAGMA journal_mode = WAL")
            self._rows.execute("PRAGMA synchronous = NORMAL")
            with self._rows:
                self._rows.execute(_TABLE)
        # A damaged file may say what it holds in bytes that are no text.
        except (sqlite3.Error, OSError, ValueError) as error:
            raise ConfigError(f"{folder}: expected a folder for a study's outcomes: {_reason(error)}") from error

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._is_closed = True
            self._rows.close()

    def found(self, keys: Iterable[str]) -> dict[str, Outcome]:
        """Return the outcomes that are there, by key; errors and faults are left out: the next run may fare better."""
        with self._open() as stored:
            asked = "SELECT outcome FROM outcomes WHERE key = ?"
            rows = ((key, stored.execute(asked, [key]).fetchone()) for key in keys)
            known = {key: _outcome(row[0]) for key, row in rows if row}
        return {key: outcome for key, outcome in known.items() if outcome.status not in ("error", "fault")}

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Give the table to one thread; raise ConfigError for what is no table of outcomes, or closed."""
        with self._lock:
            if self._is_closed:
                raise ConfigError("study: expected one that is open, found one that was closed: make another")
            try:
                yield self._rows
            except (sqlite3.Error, ValueError, TypeError) as error:
                raise ConfigError(
                    f"{self._place}: not the outcomes of a study, or damaged: {_reason(error)}"
                ) from error

    def put(self, outcomes: Mapping[str, Outcome]) -> None:
        """Keep some outcomes, all or none of them."""
        if not outcomes:
            return
        rows = [(key, _row(outcome)) for key, outcome in outcomes.items()]
        with self._open() as stored, stored:
            stored.executemany("INSERT OR REPLACE INTO outcomes VALUES (?, ?)", rows)


def _reason(error: Exception) -> str:
    """Return why a file is no store of outcomes: in the words of SQLite or of the system, and in no others."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error) if isinstance(error, sqlite3.Error) else "what it holds is not as it was written"


def _row(outcome: Outcome) -> bytes:
    """Return what a row holds of an outcome: SQLite itself would not see a figure that is another one after a fault."""
    text = msgspec.json.encode(outcome)
    return digest(text).encode() + text


def _outcome(row: object) -> Outcome:
    """Return the outcome of a row; ValueError for one that is not as it was written."""
    length = len(digest(b""))
    if not isinstance(row, bytes) or digest(row[length:]).encode() != row[:length]:
        raise ValueError("a row is not as it was written")
    return msgspec.json.decode(row[length:], type=Outcome)
