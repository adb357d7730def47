"""Selecting the best k: sorted runs that are merged into their better halves, never dearer than sorting all."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.lowering.hlo import kernel_named, lower_text
from tests.lowering.test_vector_costs import COMPUTATIONS, MOVES, OPS, assert_computes, at_cost
from tpusim.cost.tile import alone_ps, kernel_time
from tpusim.hardware.load import load_chip
from tpusim.lowering.kernels import in_turn
from tpusim.lowering.kernels.in_turn import ways_to_select

IN_LANES, ALONG_LANES = "{0,1:T(8,128)}", "{1,0:T(8,128)}"


def selection(rows, length, k, layout=ALONG_LANES, chip="v5e", call=""):
    """Return the kernel that takes the best ``k`` of ``rows`` rows."""
    call = call or f"topk(%a), k={k}, largest=true"
    lines = f"%a = f32[{rows},{length}]{layout} parameter(0)\n%low = f32[] constant(0)\n"
    result = f"(f32[{rows},{k}]{layout}, s32[{rows},{k}]{layout})"
    return kernel_named(lower_text(f"{lines}ROOT %y = {result} {call}", COMPUTATIONS, chip), "y")


def whole_work(kernel):
    """Return the operations of all tiles by unit."""
    return {unit: count * kernel.tiles for unit, count in kernel.work.ops.items()}


def naive_stages(k, runs):
    """Return how many comparisons an element of ``runs`` sorted runs of ``k`` takes part in, merge by merge."""
    levels = k.bit_length() - 1
    comparisons = sum(level + 1 for level in range(levels)) * runs * k / 2
    while runs > 1:
        # Each element against one of the other run, then the better half is sorted again.
        comparisons += runs / 2 * k + levels * (runs / 2 * k) / 2
        runs /= 2
    return comparisons * 2


@pytest.mark.parametrize("k", [1, 2, 16, 64])
def test_selecting_takes_the_stages_of_sorted_runs_and_their_merges(k):
    """A naive count, merge by merge; of the last run nothing more is merged. 128 rows fill the lanes."""
    length = 2**14
    ops = whole_work(selection(128, length, k))["vector"]
    stages = naive_stages(k, length // k) / length
    assert ops == pytest.approx(stages * OPS["topk"]["vector"] * length / 8, rel=0.05)


def test_more_than_sorting_is_never_paid():
    """One row of 2**20 would leave 127 lanes empty: 210 stages of a network over 1,024 registers are less."""
    compare = {"vector": 2 * OPS["compare"]["vector"] + OPS["and"]["vector"]}
    swaps = (2 * 210 * 1024, OPS["sort"]), (210 * 1024 / 2, compare)
    assert_computes(whole_work(selection(1, 2**20, 64)), at_cost(*swaps, (2 * 140 * 1024, MOVES["lane_exchange"])))


def time_of(kernel, chip="v5e"):
    """Return how long a kernel takes by itself, in ps."""
    return alone_ps(kernel, load_chip(chip))


LENGTHS, BEST = [64, 128, 129, 255, 257, 384, 513, 1000, 4096, 5000, 32768, 201088], [1, 2, 5, 8, 16, 50, 64]


def grow(times):
    """Return whether each takes no less than the one before; with another tile there is less before the first."""
    return all(after >= 0.98 * before for before, after in pairwise(times))


@pytest.mark.parametrize("chip", ["v3", "v5e", "v7x"])
@pytest.mark.parametrize("rows", [1, 8, 64, 100, 200, 512])
def test_more_to_select_and_more_to_select_from_never_take_less(rows, chip):
    """Over k and over the length of a row; what comes and goes by itself does not get less either."""
    times = [[time_of(selection(rows, n, k, chip=chip), chip) for k in BEST] for n in LENGTHS]
    assert all(map(grow, times))
    assert all(map(grow, zip(*times, strict=True)))


@pytest.mark.parametrize("layout", [IN_LANES, ALONG_LANES, "{1,0:T(8,128)S(1)}"])
@pytest.mark.parametrize("rows", [1, 8, 64, 100, 512])
def test_neither_way_by_itself_is_faster(rows, layout, monkeypatch):
    """The one is taken that takes less time, its units and what waits for each other together."""
    sizes = [(n, k) for n in LENGTHS for k in BEST]
    taken = [time_of(selection(rows, *size, layout)) for size in sizes]
    for number in range(2):
        monkeypatch.setattr(in_turn, "ways_to_select", lambda *site, at=number: [ways_to_select(*site)[at]])
        forced = [time_of(selection(rows, *size, layout)) for size in sizes]
        assert all(ours <= other for ours, other in zip(taken, forced, strict=True))


@pytest.mark.parametrize(("rows", "length"), [(1, 64), (1, 1000), (64, 255), (8, 4096)])
def test_a_register_goes_through_all_stages_one_after_another(rows, length):
    """However many rows fill the registers: the best of a row is behind every comparison of it."""
    kernel, latency = selection(rows, length, 1), load_chip("v5e").vector_ops.latency
    stage = sum(count * latency[unit] for unit, count in OPS["topk"].items())
    assert kernel.vector_loop.depth_cycles == pytest.approx(latency["load"] + 2 * stage + latency["store"])


@pytest.mark.parametrize("k", [1, 4, 64])
def test_the_layout_of_the_operand_decides_little(k):
    """The compiler turns it; padded to 128 lanes 8 rows are sixteen times as many registers."""
    chip = load_chip("v5e")
    times = [kernel_time(selection(8, 128000, k, layout), chip).compute_ps for layout in (IN_LANES, ALONG_LANES)]
    assert max(times) < 1.5 * min(times)


@pytest.mark.parametrize("layout", [IN_LANES, ALONG_LANES])
@pytest.mark.parametrize(
    ("chip", "shape", "measured_us"),
    [("v5e", (32, 201088, 64), 1320), ("v6e", (32, 201088, 64), 1010), ("v5e", (16, 32768, 5), 85)],
)
def test_measured_selections_are_explained(layout, chip, shape, measured_us):
    """Within 30 %, for either layout (oliverdutton/fast_exact_topk_tpu and oliverdutton/tallax: XLA's own top-k)."""
    found_us = kernel_time(selection(*shape, layout, chip), load_chip(chip)).compute_ps / 1e6
    assert found_us == pytest.approx(measured_us, rel=0.3)


def test_the_best_of_bins_are_kept_in_one_pass():
    """32 registers: a comparison, and a selection each of values and positions."""
    call = 'custom-call(%a, %low), custom_call_target="PartialReduce", called_computations={%less}'
    found = whole_work(selection(64, 512, 128, call=call))
    assert_computes(found, at_cost((32, OPS["compare"]), (2 * 32, OPS["select"])))
