"""Power of programs beside what was published of their chip: none of ours is fitted to it."""

from __future__ import annotations

import msgspec


class ProgramPower(msgspec.Struct, frozen=True, kw_only=True):
    """The mean power of a chip, in watts, of which all devices run a program."""

    program: str
    watts: float


class ChipPower(msgspec.Struct, frozen=True, kw_only=True):
    """What was published of a chip's power, in watts, with what it is ``of``, and that of some programs of ours.

    None is what was not published. ``idle_w`` is what the chip's file says, and ``idle_confidence`` how far it does.
    """

    chip: str
    of: str
    source: str
    idle_w: float
    idle_confidence: str
    least_w: float | None
    mean_w: float
    most_w: float | None
    programs: tuple[ProgramPower, ...]

    @property
    def our_least_w(self) -> float:
        """The least of ours."""
        return min(one.watts for one in self.programs)

    @property
    def our_mean_w(self) -> float:
        """The mean of ours, each program counted once."""
        return sum(one.watts for one in self.programs) / len(self.programs)

    @property
    def our_most_w(self) -> float:
        """The most of ours."""
        return max(one.watts for one in self.programs)

    @property
    def ratio(self) -> float:
        """Our mean over the published one."""
        return self.our_mean_w / self.mean_w
