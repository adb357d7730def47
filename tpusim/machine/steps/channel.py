"""Sends and receives over channels between devices."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from tpusim.errors import SimulationError
from tpusim.hardware.units import HBM, ICI, UNITS
from tpusim.machine.core import Activity, Core, at_once, runs
from tpusim.machine.events import Event
from tpusim.machine.rendezvous import Completion, Slot, split_late
from tpusim.program.steps import ChannelTransfer
from tpusim.timeline.records import LATE
from tpusim.units import bytes_to_ps, seconds_to_ps

_WHAT = "a channel"


@runs(ChannelTransfer)
def run_channel(core: Core, step: ChannelTransfer) -> Activity | None:
    """Start a receive; or wait for the other end's receive and start a send to it."""
    number, channels = core.device.number, core.device.world.channels
    peers = other_ends = channels.other_ends(step)
    if step.pairs is not None:
        first = core.device.cohort.devices.first_beside(number)
        peers = tuple(first + peer for peer in channels.partners(step, number - first))
    if step.pairs is not None and not peers:
        # No pair has this device at this end.
        core.start(step, at_once(), _WHAT)
    elif not other_ends:
        core.start(step, _exchange_outside(core.beside(ICI), step), _WHAT)
    elif not step.is_send:
        core.start(step, _receive(core.beside(ICI), step, channels.open(step.channel_id, number), peers), _WHAT)
    else:
        return _begin_send(core, step, peers)
    return None


def _begin_send(core: Core, step: ChannelTransfer, peers: tuple[int, ...]) -> Activity:
    """Wait for the slot of a receive and start a send to it."""
    start_ps, world, number = core.now_ps, core.device.world, core.device.number
    # Without pairs all devices at the other end will do.
    slot = world.channels.take(step.channel_id, (None,) if step.pairs is None else peers)
    if isinstance(slot, Event):
        with world.waits.noted(number, step, f"a recv on channel {step.channel_id}", peers):
            slot = yield slot
        waited_ps = core.now_ps - start_ps
        # It is another device that is late, whatever the wait is called.
        late = {LATE: waited_ps} if waited_ps else {}
        core.record(step, start_ps, bound_by="waiting for a recv", is_wait=True, parts=late)
    if step.pairs is None and slot.receiver == number:
        _check_alone(core, step)
    core.start(step, _send(core.beside(ICI), step, slot), _WHAT)


def _check_alone(core: Core, step: ChannelTransfer) -> None:
    """Raise SimulationError if others run the program of a device that would send to itself: which one is not known."""
    cohort = core.device.cohort
    count = sum(len(one.members) for one in core.device.world.cohorts if one.program is cohort.program)
    if count > 1:
        raise SimulationError(
            f"device {cohort.number} at {cohort.place_of(step)} would send to itself on channel {step.channel_id}, "
            f"though {count} devices run the program: state which device sends to which, in frontend_attributes as "
            "_xla_send_recv_source_target_pairs, of the send and the recv"
        )


def _exchange_outside(core: Core, step: ChannelTransfer) -> Activity:
    """Exchange a message with a program that is not part of this run, and so is always ready."""
    start_ps, device = core.now_ps, core.device
    ici = device.chip.ici
    # One hop and one link, as for a neighbour: where the other program runs is not known.
    yield core.env.timeout(seconds_to_ps(ici.launch_seconds + ici.step_seconds + ici.hop_latency_seconds))
    link_ps = bytes_to_ps(step.n_bytes, ici.link_bytes_per_second * ici.efficiency)
    local = device.memories[HBM].transfer(step.hbm_bytes)
    yield core.env.all_of([local, core.env.timeout(link_ps)])
    done = {ICI: step.n_bytes, HBM: step.hbm_bytes}
    _record(core, step, start_ps, done, bound_by=UNITS[ICI].bound)


def _send(core: Core, step: ChannelTransfer, slot: Slot) -> Activity:
    """Move a message to the chip of its slot, reading it from HBM here."""
    start_ps, device, ended = core.now_ps, core.device, core.env.event()
    plan = device.world.costs.message(device.number, slot.receiver)
    device.world.collectives.send(plan, step.n_bytes, ended.succeed, core.recorded)
    yield core.env.all_of([ended, device.memories[HBM].transfer(step.hbm_bytes)])
    slot.filled.succeed()
    done = {ICI: step.n_bytes, HBM: step.hbm_bytes}
    _record(core, step, start_ps, done, bound_by=UNITS[ICI].bound, payload_bytes=step.n_bytes, peer=slot.receiver)


def _receive(
    core: Core, step: ChannelTransfer, slot: Slot, peers: tuple[int, ...]
) -> Generator[Event, Any, dict[int, Completion]]:
    """Wait until a message has come; it is written to HBM as it comes. Return when, and when it had set out."""
    start_ps, device = core.now_ps, core.device
    with device.world.waits.noted(device.number, step, f"a send on channel {step.channel_id}", peers):
        yield slot.taken
        yield core.env.all_of([slot.filled, device.memories[HBM].transfer(step.hbm_bytes)])
    completion = Completion(core.now_ps, slot.taken_ps)
    # The links that the message came over are the sender's.
    done = {HBM: step.hbm_bytes}
    bound = split_late(UNITS[ICI].bound, core.now_ps - start_ps, completion.late_ps(start_ps))
    _record(core, step, start_ps, done, **bound, payload_bytes=step.n_bytes)
    return {device.number: completion}


def _record(core: Core, step: ChannelTransfer, start_ps: int, done: dict[str, float], **details: Any) -> None:
    """Record that a message was under way from ``start_ps`` until now, and what was ``done`` for it here."""
    units = core.device.busy_ps(done)
    core.record(step, start_ps, units=units, activity=done, **details)
