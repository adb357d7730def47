"""What writes over an array waits for what reads it, in whichever order a program names what it returns.

The TPU compiler's own text (libtpu 0.0.52, v5e) is the oracle: each program with its results in one order and in the
other, and what the TPU compiler leaves of both.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import tpusim
from tests.compiler.overwrites import overwrites
from tests.compiler.programs import compiled
from tpusim.ir.module import Module
from tpusim.pipeline.stages import check

FOLDER = Path(__file__).parents[1] / "data" / "hlo" / "written_over"
NAMES = ("summed", "read_from", "carried", "made_in_loop")
_LARGE_ELEMENTS = 2**20


def large_copies(module: Module) -> int:
    """Return how many large arrays are copied into other memory than that of arguments."""
    copies = (i for computation in module.computations for i in computation if i.opcode == "copy")
    return sum(i.shape.element_count >= _LARGE_ELEMENTS for i in copies)


@pytest.mark.parametrize("order", ["", ".written_first"], ids=["read first", "written first"])
@pytest.mark.parametrize("name", NAMES)
def test_a_large_array_is_not_copied_for_the_sake_of_a_row(name, order):
    """Time too is near that of what the TPU compiler leaves, both simulated."""
    text = (FOLDER / f"{name}{order}.hlo.txt").read_text(encoding="utf-8")
    module = compiled(text, "v5e")
    assert check(module) == []
    assert overwrites(module) == []
    theirs = tpusim.load(FOLDER / f"{name}.v5e.hlo.txt")
    assert large_copies(module) == large_copies(theirs) == 0
    ours_ps, theirs_ps = (tpusim.simulate(one, "v5e").timeline.total_ps for one in (module, theirs))
    assert ours_ps == pytest.approx(theirs_ps, rel=0.2)


CROSSED = """HloModule m

more {
  p = (s32[], f32[512,1024], f32[8,1024]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  most = s32[] constant(5)
  ROOT m = pred[] compare(n, most), direction=LT
}

body {
  p = (s32[], f32[512,1024], f32[8,1024]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  x = f32[512,1024] get-tuple-element(p), index=1
  u = f32[8,1024] get-tuple-element(p), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  next = s32[] add(n, one)
  row = f32[8,1024] dynamic-slice(x, next, zero), dynamic_slice_sizes={8,1024}
  v = f32[8,1024] add(u, row)
  w = f32[512,1024] dynamic-update-slice(x, u, n, zero)
  ROOT r = (s32[], f32[512,1024], f32[8,1024]) tuple(next, w, v)
}

ENTRY e {
  x = f32[512,1024] parameter(0)
  u = f32[8,1024] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[512,1024], f32[8,1024]) tuple(zero, x, u)
  l = (s32[], f32[512,1024], f32[8,1024]) while(t), condition=more, body=body
  a = f32[512,1024] get-tuple-element(l), index=1
  b = f32[8,1024] get-tuple-element(l), index=2
  ROOT r = (f32[512,1024], f32[8,1024]) tuple(a, b)
}
"""


def test_of_two_that_read_each_other_the_smaller_one_is_copied():
    """The row is read where the matrix is written, and the matrix where the row is."""
    module = compiled(CROSSED, "v3")
    assert overwrites(module) == []
    body = next(one for one in module.computations if "body" in one.name)
    assert {i.shape.dimensions for i in body if i.opcode == "copy"} <= {(8, 1024)}
