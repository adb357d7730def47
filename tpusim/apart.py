"""A native reader in a process of its own: it may end over a damaged program, and would take its process with it."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from tpusim.errors import ProgramError

_T = TypeVar("_T")


def read_apart(read: Callable[[bytes, str], _T], content: bytes, name: str) -> _T:
    """Return what ``read`` makes of a program, or raise what it raises; ProgramError if it ends its process.

    Where processes cannot be copied, or where JAX or others have threads that a copy would lack, it runs in this one.
    """
    # HLO text, which is most of what is read, needs none of it.
    import pickle
    import threading

    if not hasattr(os, "fork") or "jax" in sys.modules or threading.active_count() > 1:
        return read(content, name)
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Of threads of libraries, such as NumPy's, which a reader does not use.
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        _answer(read, content, name, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if not answer:
        signal = os.waitstatus_to_exitcode(status)
        raise ProgramError(f"{name}: expected a program that is whole: XLA's reader ended over it ({signal})")
    found: _T | Exception = pickle.loads(answer)
    if isinstance(found, Exception):
        raise found
    return found


def _answer(read: Callable[[bytes, str], object], content: bytes, name: str, writing: int) -> None:
    """Write what ``read`` returns or raises, and end this process, which is a child."""
    import pickle

    with suppress(BaseException):
        # What libraries say when they give up is of no use to anyone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            found: object = read(content, name)
        except Exception as error:
            found = error
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(pickle.dumps(found))
    os._exit(0)
