"""The pages of kernels beside the compiler's estimates and of whole steps, from outcomes written by hand."""

from __future__ import annotations

import io

from rich.console import Console

from tests.analysis.test_estimates import kernel
from tpusim.analysis.accuracy import Outcome, validation
from tpusim.analysis.bands import Band
from tpusim.analysis.estimates import compare_estimates
from tpusim.analysis.steps import CategoryTime, StepOutcome, step_accuracy
from tpusim.report.terminal.accuracy import render_accuracy
from tpusim.report.terminal.estimates import render_estimates
from tpusim.report.terminal.steps import render_steps

KERNELS = [kernel(2.0, op="near", count=10), kernel(1.0, op="far", program="q")]
CATEGORIES = (
    CategoryTime(category="fusions", predicted_us=900.0, compared_us=600.0, compiler_us=400.0, roofline_us=450.0),
    CategoryTime(category="waits", predicted_us=92.0, compared_us=0.0, compiler_us=0.0, roofline_us=0.0),
    CategoryTime(category="copies", predicted_us=5.0, compared_us=3.0, compiler_us=6.0, roofline_us=1.0),
    CategoryTime(category="scalars", predicted_us=3.0, compared_us=1.0, compiler_us=2.0, roofline_us=3.0),
)
STEP = StepOutcome(
    name="net",
    program="net.hlo",
    chip="v5e",
    topology="",
    family="convnet",
    use="fair: rebuilt",
    timing="log_step",
    source="a paper",
    differs="no dropout",
    measured_us=800.0,
    low_us=700.0,
    high_us=900.0,
    predicted_us=1000.0,
    bands=(Band(kind="product", share=0.7, error=0.052, rows=9), Band(kind="other", share=0.3)),
    categories=CATEGORIES,
)


def lines_of(render, found) -> list[list[str]]:
    """Return the words of each line of a page."""
    console = Console(file=io.StringIO(), width=160)
    render(found, console)
    return [line.split() for line in console.file.getvalue().splitlines()]


def test_how_rows_were_estimated_is_said_once():
    """With how many of them were: what their errors come from is no rule."""
    row = {"program": "p", "chip": "v5e", "family": "hand-written", "measured_us": 2.0, "predicted_us": 1.0}
    row |= {"compiler_us": 0.0, "roofline_us": 1.0, "bound_by": "HBM", "units": {}}
    rows = [Outcome(**row, estimates=("by its bytes",) * count) for count in range(3)]
    lines = lines_of(render_accuracy, validation(rows))
    assert lines.count("2 of 3 rows have kernels that were estimated: by its bytes".split()) == 1


def test_a_category_has_its_ratios_and_sums():
    """Kernels at a fifth and a tenth, the former ten times."""
    lines = lines_of(render_estimates, compare_estimates(KERNELS, 2))
    cells = "loop fusion v5e 2 0.15 0.11 0.19 21.00 us 110.00 us 0.19"
    assert lines[1] == cells.split()


def test_a_far_class_is_followed_by_its_worst_kernels():
    """Program and op, what bounds them, the ratio, ours and the compiler's."""
    lines = lines_of(render_estimates, compare_estimates(KERNELS, 2))
    at = lines.index("loop fusion v5e HBM 2 0.15 21.00 us 110.00 us".split())
    assert lines[at + 1 : at + 3] == [
        "q far HBM 0.10 1.00 us 10.00 us".split(),
        "p near HBM 0.20 2.00 us 10.00 us".split(),
    ]


def test_programs_that_were_left_out_stand_by_their_reason():
    """One line a reason, without folders."""
    left_out = {"/a/x.hlo": "not scheduled", "/b/y.hlo": "a slip", "z.hlo": "not scheduled"}
    lines = [" ".join(line) for line in lines_of(render_estimates, compare_estimates(KERNELS, 2, left_out))]
    assert lines[-2:] == ["left out, not scheduled: x.hlo, z.hlo", "left out, a slip: y.hlo"]


def test_a_page_without_kernels_says_so():
    """Programs of nothing but short kernels."""
    text = [" ".join(line) for line in lines_of(render_estimates, compare_estimates([], 3))]
    assert text[0].startswith("0 kernels of 3 programs")
    assert "No class of kernels has a median outside 0.5 to 2." in text


def test_a_step_has_its_times_and_what_was_never_measured():
    """With the range that its source allows."""
    lines = lines_of(render_steps, step_accuracy([STEP]))
    assert lines[1] == "net v5e fair 800.00 us 700.00 us to 900.00 us 1.00 ms 1.25 30%".split()
    assert lines[2][:11] == "mean absolute error of the 1 good and fair rows: 25.0%;".split()


def test_families_are_told_apart_by_whether_they_were_measured():
    """Those that were with their error."""
    lines = [" ".join(line) for line in lines_of(render_steps, step_accuracy([STEP]))]
    assert "measured on this chip: product 70% (off by 5.2%)" in lines
    assert "never measured on it: all else 30%" in lines
    assert {"source: a paper", "differs: no dropout"} <= set(lines)


def test_categories_are_compared_as_far_as_they_can_be():
    """600 of 900 us have an estimate, waits have none; what takes less than a hundredth is one row."""
    lines = [" ".join(line) for line in lines_of(render_steps, step_accuracy([STEP]))]
    assert lines[-3:] == [
        "fusions 900.00 us 90.0% 400.00 us 1.50 450.00 us 2.00",
        "waits 92.00 us 9.2% - - - -",
        "2 more 8.00 us 0.8% 8.00 us 0.50 4.00 us 2.00",
    ]
