"""Sorts along dimensions that are counted from the last, and of scalars: XLA takes both."""

from __future__ import annotations

import numpy as np
import pytest

import tpusim
from tpusim.pipeline.compile import compile
from tpusim.pipeline.stages import check, execute
from tpusim.source import SourceText
from tpusim.text import parse_module


def program(sizes, dimension, is_stable):
    """Return a program that sorts numbers, and with them where they come from."""
    numbers, places = (f"{dtype}[{','.join(map(str, sizes))}]" for dtype in ("f32", "s32"))
    stable = ", is_stable=true" if is_stable else ""
    return f"""HloModule m

before {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  p = s32[] parameter(2)
  q = s32[] parameter(3)
  ROOT l = pred[] compare(a, b), direction=LT
}}

ENTRY e {{
  x = {numbers} parameter(0)
  y = {places} parameter(1)
  r = ({numbers}, {places}) sort(x, y), dimensions={{{dimension}}}{stable}, to_apply=before
  g = {places} get-tuple-element(r), index=1
  ROOT o = {places} add(g, y)
}}
"""


@pytest.mark.parametrize("is_stable", [True, False])
@pytest.mark.parametrize(
    ("sizes", "dimension"),
    [((), 0), ((7,), -1), ((4, 6), -1), ((4, 6), -2), ((3, 4, 5), -2), ((3, 4, 5), 1), ((3, 1, 5), -2)],
)
def test_a_sort_is_computed_compiled_and_timed_along_whatever_dimension_is_stated(sizes, dimension, is_stable):
    """The oracle is NumPy; no two numbers are alike, so that every sort gives one order."""
    module = parse_module(SourceText("m.v5e.hlo.txt", program(sizes, dimension, is_stable)))
    x = np.random.default_rng(1).permutation(int(np.prod(sizes))).reshape(sizes).astype("f")
    y = np.arange(x.size, dtype="i").reshape(sizes)
    order = np.argsort(x, dimension) if sizes else None
    expected = y if order is None else np.take_along_axis(y, order, dimension)
    made = compile(module, "v5e")
    assert check(made) == []
    for each in (module, made):
        np.testing.assert_array_equal(execute(each, [x, y]), expected + y)
    assert tpusim.simulate(module, "v5e").timeline.total_ps > 0


@pytest.mark.parametrize("sizes", [(4, 512), (512, 4)])
def test_a_sort_takes_as_long_however_its_dimension_is_stated(sizes):
    """Counted from either end it is the same."""
    times = {
        tpusim.simulate(
            parse_module(SourceText("m.v5e.hlo.txt", program(sizes, at, is_stable=True))), "v5e"
        ).summary.total_ps
        for at in (1, -1)
    }
    assert len(times) == 1
