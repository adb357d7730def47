"""Pass 7: which kernels there are."""

from __future__ import annotations

from tpusim.compiler.passes import compile_module
from tpusim.compiler.target import Target
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import check
from tpusim.semantics.marks import APART, mark_of
from tpusim.shapes.shape import TupleShape
from tpusim.source import SourceText
from tpusim.text.parser import parse_module


def compiled(text):
    """Return the module that our compiler makes of a text for v5e."""
    return compile_module(parse_module(SourceText("test", text)), Target(load_chip("v5e")))


AROUND_A_SORT = """HloModule around_a_sort

less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=LT }

ENTRY main {
  p = f32[8,1024] parameter(0)
  twice = f32[8,1024] add(p, p)
  bent = f32[8,1024] tanh(twice)
  sorted = f32[8,1024] sort(bent), dimensions={1}, to_apply=less
  up = f32[8,1024] exponential(sorted)
  both = f32[8,1024] multiply(bent, up)
  ROOT out = f32[8,1024] negate(both)
}
"""


def test_no_kernel_waits_for_itself_through_what_is_no_kernel():
    """``bent`` may not be made in the kernel that reads what is sorted of it."""
    entry = compiled(AROUND_A_SORT).entry
    assert [i.opcode for i in entry.instructions] == ["parameter", "fusion", "sort", "fusion"]


RESIDUAL = """HloModule residual

add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

ENTRY main {
  a = f32[512,1024] parameter(0)
  b = f32[512,1024] parameter(1)
  c = f32[512,1024] parameter(2)
  s = f32[512,1024] ADDED
  zero = f32[] constant(0)
  sums = f32[512] reduce(s, zero), dimensions={1}, to_apply=add
  row = f32[512,1024] broadcast(sums), dimensions={0}
  ROOT out = f32[512,1024] subtract(s, row)
}
"""


def test_what_is_as_soon_made_as_read_is_not_stored():
    """Two arrays are read twice, rather than read once, their sum stored and read again."""
    entry = compiled(RESIDUAL.replace("ADDED", "add(a, b)")).entry
    kernels = [i for i in entry.instructions if i.opcode == "fusion"]
    assert [str(kernel.shape.dimensions) for kernel in kernels] == ["(512,)", "(512, 1024)"]


def test_what_takes_more_to_make_than_to_read_is_stored():
    """Three arrays are read once, and what is made of them is one more result."""
    entry = compiled(RESIDUAL.replace("ADDED", "clamp(a, b, c)")).entry
    first = next(i for i in entry.instructions if i.opcode == "fusion")
    assert [element.dimensions for element in first.shape.elements] == [(512, 1024), (512,)]


STENCIL = """HloModule stencil

ENTRY main {
  x = f32[1024,512] parameter(0)
  copy = f32[1024,512] copy(x)
  u = f32[1022,510] parameter(1)
  inner = f32[1022,510] slice(copy), slice={[1:1023], [1:511]}
  sum = f32[1022,510] add(inner, u)
  one = s32[] constant(1)
  ROOT out = f32[1024,512] dynamic-update-slice(copy, sum, one, one)
}
"""


def test_an_update_that_is_made_of_its_target_is_made_before():
    """As in ``x.at[1:-1, 1:-1].add(u)``: 3 of 3 in compiled programs; one that is not made of it may be fused."""
    entry = compiled(STENCIL.replace("sum", "sum")).entry
    assert entry.root.opcode == "dynamic-update-slice"
    assert entry[entry.root.operands[1]].opcode == "fusion"


ROLLED = """HloModule rolled

ENTRY main {
  x = f32[128,128,256] parameter(0)
  a = f32[1,128,256] slice(x), slice={[0:1], [0:128], [0:256]}
  b = f32[127,128,256] slice(x), slice={[1:128], [0:128], [0:256]}
  down = f32[128,128,256] concatenate(b, a), dimensions={0}
  c = f32[127,128,256] slice(x), slice={[0:127], [0:128], [0:256]}
  d = f32[1,128,256] slice(x), slice={[127:128], [0:128], [0:256]}
  up = f32[128,128,256] concatenate(d, c), dimensions={0}
  ROOT out = f32[128,128,256] add(down, up)
}
"""


def test_slices_of_each_size_are_made_together():
    """As in ``jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0)``: of 12 slices in three such pairs 6 kernels of two."""
    entry = compiled(ROLLED).entry
    results = [i.shape for i in entry.instructions if i.opcode == "fusion" and isinstance(i.shape, TupleShape)]
    assert sorted([leaf.dimensions[0] for leaf in shape.elements] for shape in results) == [[1, 1], [127, 127]]


def test_a_kernel_says_which_neighbours_it_does_not_make():
    """By name and rule, in the text, so that a program read from a file knows it as well."""
    module = compiled(RESIDUAL.replace("ADDED", "multiply(a, multiply(b, multiply(c, c)))"))
    apart = {i.name: mark_of(i, APART) for i in module.entry if mark_of(i, APART)}
    assert any("a reduce ends its kernel" in text for text in apart.values())
    assert check(parse_module(SourceText("again", module.text))) == []
