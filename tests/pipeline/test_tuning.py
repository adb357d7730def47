"""Programs that do the same in different ways, ranked by their time."""

from __future__ import annotations

import pytest

import tpusim
from tests.house.source_tree import ROOT
from tpusim.cost.peaks import peak_flops_per_second
from tpusim.errors import ConfigError
from tpusim.pipeline.answers.tuning import ranked
from tpusim.source import SourceText
from tpusim.text import parse_module

SMALL, LARGE = (ROOT / f"traces/pallas/matmul_4096_b{b}.v5e.hlo.txt.gz" for b in ("128x128x128", "512x1024x1024"))


@pytest.fixture(scope="module")
def ranking():
    """Give two products, the slower first, between what does not compile and what is no program."""
    pytest.importorskip("jaxlib")
    failed = ConfigError("f: JAX has no compiled text for v5e: Ran out of memory\nmore")
    return ranked([(2048, failed), (128, SMALL), ("missing", ROOT / "nothing.hlo"), (512, LARGE)])


def test_the_fastest_is_first(ranking):
    """As it was measured: 0.89 ms against 11.8 ms (JAX documentation, Pallas)."""
    assert [each.what for each in ranking.candidates[:2]] == [512, 128]
    assert ranking.best.what == 512
    assert ranking.candidates[1].time_us / ranking.candidates[0].time_us == pytest.approx(11.77 / 0.89, rel=0.35)


def test_what_only_one_candidate_computes_is_no_use():
    """A product once, and squared: of peak is over the operations of the first one, and ranks as time does."""
    x = "x = bf16[1024,1024]{1,0} parameter(0)"
    dot = "= bf16[1024,1024]{1,0} dot(%s, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    once, twice = f"ROOT a {dot % 'x'}", f"a {dot % 'x'}\n ROOT b {dot % 'a'}"
    modules = {n: parse_module(SourceText("m", f"HloModule m\nENTRY e {{\n {x}\n {n}\n}}")) for n in (once, twice)}
    first, second = tpusim.rank(modules, "v5e").candidates
    flops = 2 * 1024**3 / peak_flops_per_second(tpusim.load_chip("v5e"), "bf16")
    assert first.flops_utilisation == pytest.approx(flops / first.time_us * 1e6)
    assert second.flops_utilisation == pytest.approx(flops / second.time_us * 1e6)
    assert first.what == once


def test_what_fails_stands_last_and_says_why(ranking):
    """In the first line of its message."""
    faults = {each.what: each.fault for each in ranking.candidates if each.time_us is None}
    assert faults[2048] == "f: JAX has no compiled text for v5e: Ran out of memory"
    assert "nothing.hlo" in faults["missing"]


def test_it_is_a_table(ranking):
    """In text and in a notebook."""
    assert "Ran out of memory" in str(ranking)
    assert "4 candidates on v5e" in ranking._repr_html_()


def test_without_any_that_runs_there_is_no_best():
    """Rather than an error."""
    assert tpusim.rank({"a": ROOT / "nothing.hlo"}).best is None


@pytest.mark.parametrize("chip", ["v5e", tpusim.load_chip("v5e")])
def test_without_any_that_runs_the_chip_is_the_one_that_was_asked_for(chip):
    """Nothing says on which it ran."""
    assert tpusim.rank({"a": ROOT / "nothing.hlo"}, chip).chip == "v5e"


def test_candidates_need_not_be_hashable():
    """Block sizes in a dictionary, say; an error without words is named."""
    found = ranked([({"rows": 128}, ValueError())])
    assert (found.candidates[0].what, found.candidates[0].fault) == ({"rows": 128}, "ValueError()")
