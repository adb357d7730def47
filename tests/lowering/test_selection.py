"""Selecting the best k: sorted runs that are merged into their better halves, never dearer than sorting all."""

from __future__ import annotations

import pytest

from tests.lowering.hlo import kernel_named, lower_text
from tests.lowering.test_vector_costs import COMPUTATIONS, MOVES, OPS, assert_computes, at_cost
from tpusim.cost.tile import kernel_time
from tpusim.hardware.load import load_chip

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


@pytest.mark.parametrize("rows", [1, 8, 64, 200])
def test_more_to_select_and_more_to_select_from_never_take_less(rows):
    """Over k and over the length of a row."""
    work = [[whole_work(selection(rows, n, k))["vector"] for k in (1, 4, 5, 64, 1000)] for n in (1000, 4096, 128000)]
    assert all(line == sorted(line) for line in work)
    assert all(list(line) == sorted(line) for line in zip(*work, strict=True))


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
