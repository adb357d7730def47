"""Files read with errors of tpusim's own, and written whole or not at all."""

from __future__ import annotations

import os
import re
import stat
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from errno import EACCES, EBADF, ELOOP
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO
from weakref import WeakSet

from tpusim.errors import ConfigError, TpusimError
from tpusim.limits import KEY_WORDS, READ_DIGITS, TABLE_BYTES

_TOO_LONG = f"a number of more than {READ_DIGITS} digits"
# What Python says of one, with advice on how to let it read longer ones.
_OF_DIGITS = "Exceeds the limit"
# Reading one takes the square of its length. Looked for from a zero or a dot, which are few, and without going back.
# Of decimal ones Python says so itself; of those that it counts in bits it reads any.
_LONG_NUMBER = re.compile(rf"0(?<!\w0)[xob][\dA-Fa-f_]{{{READ_DIGITS}}}")
_LONG_KEY = re.compile(rf"\.(?:[ \t]*+[\w\"'-]++[ \t]*+\.){{{KEY_WORDS - 1}}}")


_PIECE_BYTES: Final = 1 << 20
_READ: Final = WeakSet[TextIO]()
"""Standard input, once it was read: it would be empty then."""


def shown_name(path: str | Path) -> str:
    """Return what messages call a file, or standard input, which is ``-``."""
    return "<stdin>" if str(path) == "-" else str(path)


def utf8_text(name: str) -> str:
    r"""Return what a file or an option says as text that every file holds: bytes that are not UTF-8 as ``\udcff``."""
    return name.encode("utf-8", "backslashreplace").decode()


def read_bytes(path: str | Path, failing: str, kind: type[TpusimError] = ConfigError, most: int = TABLE_BYTES) -> bytes:
    """Return the bytes of a file, or of standard input for ``-``.

    Raises an error of a ``kind`` if it cannot be read or has more bytes than the ``most``: its name, what is
    ``failing`` (``cannot read this study``), and why.
    """
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(f"expected the name of a file, found {path!r:.80}")
    name = shown_name(path)
    # For Python it would be the folder that one stands in.
    if not name:
        raise kind("expected the name of a file, found ''")
    try:
        with _opened(path) as file:
            content = read_up_to(file.read, most + 1)
    except OSError as error:
        raise kind(f"{name}: {failing}: {error.strerror or error}") from error
    # A name with a character that no file system has, or a stream that is closed.
    except ValueError as error:
        raise kind(f"{name}: {failing}: {error}") from error
    if len(content) > most:
        raise kind(f"{name}: {failing}: expected at most {most} bytes, found more")
    return content


def read_up_to(read: Callable[[int], bytes], most: int) -> bytes:
    """Return what there is to ``read``, at most so many bytes: one more than a limit tells what is beyond it."""
    # Piece by piece: Python takes as much memory as it is asked to read, and some processes may not have a GiB.
    content, left = BytesIO(), most
    while left and (piece := read(min(left, _PIECE_BYTES))):
        content.write(piece)
        left -= len(piece)
    # Without a copy, unlike pieces that are joined.
    return content.getvalue()


def _opened(path: str | Path) -> AbstractContextManager[BinaryIO]:
    """Return an open file; standard input stays open, and is read once."""
    if str(path) != "-":
        return Path(path).open("rb")
    if sys.stdin is None:
        raise OSError(EBADF, "standard input is closed")
    if sys.stdin in _READ:
        raise OSError(EBADF, "standard input has been read already: expected - once")
    _READ.add(sys.stdin)
    return nullcontext(sys.stdin.buffer)


def read_text(
    path: str | Path,
    failing: str,
    kind: type[TpusimError] = ConfigError,
    form: str = "text in UTF-8",
    most: int = TABLE_BYTES,
) -> str:
    r"""Return the text of a file in UTF-8, whose line ends become ``\n``; errors as those of ``read_bytes``."""
    content = read_bytes(path, failing, kind, most)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        found = f"expected {form}, found the byte {byte:#04x}"
        raise kind(f"{shown_name(path)}:{line}: {failing}: {found}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def read_table(
    path: str | Path, failing: str, most: int = TABLE_BYTES
) -> tuple[list[str], list[tuple[int, dict[str | None, Any]]]]:
    """Return the names of the columns of a CSV file, and the rows below them by name, each with the line it ends in.

    A cell that is not there is None, and cells beyond the last column are under None. Errors are ConfigErrors as those
    of ``read_bytes``.
    """
    import csv

    reader = csv.DictReader(StringIO(read_text(path, failing, most=most), newline=""))
    try:
        # A quoted cell may go over several lines: only the reader knows where a row ends.
        return list(reader.fieldnames or ()), [(reader.line_num, cells) for cells in reader]
    except csv.Error as error:
        raise ConfigError(f"{shown_name(path)}: {failing}: {error}") from error


def is_file(path: str | Path) -> bool:
    """Return whether there is a file of this name; pathlib raises OSError for names that no file system takes."""
    return os.path.isfile(path)


def is_folder(path: str | Path) -> bool:
    """Return whether there is a folder of this name, as ``is_file``."""
    return os.path.isdir(path)


def parse_toml(text: str) -> dict[str, Any]:
    """Return what a text of TOML says; ValueError for what is none, lies too deep, or is a number too long to print."""
    if _LONG_NUMBER.search(text):
        raise ValueError(_TOO_LONG)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(reason(error)) from error


def read_toml(path: str | Path, failing: str) -> dict[str, Any]:
    """Return what a TOML file says. Raises ConfigError, also for what lies too deep."""
    text = read_text(path, failing)
    if _LONG_KEY.search(text):
        raise ConfigError(f"{path}: expected keys of at most {KEY_WORDS} words between dots, found a longer one")
    try:
        return parse_toml(text)
    except ValueError as error:
        raise ConfigError(f"{path}: expected TOML in UTF-8: {error}") from error


def parse_json(text: str | bytes) -> Any:
    """Return what a text of JSON says; ValueError for what is none, and for objects in which a key stands twice."""
    import json

    try:
        return json.loads(text, object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        raise ValueError(reason(error)) from error


def reason(error: Exception) -> str:
    """Return why a text was not read; of limits of Python's, in words of ours."""
    if isinstance(error, RecursionError):
        return "values that are too deep in each other"
    return _TOO_LONG if _OF_DIGITS in str(error) else str(error)


def check_json_keys(text: bytes) -> None:
    """Raise ValueError for an object of JSON in which a key stands twice: readers take the last, and say nothing."""
    import json

    # What is checked is forgotten: as dicts a program takes ten times the memory of its text.
    json.loads(text, object_pairs_hook=lambda pairs: _each_once(pairs) and None)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        double, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"expected each key of an object once, found {double!r} twice")
    return found


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Give the name of a new file to write; it takes the place of ``path`` when all is written, and else is gone.

    What stood at ``path`` stays whole until then. What is no regular file, such as a pipe, is written to directly, and
    so is a stream that is open already (``/dev/stdout``).
    """
    try:
        if _is_stream(path):
            yield Path(path)
        else:
            # The file that a link points to is replaced, and not the link.
            with _replacing(Path(os.path.realpath(path))) as beside:
                yield beside
    except OSError as error:
        # Of the file that was asked for; of the other one nobody knows.
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _is_stream(path: str | Path) -> bool:
    """Return whether a name is that of something there which cannot be replaced."""
    # The name of a pipe behind /dev/fd/63 is no path, so the name is asked for that was given.
    if not os.path.isfile(path):
        return os.path.exists(path)
    # /dev/stdout is a link to one of /proc/self/fd, /dev/fd one to all of them.
    folder = os.path.realpath(os.path.dirname(os.path.abspath(path)))
    return f"{folder}/".startswith("/proc/") or (os.path.islink(path) and os.readlink(path).startswith("/proc/"))


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Give the name of a new file, which takes the place of another one at the end."""
    _require_writable(target)
    # The ending tells some writers the format.
    beside = target.with_name(f".tpusim-{os.urandom(8).hex()}{target.suffix}")
    try:
        os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield beside
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        if target.exists():
            beside.chmod(stat.S_IMODE(target.stat().st_mode))
        os.replace(beside, target)
    finally:
        with suppress(OSError):
            beside.unlink()


def _require_writable(target: Path) -> None:
    """Refuse what writing in place would have: a file that is only to be read, and links that lead in a circle."""
    if target.is_symlink():
        raise OSError(ELOOP, os.strerror(ELOOP))
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(EACCES, os.strerror(EACCES))


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file, whole or not at all; text is UTF-8."""
    with whole_file(path) as beside:
        beside.write_bytes(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)
