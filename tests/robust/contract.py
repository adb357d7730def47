"""The contract: any input ends in a result or in one of tpusim's errors, in time, in little memory, and never wrong.

Many cases run in one forked child, under limits; a child that dies names the case that it died of. What a case takes
beyond its limits is judged again in a child of its own, where nothing else can be to blame.
"""

from __future__ import annotations

import contextlib
import gc
import json
import mmap
import os
import re
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from zlib import crc32

from tpusim.errors import TpusimError

CPU_SECONDS = 20
"""What a case may take; beyond it is a hang."""

_WAIT_SECONDS = 6 * CPU_SECONDS
"""A case that waits for what never comes takes no CPU time; beyond this the kernel ends it."""

MOST_BYTES = 64 << 20
BYTES_PER_BYTE = 40
"""What a case may add to the memory of its process: so much, and so much for each byte of its input."""

_ROOM = 4 << 30
_RESET_PEAK = "5"
_WARM = (-1, -2, -3)
_BEGUN = "begun"
_KINDS = (_BEGUN, "result", "refused", "traceback", "hang", "memory", "wrong")


class Wrong(Exception):
    """A result that cannot be right."""


class Hang(BaseException):
    """A case that has taken its time; of no class that anything but the contract catches."""


class Surface(NamedTuple):
    """A way in: what makes an input of it, and what takes one. ``weight`` is its share of the time of a long run.

    Where all its ``inputs`` are listed, the seed of a case is a place among them.
    """

    name: str
    make: Callable[[Random], bytes]
    take: Callable[[bytes, Path], object]
    weight: int
    inputs: Sequence[bytes] = ()


class Fault(NamedTuple):
    """A case that broke the contract."""

    surface: str
    seed: int
    kind: str
    detail: str


@dataclass
class Report:
    """Cases by how they ended, and those that broke the contract."""

    ended: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)


SURFACES: dict[str, Surface] = {}
"""All surfaces by name, entered by ``surface``."""


def surface(
    name: str, make: Callable[[Random], bytes], weight: int = 1
) -> Callable[[Callable[[bytes, Path], object]], Callable[[bytes, Path], object]]:
    """Return a decorator that enters a function as what takes the inputs of a surface."""

    def enter(take: Callable[[bytes, Path], object]) -> Callable[[bytes, Path], object]:
        SURFACES[name] = Surface(name, make, take, weight)
        return take

    return enter


def made_input(one: Surface, seed: int) -> bytes:
    """Return the input of a case: the same one for a seed on every machine."""
    return one.inputs[seed] if one.inputs else one.make(Random(f"{one.name} {seed}"))


def pick(content: bytes, number: int) -> int:
    """Return a number below another one, which follows from an input alone."""
    return crc32(content) % number


def ends_well(take: Callable[[bytes, Path], object], content: bytes, folder: Path) -> str:
    """Return ``result`` or ``refused``: what a call came to that kept the contract; raise what broke it."""
    try:
        take(content, folder)
    except TpusimError as error:
        check_text(str(error))
        return "refused"
    return "result"


_OF_PYTHON = re.compile(
    r"object has no attribute|not subscriptable|codec can't|invalid literal for|could not convert|keyword argument|"
    r"malformed node|recursion depth|set_int_max_str_digits|index out of range|cannot reshape|unhashable|NoneType|"
    r"not supported between|\[Errno|unpack \(expected|division by zero|<class '|object at 0x"
)
"""What Python says of its own, which tells nobody what is wrong with an input."""


def check_text(text: str) -> None:
    """Refuse a text that would drive a terminal, or is in words of Python's."""
    if found := _OF_PYTHON.search(text):
        raise Wrong(f"{found[0]!r} in {text[:300]!r}")
    stray = next((c for c in text if not c.isprintable() and c not in "\n\t"), None)
    if stray is not None:
        raise Wrong(f"{stray!r} for a terminal in {text[:300]!r}")
    if not text.strip():
        raise Wrong("an empty message")


def run_seeds(one: Surface, seeds: Iterable[int]) -> Report:
    """Return what became of the cases of some seeds; what broke a limit has broken it twice, the second time alone."""
    report, waiting, warm = Report(), list(seeds), _WARM
    while waiting:
        found = _child(one, waiting, warm)
        if not found and not warm:
            raise RuntimeError(f"{one.name}: no case could be run")
        if not found:
            # It died before any case: what it was warmed up with is not counted.
            warm = ()
        for seed, (kind, detail) in zip(waiting, found, strict=False):
            _note(report, one, seed, kind, detail)
        waiting = waiting[len(found) :]
    return report


def _note(report: Report, one: Surface, seed: int, kind: str, detail: str) -> None:
    """Count a case; one that seems to break a limit is run once more by itself."""
    if kind in ("memory", "hang", _BEGUN):
        again = _child(one, [seed], ())
        kind, detail = again[0] if again and again[0][0] != _BEGUN else ("died", "the process ended")
    report.ended[kind] += 1
    if kind not in ("result", "refused"):
        report.faults.append(Fault(one.name, seed, kind, detail))


def _child(one: Surface, seeds: list[int], warm: tuple[int, ...]) -> list[tuple[str, str]]:
    """Return what became of the cases that a forked child began, in their order, and what is to say of them.

    Most cases have nothing to say: a mark in memory that both share is what they cost. A child that died leaves the
    last one as begun.
    """
    marks = mmap.mmap(-1, len(seeds))
    reading, writing = os.pipe()
    sys.stdout.flush()
    # JAX warns of forks, for the sake of its threads; the children of its own tests do not use them.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        number = os.fork()
    if not number:
        os.close(reading)
        with contextlib.suppress(BaseException), os.fdopen(writing, "w") as out:
            _work(one, seeds, warm, marks, out)
        os._exit(0)
    os.close(writing)
    details = dict[int, str]()
    with os.fdopen(reading) as lines:
        for line in lines:
            # A child that is killed may leave half a line.
            with contextlib.suppress(ValueError):
                place, detail = json.loads(line)
                details[place] = detail
    os.waitpid(number, 0)
    begun = bytes(marks).rstrip(b"\0")
    return [(_KINDS[mark - 1], details.get(place, "")) for place, mark in enumerate(begun)]


def _work(one: Surface, seeds: list[int], warm: tuple[int, ...], marks: mmap.mmap, out: Any) -> None:
    """Run cases in this process, which is a child."""
    gc.freeze()
    signal.signal(signal.SIGPROF, _out_of_time)
    # A lock that another thread of the parent held is never free in a child.
    signal.alarm(_WAIT_SECONDS)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + _ROOM, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    # Libraries write to these by their numbers.
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        # What is loaded and cached on first use is nobody's memory.
        for seed in warm:
            judged(one, seed, Path(folder), 0)
        in_use = _reset_peak()
        for place, seed in enumerate(seeds):
            marks[place] = _KINDS.index(_BEGUN) + 1
            kind, detail = judged(one, seed, Path(folder), in_use)
            if detail:
                print(json.dumps([place, detail]), file=out, flush=True)
            marks[place] = _KINDS.index(kind) + 1
            if _is_high(in_use):
                in_use = _reset_peak()


def judged(one: Surface, seed: int, folder: Path, in_use: int) -> tuple[str, str]:
    """Return how a case ends, and what is to say of it, under the limits of this process.

    ``in_use`` are the bytes in memory where its peak began: asking the kernel anew takes longer than most cases.
    """
    # A hang in compiled code is past the signal's handler: the kernel ends it.
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + 3 * CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    signal.alarm(_WAIT_SECONDS)
    detail = ""
    try:
        content = made_input(one, seed)
        kind = ends_well(one.take, content, folder)
        # Modules that were loaded the first time are there the second time, which has as long once more.
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        if _is_high(in_use) and (grown := _grown(one, content, folder)) > _allowed(content):
            kind, detail = "memory", f"{grown >> 20} MiB for {len(content)} bytes"
    except Hang as error:
        kind, detail = "hang", _trace(error)
    except MemoryError as error:
        kind, detail = "memory", _trace(error)
    except Wrong as error:
        kind, detail = "wrong", str(error)
    except BaseException as error:
        kind, detail = "traceback", _trace(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return kind, detail


def _is_high(in_use: int) -> bool:
    """Return whether the peak is so high that a case may have added more than any may."""
    return _peak() - in_use > MOST_BYTES // 2


def _allowed(content: bytes) -> int:
    return MOST_BYTES + BYTES_PER_BYTE * len(content)


def _grown(one: Surface, content: bytes, folder: Path) -> int:
    """Return the bytes that a case that keeps the contract adds to this process at its peak."""
    before = _reset_peak()
    ends_well(one.take, content, folder)
    return _peak() - before


def _out_of_time(number: int, frame: object) -> None:
    raise Hang


def _reset_peak() -> int:
    """Return the bytes in memory of this process, and count its peak from here on."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    return _peak()


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _trace(error: BaseException) -> str:
    """Return what was raised and the last places on the way there."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{Path(frame.filename).name}:{frame.lineno}:{frame.name}" for frame in frames[-6:]]
    return f"{type(error).__name__}: {str(error)[:200]} at {' > '.join(places)}"
