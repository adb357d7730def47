"""Who waits for whom in a circle."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def find_cycle(needed: Mapping[int, Sequence[int]]) -> list[int]:
    """Return devices each of which waits for the next, and the last for the first; none if there are none.

    ``needed`` has for every device that waits those that it waits for. The search goes depth first, and each device is
    come to once.
    """
    seen: set[int] = set()
    path: list[int] = []
    place: dict[int, int] = {}
    ahead: list[Iterator[int]] = [iter(needed)]
    while ahead:
        number = next((peer for peer in ahead[-1] if peer in needed and peer not in seen), None)
        if number is None:
            ahead.pop()
            if path:
                del place[path.pop()]
            continue
        seen.add(number)
        place[number] = len(path)
        path.append(number)
        # The nearest makes the shortest circle: who else led here may have no part in it.
        back = max((place[peer] for peer in needed[number] if peer in place), default=-1)
        if back >= 0:
            return path[back:]
        ahead.append(iter(needed[number]))
    return []
