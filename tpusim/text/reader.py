"""HLO text from a file or standard input; anything else is refused with advice on what to do.

Files may be gzipped, which their first bytes tell. What they unpack to is limited, since a few kilobytes can claim
gigabytes.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final

from tpusim.errors import ProgramError
from tpusim.files import read_bytes, shown_name
from tpusim.limits import PROGRAM_BYTES
from tpusim.source import SourceText

MOST_BYTES: Final = PROGRAM_BYTES

_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ADVICE: Final = "write the program out as HLO text (compiled.as_text() of JAX), StableHLO or HloProto"
_CHUNK = 1 << 20
# Bits of zlib's window, and 16 for the head and the sums of gzip.
_GZIP_FORM = 15 + 16
# A file is nearly always one; where it is several, what is behind the end of each is copied.
_FIRST_BYTES, _NEXT_BYTES = 1 << 20, 1 << 14
_SMALL_BYTES, _MOST_UNPACKED = 8 << 20, 100
"""What any gzipped file may unpack to, and what for each of its bytes: programs come to 10 to 25."""


def read_source(path: str | Path) -> SourceText:
    r"""Read HLO text, gzipped or not, from a file, or from standard input if ``path`` is ``-``.

    Line ends become ``\n``.

    Raises:
        ProgramError: The file cannot be read, is empty, is not UTF-8 text or is larger than ``MOST_BYTES``.
    """
    return source_text(*read_content(path))


def read_content(path: str | Path) -> tuple[str, bytes]:
    """Return the name that messages give a file or standard input, and its bytes, unpacked; errors as above."""
    name = shown_name(path)
    return name, _unpacked(read_bytes(path, "cannot be read", ProgramError, MOST_BYTES), name)


def source_text(name: str, content: bytes) -> SourceText:
    """Return HLO text from the bytes of a file; errors as above."""
    text = _decoded(content, name)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return SourceText(name, text)


def _unpacked(content: bytes, name: str) -> bytes:
    """Return the content of a gzipped file, which may consist of several, or the content as it is."""
    if not content.startswith(_GZIP):
        return content
    most = min(MOST_BYTES, _SMALL_BYTES + _MOST_UNPACKED * len(content))
    try:
        # No more than is allowed and a byte, so that a bomb is found before it has gone off.
        unpacked = _gunzipped(content, most + 1)
    except (EOFError, zlib.error) as error:
        raise ProgramError(f"{name}: this gzip file is damaged or cut off: {error}") from error
    if len(unpacked) > most:
        raise ProgramError(f"{name}: expected a program of at most {most} bytes in a file of this size, found more")
    return unpacked


def _gunzipped(content: bytes, most: int) -> bytes:
    """Return what gzipped files behind each other, and zeros behind them, unpack to, at most so many bytes of it."""
    # Not by Python's GzipFile: most programs are one file of less than a megabyte, which it would copy twice more.
    pieces: list[bytes] = []
    left, place, file = most, 0, None
    while left and place < len(content):
        packed = content[place : place + (_NEXT_BYTES if pieces else _FIRST_BYTES)]
        if file is None:
            zeros = len(packed) - len(packed.lstrip(b"\0"))
            place, packed = place + zeros, packed[zeros:]
            if not packed:
                continue
            file = zlib.decompressobj(_GZIP_FORM)
        pieces.append(file.decompress(packed, left))
        left -= len(pieces[-1])
        place += len(packed) - len(file.unused_data)
        file = None if file.eof else file
    if left and file:
        raise EOFError("it ends inside of what is packed")
    return b"".join(pieces)


def _decoded(content: bytes, name: str) -> str:
    """Return UTF-8 text; binary forms of programs are told apart so that the message can name them."""
    if not content or content.isspace():
        raise ProgramError(f"{name}: the file is empty; expected HLO text ('HloModule name ...')")
    kind = _binary_kind(content)
    if kind:
        raise ProgramError(f"{name}: expected HLO text, found {kind}; {_ADVICE}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ProgramError(f"{name}:{line}: expected UTF-8 text, found the byte {content[error.start]:#04x}") from error


def _binary_kind(content: bytes) -> str:
    """Return what a binary file seems to be, or an empty string for text."""
    for magic, kind in ((_ZIP, "a zip file"), (_ZSTD, "a zstd file")):
        if content.startswith(magic):
            return kind
    return "a binary file" if content.find(b"\0", 0, _CHUNK) >= 0 else ""
