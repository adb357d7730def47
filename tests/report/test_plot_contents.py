"""What pictures say, against arithmetic and the documents: positions, tiles, padding, wavefronts, shares, fronts."""

from __future__ import annotations

from itertools import combinations

import msgspec
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from msgspec import structs

import tpusim
from tests.report.picture_cases import US, kernel, pod, profiles, run
from tests.study.cases import kernel_module
from tpusim import plot
from tpusim.analysis.busy import busy_over_time
from tpusim.analysis.roofline import roof_points, roofs
from tpusim.analysis.utilisation import layer_use
from tpusim.errors import ConfigError, ProgramError
from tpusim.hardware.array import Array
from tpusim.hardware.load import load_chip
from tpusim.pipeline.layers import run_layers
from tpusim.program.layers import Layer
from tpusim.report.plots import links as plot_links
from tpusim.report.plots import memory as plot_memory
from tpusim.report.plots import timeline as plot_timeline
from tpusim.report.plots.cells import shown_of, tint_of
from tpusim.report.plots.colours import kind_of, kinds
from tpusim.report.plots.fold import fold_of
from tpusim.report.plots.plane import plane_of
from tpusim.report.plots.roofline import roofline as draw_roofline
from tpusim.report.plots.style import shortened
from tpusim.report.plots.sweep import pareto_front
from tpusim.report.plots.systolic import first_fold
from tpusim.shapes.notation import parse_shape
from tpusim.systolic.count import run_cycle_by_cycle
from tpusim.timeline.records import LinkUse, Repeat, Timeline


def words_in(ax) -> list[str]:
    """Return the texts that stand in an axes."""
    return [text.get_text() for text in ax.texts]


def padding_in(ax) -> int:
    """Return how many cells of an axes are drawn as padding."""
    return sum(patch.get_gid() == "padding" for patch in ax.patches)


def test_figure_1_of_the_document():
    """F32[3,5] in 2 x 2 tiles: six tiles of four positions, 9 of 24 cells are padding (XLA, Tiled layout, figure 1)."""
    ax = plot.layout("F32[3,5]{1,0:(2,2)}").axes[0]
    rows = np.array(words_in(ax), dtype=int).reshape(4, 6)
    assert rows.tolist() == [
        [0, 1, 4, 5, 8, 9],
        [2, 3, 6, 7, 10, 11],
        [12, 13, 16, 17, 20, 21],
        [14, 15, 18, 19, 22, 23],
    ]
    assert padding_in(ax) == 9


def test_figure_2_of_the_document():
    """A 4 x 8 array in (2,4)(2,1): each column of two is contiguous, 16 red borders (XLA, Tiled layout, figure 2)."""
    ax = plot.layout("bf16[4,8]{1,0:T(2,4)(2,1)}").axes[0]
    rows = np.array(words_in(ax), dtype=int).reshape(4, 8)
    assert rows[:2].tolist() == [[0, 2, 4, 6, 8, 10, 12, 14], [1, 3, 5, 7, 9, 11, 13, 15]]
    assert rows[2:].tolist() == (rows[:2] + 16).tolist()
    assert sum(patch.get_gid() == "subtile" for patch in ax.patches) == 16
    assert padding_in(ax) == 0


def test_words_hold_the_elements_of_a_sub_tile():
    """Two rows of one column of bf16 are a word, the upper one in its low bits."""
    ax = plot.layout("bf16[4,8]{1,0:T(2,4)(2,1)}").axes[1]
    assert words_in(ax)[:4] == ["0,0", "1,0", "0,1", "1,1"]


def test_memory_is_the_inverse_of_the_array():
    """The strip names the element at each position; padding has none."""
    ax = plot.layout("f32[2,3]{0,1:T(2,2)}").axes[-1]
    assert words_in(ax) == ["0,0", "1,0", "0,1", "1,1", "0,2", "1,2"]
    assert padding_in(ax) == 2


@pytest.mark.parametrize(
    ("text", "tiles", "sub_tile"),
    [
        ("bf16[10,300]{1,0:T(8,128)(2,1)}", 6, (2, 1)),
        ("bf16[1000]{0:T(1024)(128)(2,1)}", 1, (2, 1)),
        ("f32[32,1024,768]{2,1,0:T(8,128)}", 32 * 128 * 6, None),
        ("s8[100,200]{0,1:T(32,128)(4,1)}", 7, (4, 1)),
        ("f32[7,9]", 1, None),
        ("f32[3]{0:T(128)}", 1, None),
        ("f32[]", 1, None),
    ],
)
def test_planes_know_their_tiles(text, tiles, sub_tile):
    """By hand: sizes over tile sizes, rounded up, in every dimension."""
    plane = plane_of(parse_shape(text))
    assert plane.tiles == tiles
    assert plane.sub_tile == sub_tile


def test_large_arrays_show_both_ends():
    """The first tiles and the last one, with the numbers that memory gives them."""
    ax = plot.layout("f32[32,1024,768]{2,1,0:T(8,128)}").axes[0]
    numbers = [word for word in words_in(ax) if word.isdecimal()]
    assert numbers[0] == "0"
    assert numbers[-1] == str(128 * 6 - 1)


def test_a_relayout_is_of_one_array():
    """Another element type or size is another array."""
    with pytest.raises(ProgramError, match=r"two layouts of one array, found f32\[2,3\] and f32\[3,2\]"):
        plot.relayout("f32[2,3]{1,0}", "f32[3,2]{1,0}")


@pytest.mark.parametrize("text", ["(f32[2],f32[3])", "token[]", "f32[0,3]"])
def test_what_has_no_layout_is_refused(text):
    """Tuples, tokens and arrays without elements."""
    with pytest.raises(ProgramError, match="to draw, found"):
        plot.layout(text)


@pytest.mark.parametrize("dataflow", ["ws", "is", "os"])
def test_the_wavefront_is_that_of_the_cycle_model(dataflow):
    """As many elements are at work in every cycle as the counted model says, also beyond ragged edges."""
    array = Array(rows=5, columns=4, dataflow=dataflow)
    layer = Layer(name="", m=4, n=3, k=5)
    fold = first_fold(layer, array)
    counted = run_cycle_by_cycle(np.ones((4, 5)), np.ones((5, 3)), array).active
    drawn = [fold.active(cycle) for cycle in range(fold.cycles)]
    assert drawn == counted[: fold.cycles].tolist()
    assert sum(drawn) == 4 * 3 * 5


def test_busy_shares_keep_the_busy_time():
    """27 us of a copy and 50, 38 and 15 of kernels in 400 us, each at its place; repeats have what they repeat."""
    shares = busy_over_time(run(), np.linspace(0, 400 * US, 401))
    assert shares["hbm"].sum() == pytest.approx(27 + 50 + 38 + 15)
    assert shares["hbm"][140] == pytest.approx(38 / 40)
    # The trip before the repeat takes 36 us, of which the arrays are busy for 25.
    assert shares["matrix"][300] == pytest.approx(25 / 36)


def test_loops_within_loops_repeat_with_them():
    """An inner loop of 4 trips of 10 us, half busy, within an outer one of 2 trips: half busy to the end."""
    inner = kernel("k", 0, 10, "matrix", units={"matrix": 5 * US}, count=8)
    repeats = (Repeat("inner", 10 * US, 40 * US, 3), Repeat("outer", 40 * US, 80 * US, 1))
    timeline = Timeline(program="p", chip="v5e", total_ps=80 * US, records=(inner,), repeats=repeats)
    assert busy_over_time(timeline, np.linspace(0, 80 * US, 9))["matrix"] == pytest.approx(0.5)


def test_the_timeline_names_what_has_room():
    """Long steps bear their names; trips how often they happen, folds how many they leave out."""
    words = words_in(plot_timeline.timeline(run()).axes[0])
    assert {"convolution_add_fusion", "while.1: x 5", "+4"} <= set(words)
    assert "while.1: 4 more equal trips" in words_in(plot_timeline.timeline(run(), unfold=True).axes[0])


def test_what_lies_between_folds_of_ages_is_seen_in_full():
    """Beside 10^60 ps floats do not tell the 100 ps before them from the 50 behind them."""
    ages = 10**60
    fold = fold_of([Repeat("while", 100, ages, 10**9)], 0, ages + 50)
    assert fold.length == pytest.approx(1.06 * 150)


def test_a_fold_leaves_most_of_the_width_to_what_is_seen_in_full():
    """Of 400 us 144 repeat a trip: they take 6 % of the others, and times on both sides are as long as each other."""
    fold = fold_of(run().repeats, 0, 400 * US)
    assert fold.length == pytest.approx(1.06 * 256 * US)
    edges = fold.edges(100)
    assert np.diff(edges)[:90] == pytest.approx(fold.length / 100)
    assert edges[-1] == 400 * US


def test_what_is_only_repeats_is_not_folded():
    """A part of the run inside a fold would have no width else."""
    fold = fold_of(run().repeats, 300 * US, 350 * US)
    assert fold.length == 50 * US


def test_layers_add_up_to_the_core():
    """Parts of all layers are the time of all core records, counted as often as they ran."""
    layers = layer_use(run(), "op")
    assert sum(layer.time_ps for layer in layers) == (30 + 100 + 40 + 30 + 20 + 5 * 36) * US
    assert all(sum(layer.parts_ps.values()) == layer.time_ps for layer in layers)
    assert layers[0].name == "body_fusion.1"


def test_of_thousands_of_layers_the_largest_are_drawn():
    """A bar takes milliseconds and a quarter of a megabyte, and nobody reads a thousand of them."""
    made = [Layer(name=f"l{n}", m=1 + n * 7919 % 1000, n=64, k=64) for n in range(1000)]
    (ax,) = plot.layers(run_layers(made, Array(rows=64, columns=64))).axes
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == [layer.name for layer in made if layer.m > 800]
    assert "the 200 with most slots of 1,000" in ax.get_ylabel()


def test_roofs_of_v5e():
    """819 GB/s and 197 TFLOP/s as advertised; 4 ALUs of 8 x 128 lanes and 3 loads of 4 KiB a cycle."""
    chip = load_chip("v5e")
    found = {roof.name: roof.per_second for roof in roofs(chip)}
    assert found["HBM"] == pytest.approx(819e9, rel=0.01)
    assert found["MXU bf16"] == pytest.approx(197e12, rel=0.01)
    assert found["vector f32"] == chip.vpu.alu_slots * 1024 * chip.clock_hz
    assert found["VMEM"] == chip.vpu.load_slots * 4096 * chip.clock_hz


def test_a_roofline_has_a_roof_for_every_type():
    """No dot of a kernel of products in s8 and bf16 lies above all; what has the peak of another one has none."""
    chip = load_chip("v5e")
    found = {roof.name: roof.per_second for roof in roofs(chip, "bf16", "s8")}
    assert found["MXU s8"] == 2 * found["MXU bf16"]
    shares = {"bf16": 0.5, "s8": 0.4, "f32": 0.1}
    record = structs.replace(run().records[0], flops=1e9, units={"matrix": 1}, type_shares=shares)
    (ax, *_) = draw_roofline(structs.replace(run(), records=(record,)), chip).axes
    words = " ".join(text.get_text() for text in ax.texts)
    assert ("MXU bf16" in words, "MXU s8" in words, "MXU f32" in words) == (True, True, False)


def test_points_of_a_roofline():
    """FLOP over bytes and over time; without HBM traffic bytes are those of VMEM."""
    chip = load_chip("v5e")
    points = {point.name: point for point in roof_points(run(), chip)}
    product = points["convolution_add_fusion"]
    assert product.intensity == pytest.approx(1.5e10 / 4e7)
    assert product.flops_per_second == pytest.approx(1.5e10 / 100e-6)
    assert points["tanh.3"].memory == "vmem"
    assert points["tanh.3"].n_bytes == 4e4 * 4096
    assert "copy-done" not in points


def test_the_buffers_at_the_peak_are_named():
    """With their sizes, the largest first; at the VMEM's peak both are alive, 20 MiB apart."""
    figure = plot_memory.memory(profiles(), {}, "")
    assert words_in(figure.axes[1])[:2] == ["p0, 600.0 MiB", "logits (model.py:31), 400.0 MiB"]
    assert "20.0 MiB lost in holes" in figure.axes[2].get_title(loc="left")


def test_a_pareto_front():
    """Points that no other beats in both; of equals the first."""
    assert pareto_front([(1, 5), (2, 4), (2, 4), (3, 4), (4, 1), (0, 9)]) == [5, 0, 1, 2, 4]


def test_programs_of_any_size_are_in_one_picture():
    """Normalised by program, the best of each is 1, so that the fronts of both meet."""
    rows = [{"p": p, "cost": c, "time": scale * t} for p, scale in (("a", 1), ("b", 500)) for c, t in ((1, 3), (2, 2))]
    figure = plot.pareto(rows, "cost", "time", normalise="p")
    (ax,) = figure.axes
    assert ax.get_ylabel() == "time, times the least of its p"
    drawn = {tuple(point) for shown in ax.collections for point in shown.get_offsets().tolist()}
    assert drawn == {(1.0, 1.5), (2.0, 1.0)}


def test_every_link_of_switches_is_drawn():
    """Chips in a row, a leaf above the middle of its two, the top above the leaves; a line for each way."""
    ways = [(chip, f">{4 + chip // 2}") for chip in range(4)] + [(4, ">6"), (6, ">5"), (5, ">3")]
    links = tuple(LinkUse(chip, way, 1e6, 1000 * (number + 1)) for number, (chip, way) in enumerate(ways))
    run = msgspec.structs.replace(pod(2, 2), links=links)
    (ax, _) = plot_links.links(run).axes
    assert len(ax.collections[0].get_segments()) == len(ways)
    shapes = [shown.get_offsets()[0].tolist() for shown in ax.collections[1:]]
    assert shapes == [[0, 0], [1, 0], [2, 0], [3, 0], [0.5, 1], [2.5, 1], [1.5, 2]]


def test_many_slices_are_cells_of_one_picture():
    """Eighteen of them in six columns, a panel for each way: a picture of each slice took 20 s for 128."""
    links = tuple(LinkUse(chip, "+1", 1e6, (chip + 1) * 1000) for chip in range(18 * 8))
    run = msgspec.structs.replace(pod(4, 2), links=links, slices=18)
    *panels, _ = plot_links.links(run).axes
    assert len(panels) == 4
    (image,) = panels[2].get_images()
    cells = image.get_array().filled(np.nan)
    shown = cells[~np.isnan(cells)]
    assert len(shown) == len(links)
    for chip in (0, 5, 8, 143):
        # Each row and column of slices is one cell wider than its chips.
        slice_, place = divmod(chip, 8)
        row, column = divmod(slice_, round((cells.shape[1] + 1) / 5))
        assert cells[row * 3 + place // 4, column * 5 + place % 4] == pytest.approx(shown.max() * (chip + 1) / 144)


def test_figures_of_a_sweep_may_be_zero_or_below():
    """They stand where they are; several of one place are told by their mean."""
    rows = [{"x": 1, "y": 0.0}, {"x": 2, "y": -2.0}, {"x": 2, "y": 4.0}]
    (line,) = plot.sweep(rows, "x", "y").axes[0].get_lines()
    assert line.get_xydata().tolist() == [[1, 0], [2, 1]]
    assert plot.sweep(rows, "x", "y").axes[0].get_ylim()[0] < 0


def test_pictures_are_as_many_as_can_be_looked_at():
    """Thousands would take all memory before anybody saw one."""
    rows = [{"x": 1, "y": 1.0, "name": str(number)} for number in range(65)]
    with pytest.raises(ConfigError, match="name: expected at most 64 values, one for each picture, found 65"):
        plot.sweep(rows, "x", "y", per="name")
    with pytest.raises(ConfigError, match="expected at most 500 parameters, found 501"):
        plot.sensitivity([(str(number), 0.1, 0.2) for number in range(501)])


def test_sweeps_say_what_is_missing():
    """The known keys for a wrong one, and the value that is no number."""
    with pytest.raises(ConfigError, match=r"the key 'price' in every record, found cost, time"):
        plot.pareto([{"cost": 1, "time": 2}], "price", "time")
    with pytest.raises(ConfigError, match="cost: expected a number, found 'much'"):
        plot.pareto([{"cost": "much", "time": 2}], "cost", "time")


def test_an_axes_of_ones_own_is_drawn_into():
    """The figure that comes back is the one that the axes stand in."""
    from matplotlib.figure import Figure

    figure = Figure()
    ax = figure.add_subplot()
    assert plot.layout("f32[2,2]", ax) is figure
    assert plot_timeline.timeline(run(), ax) is figure


def test_a_notebook_shows_a_figure_by_itself():
    """As a PNG at the width of its inches."""
    data, size = plot.layout("f32[2,2]")._repr_png_()
    assert data.startswith(b"\x89PNG")
    assert size == {"width": 710}


@pytest.mark.parametrize(("ending", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_equal_pictures_are_equal_files(tmp_path, ending, begin):
    """In each format: nothing of the time of writing is in the file."""
    paths = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for path in paths:
        plot.save(plot.layout("f32[2,2]"), path)
    assert paths[0].read_bytes().startswith(begin)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_small_helpers():
    """Gaps stand for what is left out, names keep both ends, neighbours differ, causes have kinds."""
    assert list(shown_of(4, 2, 1)) == [0, 1, 2, 3]
    assert list(shown_of(9, 2, 1)) == [0, 1, None, 8]
    assert shortened("bitcast_dynamic-update-slice_fusion.3", 16) == "bitcast\N{HORIZONTAL ELLIPSIS}fusion.3"
    assert tint_of(0, 0) != tint_of(0, 1) != tint_of(1, 1)
    assert [kind_of(b) for b in ("matrix", "waiting for a copy", "ICI latency", "new")] == [
        "matrix",
        "waiting",
        "ICI",
        "other",
    ]


def test_a_tile_that_is_larger_than_the_one_around_it_is_refused():
    """Cells would be numbered as if it were not there."""
    with pytest.raises(ProgramError, match="tiles that lie within the first one"):
        plot.layout("s2[16,256]{1,0:T(8,128)(16,1)E(2)}")


@pytest.mark.parametrize("found", ["nan", "inf", "-inf"])
def test_designs_without_finite_figures_are_refused(found):
    """Nothing beats what is not a number."""
    with pytest.raises(ConfigError, match="expected a finite number"):
        plot.pareto([{"cost": found, "time": 1}, {"cost": 2, "time": 3}], "cost", "time")


def test_equal_designs_do_not_beat_each_other():
    """Both are the best for their price."""
    assert pareto_front([(1.0, 2.0), (1.0, 2.0), (1.0, 3.0), (2.0, 1.0)]) == [0, 1, 3]


def test_kinds_of_time_differ_in_a_grey_print():
    """Any two by a tenth of lightness (ITU-R BT.601), or by their hatch."""
    looks = list(kinds().values())
    greys = [0.299 * r + 0.587 * g + 0.114 * b for r, g, b in (to_rgb(look.colour) for look in looks)]
    close = [(i, j) for i, j in combinations(range(len(looks)), 2) if abs(greys[i] - greys[j]) < 0.1]
    assert [(i, j) for i, j in close if looks[i].hatch == looks[j].hatch] == []


def test_the_axis_of_a_sweep_has_its_values_in_full():
    """1,024 is no power of ten, and bytes have their unit."""
    labels = []
    for key, values in (("mxu.count", (1, 32, 1024)), ("vmem.capacity_bytes", (2**20, 2**24))):
        runs = [{key: value, "time_us": 1.0} for value in values]
        labels.append([tick.get_text() for tick in plot.sweep(runs, key, "time_us").axes[0].get_xticklabels()])
    assert labels == [["1", "32", "1,024"], ["1.0 MiB", "16.0 MiB"]]


@pytest.mark.parametrize("found", ["nan", "inf", "-inf", "1e999"])
def test_a_sweep_over_values_that_are_not_finite_is_refused(found):
    """An axis has no place for them; a text that is no number stands at even distances."""
    with pytest.raises(ConfigError, match=f"x: expected a finite number, found '{found}'"):
        plot.sweep([{"x": 1, "y": 2}, {"x": found, "y": 3}], "x", "y")


@pytest.mark.parametrize("window_us", [(100, 0), (float("nan"), 1), (-1, 5), (1e9, 2e9), (0, 0), (1,), 5, ("a", "b")])
def test_a_part_of_a_run_that_is_none_is_refused(window_us):
    """As the command refuses it: an end before its beginning, beside the run, or no number."""
    with pytest.raises(ConfigError, match=r"window_us: expected a part of the run's .* us, found"):
        plot_timeline.timeline(run(), window_us=window_us)


def test_a_part_of_a_run_may_have_no_end():
    """It ends with the run."""
    assert plot_timeline.timeline(run(), window_us=(100.0, float("inf"))).axes


@pytest.fixture(scope="module")
def small():
    """A run of one kernel."""
    return tpusim.simulate(kernel_module())


def test_one_memory_needs_no_list(small):
    """A text is one of them, and no list of letters."""
    assert len(plot.memory(small, spaces="vmem").axes) == len(plot.memory(small, spaces=["vmem"]).axes) == 2


@pytest.mark.parametrize(
    ("spaces", "found"), [("vmen", r"'vmen' \(did you mean 'vmem'"), (["x"], "'x'"), ([], "none"), (5, "5")]
)
def test_what_is_no_memory_is_refused(small, spaces, found):
    """Its picture would be empty."""
    with pytest.raises(ConfigError, match=f"spaces: expected some of hbm, vmem, .*, found {found}"):
        plot.memory(small, spaces=spaces)
