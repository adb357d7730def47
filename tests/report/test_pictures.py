"""Every kind of picture: looks as it did when somebody last looked, names its axes, and no text covers another."""

from __future__ import annotations

import pytest

from tests.report.picture_cases import CASES
from tests.report.pictures import baseline_of, difference, grey_of, overlaps, strays
from tpusim import plot
from tpusim.report.plots.style import Figure

# Another font moves the shade of a place by up to 0.07, a missing cell, bar or area by 0.12 and more.
TOLERANCE = 0.1

FIGURES: dict[str, Figure] = {}


def figure_of(name: str) -> Figure:
    """Return a picture, drawn once for all tests of it."""
    if name not in FIGURES:
        FIGURES[name] = CASES[name]()
    return FIGURES[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_looks_as_it_did(name: str) -> None:
    """The baselines were looked at one by one; ``python -m tests.report.pictures NAME`` draws one anew."""
    assert difference(grey_of(figure_of(name)), baseline_of(name)) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_text_covers_another(name: str) -> None:
    """Titles, labels, ticks, legends and names of ops: their boxes are disjoint."""
    assert overlaps(figure_of(name)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_text_is_cut(name: str) -> None:
    """All texts lie within the picture."""
    assert strays(figure_of(name)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_axis_has_a_name(name: str) -> None:
    """An axis with figures along it says what they are, and in which unit."""
    for ax in figure_of(name).axes:
        ticks_x, ticks_y = ax.get_xticks(), ax.get_yticks()
        assert ax.get_xlabel() or not len(ticks_x) or not ax.axison or ax.get_label() == "<colorbar>"
        assert ax.get_ylabel() or not len(ticks_y) or not ax.axison


@pytest.mark.slow
def test_the_comparison_tells_pictures_apart() -> None:
    """One missing cell, bar or area is seen; so is another picture of the same size."""
    for name, artists in (("layout_figure_1", "patches"), ("utilisation", "patches"), ("memory", "patches")):
        other = CASES[name]()
        next(iter(getattr(other.axes[0], artists))).remove()
        assert difference(grey_of(other), baseline_of(name)) > TOLERANCE
    assert difference(grey_of(figure_of("systolic_weights_stay")), baseline_of("systolic_sums_stay")) > TOLERANCE


def test_letters_that_the_font_lacks_are_boxes(tmp_path):
    """Nothing is said of them, and a warning would bring those that drive a terminal to it."""
    records = [{"name": name, "x": x, "y": x} for x, name in enumerate(("a\x1b]0;b\x07", "\u6f22"), start=1)]
    plot.save(plot.pareto(records, "x", "y", "name"), tmp_path / "designs.svg")
