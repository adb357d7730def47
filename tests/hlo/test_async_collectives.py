"""Collectives that the compiler has fused with the kernels beside them: a perceptron of three layers on 8x8."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import tpusim
from tpusim.pipeline.result import Result
from tpusim.program.module import every_step
from tpusim.program.steps import Collective, Kernel, Loop

PROGRAM = Path(__file__).parents[1] / "data" / "hlo" / "mlp_async_gather.v5e_8x8.hlo.txt.gz"
LOOP_TRIPS = 4


@cache
def run() -> Result:
    """Return the run of the program."""
    return tpusim.simulate(PROGRAM)


def test_every_product_counts():
    """Three layers of two products, each once forward and twice backward, but not for what goes in first."""
    steps = run().program.steps
    (loop,) = (step for step in steps if isinstance(step, Loop))
    assert loop.trips == LOOP_TRIPS
    counted = [(1, steps), (LOOP_TRIPS, loop.body)]
    flops = sum(n * step.product_flops for n, part in counted for step in part if isinstance(step, Kernel))
    assert flops == (3 * 2 * 3 - 1) * 2 * 512 * 2048 * 2048


def test_a_collective_is_run_once_however_often_it_is_fused():
    """Three gathers of 2048 x 2048 numbers of 2 bytes are started, each on a channel of its own, and once awaited."""
    steps = list(every_step(run().program.steps))
    started = [step for step in steps if isinstance(step, Collective) and step.is_async]
    assert {(step.channel_id, step.kind, step.n_bytes) for step in started} == {
        (channel, "all-gather", 2 * 2048 * 2048) for channel in (10, 12, 13)
    }
    assert max(Counter(step.channel_id for step in steps if isinstance(step, Collective)).values()) == 1
    awaited = Counter(name for step in steps for name in step.needs)
    assert [awaited[step.name] for step in started] == [1, 1, 1]


def test_what_is_gathered_into_vmem_does_not_touch_hbm():
    """The starts return their results in memory space 1."""
    steps = every_step(run().program.steps)
    assert {s.hbm_bytes for s in steps if isinstance(s, Collective) and s.is_async} == {0.0}


def test_kernels_run_while_the_collective_is_under_way():
    """The two kernels between a start and its end are on the core while the links are busy for it."""
    by_name = {record.name: record for record in run().timeline.records}
    gather = by_name["async-collective-start.1"]
    for name in ("fusion.96", "fusion.101"):
        assert gather.start_ps <= by_name[name].start_ps < by_name[name].end_ps <= gather.end_ps
    assert by_name["async-collective-done.1"].end_ps >= gather.end_ps
