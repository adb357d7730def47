"""What a slow compiler made of a program, kept as files between processes.

They stand in the folder that the variable ``TPUSIM_CACHE`` names, by default ``tpusim`` in the user's folder for
caches; an empty name keeps nothing. A file can be removed at any time.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from zlib import error as ZlibError

from tpusim.files import write_whole


def kept_text(key: Iterable[str], make: Callable[[], str]) -> str:
    """Return the text that was kept under all that it depends on; else make it, and keep it."""
    folder = _folder()
    if folder is None:
        return make()
    path = folder / f"{hashlib.sha256(chr(0).join(key).encode()).hexdigest()}.hlo.txt.gz"
    # One that is damaged is made again.
    with suppress(OSError, EOFError, ZlibError, UnicodeDecodeError):
        return gzip.decompress(path.read_bytes()).decode()
    text = make()
    # A full disk, or one that cannot be written to, costs only the next compilation.
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, gzip.compress(text.encode(), mtime=0))
    return text


def _folder() -> Path | None:
    given = os.environ.get("TPUSIM_CACHE")
    if given is not None:
        return Path(given) if given else None
    base = os.environ.get("XDG_CACHE_HOME")
    # A user whom the system does not know, as in many containers, has no home.
    with suppress(RuntimeError):
        return (Path(base) if base else Path.home() / ".cache") / "tpusim"
    return None
