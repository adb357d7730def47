"""Values that come from the host or go to it, and values that devices send to each other on channels.

A receive lays out a slot on its channel, a send waits for one and fills it, and the second half of the receive waits
until its slot is full: so a schedule in which each waits for another is a deadlock here as it is on the machine.

A channel of the host holds plain values in ``Device.mailbox``: what the host put there before the run, what the program
sent after it.

Source: XLA, Operation Semantics (Infeed, Outfeed, Send, Recv, scheduling of channel instructions).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from tpusim.errors import ProgramError, SimulationError
from tpusim.ir.module import Instruction, Module
from tpusim.ir.ops import TRANSFERS
from tpusim.numerics.files import input_of, nest_inputs
from tpusim.numerics.registry import TOKEN, computes, zeros
from tpusim.numerics.site import Device, Site
from tpusim.semantics.device_groups import channel_pairs
from tpusim.semantics.infer.types import parts
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape, leaves, shape_text

Waiting = Generator[Any, Any, Any]

_REQUEST = np.zeros((), np.uint32)

# The value went where it should when the send found its slot.
computes("send-done")(lambda site, instruction, operands: TOKEN)


@dataclass(eq=False)
class Slot:
    """Where a receive waits for its value: by which device, and the values that have come, at most one."""

    receiver: int
    values: list[Any]


@dataclass(frozen=True)
class Wait:
    """A wish like ``Meet`` that is granted once something holds; until then it waits for ``peers``.

    ``key`` is no other device's, so that the peers cannot meet it; errors show it.
    """

    key: str
    holds: Callable[[], bool]
    peers: tuple[int, ...]
    value: Any = None

    @property
    def members(self) -> tuple[int, ...]:
        """No device, once there is nothing more to wait for."""
        return () if self.holds() else self.peers


def make_devices(module: Module, infeeds: Sequence[Iterable[Any] | None] = (), replicas: int = 1) -> list[Device]:
    """Return the devices of a run of ``replicas`` times the partitions of the module.

    Each has an infeed of its own, in the order of device numbers; all share the channels between devices.
    """
    partitions = module.partition_count
    # Only these are shared: what the host exchanges with one device is that device's alone.
    transfers = (i.attributes for each in module.computations for i in each if i.opcode in TRANSFERS)
    channels = {transfer.get("channel_id", 0) for transfer in transfers if not transfer.get("is_host_transfer")}
    between = {channel: deque[Any]() for channel in channels}
    feeds = [*infeeds, *[None] * (replicas * partitions - len(infeeds))]
    return [
        Device(*divmod(number, partitions), infeed=None if feed is None else iter(feed), mailbox=dict(between))
        for number, feed in enumerate(feeds)
    ]


@computes("infeed")
def infeed(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the next value of the device's infeed and a token; a value of no arrays takes nothing from it."""
    wanted = parts(instruction.shape)[0]
    if not any(True for _ in leaves(wanted)):
        return (nest_inputs(iter(()), [wanted])[0], TOKEN)
    if site.device.infeed is None:
        raise SimulationError(f"{instruction.name!r} reads the infeed, but the run was given none")
    return (as_value(instruction.name, _next_of(site.device.infeed, instruction.name, wanted), wanted), TOKEN)


@computes("outfeed")
def outfeed(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Append the value to the device's outfeed; return a token."""
    site.device.outfeed.append(operands[0])
    return TOKEN


@computes("recv")
def recv(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Lay out a slot for the value that will come; return the context of the receive."""
    # XLA leaves the value of a receive that no pair sends to undefined; zeros are what a permute would give.
    waiting = zeros(parts(instruction.shape)[0])
    if not instruction.attributes.get("is_host_transfer") and _peer(site, instruction, to=True) != ():
        _channel(site, instruction).append(Slot(site.device_number, []))
    return (waiting, _REQUEST, TOKEN)


@computes("recv-done")
def recv_done(site: Site, instruction: Instruction, operands: list[Any]) -> Waiting:
    """Return the value that came, and a token; zeros if no pair of the channel has this device as its target."""
    wanted = parts(instruction.shape)[0]
    # The start states channel and pairs, unless it lies outside of this computation.
    operand = site.operand(instruction, 0)
    start = operand if operand.opcode in TRANSFERS else instruction
    channel, own = _channel(site, start), site.device_number
    if start.attributes.get("is_host_transfer"):
        if not channel:
            raise SimulationError(f"{instruction.name!r} waits for the host, which put nothing into {_named(start)}")
        return (as_value(instruction.name, channel.popleft(), wanted), TOKEN)
    peers = _peer(site, start, to=True)
    if peers == ():
        return (operands[0][0], TOKEN)
    # The device's first: receives of one channel end in the order in which they began.
    slot = next(slot for slot in channel if slot.receiver == own)
    yield from _until(site, instruction, start, lambda: bool(slot.values), peers)
    channel.remove(slot)
    return (slot.values[0], TOKEN)


@computes("send")
def send(site: Site, instruction: Instruction, operands: list[Any]) -> Waiting:
    """Put the value where a receive of the channel waits for it; return the context of the send."""
    context = (operands[0], _REQUEST, TOKEN)
    channel, peers = _channel(site, instruction), _peer(site, instruction, to=False)
    if instruction.attributes.get("is_host_transfer"):
        channel.append(operands[0])
        return context
    if peers == ():
        return context

    def open_slots() -> list[Slot]:
        return [slot for slot in channel if not slot.values and (peers is None or slot.receiver in peers)]

    # The receive comes before the send: without a slot there is no memory that the value could go to.
    yield from _until(site, instruction, instruction, lambda: bool(open_slots()), peers)
    slot = open_slots()[0]
    if peers is None and slot.receiver == site.device_number and site.module.device_count > 1:
        raise SimulationError(
            f"{instruction.name!r} would send from device {slot.receiver} to itself on {_named(instruction)}: state "
            "which device sends to which, in frontend_attributes as _xla_send_recv_source_target_pairs"
        )
    slot.values.append(operands[0])
    return context


def _next_of(feed: Iterator[Any], name: str, wanted: Shape) -> Any:
    """Return what comes next of an infeed; of a tuple, that may be its arrays one by one, as they stand in a file."""
    found = list(islice(feed, 1))
    if not found:
        raise SimulationError(f"{name!r} waits for a value of the infeed, which has ended")
    if not isinstance(wanted, TupleShape) or isinstance(found[0], (tuple, list)):
        return found[0]
    count = sum(1 for _ in leaves(wanted))
    found += islice(feed, count - 1)
    if len(found) < count:
        stated = shape_text(wanted, layout=False)
        raise SimulationError(f"{name!r} takes {count} arrays for {stated}; the infeed has {len(found)} more")
    return nest_inputs(iter(found), [wanted])[0]


def as_value(name: str, value: Any, shape: Shape) -> Any:
    """Return what the host gave, arrays or what NumPy makes one of, in lists or tuples, as a value of ``shape``.

    Raises ProgramError, which calls it ``name``, for what an input of the program may not be either.
    """
    if isinstance(shape, TupleShape):
        if not isinstance(value, (tuple, list)) or len(value) != len(shape.elements):
            stated, found = shape_text(shape, layout=False), type(value).__name__
            counted = f"{found} of {len(value)}" if isinstance(value, (tuple, list)) else found
            raise ProgramError(f"{name}: expected {len(shape.elements)} values for {stated}, found a {counted}")
        return tuple(as_value(name, part, element) for part, element in zip(value, shape.elements, strict=True))
    assert isinstance(shape, ArrayShape)
    return input_of(name, value, shape)


def _until(
    site: Site, instruction: Instruction, start: Instruction, holds: Callable[[], bool], peers: tuple[int, ...] | None
) -> Waiting:
    """Wait for something that another device has to do; a device that is alone would wait for ever."""
    own = site.device_number
    # The number of the device keeps peers at the same instruction from looking as if they had met it.
    key = f"{instruction.opcode} {instruction.name!r} on {_named(start)} (device {own})"
    others = tuple(number for number in range(site.module.device_count) if number != own) if peers is None else peers
    if holds():
        return
    # A device runs its instructions one after the other, so it cannot wait for one of its own.
    if not others or own in others:
        raise SimulationError(f"{key} waits for a device that comes later: itself")
    yield Wait(key, holds, others)


def _named(instruction: Instruction) -> str:
    return f"channel {instruction.attributes.get('channel_id', 0)}"


def _channel(site: Site, instruction: Instruction) -> deque[Any]:
    return site.device.mailbox.setdefault(instruction.attributes.get("channel_id", 0), deque())


def _peer(site: Site, instruction: Instruction, to: bool) -> tuple[int, ...] | None:
    """Return the devices at the other end, as the frontend's pairs say: the sources (``to`` this one), or the targets.

    None if there are no pairs, so that it may be any device; ``()`` if no pair has this one at its end.
    """
    pairs = channel_pairs(site.module, instruction)
    if pairs is None:
        return None
    here, there = (1, 0) if to else (0, 1)
    return site.existing(instruction, [pair[there] for pair in pairs if pair[here] == site.device_number])
