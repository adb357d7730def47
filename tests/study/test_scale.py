"""A family of programs: throughput, memory that is left, and the largest that fits."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tests.cli.commands import output_of
from tests.house.source_tree import ROOT
from tpusim import plot
from tpusim.analysis.answers.efficiency import efficiencies
from tpusim.analysis.answers.scaling import Exposed, ScaleRow, largest_that_fit
from tpusim.errors import ConfigError
from tpusim.ir.module import Module, with_devices
from tpusim.pipeline.modules import Builder
from tpusim.report.terminal.answers.scaling import render_scaling
from tpusim.study.scale import scale

POD = str(ROOT / "traces/llama8b_decode_tp.v5e_2x4.hlo.txt.gz")


def doubled(batch: int) -> Module:
    """Return a program that doubles so many rows of a thousand."""
    builder = Builder(f"doubled_{batch}.v5e.hlo.txt")
    rows = builder.parameter(0, f"f32[{batch},1024]")
    return builder.build(builder.add(rows, rows))


def row(items: float, peak_bytes: int, **given: object) -> ScaleRow:
    """Return a row of a chip of 1,000 bytes."""
    facts = {
        "program": "p",
        "chip": "c",
        "topology": "1",
        "devices": 1,
        "variables": {},
        "total_ps": 10**12,
        "bound_by": "ICI",
        "bound_share": 0.61,
        "mfu": 0.5,
    }
    facts |= {"hbm_capacity_bytes": 1000, "joules": 6.0, "usd": 3.0, "warnings": 0, "fits": peak_bytes <= 1000}
    return ScaleRow(items=items, peak_hbm_bytes=peak_bytes, **(facts | given))  # type: ignore[arg-type]


def shown(rows: list[ScaleRow]) -> str:
    """Return the report on some rows, in one line."""
    console = Console(file=io.StringIO(), width=400)
    render_scaling(rows, largest_that_fit(rows), console)
    return " ".join(console.file.getvalue().split())


def test_a_function_is_called_with_each_size():
    """Throughput is the size over the time, and rises with it while the launch weighs."""
    rows = scale(doubled, {"batch": [64, 4096]}, chips=["v5e"]).rows
    assert [found.variables for found in rows] == [{"batch": 64}, {"batch": 4096}]
    assert rows[1].items_per_second == pytest.approx(4096 / rows[1].total_ps * 1e12)
    assert rows[1].items_per_second > rows[0].items_per_second
    assert rows[1].headroom_bytes == rows[1].hbm_capacity_bytes - rows[1].peak_hbm_bytes


def test_sizes_without_a_program_are_said():
    """A compiler that refuses what does not fit ends nothing."""

    def made(batch: int) -> Module:
        if batch > 100:
            raise ConfigError("out of memory")
        return doubled(batch)

    found = scale(made, {"batch": [64, 128]}, chips=["v5e"])
    assert len(found.rows) == 1
    assert found.refused[0].variables == {"batch": 128}
    assert "no program of batch=128: out of memory" in str(found)


def test_the_largest_that_fits_is_on_a_line():
    """400 bytes and 100 an item: 4 of those that were run, and 6."""
    (found,) = largest_that_fit([row(items, 400 + 100 * items) for items in (2, 4, 8)])
    assert (found.items, found.estimate, found.line) == (4, 6, (4, 8))


def test_what_fits_is_between_what_does_and_what_does_not():
    """300 bytes an item from 3 to 4, where 1,000 are passed: what larger runs need says nothing of it."""
    rows = [row(2, 500), row(3, 800), row(4, 1100), row(8, 1200), row(9, 1300)]
    (found,) = largest_that_fit(rows)
    assert (found.items, found.line) == (3, (3, 4))
    assert found.estimate == pytest.approx(3 + 200 / 300)
    assert "if HBM grows evenly between 3 and 4" in shown(rows)


@pytest.mark.parametrize(
    ("needs", "estimate", "line"), [((100, 200, 400), 20, (4, 8)), ((1100, 1200, 1400), 0, (2, 4))]
)
def test_beyond_what_was_run_the_line_goes_on_as_a_guess(needs, estimate, line):
    """50 bytes an item: from the two largest where all fits, from the two smallest where nothing does."""
    rows = [row(items, peak) for items, peak in zip((2, 4, 8), needs, strict=True)]
    (found,) = largest_that_fit(rows)
    assert (found.estimate, found.line) == (estimate, line)
    assert "a guess, as compilers choose anew" in shown(rows)


def test_programs_with_as_many_items_are_one_point_of_the_line():
    """The larger of the two with eight items: 400 bytes and 100 an item all the same."""
    (found,) = largest_that_fit([row(2, 600), row(8, 900), row(8, 1200)])
    assert found.estimate == 6


def test_costs_are_of_items():
    """Three dollars and six joules for two items."""
    found = row(2, 600)
    assert (found.usd_per_million, found.joules_per_item) == (1.5e6, 3.0)


def test_items_are_variables():
    """What the pattern does not have is refused with the nearest name."""
    with pytest.raises(ConfigError, match="did you mean 'batch'"):
        scale(doubled, {"batch": [64]}, items="batsh", chips=["v5e"])


@pytest.mark.parametrize("batch", ["-1", "0", "true", "1e400", "x2", "9" * 200])
def test_a_number_of_items_is_one_above_zero(tmp_path, batch):
    """A text that is none counts nothing by itself, and is refused where it is to be counted."""
    doubled(8).save(tmp_path / f"net_b{batch}.v5e.hlo.txt")
    family = str(tmp_path / "net_b{batch}.v5e.hlo.txt")
    assert [row.items for row in scale(family).rows] == [0]
    with pytest.raises(
        ConfigError, match="items: expected variables of the program with numbers above 0, found 'batch'"
    ):
        scale(family, items="batch")


@pytest.mark.slow
def test_slices_stand_by_size():
    """16x16 is the larger one, though its name is the first."""
    rows = scale(POD, topologies=["v5e:16x16", "v5e:2x4"]).rows
    assert [row.devices for row in rows] == [8, 256]


def test_variables_stand_by_size(tmp_path):
    """16 is more than 4, though the word comes first."""
    for layers in (4, 16):
        doubled(layers).save(tmp_path / f"net_l{layers}.v5e.hlo.txt")
    found = scale(tmp_path / "net_l{layers}.v5e.hlo.txt").rows
    assert [row.variables["layers"] for row in found] == [4, 16]


def test_a_variable_that_reaches_too_far_is_said(tmp_path):
    """An underscore ends a variable that does not stand between dots: the file is there, and is named."""
    doubled(8).save(tmp_path / "net_large_b8.v5e.hlo.txt")
    with pytest.raises(ConfigError, match=r"found none; .*net_large_b8\.v5e\.hlo\.txt' does not match: a variable is"):
        scale(str(tmp_path / "net_{size}.v5e.hlo.txt"))


def test_a_variable_between_dots_may_be_a_slice(tmp_path):
    """The underscore of ``v5e_2x4`` is of the one word there, that before a number beside it is not."""
    doubled(8).save(tmp_path / "net_n8.v5e_2x4.hlo.txt")
    (row,) = scale(str(tmp_path / "net_n{n}.{slice}.hlo.txt")).rows
    assert row.variables == {"n": 8, "slice": "v5e_2x4"}


def summed(devices: int, stride: int = 1) -> Module:
    """Return a program that sums four megabytes over either half of its devices, or over each second one."""
    builder = Builder(f"summed_{devices}.v5e.hlo.txt")
    rows = builder.dot(builder.parameter(0, "f32[1024,1024]"), builder.parameter(1, "f32[1024,1024]"))
    half = devices // 2
    groups = tuple(tuple(range(first, devices, 2)) for first in (0, 1))
    if stride == 1:
        groups = (tuple(range(half)), tuple(range(half, devices)))
    return with_devices(builder.build(builder.cross_replica_sum(rows, groups)), devices)


def test_a_larger_slice_says_which_collective_takes_what_it_loses():
    """On 2x4 chips either half is 2x2, on 4x8 it is 4x4: neither closes to a ring, and the sum goes along both axes."""
    found = scale(summed, {"devices": [8, 32]}, chips=["v5e"])
    first, second = found.rows
    assert [(one.kind, one.group_size) for one in second.exposed] == [("all-reduce", 16)]
    assert [(on.axis, on.chips, on.is_ring) for on in second.exposed[0].along] == [(0, 4, False), (1, 8, False)]
    assert second.exposed[0].exposed_ps == second.exposed_ps
    of_second = found.efficiencies[1]
    assert of_second.kind == "weak"
    assert of_second.efficiency == pytest.approx(first.total_ps / second.total_ps)
    assert of_second.lost_ps == second.total_ps - first.total_ps == of_second.exposed_ps
    assert "weak scaling" in str(found)
    assert "all-reduce of 4.0 MiB among 16 devices along axis 0 (4 chips, a line) and axis 1" in str(found)


def test_a_program_on_a_larger_slice_makes_more():
    """Two copies of a program for four devices make twice its items, at the same cost of each."""
    rows = scale(summed, {"devices": [4]}, items="devices", topologies=["v5e:2x2", "v5e:2x4"])
    assert [row.items for row in rows.rows] == [4, 8]


def test_copies_side_by_side_have_no_efficiency():
    """They exchange nothing, so that the collectives of a larger slice are missing."""
    found = scale(summed, {"devices": [4]}, topologies=["v5e:2x2", "v5e:2x4"])
    assert [row.copies for row in found.rows] == [1, 2]
    assert found.efficiencies == (None, None)
    assert "8 devices (v5e:2x4) run 2 copies of summed_4.v5e.hlo.txt side by side, which exchange nothing" in str(found)


def test_a_base_whose_devices_lie_badly_is_said():
    """Every second device of 2x4 shares its links with the others; renumbered either half has its own."""
    found = scale(lambda devices: summed(devices, 2), {"devices": [8, 32]}, chips=["v5e"])
    base, larger = found.rows
    assert base.order.run_ps == scale(summed, {"devices": [8]}, chips=["v5e"]).rows[0].total_ps < base.total_ps
    assert larger.order is None
    assert "2x4 itself, to which rates are compared, could take" in str(found)
    assert scale(summed, {"devices": [8, 32]}, chips=["v5e"]).rows[0].order is None


def test_every_collective_that_grows_is_named():
    """The one of few bytes too, which takes what a larger slice adds to its way."""
    one = {"kind": "all-reduce", "group_size": 2, "along": ()}

    def exposed(large_ps: int, small_ps: int) -> tuple[Exposed, ...]:
        large = Exposed(name="a", payload_bytes=2**20, exposed_ps=large_ps, **one)
        return large, Exposed(name="b", payload_bytes=512, exposed_ps=small_ps, **one)

    few = row(8, 10, devices=4, total_ps=1000, exposed_ps=600, exposed=exposed(500, 100))
    many = row(16, 10, devices=8, total_ps=1600, exposed_ps=1200, exposed=exposed(700, 500))
    grown = efficiencies([few, many])[1].grown
    assert [(found.here.name, found.there.name, found.more_ps) for found in grown] == [("b", "b", 400), ("a", "a", 200)]


def test_efficiency_is_of_the_same_work_first():
    """Twice the devices in 0.8 of the time are 62.5 % of the rate; all that is lost is communication."""
    alone = row(8, 10, devices=4, total_ps=1000)
    twice = row(8, 10, devices=8, total_ps=800, exposed_ps=300)
    as_much_each = row(16, 10, devices=8, total_ps=1250, waiting_ps=250)
    found = efficiencies([alone, row(16, 10, devices=4, total_ps=9000), twice, as_much_each])
    strong, weak = found[2], found[3]
    assert (strong.base, strong.kind, strong.efficiency) == (0, "strong", 0.625)
    assert (strong.lost_ps, strong.exposed_ps, strong.compute_ps) == (300, 300, 0)
    assert (weak.base, weak.kind) == (1, "strong")


def test_efficiency_is_else_of_as_much_work_for_each():
    """Twice the items on twice the devices in 1.25 of the time: 80 %, for what they waited."""
    alone, twice = row(8, 10, devices=4, total_ps=1000), row(16, 10, devices=8, total_ps=1250, waiting_ps=250)
    _, found = efficiencies([alone, twice])
    assert (found.kind, found.efficiency, found.waiting_ps, found.compute_ps) == ("weak", 0.8, 250, 0)


def test_one_slice_has_no_efficiency():
    """There is nothing to compare it with; what does not fit is compared with nothing either."""
    assert efficiencies([row(8, 10, devices=4), row(16, 10, devices=4)]) == (None, None)
    assert efficiencies([row(8, 10, devices=4), row(8, 2000, devices=8)]) == (None, None)


def test_a_chip_that_a_program_was_not_compiled_for_is_said(capsys):
    """As `tpusim run` says it: the tiles are another chip's."""
    text = output_of(capsys, "scale", str(ROOT / "traces/mlp_b1024.v5e.hlo.txt.gz"), "--chip", "v6e", "--quiet")
    assert "compiled  jit__lambda for v5e: tiles, placement and schedule are not those that v6e would get" in text


def test_chips_of_one_name_stand_apart(tmp_path):
    """A copy of a chip's file may say its name; a program is compiled for either, and scales on each by itself."""
    copy = tmp_path / "slow.toml"
    copy.write_text('base = "v5e"\nname = "v5e"\nclock_hz = 750e6\n', encoding="utf-8")
    found = scale(POD, chips=["v5e", str(copy)])
    assert [row.chip for row in found.rows] == ["v5e", "v5e (slow.toml)"]
    assert found.rows[0].total_ps < found.rows[1].total_ps
    assert "compiled" not in str(found)


def test_a_parameter_without_values_is_named():
    """Called with what there is, the function would end in a traceback."""
    with pytest.raises(ConfigError, match="expected values for 'batch', a parameter of doubled, found 'size'"):
        scale(doubled, {"size": [64]}, chips=["v5e"])


def test_a_row_says_what_it_is_bound_by():
    """Why a larger slice gains no more stands beside its time."""
    (row,) = scale(doubled, {"batch": [65536]}, chips=["v5e"]).rows
    assert row.bound_by == "HBM"
    assert 0.9 < row.bound_share <= 1
    console = Console(file=io.StringIO(), width=160)
    render_scaling([row], (), console)
    assert f"HBM {row.bound_share:.0%}" in console.file.getvalue()


def test_slices_stand_in_one_table(capsys, tmp_path):
    """The same program on two slices, drawn as well."""
    picture = tmp_path / "scale.png"
    text = output_of(capsys, "scale", POD, "--topology", "v5e:2x4,v5e:1x8", "-o", str(picture))
    assert "v5e:2x4" in text
    assert "v5e:1x8" in text
    assert picture.stat().st_size > 10_000


def test_slices_are_drawn_over_devices_and_sizes_over_items():
    """One program on each slice beside what the smallest promises; several on one slice without."""
    slices = [row(8, 10, devices=4), row(16, 10, devices=8, topology="2")]
    sizes = [row(8, 10), row(16, 10)]
    drawn = [plot.scaling(rows).axes[0] for rows in (slices, sizes)]
    assert [ax.get_xlabel() for ax in drawn] == ["devices", "items a run"]
    assert [list(ax.lines[0].get_xdata()) for ax in drawn] == [[4, 8], [8, 16]]
    assert [len(ax.lines) for ax in drawn] == [2, 1]
