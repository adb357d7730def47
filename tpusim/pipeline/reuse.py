"""What has been worked out once, for as long as nothing changes that it was worked out from."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

from tpusim.hardware.chip import Chip
from tpusim.hardware.reads import Reads, values_at

T = TypeVar("T")


class Reusing(Protocol):
    """Returns what ``compute`` makes on a chip, worked out now or before."""

    def __call__(self, stage: str, of: object, rest: Hashable, chip: Chip, compute: Callable[[Chip], T], /) -> T:
        """Return what ``compute`` makes on ``chip`` of the object ``of``; ``rest`` is what else it depends on."""


_MOST = 256
"""Results that are kept: lowered programs, of which a large one has some megabytes."""


class Reuse:
    """Results by what they follow from: what the caller names, and those figures of a chip that were read for them.

    Nothing else about a chip can matter to a result, as it was worked out from one that notes what is read of it. So a
    sweep of bandwidths lowers a program once, and one of sizes that a program never meets runs it once.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        # The things named are held, so that no other one takes the address of one that is gone.
        self._found: OrderedDict[tuple[Hashable, tuple[str, ...], Hashable], tuple[Any, object]] = OrderedDict()
        # How many results are kept by the figures that were read for them.
        self._keys: dict[Hashable, Counter[tuple[str, ...]]] = {}

    def __call__(self, stage: str, of: object, rest: Hashable, chip: Chip, compute: Callable[[Chip], T]) -> T:
        """Return what ``compute`` makes on ``chip`` of the object ``of``; ``rest`` is what else it depends on."""
        what = (stage, id(of), rest)
        for keys in self._keys.get(what, ()):
            place = (what, keys, values_at(chip, keys))
            if place in self._found:
                self._found.move_to_end(place)
                found: T = self._found[place][0]
                return found
        reads = Reads(chip)
        result = compute(reads.chip)
        keys = tuple(sorted(reads.keys))
        self._keys.setdefault(what, Counter())[keys] += 1
        self._found[what, keys, values_at(chip, keys)] = result, of
        if len(self._found) > self._most:
            self._forget()
        return result

    def _forget(self) -> None:
        """Let go of the result that was used least lately, and of the figures that no other one was worked out from."""
        (what, keys, _), _ = self._found.popitem(last=False)
        counts = self._keys[what]
        counts[keys] -= 1
        if not counts[keys]:
            del counts[keys]
        if not counts:
            del self._keys[what]


class Noting:
    """Works everything out anew, and notes the keys of the figures of a chip that were read for it."""

    def __init__(self) -> None:
        self.keys: set[str] = set()

    def __call__(self, stage: str, of: object, rest: Hashable, chip: Chip, compute: Callable[[Chip], T]) -> T:
        """Return what ``compute`` makes on ``chip``."""
        reads = Reads(chip, as_stated=True)
        result = compute(reads.chip)
        self.keys |= reads.keys
        return result


def no_reuse(stage: str, of: object, rest: Hashable, chip: Chip, compute: Callable[[Chip], T]) -> T:
    """Work it out anew."""
    return compute(chip)
