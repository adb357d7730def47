"""``tpusim plot``: files of every kind, and what it says when something is wrong."""

from __future__ import annotations

import pytest

from tests.cli.commands import output_of, refusal_of
from tests.house.source_tree import ROOT
from tpusim.cli import options as cli_options
from tpusim.cli import plot as cli_plot
from tpusim.hardware.array import DATAFLOWS
from tpusim.report.plots.style import FORMATS

TRACE = str(ROOT / "traces/mlp_b1024.v5e.hlo.txt.gz")
MATMUL = str(ROOT / "tests/data/pallas/matmul_1024_b128.v5e.hlo.txt.gz")
POD = str(ROOT / "traces/llama8b_decode_tp.v5e_2x4.hlo.txt.gz")


def test_the_words_of_the_command_line_are_those_of_the_rooms():
    """They are written out in the command line, so that --help is quick."""
    assert cli_plot.FORMATS == FORMATS
    assert cli_options.DATAFLOWS == DATAFLOWS


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("layout", "bf16[10,300]{1,0:T(8,128)(2,1)}"),
        ("relayout", "f32[4,6]{1,0}", "f32[4,6]{0,1}"),
        ("timeline", TRACE, "--from", "5", "--to", "50"),
        ("roofline", TRACE, "--chip", "v6e", "--override", "hbm.bandwidth_bytes_per_second=3e12"),
        ("memory", TRACE),
        ("utilisation", TRACE, "--by", "category"),
        ("tiles", TRACE, "--op", "fusion.7"),
        ("links", POD, "--topology", "v5e:2x4"),
        ("links", POD, "--topology", "v5e:2x4", "--override", "ici.model=fat-tree"),
        ("systolic", "--m", "5", "--n", "3", "--k", "4", "--cycle", "6"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_kind_writes_a_picture(capsys, tmp_path, arguments):
    """A PNG, and nothing on the terminal."""
    path = tmp_path / "picture.png"
    assert output_of(capsys, "plot", *arguments, "-o", str(path)) == ""
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_grid_of_a_kernel_is_drawn(capsys, tmp_path):
    """Of one written by hand."""
    pytest.importorskip("jaxlib")
    path = tmp_path / "grid.png"
    output_of(capsys, "plot", "pallas", MATMUL, "--op", "matmul.1", "-o", str(path))
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_film_of_the_wavefront(capsys, tmp_path):
    """2 + 3 + 2 + 2 - 2 cycles on a 2 x 2 array are as many frames."""
    from PIL import Image

    path = tmp_path / "wave.gif"
    output_of(capsys, "plot", "systolic", *"--rows 2 --cols 2 --m 3 --n 2 --k 2 -o".split(), str(path))
    with Image.open(path) as film:
        assert film.n_frames == 2 + 3 + 2 + 2 - 2


@pytest.mark.slow
def test_sweeps_and_layers_come_from_files(capsys, tmp_path):
    """CSV with a head line in, picture out."""
    (tmp_path / "points.csv").write_text("design,cost,time\na,1,5\nb,2,3\n")
    (tmp_path / "effects.csv").write_text("parameter,low,high\nclock_hz,9,-4\n")
    (tmp_path / "layers.csv").write_text("Layer,M,N,K,\nqkv,512,768,768,\n")
    for kind, file, *rest in (
        ("pareto", "points.csv", "--x", "cost", "--y", "time", "--name", "design"),
        ("sensitivity", "effects.csv"),
        ("layers", "layers.csv"),
    ):
        target = tmp_path / f"{kind}.svg"
        output_of(capsys, "plot", kind, str(tmp_path / file), *rest, "-o", str(target))
        assert target.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("timeline", TRACE, "-o", "p.jpg"), "--output: expected a name that ends in one of .png, .svg, .pdf, found"),
        (("systolic", "--m", "0", "-o", "p.png"), "--m: expected a whole number from 1, found 0"),
        (("systolic", "--cycle", "999", "-o", "p.png"), "cycle: expected 0 to 33, found 999"),
        (("timeline", TRACE, "--from", "9e9", "-o", "p.png"), "--from, --to: expected a part of the run's"),
        (("layout", "f32[2,", "-o", "p.png"), "expected"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named(capsys, arguments, message):
    """What was expected and what was found, and no file."""
    assert message in refusal_of(capsys, "plot", *arguments)


def test_the_timeline_of_a_run_that_takes_no_time_can_be_drawn(tmp_path, capsys):
    """All of it is asked for where nothing is."""
    (tmp_path / "none.hlo.txt").write_text("HloModule none\nENTRY e {\n  ROOT p = f32[8,128] parameter(0)\n}\n")
    program, picture = str(tmp_path / "none.hlo.txt"), str(tmp_path / "none.svg")
    output_of(capsys, "plot", "timeline", program, "--chip", "v5e", "-o", picture)
    assert (tmp_path / "none.svg").stat().st_size
