"""Where the streams and copies of a program begin, for memories whose time depends on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import structs

from tpusim.hardware.units import HBM
from tpusim.program.edit import changed_lists
from tpusim.program.steps import AnyStep, Copy, Kernel, Steps
from tpusim.program.work import Stream

Addresses = Mapping[str, tuple[int | None, ...]]
"""By the name of an instruction: the addresses of the arrays that it makes, None for those that are not in HBM."""


def with_addresses(steps: Steps, addresses: Addresses) -> Steps:
    """Return steps, those inside others included, with the address of everything that they move from or to HBM."""
    return changed_lists(steps, lambda listed: tuple([_addressed(step, addresses) for step in listed]))


def _addressed(step: AnyStep, addresses: Addresses) -> AnyStep:
    """Return a step with its own addresses, not with those of what it holds."""
    if isinstance(step, Kernel):
        return structs.replace(step, streams=tuple(_streams(step.streams, addresses)))
    if isinstance(step, Copy) and step.opcode == "copy-start":
        # The result leads with the target, and has the source behind it.
        target, source = (*addresses.get(step.name, ()), None, None)[:2]
        return structs.replace(step, source_address=source, target_address=target)
    return step


def _streams(streams: tuple[Stream, ...], addresses: Addresses) -> Iterator[Stream]:
    """Yield a kernel's streams with their addresses: of a name with several arrays one after the other."""
    seen: dict[str, int] = {}
    for stream in streams:
        place = seen[stream.operand] = seen.get(stream.operand, -1) + 1
        found = addresses.get(stream.operand, ())
        is_known = stream.space == HBM and place < len(found)
        yield structs.replace(stream, address=found[place]) if is_known else stream
