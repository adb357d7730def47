"""The fluid model of a shared memory, against arithmetic and against a twin that steps through time."""

from __future__ import annotations

from math import inf
from time import process_time

import pytest
import simpy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.growth import MOST, grows_by
from tpusim.machine.fluid import SharedMemory

BYTES_PER_SECOND = 1e12
"""One byte per picosecond, so that bytes read as picoseconds."""


def ends_of(transfers: list[tuple[int, float, float]]) -> list[int]:
    """Return when transfers given as (start ps, bytes, limit) end on a memory of one byte per picosecond."""
    env = simpy.Environment()
    memory = SharedMemory(env, BYTES_PER_SECOND)
    ends = [0] * len(transfers)

    def one(number: int, start_ps: int, n_bytes: float, limit: float):
        yield env.timeout(start_ps)
        yield memory.transfer(n_bytes, limit)
        ends[number] = env.now

    for number, (start_ps, n_bytes, limit) in enumerate(transfers):
        env.process(one(number, start_ps, n_bytes, limit))
    env.run()
    return ends


def test_one_transfer_takes_bytes_over_bandwidth():
    """A transfer that is alone has the whole bandwidth."""
    assert ends_of([(0, 5_000, inf)]) == [5_000]


def test_two_equal_transfers_take_twice_as_long():
    """Two flows share evenly and end together."""
    assert ends_of([(0, 1_000, inf), (0, 1_000, inf)]) == [2_000, 2_000]


def test_late_arrival_slows_the_first_from_then_on():
    """500 bytes alone, then both at half rate: the first ends at 1500, the second has 500 left and ends at 2000."""
    assert ends_of([(0, 1_000, inf), (500, 1_000, inf)]) == [1_500, 2_000]


def test_a_limited_flow_leaves_the_rest_to_others():
    """A flow limited to a quarter leaves three quarters to the other one."""
    assert ends_of([(0, 1_000, 0.25), (0, 3_000, inf)]) == [4_000, 4_000]


def test_nothing_to_move_takes_no_time():
    """A transfer of no bytes ends at once."""
    assert ends_of([(7, 0, inf)]) == [7]


def fair_rates(limits: list[float]) -> list[float]:
    """Return the max-min fair shares of one byte per picosecond: the most limited first, the others of what it leaves.

    A fluid's definition, written down for its twin.
    """
    rates, left = [0.0] * len(limits), 1.0
    order = sorted(range(len(limits)), key=limits.__getitem__)
    for place, number in enumerate(order):
        rates[number] = min(limits[number], left / (len(limits) - place))
        left -= rates[number]
    return rates


def stepped_ends(transfers: list[tuple[int, float, float]]) -> list[float]:
    """Return the ends by going from one change to the next with exact shares of every flow: no queues, no turns."""
    left = {i: n_bytes for i, (_, n_bytes, _) in enumerate(transfers)}
    ends, now = [0.0] * len(transfers), 0.0
    while left:
        active = [i for i in left if transfers[i][0] <= now]
        rates = fair_rates([transfers[i][2] for i in active])
        coming = [transfers[i][0] - now for i in left if transfers[i][0] > now]
        step = min(coming + [left[i] / rate for i, rate in zip(active, rates, strict=True)])
        now += step
        for i, rate in zip(active, rates, strict=True):
            left[i] -= rate * step
            if left[i] <= 1e-6:
                ends[i] = now
                del left[i]
    return ends


TRANSFER = st.tuples(
    st.integers(0, 300), st.integers(10, 500), st.sampled_from([0.01, 0.1, 0.25, 1 / 3, 0.5, 0.7, 1.0, 3.0, inf])
)


@settings(max_examples=500, deadline=None)
@given(st.lists(TRANSFER, min_size=1, max_size=12))
@example([(0, 100, 1 / 3)] * 3 + [(10, 100, inf)])
@example([(0, 300, 0.1)] * 10 + [(50, 10, inf), (60, 500, 0.05)])
def test_ends_are_those_of_the_definition(transfers):
    """To a picosecond for each change, since each is rounded up, and a picosecond that one has, others have not."""
    assert ends_of(transfers) == pytest.approx(stepped_ends(transfers), abs=2 * len(transfers) + 2)


@pytest.mark.slow
@pytest.mark.usefixtures("no_garbage_of_others")
def test_thousands_of_limited_flows_are_not_gone_through_for_each():
    """All share at first, and each may change over once: shared anew for each end, they would take their square."""

    def seconds(count: int) -> float:
        begin = process_time()
        ends = ends_of([(0, 1000 + number, (1 + number % 7) / count) for number in range(count)])
        taken = process_time() - begin
        assert min(ends) == ends[0] == 1000 * count
        return taken

    assert grows_by(seconds, (4000, 8000, 16000)) < MOST
