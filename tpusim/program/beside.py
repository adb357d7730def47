"""What is to be told of a run that no program of it tells by itself: its channels, and what it asks of the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpusim.program.module import every_step
from tpusim.program.steps import ChannelTransfer, HostTransfer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpusim.program.feed import Feed
    from tpusim.program.module import Program


def run_warnings(programs: Sequence[Program], infeed: Feed | None = None, outfeed: Feed | None = None) -> list[str]:
    """Return the warnings of programs that run side by side, with the host at these paces."""
    return [*_open_channels(programs), *_idle_paces(programs, infeed, outfeed)]


def _open_channels(programs: Sequence[Program]) -> Iterator[str]:
    """Yield a warning for every channel of which no program has the other end."""
    ends = dict.fromkeys(
        (step.channel_id, step.is_send)
        for program in programs
        for step in every_step(program.steps)
        if isinstance(step, ChannelTransfer)
    )
    where = "this program" if len(programs) == 1 else f"the {len(programs)} programs of this run"
    for channel, is_send in ends:
        if (channel, not is_send) not in ends:
            yield f"channel {channel}: its other end is not in {where}: it is taken to be always ready"


def _idle_paces(programs: Sequence[Program], infeed: Feed | None, outfeed: Feed | None) -> Iterator[str]:
    """Yield a warning for a pace of the host that nothing is held to."""
    steps = (step for program in programs for step in every_step(program.steps))
    # Transfers over channels to the host run beside the core, at no pace but the link's.
    fed = {step.to_host for step in steps if isinstance(step, HostTransfer) and not step.is_async}
    for word, pace, to_host in (("infeed", infeed, False), ("outfeed", outfeed, True)):
        if pace is not None and to_host not in fed:
            yield f"a pace of the {word} was given, but no program of this run has an {word}: it changes nothing"
