"""Inner loops that Numba compiles, kept between processes where there is a folder that can be written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def njit(**settings: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function; where nothing can be written, each process compiles it anew."""

    def compile_it(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(**settings)(function)
        # Numba has found no folder for what it keeps: neither beside the source nor below the user's home.
        except RuntimeError:
            return numba.njit(**{**settings, "cache": False})(function)

    return compile_it
