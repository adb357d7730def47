"""What is to be warned of in a run that no program of it shows by itself: open channels, and paces without a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpusim.program.feed import Feed
    from tpusim.program.module import Program


def run_warnings(programs: Sequence[Program], infeed: Feed | None = None, outfeed: Feed | None = None) -> list[str]:
    """Return the warnings of programs that run side by side, with the host at these paces."""
    return [*_open_channels(programs), *_unused_paces(programs, infeed, outfeed)]


def _open_channels(programs: Sequence[Program]) -> Iterator[str]:
    """Yield a warning for every channel of which no program has the other end."""
    ends = dict.fromkeys((step.channel_id, step.is_send) for program in programs for step in program.channel_ends)
    where = "this program" if len(programs) == 1 else f"the {len(programs)} programs of this run"
    for channel, is_send in ends:
        if (channel, not is_send) not in ends:
            yield f"channel {channel}: its other end is not in {where}: it is taken to be always ready"


def _unused_paces(programs: Sequence[Program], infeed: Feed | None, outfeed: Feed | None) -> Iterator[str]:
    """Yield a warning for a pace of the host to which no step is held."""
    fed = {step.to_host for program in programs for step in program.feeds}
    for word, pace, to_host in (("infeed", infeed, False), ("outfeed", outfeed, True)):
        if pace is not None and to_host not in fed:
            yield f"a pace of the {word} was given, but no program of this run has an {word}: it changes nothing"
