"""Where the streams and copies of a program begin, for memories whose time depends on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import structs

from tpusim.hardware.units import HBM
from tpusim.program.steps import AnyStep, Branch, Call, Copy, Kernel, Loop
from tpusim.program.work import Stream

Addresses = Mapping[str, tuple[int | None, ...]]
"""By the name of an instruction: the addresses of the arrays that it makes, None for those that are not in HBM."""


def with_addresses(steps: tuple[AnyStep, ...], addresses: Addresses) -> tuple[AnyStep, ...]:
    """Return steps, those inside others included, with the address of everything that they move from or to HBM."""
    return tuple(_addressed(step, addresses) for step in steps)


def _addressed(step: AnyStep, addresses: Addresses) -> AnyStep:
    if isinstance(step, Kernel):
        return structs.replace(step, streams=tuple(_streams(step.streams, addresses)))
    if isinstance(step, Copy) and step.opcode == "copy-start":
        # The result leads with the target, and has the source behind it.
        target, source = (*addresses.get(step.name, ()), None, None)[:2]
        return structs.replace(step, source_address=source, target_address=target)
    if isinstance(step, Loop):
        inner = {part: with_addresses(getattr(step, part), addresses) for part in ("condition", "body")}
        return structs.replace(step, **inner)
    if isinstance(step, Branch):
        return structs.replace(step, branches=tuple(with_addresses(branch, addresses) for branch in step.branches))
    return structs.replace(step, body=with_addresses(step.body, addresses)) if isinstance(step, Call) else step


def _streams(streams: tuple[Stream, ...], addresses: Addresses) -> Iterator[Stream]:
    """Yield a kernel's streams with their addresses: of a name with several arrays one after the other."""
    seen: dict[str, int] = {}
    for stream in streams:
        place = seen[stream.operand] = seen.get(stream.operand, -1) + 1
        found = addresses.get(stream.operand, ())
        is_known = stream.space == HBM and place < len(found)
        yield structs.replace(stream, address=found[place]) if is_known else stream
