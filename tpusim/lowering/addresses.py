"""Where the streams and copies of a program begin, for memories whose time depends on it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

from msgspec import structs

from tpusim.hardware.units import HBM
from tpusim.nesting import walk_nested
from tpusim.program.steps import AnyStep, Branch, Call, Copy, Kernel, Loop
from tpusim.program.work import Stream

Steps = tuple[AnyStep, ...]

Addresses = Mapping[str, tuple[int | None, ...]]
"""By the name of an instruction: the addresses of the arrays that it makes, None for those that are not in HBM."""


def with_addresses(steps: Steps, addresses: Addresses) -> Steps:
    """Return steps, those inside others included, with the address of everything that they move from or to HBM."""
    found: dict[int, Steps] = {}

    def addressed(listed: Steps) -> Generator[Steps, Steps, Steps]:
        if id(listed) not in found:
            made: list[AnyStep] = []
            for step in listed:
                made.append((yield from _addressed(step, addresses)))
            found[id(listed)] = tuple(made)
        return found[id(listed)]

    return walk_nested(addressed, steps)


def _addressed(step: AnyStep, addresses: Addresses) -> Generator[Steps, Steps, AnyStep]:
    """Yield the lists of steps that a step holds, and return it with its own addresses and theirs."""
    if isinstance(step, Kernel):
        return structs.replace(step, streams=tuple(_streams(step.streams, addresses)))
    if isinstance(step, Copy) and step.opcode == "copy-start":
        # The result leads with the target, and has the source behind it.
        target, source = (*addresses.get(step.name, ()), None, None)[:2]
        return structs.replace(step, source_address=source, target_address=target)
    if isinstance(step, Loop):
        return structs.replace(step, condition=(yield step.condition), body=(yield step.body))
    if isinstance(step, Branch):
        branches = []
        for branch in step.branches:
            branches.append((yield branch))
        return structs.replace(step, branches=tuple(branches))
    return structs.replace(step, body=(yield step.body)) if isinstance(step, Call) else step


def _streams(streams: tuple[Stream, ...], addresses: Addresses) -> Iterator[Stream]:
    """Yield a kernel's streams with their addresses: of a name with several arrays one after the other."""
    seen: dict[str, int] = {}
    for stream in streams:
        place = seen[stream.operand] = seen.get(stream.operand, -1) + 1
        found = addresses.get(stream.operand, ())
        is_known = stream.space == HBM and place < len(found)
        yield structs.replace(stream, address=found[place]) if is_known else stream
