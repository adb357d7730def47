"""Programs that compute the same in different ways, ranked by how long they take."""

from __future__ import annotations

from typing import Any

import msgspec


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One way: ``what`` tells it from the others. Without a time, ``fault`` says why it has none.

    ``bound_by`` is what bounds its longest op. ``flops_utilisation`` is the operations of the candidate that has the
    fewest, a second, over the chip's peak: what others do beside them, as in blocks that a mask leaves less of, is no
    use.
    """

    what: Any
    chip: str = ""
    time_us: float | None = None
    bound_by: str = ""
    flops_utilisation: float = 0.0
    hbm_bytes: float = 0.0
    fault: str = ""


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """Candidates on a chip, the fastest first, those without a time last."""

    chip: str
    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate | None:
        """The fastest, if any has a time."""
        return next((each for each in self.candidates if each.time_us is not None), None)
