"""Studies of programs whose custom calls are registered: each time follows from what is registered now."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

import tpusim
from tests.study.cases import kernel_module
from tpusim.ir.custom_calls import REGISTERED
from tpusim.pipeline.modules import Builder, Module
from tpusim.source import SourceText
from tpusim.study.search import key_of
from tpusim.study.spec import make_spec
from tpusim.text.parser import parse_module

TEXT = """HloModule m, is_scheduled=true

ENTRY %main {
  %x = f32[1024,1024]{1,0:T(8,128)} parameter(0)
  ROOT %y = f32[1024,1024]{1,0:T(8,128)} custom-call(%x), custom_call_target="mine"
}
"""


def program() -> Module:
    """Return a program of one call."""
    return parse_module(SourceText("m.v5e.hlo.txt", TEXT))


def cost(operations: float):
    """Return a function that says that a call takes so many vector operations."""
    return lambda instruction, chip: tpusim.Work(ops={"vector": operations})


def time_us(made: Module | None = None, **more) -> float:
    """Return what a study of one point says; one run says the same."""
    made = made or program()
    found = tpusim.Study(programs=made, base="v5e", **{"jobs": 1} | more).rows()[0]["time_us"]
    assert found == tpusim.simulate(made, "v5e").time_us
    return found


def test_what_is_registered_between_studies_counts(registered):
    """And what is registered under the same name once more."""
    plain, found = time_us(), []
    for operations in (1e6, 2e6):
        registered("mine", cost=cost(operations))
        found.append(time_us())
    assert plain < found[0] < found[1]


def test_workers_that_know_of_nothing_are_not_asked(registered):
    """They are processes that have registered nothing; nor are those of the caller's own executor."""
    registered("mine", cost=cost(1e6))
    assert time_us(jobs=2) == time_us() == time_us(executor=Untouched())


class Untouched:
    """An executor that takes nothing."""

    def submit(self, *given):
        """Fail the test."""
        pytest.fail("asked")


def test_a_study_that_has_run_runs_again(registered):
    """Its rows are those of what is registered when they are asked for."""
    study = tpusim.Study(programs=program(), jobs=1)
    plain = study.rows()[0]["time_us"]
    registered("mine", cost=cost(1e6))
    assert study.rows()[0]["time_us"] > plain


def test_a_store_has_only_what_all_find(registered, tmp_path):
    """Whichever came first, and what nothing is registered for is kept as ever."""
    plain = time_us(store=tmp_path)
    registered("mine", cost=cost(1e6))
    assert time_us(store=tmp_path) > plain
    time_us(kernel_module(), store=tmp_path)
    REGISTERED.clear()
    assert time_us(store=tmp_path) == plain
    with closing(sqlite3.connect(tmp_path / "outcomes.sqlite")) as rows:
        assert rows.execute("SELECT count(*) FROM outcomes").fetchone() == (2,)


def test_what_compiling_puts_in_counts(registered):
    """A call that nobody has written: the TPU compiler hands a factorisation to one for each block."""
    b = Builder("m")
    factors = b.build(b.cholesky(b.parameter(0, "f32[256,256]")))
    plain = time_us(factors)
    registered("Cholesky", cost=cost(1e7))
    assert time_us(factors) > plain


def test_a_search_begins_anew(registered):
    """Its trials are kept under what is registered too."""
    spec = make_spec({"programs": program(), "axes": {"mxu.count": [1, 2]}})
    before = key_of(spec, ["time_us"])
    registered("mine", cost=cost(1e6))
    assert key_of(spec, ["time_us"]) != before
