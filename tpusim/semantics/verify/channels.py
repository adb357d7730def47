"""Whether sends and receives agree with each other and can all happen.

On a channel, recv comes before send, send and recv before recv-done, and send before send-done. Schedules that order
them otherwise, together, wait for ever.

Source: XLA, Operation Semantics, Scheduling of channel instructions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from tpusim.ir.ops import OPERATIONS, TRANSFER_DONES, TRANSFERS, async_parts
from tpusim.semantics.device_groups import channel_pairs, most_ids
from tpusim.semantics.infer.site import broken
from tpusim.semantics.verify.view import Call, Finding, View, at, checks
from tpusim.shapes.shape import compatible

_Place: TypeAlias = "tuple[str, str]"
# XLA, Scheduling of channel instructions: recv first, so that what is sent has where to go.
_ORDER = (("recv", "send"), ("send", "recv-done"), ("recv", "recv-done"), ("send", "send-done"))


@checks
def _check_devices(view: View) -> Iterator[Finding]:
    """Check that the devices exist between which a message goes."""
    count = most_ids(view.module.device_count)
    for call in view.all_of(TRANSFERS):
        ends = [device for pair in channel_pairs(view.module, call.instruction) or () for device in pair]
        if ends and max(ends) >= count:
            yield at(call, "channel_c5", f"{max(ends)} of {count}")


@checks
def _check_numbers(view: View) -> Iterator[Finding]:
    """Check that channels have numbers that XLA gives them."""
    for call in view.all_of(frozenset(filter(_has_channel, view.opcodes))):
        if (number := call.instruction.attributes.get("channel_id", 0)) < 0:
            yield at(call, "channel_c6", str(number))


def _has_channel(opcode: str) -> bool:
    inside, _ = async_parts(opcode) or (opcode, "")
    return inside in OPERATIONS and OPERATIONS[inside].allows("channel_id")


@checks
def _check_pairs(view: View) -> Iterator[Finding]:
    """Check that a done is on the channel of its start, and to the host if that is."""
    for call in view.all_of(TRANSFER_DONES):
        start = call.computation.by_name[call.instruction.operands[0]]
        if start.opcode not in TRANSFERS:
            continue
        for label, name in (("channel_c1", "channel_id"), ("channel_c2", "is_host_transfer")):
            own, other = (one.attributes.get(name, False) for one in (call.instruction, start))
            if own != other:
                yield at(call, label, f"{own} and {other}")


@checks
def _check_host_channels(view: View) -> Iterator[Finding]:
    """Check that transfers to or from the host on one channel differ in nothing but their operands."""
    first: dict[int, Call] = {}
    for call in view.all_of(TRANSFERS):
        attributes = call.instruction.attributes
        if not attributes.get("is_host_transfer") or "channel_id" not in attributes:
            continue
        other = first.setdefault(attributes["channel_id"], call).instruction
        same = other.opcode == call.instruction.opcode and compatible(other.shape, call.instruction.shape)
        # What says where a transfer came from is not what it does.
        names = (other.attributes.keys() | attributes.keys()) - {"metadata", "backend_config", "origin"}
        if not same or any(other.attributes.get(name) != attributes.get(name) for name in names):
            yield at(call, "channel_c3", f"{other.opcode!r} {other.name!r} on channel {attributes['channel_id']}")


@checks
def _check_order(view: View) -> Iterator[Finding]:
    """Look for a cycle of instructions that wait for each other through schedules and channels.

    Before there is a schedule, an instruction only waits for what it uses: a cycle then stands in every schedule.
    Transfers with source and target pairs are left out: every device runs both ends, but takes part in one.
    """
    calls = [
        call
        for call in view.all_of(TRANSFERS | TRANSFER_DONES)
        if not call.instruction.attributes.get("is_host_transfer")
        and "channel_id" in call.instruction.attributes
        # Pairs are written where a collective-permute was taken apart: each device then runs both ends.
        and channel_pairs(view.module, call.instruction) is None
    ]
    if not calls:
        return
    # Few programs have any.
    from graphlib import CycleError, TopologicalSorter

    waits = _scheduled(calls) if view.module.is_scheduled else _used(calls)
    for earlier, later in _channel_order(calls):
        waits[later].append(earlier)
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        cycle: Sequence[tuple[str, str]] = error.args[1]
        shown = " before ".join(f"{name!r} in {computation!r}" for computation, name in cycle)
        computation = view.module.by_name[cycle[0][0]]
        yield Finding(broken("channel_c4", shown), computation, computation.by_name[cycle[0][1]])


def _scheduled(calls: Iterable[Call]) -> dict[_Place, list[_Place]]:
    """Return for each transfer the one before in its schedule, which is the order in which a device comes to them."""
    waits: dict[_Place, list[_Place]] = {}
    last: dict[str, _Place] = {}
    for computation, instruction in calls:
        key = (computation.name, instruction.name)
        waits[key] = [last[computation.name]] if computation.name in last else []
        last[computation.name] = key
    return waits


def _used(calls: Iterable[Call]) -> dict[_Place, list[_Place]]:
    """Return for each instruction around transfers those that it uses or that control edges put before it."""
    waits: dict[_Place, list[_Place]] = {}
    for computation in {call.computation.name: call.computation for call in calls}.values():
        for instruction in computation.instructions:
            before = (*instruction.operands, *instruction.attributes.get("control-predecessors", ()))
            waits[computation.name, instruction.name] = [(computation.name, name) for name in before]
    return waits


def _channel_order(calls: Iterable[Call]) -> Iterator[tuple[_Place, _Place]]:
    """Yield which transfer comes before which on the same channel."""
    channels: dict[int, dict[str, list[_Place]]] = defaultdict(lambda: defaultdict(list))
    for computation, instruction in calls:
        channels[instruction.attributes["channel_id"]][instruction.opcode].append((computation.name, instruction.name))
    for ends in channels.values():
        # With several sends or receives on one channel, which meets which is only known at run time.
        if all(len(keys) == 1 for keys in ends.values()):
            for earlier, later in _ORDER:
                if ends[earlier] and ends[later]:
                    yield ends[earlier][0], ends[later][0]
