"""Collectives that a run waits for: how long the core does nothing else, and along which axes of the slice they go."""

from __future__ import annotations

from collections import Counter

from tpusim.analysis.answers.scaling import Along, Exposed
from tpusim.analysis.communication import core_time, together_ps
from tpusim.hardware.pod import Pod, Topology
from tpusim.machine.placement import DeviceSet, devices_of, pod_of
from tpusim.pipeline.result import Result
from tpusim.program.steps import ChannelTransfer, Collective
from tpusim.timeline.records import CORE


def exposed_communication(result: Result, topology: Topology | None) -> tuple[Exposed, ...]:
    """Return what of the communication of a run its core waits for, the longest first.

    The core is that of the device which ended last; what other devices came late for is not counted.
    """
    program = result.program
    pod = pod_of([program], result.chip, topology)
    devices = devices_of(program, result.pod.device_count)
    ends: tuple[Collective | ChannelTransfer, ...] = (*program.collectives, *program.channel_ends)
    steps = {step.name: step for step in ends}
    waited: Counter[str] = Counter()
    for record in result.timeline.records:
        if record.row == CORE and core_time(record) == "exposed":
            # A collective that runs beside the core is waited for in another step.
            names = [record.name, *program.every_step[record.step].needs]
            waited[next((name for name in names if name in steps), record.name)] += together_ps(record)
    return tuple(_exposed(steps[name], ps, pod, devices) for name, ps in waited.most_common() if name in steps)


def _exposed(step: Collective | ChannelTransfer, exposed_ps: int, pod: Pod, devices: DeviceSet) -> Exposed:
    kind, group_size, along = step.opcode, 0, tuple[Along, ...]()
    if isinstance(step, Collective):
        kind, group_size, along = step.kind, step.group_size, _along(devices.groups_of(step), pod)
    return Exposed(
        name=step.name,
        kind=kind,
        group_size=group_size,
        along=along,
        payload_bytes=step.n_bytes,
        exposed_ps=exposed_ps,
    )


def _along(groups: tuple[tuple[int, ...], ...], pod: Pod) -> tuple[Along, ...]:
    """Return the axes on which devices of one group stand apart."""
    axes = set()
    for group in groups:
        places = [pod.place_of(number).coordinates for number in group]
        axes |= {axis for place in places for axis, at in enumerate(place) if at != places[0][axis]}
    torus = pod.torus
    return tuple(Along(axis=axis, chips=torus.sizes[axis], is_ring=torus.wraps[axis]) for axis in sorted(axes))
