"""The fluid model of a shared memory, against arithmetic and against a twin that steps through time."""

from __future__ import annotations

from math import inf

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from tpusim.machine.fluid import Flow, SharedMemory, fair_rates

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


@pytest.mark.parametrize("limits", [[1.0, 1.0], [0.1, 5.0, 5.0], [0.2, 0.3, 0.4], [9.0]])
def test_rates_are_max_min_fair(limits):
    """No flow exceeds its limit, none is below its fair share unless limited, and the capacity is used up."""
    flows = [Flow(1.0, limit, None) for limit in limits]
    fair_rates(flows, 1.0)
    total = sum(flow.rate for flow in flows)
    assert total == pytest.approx(min(1.0, sum(limits)))
    highest = max(flow.rate for flow in flows)
    assert all(flow.rate == pytest.approx(min(flow.limit, highest)) for flow in flows)


def stepped_ends(transfers: list[tuple[int, float, float]], step_ps: int) -> list[float]:
    """Return the ends by stepping through time: the definition of a fluid, slowly."""
    left = [n_bytes for _, n_bytes, _ in transfers]
    ends = [0.0] * len(transfers)
    now = 0
    while any(amount > 0 for amount in left):
        active = [i for i, (start, _, _) in enumerate(transfers) if start <= now and left[i] > 0]
        flows = [Flow(left[i], transfers[i][2], None) for i in active]
        fair_rates(flows, 1.0)
        now += step_ps
        for i, flow in zip(active, flows, strict=True):
            left[i] -= flow.rate * step_ps
            ends[i] = now if left[i] <= 0 and not ends[i] else ends[i]
    return ends


TRANSFER = st.tuples(st.integers(0, 300), st.integers(10, 500), st.sampled_from([0.1, 0.5, inf]))


@settings(max_examples=40, deadline=None)
@given(st.lists(TRANSFER, min_size=1, max_size=5))
def test_agrees_with_stepping_through_time(transfers):
    """Ends agree with the stepped twin to within its step times the number of changes."""
    fast, slow = ends_of(transfers), stepped_ends(transfers, 1)
    assert fast == pytest.approx(slow, abs=2 * len(transfers) + 2)
