"""Whole steps beside published times: which rows count, and what the time of a run is compared with."""

from __future__ import annotations

import pytest

from tpusim.analysis.bands import Band
from tpusim.analysis.steps import StepOutcome, category_times, step_accuracy
from tpusim.hardware.load import load_chip
from tpusim.timeline.records import Record, Timeline

V5E = load_chip("v5e")


def step(use: str, predicted_us: float = 1.0, bands: tuple[Band, ...] = ()) -> StepOutcome:
    """Return a step that was measured to take 1 us."""
    texts = dict.fromkeys("name program chip topology family timing source differs".split(), "")
    times = {"measured_us": 1.0, "low_us": 1.0, "high_us": 1.0, "predicted_us": predicted_us}
    return StepOutcome(use=use, bands=bands, categories=(), **texts, **times)  # type: ignore[arg-type]


def record(name: str, us: int, **given: object) -> Record:
    """Return a kernel of the core that took so many microseconds, in a category of its name."""
    facts = {"opcode": "fusion", "category": name, "row": "core", "start_ps": 0, "is_kernel": True}
    return Record(name=name, end_ps=us * 10**6, **(facts | given))  # type: ignore[arg-type]


def times(*records: Record, clock_hz: float = 1e9):
    """Return the categories of a run of some records."""
    return category_times(Timeline(program="p", chip="v5e", total_ps=1, records=records), V5E, clock_hz)


def test_weak_rows_do_not_count():
    """A tenth too long and three tenths too short: 20 % on average, whatever the weak row is."""
    found = step_accuracy([step("good", 1.1), step("fair: rewritten", 0.7), step("weak: a host's clock", 9.0)])
    assert (found.counted, found.mean_error) == (2, pytest.approx(0.2))


def test_weak_rows_alone_have_no_error():
    """There is nothing to divide by."""
    assert step_accuracy([step("weak", 3.0)]).mean_error is None


def test_families_without_measured_rows_add_up():
    """A quarter of the time was measured on this chip."""
    bands = (
        Band(kind="product", share=0.25, error=0.1, rows=7),
        Band(kind="copy", share=0.5),
        Band(kind="x", share=0.25),
    )
    assert step("good", bands=bands).unmeasured_share == 0.75


def test_only_what_the_compiler_estimates_is_compared_with_it():
    """Of 30 us in a category 10 have an estimate, of 8,000 cycles; the sentinel is none."""
    records = (record("a", 10), record("a", 10, compiler_cycles=8000), record("a", 10, compiler_cycles=2**60))
    (found,) = times(*records)
    assert (found.predicted_us, found.compared_us, found.compiler_us) == (30.0, 10.0, 8.0)


def test_a_program_for_another_chip_has_no_estimates():
    """Its cycles are of no clock that is known."""
    (found,) = times(record("a", 10, compiler_cycles=8000), clock_hz=0.0)
    assert (found.compared_us, found.compiler_us) == (0.0, 0.0)


def test_executions_of_a_loop_count_each():
    """Three trips of 10 us."""
    (found,) = times(record("a", 10, compiler_cycles=8000, count=3))
    assert (found.predicted_us, found.compiler_us) == (30.0, 24.0)


def test_categories_of_the_core_come_by_their_time():
    """What runs beside it takes none of its time."""
    found = times(record("a", 10), record("b", 20), record("c", 30, row="dma"), record("d", 0))
    assert [one.category for one in found] == ["b", "a"]


def test_a_roofline_is_the_sum_of_each_step_s_own():
    """One step at the bandwidth of HBM, then one at the peak of the arrays: together they would overlap."""
    second = 10**6
    n_bytes, flops = V5E.hbm.bandwidth_bytes_per_second / second, V5E.peak_flops_per_second / second
    moved = record("a", 10, activity={"hbm": n_bytes})
    (found,) = times(moved, record("a", 10, product_flops=flops, units={"matrix": second // 2}))
    assert found.roofline_us == pytest.approx(2.0)
