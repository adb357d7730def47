"""Which devices part when a wait ends earlier for some of a cohort than for others."""

from __future__ import annotations

from tests.machine.collectives import collective, program_of
from tpusim.hardware.load import load_chip
from tpusim.hardware.pod import parse_topology
from tpusim.machine.cohorts import Split, refined
from tpusim.machine.costs import Costs
from tpusim.machine.placement import assign, pod_of


def cut(groups, ends_ps, *, deep):
    """Return the cohorts of four devices, together before, for which an all-reduce in these groups ends like this."""
    step = collective("all-reduce", 1e6, groups)
    program, chip = program_of(step, devices=4), load_chip("v5e")
    costs = Costs(chip, pod_of([program], chip, parse_topology("v5e:2x2")))
    split = Split(step, dict(enumerate(ends_ps)))
    return sorted(refined(costs, assign([program], 4), [(0, 1, 2, 3)], split, deep=deep))


def test_a_cut_parts_devices_for_which_the_wait_ends_at_different_times():
    """The third and fourth are of one group, but only the fourth is late."""
    assert cut(((0, 1), (2, 3)), (5, 5, 5, 7), deep=False) == [(0, 1, 2), (3,)]


def test_a_deep_cut_parts_those_that_wait_for_a_late_one_as_well():
    """The partner of the late one will be late itself the next time."""
    assert cut(((0, 1), (2, 3)), (5, 5, 5, 7), deep=True) == [(0, 1), (2,), (3,)]


def test_a_deep_cut_keeps_devices_together_whose_groups_are_alike():
    """Pairs of an early and a late device, whichever of them is named first: a sum has no order."""
    assert cut(((0, 1), (3, 2)), (5, 7, 5, 7), deep=True) == [(0, 2), (1, 3)]
