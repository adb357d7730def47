"""Files: gzip by its first bytes, line ends, and what is not HLO text."""

from __future__ import annotations

import gzip
import io
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import process_time

import pytest

from tests.growth import MOST, grows_by
from tpusim.errors import ProgramError
from tpusim.text import parse_module, read_source, reader
from tpusim.text.reader import read_content

TEXT = "HloModule m\n\nENTRY e {\n  a = f32[] constant(1)\n}\n"


def write(folder: Path, content: bytes) -> Path:
    """Write a file and return its path."""
    path = folder / "program.hlo"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        TEXT.encode(),
        gzip.compress(TEXT.encode(), mtime=0),
        gzip.compress(TEXT[:20].encode(), mtime=0) + gzip.compress(TEXT[20:].encode(), mtime=0),
        gzip.compress(TEXT.encode(), mtime=0) + bytes(1 << 21),
        b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.replace("\n", "\r\n").encode(),
    ],
    ids=["plain", "gzip", "two gzip members", "gzip and zeros", "byte order mark", "crlf"],
)
def test_text_is_read_however_it_is_wrapped(tmp_path: Path, content: bytes) -> None:
    """The name of the file does not matter."""
    path = write(tmp_path, content)
    assert read_source(path).text == TEXT
    assert read_source(str(path)).name == str(path)


@pytest.mark.parametrize("seed", range(4))
def test_gzipped_files_behind_each_other_are_what_python_unpacks(tmp_path: Path, seed: int) -> None:
    """Large and small, packed well or not at all, with and without zeros behind them."""
    random = Random(seed)
    parts = []
    for size in random.choices((0, 1, 1000, 100_000, 3_000_000), k=5):
        content = random.choices((b"ab\n" * (size // 3), random.randbytes(size).hex().encode()))[0]
        parts.append(gzip.compress(content, random.choice((0, 1, 9)), mtime=0) + bytes(random.choice((0, 5))))
    packed = b"".join((*parts, gzip.compress(TEXT.encode(), mtime=0)))
    assert read_content(write(tmp_path, packed))[1] == gzip.decompress(packed)


def test_a_file_of_many_gzipped_ones_takes_no_longer_than_its_size(tmp_path: Path) -> None:
    """What is behind the end of each is copied, and must not be all: Python's ``gzip.decompress`` takes the square."""
    line = gzip.compress(b"// line\n", mtime=0)

    def seconds(count: int) -> float:
        path = write(tmp_path, line * count)
        begin = process_time()
        read_content(path)
        return process_time() - begin

    assert grows_by(seconds, (4_000, 32_000)) < MOST


def test_nothing_is_unpacked_beyond_the_limit() -> None:
    """Where a file ends at it, the next one may be a bomb."""
    assert reader._gunzipped(gzip.compress(b"a" * 10) + gzip.compress(bytes(1 << 20)), 10) == b"a" * 10


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gzipped or not."""
    for content in (TEXT.encode(), gzip.compress(TEXT.encode(), mtime=0)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert read_source("-").text == TEXT


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "file is empty"),
        (b" \n", "file is empty"),
        (b"\x08\x03\x00\x00", "a binary file.*as_text"),
        (b"PK\x03\x04", "zip file.*as_text"),
        (b"\x28\xb5\x2f\xfd", "zstd file"),
        (b"HloModule \xff", "1: expected UTF-8 text, found the byte 0xff"),
        (gzip.compress(TEXT.encode(), mtime=0)[:30], "cut off"),
        (b"\x1f\x8bgarbage", "damaged"),
    ],
)
def test_what_is_no_hlo_text_is_refused_with_advice(tmp_path: Path, content: bytes, message: str) -> None:
    """The message names what it seems to be, and says what to do where that helps."""
    with pytest.raises(ProgramError, match=message):
        read_source(write(tmp_path, content))


def test_a_file_that_is_not_there_is_a_program_error(tmp_path: Path) -> None:
    """With the reason of the operating system."""
    with pytest.raises(ProgramError, match="No such file"):
        read_source(tmp_path / "none.hlo")
    with pytest.raises(ProgramError, match="cannot be read"):
        read_source(tmp_path)


def test_a_file_may_not_unpack_without_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousandfold larger text in a small file ends at the limit of a file of its size, and at that of all."""
    path = write(tmp_path, gzip.compress(b" " * (1 << 24)))
    size = path.stat().st_size
    assert size < 1 << 15
    with pytest.raises(ProgramError, match=f"at most {(8 << 20) + 100 * size} bytes"):
        read_source(path)
    monkeypatch.setattr(reader, "MOST_BYTES", 1 << 20)
    with pytest.raises(ProgramError, match="at most 1048576 bytes"):
        read_source(path)
    with pytest.raises(ProgramError, match="at most"):
        read_source(write(tmp_path, b"x" * (1 << 21)))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_small_file_takes_little_memory(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """Also of the kind that is only asked for: a process may be allowed less than the largest program has."""
    path = write(tmp_path, pack(TEXT.encode()))
    tracemalloc.start()
    try:
        read_source(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_text_with_foreign_line_ends_parses_even_unread() -> None:
    """XLA takes carriage returns as blanks; so does the parser by itself."""
    from tests.text.programs import source

    assert parse_module(source(TEXT.replace("\n", "\r\n"))) == parse_module(source(TEXT))
