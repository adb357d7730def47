"""Kernels beside the compiler's estimates: which count, what their ratios come to, and which classes are far off."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpusim.analysis.estimates import KernelEstimate, compare_estimates, gap_reason, kernel_estimates, percentile
from tpusim.timeline.records import Record, Timeline


def kernel(predicted_us: float, compiler_us: float = 10.0, **given_: object) -> KernelEstimate:
    """Return a kernel of a loop fusion that HBM bounds, run once."""
    facts = {"program": "p", "op": "f", "chip": "v5e", "category": "loop fusion", "bound_by": "HBM", "count": 1}
    return KernelEstimate(predicted_us=predicted_us, compiler_us=compiler_us, **(facts | given_))  # type: ignore[arg-type]


def record(name: str, us: int, cycles: int, **given_: object) -> Record:
    """Return a kernel that took so many microseconds, of which the compiler estimates so many cycles."""
    facts = {"opcode": "fusion", "category": "loop fusion", "row": "core", "bound_by": "HBM", "is_kernel": True}
    end_ps = us * 10**6
    return Record(name=name, start_ps=0, end_ps=end_ps, compiler_cycles=cycles, **(facts | given_))  # type: ignore[arg-type]


def estimates(*records: Record) -> list[KernelEstimate]:
    """Return the kernels of a run of some records, at 1 GHz: a thousand cycles are a microsecond."""
    return list(kernel_estimates("p", Timeline(program="p", chip="v5e", total_ps=1, records=records), 1e9))


def test_ratios_are_those_of_arithmetic():
    """Eleven kernels from 0.5 to 1.5 of what the compiler says: the second, the middle one and the last but one."""
    (row,) = compare_estimates([kernel(5.0 + n) for n in range(11)], 1).categories
    assert (row.kernels, row.median) == (11, 1.0)
    assert (row.p10, row.p90) == (pytest.approx(0.6), pytest.approx(1.4))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_percentiles_end_at_the_least_and_the_largest(values):
    """And the half of them stays below the median."""
    assert (percentile(values, 0.0), percentile(values, 1.0)) == (min(values), max(values))
    assert percentile(values, 0.5) == pytest.approx(median(values))


def test_a_percentile_lies_on_the_line_between_two_values():
    """A tenth of the way from the first of two to the second."""
    assert percentile([20.0, 10.0], 0.1) == pytest.approx(11.0)


def test_sums_are_of_all_executions():
    """A kernel of 6 us that runs a hundred times counts once in the median, and with 600 us in the sum."""
    (row,) = compare_estimates([kernel(6.0, count=100), kernel(30.0)], 1).categories
    assert (row.kernels, row.predicted_us, row.compiler_us) == (2, 630.0, 1010.0)


def test_chips_and_categories_have_rows_of_their_own():
    """In the order of the chips."""
    found = compare_estimates([kernel(9.0, chip="v6e"), kernel(9.0), kernel(9.0, category="copy")], 2).categories
    assert [(row.chip, row.category) for row in found] == [
        ("v5e", "copy"),
        ("v5e", "loop fusion"),
        ("v6e", "loop fusion"),
    ]


@pytest.mark.parametrize(("predicted_us", "is_far"), [(4.9, True), (5.0, False), (20.0, False), (20.1, True)])
def test_a_class_is_far_off_outside_half_and_twice(predicted_us, is_far):
    """By its median, both ends excluded."""
    assert bool(compare_estimates([kernel(predicted_us)], 1).far_off) == is_far


def test_a_class_is_also_what_bounds_it():
    """Kernels bound by HBM are met, those bound by the vector unit are not; together they would hide it."""
    found = compare_estimates([*[kernel(10.0)] * 3, kernel(3.0, bound_by="vector")], 1).far_off
    assert [(one.bound_by, one.kernels) for one in found] == [("vector", 1)]


def test_the_worst_three_are_the_furthest_by_their_ratio():
    """A tenth is as far off as ten times, further than a third; one that takes nothing is the furthest."""
    found = compare_estimates([kernel(us, op=f"f{us:g}") for us in (4.0, 100.0, 3.0, 0.0, 4.5)], 1).far_off
    assert [one.op for one in found[0].worst] == ["f0", "f100", "f3"]


def test_one_of_each_kernel_is_among_the_worst():
    """A layer that stands in a program ten times would fill the list by itself."""
    kernels = [*(kernel(1.0, op=f"layer{n}") for n in range(10)), kernel(2.0, op="head")]
    assert [one.op for one in compare_estimates(kernels, 1).far_off[0].worst] == ["layer0", "head"]


def test_classes_come_by_the_time_that_differs():
    """A few microseconds that are far off go behind many that are less so."""
    kernels = [kernel(1.0), kernel(4.0, bound_by="vector", count=1000)]
    assert [one.bound_by for one in compare_estimates(kernels, 1).far_off] == ["vector", "HBM"]


@pytest.mark.parametrize(("us", "cycles", "count"), [(5, 5000, 0), (6, 5000, 1), (5, 5001, 1)])
def test_kernels_above_5_us_count(us, cycles, count):
    """By us or by the compiler."""
    assert len(estimates(record("f", us, cycles))) == count


@pytest.mark.parametrize("cycles", [0, 2**60, 2**63 - 1])
def test_a_sentinel_is_no_estimate(cycles):
    """None was made, or the compiler wrote that it could not."""
    assert estimates(record("f", 10, cycles)) == []


def test_a_kernel_in_a_loop_is_one():
    """Two records of three and one executions: the mean of the four, beside the estimate of one."""
    (found,) = estimates(record("f", 10, 8000, count=3), record("f", 14, 8000))
    assert (found.predicted_us, found.compiler_us, found.count) == (11.0, 8.0, 4)


def test_a_kernel_is_bound_by_what_most_of_its_time_went_to():
    """Not by what bound its first execution, nor the most of them."""
    bounds = (("vector", 1, 5), ("HBM", 20, 1), ("vector", 1, 5))
    (found,) = estimates(*(record("f", us, 8000, bound_by=bound, count=count) for bound, us, count in bounds))
    assert found.bound_by == "HBM"


def test_ops_of_one_name_in_two_computations_are_two():
    """They differ by their line."""
    assert len(estimates(record("f", 10, 8000, line=3), record("f", 10, 8000, line=4))) == 2


def test_what_is_no_kernel_of_the_core_is_left_out():
    """Copies, waits, and calls beside the core."""
    others = ({"is_kernel": False}, {"is_wait": True}, {"row": "sparsecore"})
    assert estimates(*(record(f"f{n}", 10, 8000, **one) for n, one in enumerate(others))) == []


@pytest.mark.parametrize(
    ("ours_us", "compiler_us", "hbm_us", "reason"),
    [
        (100, 190, 95, ""),
        (100, 230, 95, "streams twice"),
        (100, 230, 10, "not known"),
        (100, 900, 95, "not known"),
        (100, 20, 95, "bytes left out"),
        (100, 20, 10, "not known"),
        (100, 0, 10, ""),
    ],
)
def test_why_an_estimate_is_another(ours_us, compiler_us, hbm_us, reason):
    """Within a factor of two there is nothing to say; streams that are charged twice, bytes that are left out."""
    assert gap_reason(ours_us, compiler_us, hbm_us) == reason
