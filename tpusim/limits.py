"""How much may come from outside: counts that drive a loop or take memory, each bounded where its format is read.

Every limit is far beyond the largest machine or program there is, and small enough that what obeys it ends. A limit of
a format that is read in one place only, such as the digits of a cell, stands there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from numbers import Integral, Real
from pathlib import Path
from typing import Final, NamedTuple

from tpusim.errors import ConfigError, ProgramError

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

REAL: Final = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
"""A number as people write it; Python would take digits of other scripts and with underscores between them as well."""

_SHOWN_DIGITS: Final = 40
_ROOM_BYTES: Final = 2 << 30
_ROOM_PER_BYTE: Final = 100
_MOST_NESTED: Final = 200
_BRACKETS: Final = rb"[\[({<]{%d}" % _MOST_NESTED


class Limit(NamedTuple):
    """A kind of count: what it counts, and the least and the most that is taken."""

    what: str
    most: int
    least: int = 1

    def number(self, digits: str) -> int:
        """Return the number that a text of digits is; one with too many for Python to read is one that is too large."""
        return int(digits) if len(digits) < READ_DIGITS else self.most + 1

    def fault(self, found: float) -> str:
        """Return what is wrong with a count: what is allowed and what was found; nothing if it is allowed."""
        if self.least <= found <= self.most:
            return ""
        allowed = f"at least {self.least}" if found < self.least else f"at most {shown(self.most)}"
        return f"expected {self.what}, {allowed}, found {shown(found)}"


def check_count(name: str, found: object, limit: Limit) -> int:
    """Return what was given under a name as a number of Python's; NumPy's would overflow where they are multiplied.

    Raises ConfigError if it is no whole number, or one that the limit does not allow.
    """
    if not isinstance(found, Integral) or isinstance(found, bool):
        raise ConfigError(f"{name}: expected {limit.what}, found {found!r:.80}")
    number = int(found)
    if fault := limit.fault(number):
        raise ConfigError(f"{name}: {fault}")
    return number


def check_truth(name: str, found: object) -> bool:
    """Return what was given under a name as a truth of Python's; raise ConfigError for any other, such as "no"."""
    # NumPy's truth is none of Python's, and is not loaded for this.
    if not isinstance(found, bool) and (type(found).__module__, type(found).__name__[:4]) != ("numpy", "bool"):
        raise ConfigError(f"{name}: expected true or false, found {found!r:.80}")
    return bool(found)


def is_number(found: object, most: float) -> bool:
    """Return whether what was given is a number from 0 to the most that is taken; a truth is none."""
    # For Python a truth is a number.
    if isinstance(found, bool) or not isinstance(found, Real):
        return False
    # Of NumPy's numbers narrow ones cannot be compared with what they do not hold.
    with suppress(OverflowError):
        return 0 <= float(found) <= most
    return False


def shown(number: float) -> str:
    """Return a number as messages show it: of one with hundreds of digits, how many those are."""
    # Python refuses to print whole numbers of thousands of digits.
    if isinstance(number, int) and abs(number) >= 10**_SHOWN_DIGITS:
        return f"a number of some {int(number.bit_length() * 0.30103) + 1} digits"
    return str(number)


DEVICES: Final = Limit("a number of devices", 2**16)
"""Of a program or a run, since something is kept for each: several times the largest slice."""

COMPUTED_DEVICES: Final = Limit("a number of devices whose values are computed", 2**10)
DEVICES_APART: Final = Limit("a number of devices that are run one by one", 2**14)
"""Each is a run of its own on the one clock; no slice of a known chip has as many."""

POSITIONS: Final = Limit("positions of a schedule", 2**20, least=0)
"""That buffers of a program without one count in: how much is alive is told for each."""

COMPUTED_ELEMENTS: Final = Limit("a number of elements to compute", 2**40, least=0)
"""Some hundred times what fits a large machine; what NumPy cannot count is far beyond."""

RANK: Final = Limit("a number of dimensions", 32, least=0)
"""Of an array that is computed, where NumPy has an end, or compiled, which takes their cube; programs have some ten."""

ELEMENTS: Final = Limit("a number of elements", 10**100, least=0)
"""Of an array whose layout is explained: of thousands of dimensions it has thousands of digits."""

TILES: Final = Limit("a number of tiles in a layout", 64, least=0)
"""Each splits two dimensions once more; compilers state three at most."""

CHIPS: Final = Limit("a number of chips", 2**16)
QUEUE_DEPTH: Final = Limit("a number of feeds that may wait", 2**16)
LAYERS: Final = Limit("a number of layers", 2**16)
"""Of a file, those of a depthwise convolution one by one."""

PROCESSES: Final = Limit("a number of processes", 2**16, least=0)
"""Of a study; without one it takes as many as there are cores."""

POINTS: Final = Limit("a number of points", 2**17)
"""Of one axis of a study, and of all that its axes make together."""

CYCLES: Final = Limit("a number of cycles to go through one by one", 2**28, least=0)
"""Of all layers of a file together."""

DIMENSIONS: Final = Limit("a number of keys of a sample", 1000)
SIDE: Final = Limit("a size of a matrix or an image", 2**31 - 1)
COUNT: Final = Limit("a whole number", 2**63 - 1, least=0)
"""Any count of the command line that nothing else bounds: trips, seeds, iterations."""

EXECUTIONS: Final = Limit("executions of a step", 10**200, least=0)
"""Of a run: loops and calls multiply, and beyond this floats of bytes and energy have no numbers left."""

APPLIED: Final = Limit("executions within a kernel", 10**60, least=0)
"""Of the instructions that a map or a reduction applies: calls multiply there as well, and so do runs of the kernel."""

COMPUTED_INSTRUCTIONS: Final = Limit("instructions to compute", 2**21, least=0)
"""With each trip of a loop counted once: calls of calls multiply, and one takes some microseconds at least."""

LOOPED_INSTRUCTIONS: Final = 2**19
"""What trips of loops compute, and what is applied to one element after the other, unless it is said how many trips one
may make: of small arrays some seconds, and for ever of a loop that never ends."""

WINDOW_STEPS: Final = Limit("elements of a window to look at one by one", 2**18, least=0)
"""Where a computation of its own compares them: each takes some tens of microseconds."""

KERNEL_BYTES: Final = Limit("bytes on the chip", 2**28, least=0)
"""Of one value of a hand-written kernel: twice the largest VMEM."""

INLINED: Final = Limit("instructions in place of calls, loops and branches", 2**16, least=0)
"""Of a program that has not so many by far: calls of calls multiply, and each copy is compiled by itself."""

BLOCKS: Final = Limit("blocks along a matrix", 2**8)
"""Of one that is factored or solved with, block by block: 32,768 columns, 4 GiB of numbers, on chips of 128 lanes."""

FEED_SECONDS: Final = Limit("seconds for an item of a feed", 10**6, least=0)
"""Twelve days for one item."""

LONGEST_US: Final = 1e18
"""Of simulated time: more than thirty thousand years."""

LARGEST_AMOUNT: Final = 1e24
"""Of dollars for an hour of a chip, and of tokens: figures of what they come to stay finite."""

SEED: Final = Limit("a seed", 2**63 - 1, least=0)
PROGRAM_BYTES: Final = 1 << 30
"""Of a program, unpacked: 1 GiB, some hundred times the largest known."""

READ_DIGITS: Final = 1000
"""Of a whole number; Python reads and prints some more."""

TABLE_BYTES: Final = 1 << 26
"""Of a file of a table or a configuration: 64 MiB."""

KEY_WORDS: Final = 32
"""Words of a dotted key of a configuration."""

COLLECTED_OBJECTS: Final = 200_000
"""What commands and workers make before anything looks for garbage among it: some 20 MB where all of it is."""


@contextmanager
def bounded(content: bytes, name: str) -> Iterator[None]:
    """Keep what a library makes of a program within bounds: a number in it may ask for all memory that there is.

    Raises ProgramError where it would go beyond, and for what lies so deep that a reader's stack would end.
    """
    if re.search(_BRACKETS, content):
        raise ProgramError(f"{name}: expected brackets at most {_MOST_NESTED} deep, found more")
    before = _limit_memory(_ROOM_BYTES + _ROOM_PER_BYTE * len(content))
    try:
        yield
    # What libraries of C++ raise beyond a bound, or where a size is no size.
    except (MemoryError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise
        raise ProgramError(
            f"{name}: expected a program that XLA can read, found sizes beyond bounds: {error}"
        ) from error
    finally:
        if before:
            resource.setrlimit(resource.RLIMIT_AS, before)


def allow_more(n_bytes: int) -> None:
    """Let what is kept within bounds have some bytes more, for what the number of its devices takes."""
    with suppress(AttributeError, OSError, ValueError):
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            most = soft + n_bytes
            resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _limit_memory(more_bytes: int) -> tuple[int, int] | None:
    """Let this process have some bytes more than it has; return the limits before, nothing where none can be set."""
    try:
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        # A process that has a limit keeps it.
        if soft != resource.RLIM_INFINITY:
            return None
        resource.setrlimit(resource.RLIMIT_AS, (in_use + more_bytes, hard))
        return soft, hard
    except (AttributeError, OSError, ValueError):
        return None
