"""How long simulating large pods takes, and how many events of SimPy that is: ``python benchmarks/pods.py``."""

from __future__ import annotations

import time
from pathlib import Path

import simpy

import tpusim
from tpusim.hardware.load import load_chip
from tpusim.hardware.pod import parse_topology
from tpusim.machine.run import simulate_pod
from tpusim.program.module import Program
from tpusim.program.steps import Collective

TRACES = Path(__file__).parents[1] / "traces"


class Counted:
    """Counts the events that SimPy handles."""

    def __init__(self) -> None:
        self.events = 0
        plain = simpy.Environment.step

        def step(env: simpy.Environment) -> None:
            self.events += 1
            plain(env)

        simpy.Environment.step = step  # type: ignore[method-assign]


def reduce_everywhere(name: str) -> None:
    """All-reduce a gibibyte over all devices of a slice."""
    topology = parse_topology(name)
    chip = load_chip(topology.chip)
    count = topology.chip_count * chip.devices_per_chip
    groups = (tuple(range(count)),)
    step = Collective(name="r", opcode="all-reduce", kind="all-reduce", n_bytes=2**30, groups=groups, group_size=count)
    simulate_pod([Program(name="all-reduce", chip=chip.name, steps=(step,), device_count=count)], chip, topology)


def train(name: str) -> None:
    """One training step of GPT-2 on a slice."""
    tpusim.simulate(TRACES / "gpt2_train_fsdp.v5p_4x4x4.hlo.txt.gz", topology=name)


def main() -> None:
    """Print a line per case."""
    counted = Counted()
    for what, names in ((reduce_everywhere, ("v4:16x16x16", "tpu7x:16x24x24")), (train, ("v5p:4x4x4", "v5p:16x16x16"))):
        for name in names:
            begin, cpu_begin, before = time.perf_counter(), time.process_time(), counted.events
            what(name)
            seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
            events = counted.events - before
            print(
                f"{what.__name__} {name}: {seconds:.2f} s, {cpu_seconds:.2f} s of CPU, {events:,} events,"
                f" {events / seconds:,.0f} per second"
            )


if __name__ == "__main__":
    main()
