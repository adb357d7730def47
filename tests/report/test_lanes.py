"""Lanes of what overlaps: the lowest free one, however many are taken."""

from __future__ import annotations

from random import Random
from time import process_time

import pytest

from tests.growth import MOST, grows_by
from tpusim.report.lanes import Lanes


def test_the_lowest_free_lane_is_taken() -> None:
    """Beside the naive twin, which asks one lane after the other; stretches may have no length."""
    draw = Random(0)
    for _ in range(50):
        starts = sorted(draw.randrange(30) for _ in range(40))
        lanes, until_ps = Lanes(), list[int]()
        for start_ps in starts:
            end_ps = start_ps + draw.randrange(12)
            wanted = next((n for n, until in enumerate(until_ps) if until <= start_ps), len(until_ps))
            until_ps[wanted:] = [end_ps, *until_ps[wanted + 1 :]]
            assert lanes.take(start_ps, end_ps) == wanted


@pytest.mark.slow
@pytest.mark.usefixtures("no_garbage_of_others")
def test_time_grows_with_what_overlaps() -> None:
    """Transfers that are all under way at once."""

    def seconds(count: int) -> float:
        lanes, begin = Lanes(), process_time()
        assert [lanes.take(n, 2 * count) for n in range(count)] == list(range(count))
        return process_time() - begin

    assert grows_by(seconds, (10_000, 20_000, 40_000)) < MOST
