"""A graph's shortest ways, by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tpusim.hardware.fabric import Graph

# 0 to 3 by 1, twice as fast, or by 2; 4 hangs on 3 and leads nowhere.
DIAMOND = Graph(4, 5, ((0, 1), (0, 2), (1, 3), (2, 3), (3, 4)), (2.0, 1.0, 1.0, 1.0, 1.0))


def test_bytes_take_all_shortest_ways_more_on_faster_links():
    """Two thirds go by the faster link, and all of it comes in."""
    assert DIAMOND.spread(0, 3) == {0: 2 / 3, 1: 1 / 3, 2: 2 / 3, 3: 1 / 3}
    assert DIAMOND.distances(3) == {3: 0, 1: 1, 2: 1, 0: 2}


def test_a_message_to_oneself_takes_no_link():
    """And is no way away."""
    assert DIAMOND.spread(2, 2) == {}
    assert DIAMOND.distances(2)[2] == 0


def test_where_no_way_leads_nothing_is_carried():
    """Links go one way."""
    assert DIAMOND.spread(4, 0) == {}
    assert 4 not in DIAMOND.distances(0)


@given(st.integers(3, 9), st.integers(0, 8), st.integers(0, 8))
def test_on_a_ring_the_nearer_way_is_taken(count, source, target):
    """Both ways where they are as long."""
    links = tuple((a, (a + way) % count) for way in (1, -1) for a in range(count))
    ring = Graph(count, count, links, (1.0,) * len(links))
    up = (target - source) % count
    assert ring.distances(target % count)[source % count] == min(up, count - up)
    assert sum(ring.spread(source % count, target % count).values()) == min(up, count - up)
