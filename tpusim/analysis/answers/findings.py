"""What would make a program faster: findings, each with what it saved when its alternative was run."""

from __future__ import annotations

from typing import Literal

import msgspec

from tpusim.analysis.answers.caveats import Caveats

Basis = Literal["steps", "compiled", "memory", "bound"]
"""How a saving was found: the program's steps were changed and run; the module was changed, and both forms of it
compiled by tpusim and run, of which the program saves the same share; nothing but memory changes; it is a bound for the
same operations, which no program reaches.
"""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, the change in the user's code, and what it saves.

    ``before_ps`` is the run, ``after_ps`` the one with the change, as ``basis`` says; ``ops`` are those that it is
    about, at ``source``. ``compiled_ps`` is what the program takes as tpusim compiles it, 0 where that was not asked:
    another time than ``before_ps`` if another compiler's form of it ran. ``saved_bytes`` of HBM come with it, below 0
    where it takes some.
    """

    rule: str
    what: str
    change: str
    ops: tuple[str, ...]
    source: str
    basis: Basis
    before_ps: int
    after_ps: int
    compiled_ps: int = 0
    saved_bytes: int = 0

    @property
    def saved_ps(self) -> int:
        """Time that the change saves."""
        return self.before_ps - self.after_ps

    @property
    def share(self) -> float:
        """The same as a share of the run."""
        return self.saved_ps / max(1, self.before_ps)


class Findings(Caveats, frozen=True, kw_only=True):
    """What was found about a run of ``time_ps``, what saves most first; ``tried`` counts what was run by rule."""

    program: str
    chip: str
    time_ps: int
    findings: tuple[Finding, ...]
    tried: dict[str, int]
