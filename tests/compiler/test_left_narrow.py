"""Pass 7: what a kernel leaves for others is of the type in which they read it."""

from __future__ import annotations

import pytest

from tests.compiler.programs import LESS, SUM, compiled
from tpusim.pipeline.stages import check
from tpusim.semantics.marks import APART, mark_of
from tpusim.shapes.shape import leaves

RAISED = """HloModule raised

REGIONS

ENTRY main {
  x = bf16[1024,128] parameter(0)
  w = bf16[128,512] parameter(1)
  v = bf16[512,256] parameter(2)
  u = f32[1024,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[1024,512] exponential(u)
  zero = f32[] constant(0)
  sums = f32[1024] reduce(y, zero), dimensions={1}, to_apply=sum
  p = TYPE[1024,512] convert(y)
LINES
}
"""
DOT = "  d = f32[1024,256] dot(p, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
OTHER = "  o = f32[1024,1024] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={1}"


def made(lines, dtype="bf16"):
    """Return the module, and the types of the arrays of 1,024 rows of 512 that kernels with a product leave."""
    text = RAISED.replace("LINES", lines).replace("TYPE", dtype).replace("REGIONS", f"{SUM}\n{LESS}")
    module = compiled(text)
    assert check(module) == []
    kernels = [
        i for i in module.entry if i.opcode == "fusion" and "exponential" in module[i.attributes["calls"]].opcodes
    ]
    left = [array for i in kernels for array in leaves(i.shape)]
    return module, sorted(leaf.dtype.name for leaf in left if leaf.dimensions == (1024, 512))


@pytest.mark.parametrize(
    "lines",
    [
        f"{DOT}\n  ROOT out = (f32[1024,256], f32[1024]) tuple(d, sums)",
        f"{DOT}\n{OTHER}\n  ROOT out = (f32[1024,256], f32[1024,1024], f32[1024]) tuple(d, o, sums)",
        f"{DOT}\n{OTHER}\n  t = bf16[1024,512] add(p, p)\n"
        "  ROOT out = (f32[1024,256], f32[1024,1024], bf16[1024,512], f32[1024]) tuple(d, o, t, sums)",
    ],
    ids=["a product", "two products", "products and a sum"],
)
def test_what_is_summed_and_otherwise_read_in_bf16_is_stored_as_that(lines):
    """As the exponentials of a softmax that is divided by its sums last: in one kernel with scores and sums."""
    _, types = made(lines)
    assert types == ["bf16"]


@pytest.mark.parametrize(
    ("dtype", "more"), [("bf16", "  t = f32[1024,512] sort(y), dimensions={1}, to_apply=less"), ("f64", "")]
)
def test_what_is_read_in_f32_as_well_or_made_wider_is_stored_as_it_is(dtype, more):
    """Nothing is spared by another array beside it, or by a larger one."""
    result = "  ROOT out = (f32[1024,256], f32[1024]) tuple(d, sums)"
    if more:
        result = f"{more}\n  ROOT out = (f32[1024,256], f32[1024,512], f32[1024]) tuple(d, t, sums)"
    assert "f32" in made(f"{DOT}\n{result}", dtype)[1]


def test_a_kernel_says_why_it_reads_the_narrower_array():
    """Of two products neither makes it."""
    module, _ = made(f"{DOT}\n{OTHER}\n  ROOT out = (f32[1024,256], f32[1024,1024], f32[1024]) tuple(d, o, sums)")
    reasons = [mark_of(i, APART) for i in module.entry]
    assert any("converted" in str(reason) for reason in reasons)
