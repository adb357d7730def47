"""One collective at a time on a slice, for tests."""

from __future__ import annotations

from tpusim.hardware.load import load_chip
from tpusim.hardware.pod import make_pod, parse_topology
from tpusim.machine.run import RunOptions, simulate_pod
from tpusim.program.module import Program
from tpusim.program.steps import Collective

GIB = 2.0**30


def pod_of(text: str):
    """Return the pod that a name means."""
    topology = parse_topology(text)
    return make_pod(topology, load_chip(topology.chip))


def collective(kind: str, n_bytes: float, groups=(), **fields) -> Collective:
    """Return a step; the bytes of HBM are left out, so that the links are what counts."""
    size = max(map(len, groups), default=1)
    return Collective(name="c", opcode=kind, kind=kind, n_bytes=n_bytes, groups=groups, group_size=size, **fields)


def program_of(*steps, devices: int = 1) -> Program:
    """Return a program of some steps."""
    return Program(name="p", chip="", steps=steps, device_count=devices)


def run(text: str, *steps, apart: bool | None = None, devices: int = 0):
    """Return the run of some steps on all devices of a slice."""
    topology = parse_topology(text)
    chip = load_chip(topology.chip)
    count = devices or topology.chip_count * chip.devices_per_chip
    return simulate_pod([program_of(*steps, devices=count)], chip, topology, None, RunOptions(per_device=apart))


def seconds_on_links(text: str, kind: str, n_bytes: float, groups=(), **fields) -> float:
    """Return how long a collective of all devices (or of ``groups``) takes beyond launches and what each step takes."""
    topology = parse_topology(text)
    chip = load_chip(topology.chip, {"ici.step_seconds": 0.0})
    everyone = (tuple(range(topology.chip_count * chip.devices_per_chip)),)
    stated = {} if "pairs" in fields else {"groups": groups or everyone}
    program = program_of(collective(kind, n_bytes, **stated, **fields), devices=len(everyone[0]))
    total_ps = simulate_pod([program], chip, topology, None, RunOptions(per_device=False)).last.total_ps
    return total_ps / 1e12 - chip.ici.launch_seconds - chip.fixed.launch_seconds


def link_rate(text: str) -> float:
    """Return the bytes per second that a link of a slice's chip reaches."""
    ici = load_chip(parse_topology(text).chip).ici
    return ici.link_bytes_per_second * ici.efficiency
