"""XLA's own readers and its printer, as jaxlib brings them: no TPU, no libtpu and no compiler is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

from tpusim.errors import ConfigError, ProgramError

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

MOST_CONSTANT_BYTES: Final = 32 << 20
"""Bytes of a serialised module up to which its text has every constant in full; beyond, XLA leaves out large ones.

Text takes some three times as much. A run needs no values, and a computation refuses constants that are left out.
"""


_ROOM_BYTES: Final = 2 << 30
_ROOM_PER_BYTE: Final = 100
_MOST_NESTED: Final = 200
_BRACKETS: Final = re.compile(rb"[\[({<]{%d}" % _MOST_NESTED)


class Jaxlib(NamedTuple):
    """The two modules of jaxlib that read programs: HLO itself, and what turns StableHLO into it."""

    hlo: Any
    mlir: Any
    version: str


def jaxlib(what: str) -> Jaxlib:
    """Return jaxlib's readers; raise ConfigError with what to install if they are not there to read ``what``."""
    try:
        import jaxlib._jax as everything
    except ImportError as error:
        advice = "pip install 'tpusim[jax]', or write the program out as HLO text, e.g. with compiled.as_text() of JAX"
        raise ConfigError(f"{what} is read by jaxlib, from 0.7 on, which is not installed: {advice}") from error
    try:
        import jaxlib._hlo as hlo
    # Until 0.10.1 it stood with everything else.
    except ImportError:
        hlo = everything
    return Jaxlib(hlo, everything.mlir, version("jaxlib"))


@contextmanager
def bounded(content: bytes, name: str) -> Iterator[None]:
    """Keep what a library makes of a program within bounds: a number in it may ask for all memory that there is.

    Raises ProgramError where it would go beyond, and for what lies so deep that a reader's stack would end.
    """
    if _BRACKETS.search(content):
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


def module_text(module: Any, what: str) -> str:
    """Return the text of an ``HloModule`` of jaxlib, with the places in its source that instructions came from."""
    options = jaxlib(what).hlo.HloPrintOptions()
    options.print_large_constants = len(module.as_serialized_hlo_module_proto()) <= MOST_CONSTANT_BYTES
    return str(module.to_string(options))
