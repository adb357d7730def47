"""Links under traffic: transfers share them fairly and end when they should, not a picosecond before."""

from __future__ import annotations

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.machine.collectives import collective, pod_of, run
from tpusim.cost.links import Load, joined, link_name
from tpusim.hardware.load import load_chip
from tpusim.machine.network import LinkDemand, Network, fair_speeds
from tpusim.program.steps import Loop, Wait

CHIP = load_chip("v5e")
RATE = CHIP.ici.link_bytes_per_second * CHIP.ici.efficiency


def load_of(*links: int, n_bytes: float = 45e3) -> Load:
    """Return a load of so many bytes on each of some links: a microsecond alone."""
    return Load(np.array(links), np.full(len(links), n_bytes))


def ends_ps(*starts: tuple[int, Load]) -> list[int]:
    """Return when transfers end that begin at some moments."""
    env = simpy.Environment()
    network, ends = Network(env, pod_of("v5e:4x4"), CHIP), {}

    def send(number: int, at_ps: int, load: Load):
        yield env.timeout(at_ps)
        done = env.event()
        network.begin(load, 1.0, done.succeed)
        yield done
        ends[number] = env.now

    for number, (at_ps, load) in enumerate(starts):
        env.process(send(number, at_ps, load))
    env.run()
    return [ends[number] for number in range(len(starts))]


def test_a_transfer_takes_its_busiest_link():
    """45 kB at 45 GB/s, however many links there are on the way."""
    assert ends_ps((0, load_of(0, 2, 4))) == [1_000_000]


def test_transfers_on_one_link_share_it():
    """Two take twice as long, one beside them does not."""
    assert ends_ps((0, load_of(0, 2)), (0, load_of(2, 4)), (0, load_of(6))) == [2_000_000, 2_000_000, 1_000_000]


def test_a_late_transfer_slows_the_first_from_then_on():
    """Half of the first is done when the second begins; they share until the first ends at 1.5 us."""
    assert ends_ps((0, load_of(0)), (500_000, load_of(0))) == [1_500_000, 2_000_000]


def test_nothing_takes_no_time():
    """A load without links has ended at once."""
    assert ends_ps((7, load_of())) == [7]


def test_links_have_names():
    """Chip, axis and direction; what is beside the links of a slice has words."""
    pod = pod_of("v5e:4x4")
    assert [link_name(pod, number) for number in (0, 1, 6, 64, 66)] == [
        (0, "+0"),
        (0, "-0"),
        (1, "+1"),
        (0, "local"),
        (0, "in"),
    ]


def test_joined_loads_name_each_link_once():
    """Bytes on the same link add up."""
    links, n_bytes = joined([load_of(3, 1), load_of(3)])
    assert (list(links), list(n_bytes)) == ([1, 3], [45e3, 90e3])


demands = st.dictionaries(st.integers(0, 5), st.sampled_from([0.25, 0.5, 1.0]), min_size=1)


@given(st.lists(demands, min_size=1, max_size=6))
def test_shares_are_max_min_fair(wanted):
    """No link carries more than it can; who is held is among the fastest on some full link."""
    loads = [Load(np.array(list(one)), np.array(list(one.values()))) for one in wanted]
    speeds = fair_speeds([LinkDemand(load, np.ones(6)) for load in loads])
    # A transfer that is alone takes its busiest link's time: demands are shares of that.
    shares = [{link: n / max(one.values()) for link, n in one.items()} for one in wanted]
    used = {link: sum(s * d.get(link, 0) for s, d in zip(speeds, shares, strict=True)) for link in range(6)}
    assert all(share <= 1 + 1e-9 for share in used.values())
    for speed, own in zip(speeds, shares, strict=True):
        full = [link for link in own if used[link] >= 1 - 1e-9]
        rivals = [[s for s, d in zip(speeds, shares, strict=True) if link in d] for link in full]
        assert speed == pytest.approx(1.0) or any(speed >= max(others) - 1e-9 for others in rivals)


@pytest.mark.parametrize("apart", [None, True])
def test_a_run_is_the_same_whatever_is_kept(monkeypatch, apart):
    """Plans and transfers that were let go of are made again: the same times and the same bytes on the links."""
    rows, columns = (tuple(tuple(range(n, n + 4)) for n in range(0, 16, 4)), tuple((n, n + 4) for n in range(8)))
    step = collective("all-reduce", 1e6, rows)
    beside = structs.replace(collective("all-gather", 3e6, columns), name="b", is_async=True)
    loop = Loop(name="l", opcode="while", trips=5, body=(beside, step, Wait(name="w", opcode="", needs=("b",)), step))
    kept = run("v5e:4x4", loop, step, apart=apart)
    for room in ("machine.costs._PLANS_BYTES", "machine.network._DEMAND_BYTES", "cost.groups._KEPT_BYTES"):
        monkeypatch.setattr(f"tpusim.{room}", 0)
    assert run("v5e:4x4", loop, step, apart=apart) == kept


def test_links_of_equal_runs_are_equal():
    """They are made when they are looked at, but a run is data: it can be compared, hashed and printed."""
    runs = [run("v5e:2x2", collective("all-reduce", 1e6, ((0, 1, 2, 3),))) for _ in range(2)]
    assert runs[0].links == runs[1].links == tuple(runs[0].links)
    assert runs[0].links != ()
    assert hash(runs[0].links) == hash(runs[1].links)
    assert repr(runs[0].links).startswith("(LinkUse(chip=")
