"""What was computed and may be asked for again, as much of it as fits so many bytes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """Values by key, of at most so many bytes in all: those that were asked for longest ago go first.

    A loop over a few steps finds all that it asks for; hundreds of different ones do not pile up. The newest value
    stays however large it is.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        # Those asked for last stand at the end.
        self._found: dict[K, tuple[V, int]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if there is none, or no longer."""
        found = self._found.pop(key, None)
        if found is None:
            return None
        self._found[key] = found
        return found[0]

    def put(self, key: K, value: V, n_bytes: int) -> V:
        """Keep a value of so many bytes under a key that has none, and return it."""
        self._found[key] = value, n_bytes
        self._bytes += n_bytes
        while self._bytes > self._most_bytes and len(self._found) > 1:
            _, freed_bytes = self._found.pop(next(iter(self._found)))
            self._bytes -= freed_bytes
        return value

    def clear(self) -> None:
        """Let go of all values."""
        self._found.clear()
        self._bytes = 0
