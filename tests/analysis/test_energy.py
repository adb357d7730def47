"""Energy of runs: sums are exact, mean power is that of published measurements, and cost is hours times price."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from tpusim.analysis.energy.power import mean_watts
from tpusim.analysis.energy.price import run_cost
from tpusim.analysis.energy.run import IDLE, pod_joules, run_energy
from tpusim.analysis.utilisation import group_records
from tpusim.hardware.load import load_chip
from tpusim.machine.run import simulate_program
from tpusim.pipeline.stages import simulate
from tpusim.program.module import Program
from tpusim.program.steps import Copy, Kernel, Loop, Wait
from tpusim.program.work import Matmul, Stream, Work
from tpusim.timeline.records import PodRun

TRACES = Path(__file__).parents[2] / "traces"
CHIP = load_chip("v4")
PS = 1_000_000_000_000


def energy_of_steps(*steps, chip=CHIP):
    """Return the energy of a program of some steps, and its time line."""
    timeline = simulate_program(Program(name="p", chip=chip.name, steps=steps), chip)
    return run_energy(group_records(timeline), chip, timeline.total_ps), timeline


def kernel(name="k", n_bytes=1e6, streamed_rows=1e3):
    """Return a kernel of one product and one stream."""
    work = Work(matmuls=(Matmul(128, streamed_rows, 1),), ops={"vector": 100.0, "load": 10.0})
    return Kernel(name=name, opcode="fusion", work=work, streams=(Stream("x", "hbm", n_bytes),))


def test_ops_and_units_add_up_to_the_whole_exactly():
    """Kernels in a loop, a copy beside them, and the wait for it."""
    copy = Copy(name="c", opcode="copy-start", n_bytes=3e7)
    wait = Wait(name="d", opcode="copy-done", needs=("c",))
    loop = Loop(name="w", opcode="while", trips=1001, body=(kernel("a"), kernel("b", 12345.6)))
    found, _ = energy_of_steps(copy, loop, wait)
    assert sum(op.total_fj for op in found.ops) + found.rest_fj == found.total_fj == sum(found.units_fj.values())
    assert sum(op.total_j for op in found.ops) == pytest.approx(found.total_j, rel=1e-12)
    assert sum(found.by_unit.values()) == pytest.approx(found.total_j, rel=1e-12)
    assert sum(found.by_op.values()) == pytest.approx(found.total_j, rel=1e-12)


def test_a_program_of_nothing_takes_nothing():
    """Neither energy nor power."""
    found, _ = energy_of_steps()
    assert (found.total_j, found.average_power_w, found.units_fj) == (0, 0, {})


def test_idle_power_is_the_published_one():
    """90 W of a v4 chip (ISCA 2023), half for each of its two cores, all the time that a program takes."""
    found, timeline = energy_of_steps(kernel())
    assert found.by_unit[IDLE] == pytest.approx(45 * timeline.total_ps / PS, rel=1e-9)
    assert found.chip_power_w > 90


def test_fewer_bytes_never_take_more():
    """The same work with less traffic, in less time."""
    energies = [energy_of_steps(kernel(n_bytes=n))[0].total_fj for n in (0.0, 1e3, 1e6, 1e7, 1e9)]
    assert energies == sorted(energies)


def test_power_is_energy_over_time():
    """In watts: joules in picoseconds."""
    found, timeline = energy_of_steps(kernel())
    assert found.average_power_w == pytest.approx(found.total_j / (timeline.total_ps / PS))
    assert found.chip_power_w == pytest.approx(2 * found.average_power_w)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50_fwd_b32", "power/bert_base_b32t128", "power/gpt2_fwd_b8t1024"])
def test_v4_draws_between_the_least_and_the_most_that_was_measured(name):
    """121 to 192 W of a chip over production programs (Jouppi et al., ISCA 2023); no figure is fitted to power."""
    assert 121 <= simulate(TRACES / f"{name}.v4.hlo.txt.gz").energy.chip_power_w <= 192


def test_devices_together_take_what_each_takes_and_wait_for_the_last():
    """Two alike and one that ends earlier: it draws its idle power until the end."""
    long, short = (energy_of_steps(*[kernel(f"k{i}") for i in range(n)])[1] for n in (3, 1))
    lines = [msgspec.structs.replace(one, device=number) for number, one in enumerate((long, long, short))]
    pod = PodRun(sizes=(3,), slices=1, device_count=3, timelines=tuple(lines))
    each = [run_energy(group_records(one), CHIP, one.total_ps).total_j for one in lines]
    rest_s = (long.total_ps - short.total_ps) / PS
    assert pod_joules(pod, CHIP) == pytest.approx(sum(each) + 45 * rest_s, rel=1e-9)


def test_mean_power_of_stretches_is_that_of_the_run():
    """A loop of which one trip is played; a time of no length has the idle power."""
    found, timeline = energy_of_steps(Loop(name="w", opcode="while", trips=1001, body=(kernel("a"), kernel("b", 2e4))))
    edges = np.linspace(0, timeline.total_ps, 11)
    watts = mean_watts(timeline, CHIP, edges[:-1], edges[1:])
    assert watts.mean() == pytest.approx(found.average_power_w, rel=1e-6)
    assert mean_watts(timeline, CHIP, edges[3:4], edges[3:4]) == pytest.approx(45)


def test_a_run_of_nothing_has_the_idle_power():
    """45 W of a core of v4."""
    _, timeline = energy_of_steps()
    assert mean_watts(timeline, CHIP, np.array([0.0]), np.array([1.0])) == pytest.approx(45)


def test_a_run_costs_its_hours():
    """A v5e for an hour at $1.20; two of the two devices of a v4 chip are one chip."""
    hour_ps = 3600 * PS
    assert run_cost(load_chip("v5e"), hour_ps, 1).usd == pytest.approx(1.2)
    cost = run_cost(CHIP, hour_ps, 2, price=10.0, tokens=5e6)
    assert (cost.chips, cost.usd, cost.usd_per_million_tokens, cost.price_date) == (1, 10, 2, "")


def test_a_chip_without_a_price_costs_nothing_known():
    """Unless the caller names one."""
    chip = load_chip("v7x")
    assert run_cost(chip, PS, 1) is None
    assert run_cost(chip, PS, 1, price=1.0).usd_per_million_tokens is None
