"""What notebooks show of results, explanations and shapes: the pages of the terminal, escaped."""

from __future__ import annotations

import pytest

import tpusim
from tests.house.source_tree import ROOT
from tests.report.picture_cases import run
from tpusim.hardware.load import load_chip
from tpusim.pipeline.result import Result
from tpusim.program.module import Program
from tpusim.timeline.records import PodRun


@pytest.fixture
def result() -> Result:
    """Give a run written by hand, whose program has a name that is markup."""
    timeline = run()
    pod = PodRun(sizes=(1,), slices=1, device_count=1, timelines=(timeline,))
    return Result(Program(name="<b>by_hand</b>", chip="v5e", steps=()), load_chip("v5e"), pod)


def test_a_result_is_its_report(result):
    """Time, the longest ops and memory; names are escaped, so that none is taken for markup."""
    page = result._repr_html_()
    assert "&lt;b&gt;by_hand&lt;/b&gt;" in page
    assert "convolution_add_fusion" in page
    assert "<script" not in page
    assert len(page) < 20_000


def test_an_explanation_is_its_report():
    """The kernel's name, and what a tile costs."""
    page = tpusim.explain(ROOT / "traces/mlp_b1024.v5e.hlo.txt.gz", "fusion.7")._repr_html_()
    assert "fusion.7" in page
    assert "matrix unit" in page


def test_printed_they_are_their_reports(result):
    """As on the command line; the representation is one line, however large the program."""
    assert str(result).splitlines()[0] == "<b>by_hand</b> on v5e (simulated)"
    assert repr(result).startswith("<Result of <b>by_hand</b> on v5e: ")
    found = tpusim.explain(ROOT / "traces/mlp_b1024.v5e.hlo.txt.gz", "fusion.7")
    assert str(found).startswith("fusion.7 ")


def test_a_run_on_several_devices_says_so():
    """As on the command line, what the devices and links did follows: print(result) is all of the report."""
    text = str(tpusim.simulate(ROOT / "traces/pipeline.v5e_4x4.hlo.txt.gz"))
    assert "\nlinks     15 used" in text


def test_a_shape_is_its_notation():
    """Escaped, as bounds of dynamic sizes are written with a bracket of HTML."""
    assert tpusim.parse_shape("f32[<=5]")._repr_html_() == "<code>f32[&lt;=5]</code>"


def test_a_page_is_returned_and_not_shown(monkeypatch, result):
    """Within a notebook Rich's consoles show by themselves what they print; that would be a second copy."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *_: pytest.fail("the page was shown as well"))
    assert "by_hand" in result._repr_html_()
