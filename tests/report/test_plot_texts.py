"""Texts from outside in pictures: names, columns and chips are drawn letter by letter, whatever stands in them."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from xml.etree import ElementTree

import pytest
from msgspec import structs

from tests.report.picture_cases import causal, pod, product, profiles, run
from tests.report.pictures import texts_of
from tpusim import plot
from tpusim.analysis.answers.scaling import ScaleRow
from tpusim.hardware.array import Array
from tpusim.hardware.load import load_chip
from tpusim.pipeline.layers import run_layers
from tpusim.program.compilation import TriedTiles
from tpusim.program.layers import Layer
from tpusim.program.steps import TileLoop
from tpusim.report.plots import links as plot_links
from tpusim.report.plots import memory as plot_memory
from tpusim.report.plots import roofline as plot_roofline
from tpusim.report.plots import timeline as plot_timeline
from tpusim.report.plots import utilisation as plot_utilisation
from tpusim.report.plots.style import Figure, legend_entry, literal, new_figure, shortened
from tpusim.timeline.records import Timeline

NAME = "_$\\frac$\x01\ufffe"
"""No formula, though it looks like one; no letters of XML; and what Matplotlib's legends leave out."""


def dressed() -> Timeline:
    """Return a run of which nothing has a name of its own."""
    records = tuple(structs.replace(one, name=NAME, source=NAME) for one in run().records)
    records += (structs.replace(records[0], row=NAME),)
    repeats = tuple(structs.replace(one, name=NAME) for one in run().repeats)
    return structs.replace(run(), program=NAME, chip=NAME, records=records, repeats=repeats)


def memory() -> Figure:
    """Return the picture of buffers whose names and lines come from a program."""
    parts = [
        structs.replace(
            one,
            schedule=(NAME,) * len(one.schedule),
            buffers=tuple(structs.replace(buffer, name=NAME, source=NAME) for buffer in one.buffers),
        )
        for one in profiles()
    ]
    return plot_memory.memory(parts, {}, NAME)


def tiles() -> Figure:
    """Return the picture of a kernel whose loops have names of a lowered program."""
    one = TriedTiles(tiles=8, loops=(TileLoop(NAME, 8),), stated={}, alone_ps=10**6)
    return plot.tiles(structs.replace(product(), name=NAME, tried=(one,)))


def pallas() -> Figure:
    """Return the picture of a kernel written by hand, whose operands have such names."""
    windows = tuple(structs.replace(window, name=NAME) for window in causal().windows)
    return plot.pallas(structs.replace(causal(), name=NAME, chip=NAME, semantics=(NAME,) * 3, windows=windows))


def scaling() -> Figure:
    """Return the picture of a family of programs on a chip of such a name."""
    row = ScaleRow(
        program=NAME, chip=NAME, topology="1", devices=1, variables={}, total_ps=10**6, bound_by="HBM", bound_share=1.0,
        items=4.0, mfu=0.5, peak_hbm_bytes=2**30, hbm_capacity_bytes=2**34, fits=True, joules=1.0, usd=None, warnings=0,
    )  # fmt: skip
    return plot.scaling([row, structs.replace(row, items=8.0)])


ROWS = [{f"{NAME} x": 1, f"{NAME} y": 2, NAME: NAME}, {f"{NAME} x": 3, f"{NAME} y": 1, NAME: f"{NAME}2"}]
EFFECTS = [(NAME, 1.0, 2.0)]
PICTURES: dict[str, Callable[[], Figure]] = {
    "timeline": lambda: plot_timeline.timeline(dressed()),
    "timeline, unfolded": lambda: plot_timeline.timeline(dressed(), unfold=True),
    "roofline": lambda: plot_roofline.roofline(dressed(), load_chip("v5e")),
    "utilisation": lambda: plot_utilisation.utilisation(dressed()),
    "memory": memory,
    "tiles": tiles,
    "pallas": pallas,
    "links": lambda: plot_links.links(structs.replace(pod(2, 2), timelines=(dressed(),))),
    "layers": lambda: plot.layers(run_layers([Layer(name=NAME, m=8, n=8, k=8)], Array(rows=8, columns=8)), title=NAME),
    "pareto": lambda: plot.pareto(ROWS, f"{NAME} x", f"{NAME} y", NAME),
    "pareto per": lambda: plot.pareto(ROWS, f"{NAME} x", f"{NAME} y", per=NAME, normalise=NAME),
    "sweep": lambda: plot.sweep(ROWS, f"{NAME} x", f"{NAME} y", by=NAME),
    "sweep per": lambda: plot.sweep(ROWS, f"{NAME} x", f"{NAME} y", by=f"{NAME} x", per=NAME),
    "sweep over texts": lambda: plot.sweep(ROWS, NAME, f"{NAME} y"),
    "sensitivity": lambda: plot.sensitivity(EFFECTS, NAME),
    "sensitivities": lambda: plot.sensitivities({NAME: EFFECTS}, NAME),
    "scaling": scaling,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_texts_from_outside_are_drawn_as_they_are(name: str) -> None:
    """No dollar sign is left that could begin a formula, and no letter that SVG could not hold."""
    words = [text.get_text() for text in texts_of(PICTURES[name]())]
    # Powers along a logarithmic axis are formulas of Matplotlib.
    words = [each for each in words if "mathdefault" not in each]
    assert any("frac" in each for each in words)
    assert [each for each in words if "$" in each.replace(r"\$", "")] == []
    assert [each for each in words if "\x01" in each or "\ufffe" in each] == []


@pytest.mark.slow
def test_a_picture_of_any_name_is_xml() -> None:
    """Matplotlib writes each text beside its outlines."""
    buffer = BytesIO()
    PICTURES["sweep"]().savefig(buffer, format="svg")
    assert ElementTree.fromstring(buffer.getvalue()).tag.endswith("svg")


@pytest.mark.parametrize("text", ["price ($/h) of 1 ($/TB)", "$a$", r"\$a\$", r"\\$", "50 $", "a\nb"])
def test_what_is_literal_takes_the_room_of_its_letters(text: str) -> None:
    """Matplotlib itself, told to read no formulas, is the measure."""
    figure = new_figure(3.0, 3.0)
    drawn, plain = figure.text(0, 0, literal(text)), figure.text(0, 0, text, parse_math=False)
    assert drawn.get_window_extent().bounds == plain.get_window_extent().bounds


def test_names_are_cut_before_they_are_made_literal() -> None:
    """A backslash that stands for no letter is not counted."""
    assert shortened("$" * 9, 5) == r"\$\$…\$\$"


def test_legends_have_names_that_begin_with_an_underscore() -> None:
    """Matplotlib takes such labels for its own; a space without width comes before them."""
    axes = PICTURES["sweep"]().axes[0]
    assert len(axes.get_legend().get_texts()) == 2
    assert legend_entry("_a", 24).lstrip("\u200b") == "_a"
    assert legend_entry("a_", 24) == "a_"
