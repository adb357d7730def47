"""What a loop only reads in another order than it is handed is brought into that order before the loop."""

from __future__ import annotations

import numpy as np
import pytest

from tpusim.compiler.passes import compile_module
from tpusim.compiler.target import Target
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import check, execute
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

STATE = "(s32[], f32[64,128,2], f32[64,128,8])"
STAYS = ', frontend_attributes={_xla_disable_loop_instr_hoisting="true"}'
"""Without it the running sums would not be computed in the loop at all."""


def text_of(handed="x", read="x", twice=False, after=False):
    """Return a loop that adds its running sums along the second dimension of an array to what it carries.

    ``handed`` is what the body hands on in place of the array, ``read`` what it reads beside it; ``twice`` runs the
    body in two loops, ``after`` uses the array that comes out.
    """
    loops = f"  l = {STATE} while(t), condition=less, body=body{STAYS}\n"
    if twice:
        loops = loops.replace("  l", "  k") + f"  l = {STATE} while(k), condition=less, body=body{STAYS}\n"
    root = "y" if not after else "z"
    return f"""HloModule m
sum {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }}
less {{
  q = {STATE} parameter(0)
  i = s32[] get-tuple-element(q), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}}
body {{
  q = {STATE} parameter(0)
  i = s32[] get-tuple-element(q), index=0
  x = f32[64,128,2] get-tuple-element(q), index=1
  y = f32[64,128,8] get-tuple-element(q), index=2
  e = s32[] constant(1)
  j = s32[] add(i, e)
  o = f32[] constant(0)
  r = f32[64,128,2] reduce-window({read}, o), window={{size=1x1x2 pad=0_0x0_0x1_0}}, to_apply=sum
  g = f32[64,128,2] negate(x)
  p = f32[64,128,8] pad(r, o), padding=0_0x0_0x0_6
  z = f32[64,128,8] add(y, p)
  ROOT t = {STATE} tuple(j, {handed}, z)
}}
ENTRY e {{
  x = f32[64,128,2] parameter(0)
  y0 = f32[64,128,8] parameter(1)
  i = s32[] constant(0)
  t = {STATE} tuple(i, x, y0)
{loops}  y = f32[64,128,8] get-tuple-element(l), index=2
  w = f32[64,128,2] get-tuple-element(l), index=1
  o = f32[] constant(0)
  p = f32[64,128,8] pad(w, o), padding=0_0x0_0x0_6
  z = f32[64,128,8] add(y, p)
  ROOT r = f32[64,128,8] negate({root})
}}
"""


def compiled(text, stop_after=""):
    """Return what our compiler makes of a text for v5e."""
    return compile_module(parse_module(SourceText("test", text)), Target(load_chip("v5e")), stop_after)


def copies(module):
    """Return how many copies of the array stand before loops, and how many in them."""
    found = [0, 0]
    for computation in module.computations:
        for i in computation:
            if i.opcode == "copy" and i.shape.dimensions == (64, 128, 2):
                found[computation.name != module.entry_name] += 1
    return tuple(found)


CASES = [
    pytest.param({}, (1, 0), id="what stays"),
    pytest.param({"after": True}, (1, 0), id="what is used behind the loop as it was"),
    pytest.param({"handed": "g"}, (0, 1), id="not what changes"),
    pytest.param({"twice": True}, (0, 2), id="not where another loop is handed all of it"),
]


@pytest.mark.parametrize(("made", "expected"), CASES)
def test_copies_of_what_a_loop_does_not_change_stand_before_it(made, expected):
    """As the TPU compiler has it: 32 copies of 1 GiB were made in a loop that crops images."""
    found = copies(compiled(text_of(**made), "layouts"))
    assert found == expected


@pytest.mark.parametrize(("made", "expected"), CASES)
def test_the_result_is_the_same(made, expected):
    """Whatever is moved."""
    plain, module = parse_module(SourceText("m", text_of(**made))), compiled(text_of(**made))
    assert check(module) == []
    inputs = [np.random.default_rng(1).standard_normal(p.shape.dimensions, "f4") for p in plain.entry.parameters]
    one, other = (execute(m, inputs) for m in (plain, module))
    np.testing.assert_allclose(one, other, rtol=1e-6)


TRANSPOSED = """HloModule m
less {
  q = (s32[], f32[256,128], f32[128,256]) parameter(0)
  i = s32[] get-tuple-element(q), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  q = (s32[], f32[256,128], f32[128,256]) parameter(0)
  i = s32[] get-tuple-element(q), index=0
  x = f32[256,128] get-tuple-element(q), index=1
  y = f32[128,256] get-tuple-element(q), index=2
  e = s32[] constant(1)
  j = s32[] add(i, e)
  a = f32[128,256] transpose(x), dimensions={1,0}
  s = f32[128,256] sine(y)
  d = f32[128,256] add(s, a)
  v = f32[256,128] transpose(d), dimensions={1,0}
  b = f32[256,128] add(v, x)
  w = f32[128,256] transpose(b), dimensions={1,0}
  ROOT t = (s32[], f32[256,128], f32[128,256]) tuple(j, x, END)
}
ENTRY e {
  x = f32[256,128] parameter(0)
  y = f32[128,256] parameter(1)
  i = s32[] constant(0)
  t = (s32[], f32[256,128], f32[128,256]) tuple(i, x, y)
  l = (s32[], f32[256,128], f32[128,256]) while(t), condition=less, body=body
  ROOT r = f32[128,256] get-tuple-element(l), index=2
}
"""


@pytest.mark.parametrize(("end", "expected"), [("d", ["e"]), ("w", ["body", "body"])])
def test_what_a_loop_reads_transposed_is_copied_before_it(end, expected):
    """Behind the bitcast that a transpose is; not where the loop reads it in a second order as well."""
    text = TRANSPOSED.replace("END", end)
    module = compiled(text, "layouts")
    assert check(module) == []
    assert [c.name for c in module.computations for i in c if i.opcode == "copy"] == expected
    x, y = (np.random.default_rng(1).standard_normal(shape, "f4") for shape in ((256, 128), (128, 256)))
    plain = parse_module(SourceText("m", text))
    for made in (module, compiled(text)):
        np.testing.assert_array_equal(execute(made, [x, y]), execute(plain, [x, y]))
