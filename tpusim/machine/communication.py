"""What devices do with each other: collectives, and channels between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpusim.machine.completion import Met, split_late
from tpusim.timeline.records import LATE
from tpusim.units import bytes_to_ps, cycles_to_ps, seconds_to_ps

if TYPE_CHECKING:
    from collections.abc import Generator

    import simpy

    from tpusim.cost.collectives import Way
    from tpusim.machine.core import Core
    from tpusim.machine.world import World
    from tpusim.program.steps import ChannelTransfer, Collective

    Activity = Generator[simpy.Event, Any, None]


def run_collective(core: Core, step: Collective) -> Activity:
    """Run a collective on the core, or start it beside the core."""
    if step.is_async:
        core.start(step, _communicate(core, step, "ici"), "a collective")
        return
    yield from _communicate(core, step, core.row)


def _communicate(core: Core, step: Collective, row: str) -> Generator[simpy.Event, Any, dict[int, Met]]:
    """Take part in a collective: its bytes over the links, through HBM here, and the sums of what comes in.

    Return how it went for each that the device stands for. Those who did not wait for it need not part for that, but
    their records differ.
    """
    start_ps, device = core.now_ps, core.device
    way = device.world.way(device, step)
    # What is passed on was received into HBM, if the result lies there, and is read again.
    hbm_bytes = _hbm_bytes(step, way)
    ended, each = device.world.collective(device, step)
    # What a collective reads and writes here slows the kernels beside it, so it takes its share of HBM.
    local = device.memories["hbm"].transfer(step.name, hbm_bytes)
    here_ps: list[int] = []
    here = core.env.all_of([local, core.env.timeout(_vector_ps(core, step))])
    here.callbacks.append(lambda _: here_ps.append(core.now_ps))
    yield core.env.all_of([ended, here])
    found = {number: met._replace(end_ps=max(met.end_ps, *here_ps)) for number, met in each().items()}
    if not step.is_async:
        device.world.compare(step, {number: met.end_ps for number, met in found.items()})
    met = found.get(device.number, Met(core.now_ps, start_ps))
    record = device.recorder.add(
        step,
        row,
        start_ps,
        met.end_ps,
        **_figures(core, step, way, met.since(start_ps)),
        flops=step.flops,
        hbm_bytes=hbm_bytes,
        payload_bytes=step.n_bytes,
        group_size=step.group_size,
    )
    for number in device.members[1:]:
        own = device.world.costs.longest_way(device.team, step, number)
        if (found[number], own.hops, own.far_hops) != (met, way.hops, way.far_hops):
            figures = _figures(core, step, own, found[number].since(start_ps))
            device.recorder.vary(number, record, {"end_ps": found[number].end_ps, **figures})
    return found


def _hbm_bytes(step: Collective, way: Way) -> float:
    """Return what a device reads and writes in HBM, what it passes on included."""
    return step.hbm_bytes + (way.relayed * step.n_bytes if step.hbm_bytes else 0.0)


def _figures(core: Core, step: Collective, way: Way, times: tuple[int, int]) -> dict[str, Any]:
    """Return what bounds a collective of a device whose bytes go a way, and the units that it keeps busy.

    ``times`` are how long it took, and how much of that the device waited for others.
    """
    latency_ps, vector_ps = core.device.world.latency_ps(way), _vector_ps(core, step)
    # Hops of collectives that run beside each other overlap; only those that the core waits for add up.
    waited_ps = 0 if step.is_async else latency_ps
    links_ps = bytes_to_ps(way.carried * step.n_bytes, core.device.peak("ici"))
    duration_ps, late_ps = times
    bound_by = _bound(step, way, 2 * latency_ps > duration_ps - late_ps)
    return {
        **split_late(bound_by, duration_ps, late_ps),
        "units": {"ici": links_ps + waited_ps}
        | ({"vector": vector_ps} if vector_ps else {})
        | core.device.hbm_units(_hbm_bytes(step, way)),
    }


def _bound(step: Collective, way: Way, is_mostly_latency: bool) -> str:
    """Return what bounds a collective: where nobody else is in the group only its way through HBM, if it has one."""
    if not len(way.load.links):
        return "HBM" if step.hbm_bytes else "latency"
    return "ICI latency" if is_mostly_latency else "ICI"


def _vector_ps(core: Core, step: Collective) -> int:
    """Return how long the vector unit adds up what comes in: every element but one device's own."""
    chip = core.device.chip
    per_cycle = chip.vpu.lanes * chip.vpu.sublanes * chip.vpu.alu_slots * chip.cores_per_device
    share = (step.group_size - 1) / max(1, step.group_size)
    return cycles_to_ps(step.flops * share / per_cycle, chip.clock_hz)


class Slot:
    """Where a receive waits for its bytes."""

    def __init__(self, receiver: int, env: simpy.Environment) -> None:
        self.receiver = receiver
        self.is_taken = False
        self.taken_ps = 0
        self.filled = env.event()


class Channels:
    """The channels between devices: a receive lays out a slot, a send waits for one and fills it.

    So a schedule in which each waits for another is a deadlock here as it is on the machine (XLA, Operation Semantics,
    scheduling of channel instructions).
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._slots: dict[int, list[Slot]] = {}
        self._opened: dict[int, simpy.Event] = {}

    def open(self, channel: int, receiver: int) -> Slot:
        """Lay out a slot for a receiver; sends that wait for one may look again."""
        slot = Slot(receiver, self._world.env)
        self._slots.setdefault(channel, []).append(slot)
        if channel in self._opened:
            self._opened.pop(channel).succeed()
        return slot

    def take(self, channel: int, receivers: tuple[int, ...]) -> Slot | None:
        """Take the first open slot of one of some receivers, None if there is none yet."""
        slots = self._slots.get(channel, [])
        found = next((slot for slot in slots if not slot.is_taken and slot.receiver in receivers), None)
        if found is not None:
            found.is_taken = True
            found.taken_ps = int(self._world.env.now)
            slots.remove(found)
        return found

    def opening(self, channel: int) -> simpy.Event:
        """Return the event of the next slot on a channel."""
        return self._opened.setdefault(channel, self._world.env.event())


def run_channel(core: Core, step: ChannelTransfer) -> Activity:
    """Start a receive; or wait for the other end's receive and start a send to it."""
    number, world = core.device.number, core.device.world
    peers = other_ends = world.other_ends(step)
    if step.pairs is not None:
        first = core.device.team.first
        peers = tuple(first + pair[step.is_send] for pair in step.pairs if first + pair[not step.is_send] == number)
        if not peers:
            core.start(step, _nothing(), "a channel")
            return
    if not other_ends:
        core.start(step, _outside(core, step), "a channel")
        return
    if not step.is_send:
        slot = world.channels.open(step.channel_id, number)
        core.start(step, _receive(core, step, slot, peers), "a channel")
        return
    start_ps = core.now_ps
    found = world.channels.take(step.channel_id, peers)
    blocked = world.block(number, step, f"a recv on channel {step.channel_id}", peers) if found is None else None
    while found is None:
        yield world.channels.opening(step.channel_id)
        found = world.channels.take(step.channel_id, peers)
    if blocked is not None:
        world.blocked[number].remove(blocked)
        waited_ps = core.now_ps - start_ps
        # It is another device that is late, whatever the wait is called.
        late = {LATE: waited_ps} if waited_ps else {}
        core.record(step, start_ps, bound_by="waiting for a recv", is_wait=True, parts=late)
    core.start(step, _send(core, step, found), "a channel")


def _nothing() -> Activity:
    """End at once: no pair has this device at this end."""
    return
    yield


def _outside(core: Core, step: ChannelTransfer) -> Activity:
    """Exchange a message with a program that is not part of this run, and so is always ready."""
    start_ps, device = core.now_ps, core.device
    ici = device.chip.ici
    # One hop and one link, as for a neighbour: where the other program runs is not known.
    yield core.env.timeout(seconds_to_ps(ici.launch_seconds + ici.hop_latency_seconds))
    link_ps = bytes_to_ps(step.n_bytes, ici.link_bytes_per_second * ici.efficiency)
    local = device.memories["hbm"].transfer(step.name, step.hbm_bytes)
    yield core.env.all_of([local, core.env.timeout(link_ps)])
    units = {"ici": bytes_to_ps(step.n_bytes, device.peak("ici"))} | device.hbm_units(step.hbm_bytes)
    device.recorder.add(step, "ici", start_ps, core.now_ps, bound_by="ICI", units=units, hbm_bytes=step.hbm_bytes)


def _send(core: Core, step: ChannelTransfer, slot: Slot) -> Activity:
    """Move a message to the chip of its slot, reading it from HBM here."""
    start_ps, device = core.now_ps, core.device
    ended = device.world.message(step, device.number, slot.receiver)
    yield core.env.all_of([ended, device.memories["hbm"].transfer(step.name, step.hbm_bytes)])
    slot.filled.succeed()
    busy_ps = bytes_to_ps(step.n_bytes, device.peak("ici"))
    device.recorder.add(
        step,
        "ici",
        start_ps,
        core.now_ps,
        bound_by="ICI",
        units={"ici": busy_ps} | device.hbm_units(step.hbm_bytes),
        hbm_bytes=step.hbm_bytes,
        payload_bytes=step.n_bytes,
        peer=slot.receiver,
    )


def _receive(
    core: Core, step: ChannelTransfer, slot: Slot, peers: tuple[int, ...]
) -> Generator[simpy.Event, Any, dict[int, Met]]:
    """Wait until a message has come; it is written to HBM as it comes. Return when, and when it had set out."""
    start_ps, device = core.now_ps, core.device
    blocked = device.world.block(device.number, step, f"a send on channel {step.channel_id}", peers)
    yield slot.filled
    device.world.blocked[device.number].remove(blocked)
    yield device.memories["hbm"].transfer(step.name, step.hbm_bytes)
    met = Met(core.now_ps, slot.taken_ps)
    device.recorder.add(
        step,
        "ici",
        start_ps,
        met.end_ps,
        **split_late("ICI", *met.since(start_ps)),
        units=device.hbm_units(step.hbm_bytes),
        hbm_bytes=step.hbm_bytes,
        payload_bytes=step.n_bytes,
    )
    return {device.number: met}
