"""What a device chooses where it comes to loops and branches that choose anew at each visit."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import islice

from tpusim.program.module import every_step
from tpusim.program.steps import Branch, Loop

Choices = Sequence[tuple[Loop | Branch, int]]
"""Trips and branches that were chosen, one after the other, each with the step that asked."""

_MOST_CHOICES, _MOST_KEPT = 2**10, 2**16
"""In a trip, and in all trips of a device, that are kept to be played no more: some hundred bytes each."""


class Chooser:
    """How often a device has been where, and what it chose: one for all of its cores, which may run the same steps.

    ``values`` returns what a step chooses at its visits in turn, nothing where that is the usual.
    """

    def __init__(self, values: Callable[[Loop | Branch], tuple[int, ...]]) -> None:
        self._ask = values
        # By the identity of steps, which their program keeps.
        self._known: dict[int, tuple[int, ...]] = {}
        self._turns_in: dict[int, list[tuple[int, int]]] = {}
        self._visits: Counter[object] = Counter()
        # Where visits differ, the last that were made, in their order; and how many were made.
        self._choices: deque[tuple[Loop | Branch, int]] = deque(maxlen=_MOST_CHOICES)
        self.made = 0
        # How many are kept.
        self._kept = 0
        # How often trips were jumped over in which something was chosen.
        self.jumps = 0

    def _values(self, step: Loop | Branch) -> tuple[int, ...]:
        values = self._known.get(id(step))
        if values is None:
            values = self._known[id(step)] = self._ask(step)
        return values

    def visit(self, what: object) -> int:
        """Return how often the device has been at something, this time included."""
        self._visits[what] += 1
        return self._visits[what]

    def chosen(self, step: Loop | Branch, usual: int) -> int:
        """Return the trips of a loop, or the branch, that the device chooses at this visit."""
        values = self._values(step)
        if not values:
            return usual
        number = values[(self.visit(id(step)) - 1) % len(values)]
        if len(values) > 1:
            self._choices.append((step, number))
            self.made += 1
        return number

    def kept(self, made: int) -> Choices | None:
        """Return what was chosen since so many choices were ``made``, to keep a trip under; None if it is too much."""
        count = self.made - made
        if count > _MOST_CHOICES or self._kept > _MOST_KEPT:
            return None
        self._kept += count
        return list(islice(self._choices, len(self._choices) - count, None))

    def ahead(self, step: Loop | Branch, visits: int) -> int:
        """Return what ``chosen`` will return for a step that chooses anew at each visit, so many visits later."""
        values = self._values(step)
        return values[(self._visits[id(step)] + visits) % len(values)]

    def state(self, loop: Loop) -> tuple[int, ...]:
        """Return where all in a loop that choose anew at each visit stand in what they choose in turn."""
        visits = self._visits
        return tuple([visits[key] % count for key, count in self._turns(loop)])

    def _turns(self, loop: Loop) -> list[tuple[int, int]]:
        """All in a loop that choose anew at each visit, by identity, each with how many choices it makes in turn."""
        if id(loop) not in self._turns_in:
            choosers = (
                step
                for step in every_step((*loop.condition, *loop.body))
                if isinstance(step, Loop | Branch) and step.choices
            )
            counts = ((id(step), len(self._values(step))) for step in choosers)
            self._turns_in[id(loop)] = [(key, count) for key, count in counts if count > 1]
        return self._turns_in[id(loop)]

    def choose(self, choices: Choices) -> None:
        """Take choices as made, of what is not played because it was before."""
        for step, _ in choices:
            self._visits[id(step)] += 1
        self._choices += choices
        self.made += len(choices)
