"""Operations asked for: what instructions that apply a computation come to, beside XLA's count."""

from __future__ import annotations

import pytest

from tests.lowering.hlo import kernel_named, lower_module_text
from tpusim.errors import UnsupportedError
from tpusim.limits import APPLIED

TWICE = """\
five {
  x = f32[] parameter(0)
  a = f32[] add(x, x)
  b = f32[] multiply(a, x)
  c = f32[] add(b, x)
  d = f32[] multiply(c, x)
  ROOT e = f32[] add(d, x)
}

ten {
  x = f32[] parameter(0)
  a = f32[] call(x), to_apply=five
  ROOT b = f32[] call(a), to_apply=five
}
"""
ADD = "c {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT s = f32[] add(x, y)\n}\n"
THREE = (
    "c {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  a = f32[] add(x, y)\n"
    "  b = f32[] multiply(a, y)\n  ROOT s = f32[] subtract(b, x)\n}\n"
)
SECOND = "c {\n  x = f32[] parameter(0)\n  ROOT y = f32[] parameter(1)\n}\n"
LESS = "l {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT s = pred[] compare(x, y), direction=LT\n}\n"
BOTH = (
    "c {\n  a = f32[] parameter(0)\n  i = s32[] parameter(1)\n  b = f32[] parameter(2)\n  j = s32[] parameter(3)\n"
    "  g = pred[] compare(a, b), direction=GT\n  v = f32[] select(g, a, b)\n  w = s32[] select(g, i, j)\n"
    "  ROOT t = (f32[], s32[]) tuple(v, w)\n}\n"
)
MAP = "f32[16,128] map(p), dimensions={0,1}, to_apply="
REDUCE = "f32[16] reduce(p, z), dimensions={1}, to_apply="
WINDOW = "f32[8,64] reduce-window(p, z), window={size=2x2 stride=2x2}, to_apply=c"
ROWS = "f32[16,128] reduce-window(p, z), window={size=1x255 pad=0_0x127_127}, to_apply=c"
SUMS = "f32[16,128] reduce-window(p, z), window={size=1x128 pad=0_0x127_0}, to_apply=c"
CHOSEN = "f32[16,128] select-and-scatter(p, u, z), window={size=2x2 stride=2x2}, select=l, scatter=c"
SCATTER = (
    "f32[16,128] scatter(p, n, r), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=c"
)

# Computations, the instruction, its operations, and those that XLA counts less: one for each result.
APPLIES = {
    "map": (TWICE, MAP + "five", 5 * 2048, 0),
    "map of calls": (TWICE, MAP + "ten", 10 * 2048, 0),
    "reduce": (ADD, REDUCE + "c", 2048, 16),
    "reduce by three": (THREE, REDUCE + "c", 3 * 2048, 3 * 16),
    "argmax": (BOTH, "(f32[16], s32[16]) reduce(p, q, z, k), dimensions={1}, to_apply=c", 3 * 2048, 3 * 16),
    "pooling": (ADD, WINDOW, 2048, 512),
    "pooling by three": (THREE, WINDOW, 3 * 2048, 3 * 512),
    "select-and-scatter": (LESS + THREE, CHOSEN, 3 * 512 + 3 * 512, 0),
    "scatter": (THREE, SCATTER, 3 * 4 * 128, 0),
    "scatter that replaces": (SECOND, SCATTER, 0, 0),
    "sort": (LESS, "f32[16,128] sort(p), dimensions={1}, to_apply=l", 2048 * 11, 0),
}


def module_of(computations, instruction):
    """Return the text of a module whose entry is one instruction, called ``r``."""
    return f"""HloModule m, is_scheduled=true

{computations}
ENTRY e {{
  p = f32[16,128] parameter(0)
  q = s32[16,128] parameter(1)
  u = f32[8,64] parameter(2)
  n = s32[4,1] parameter(3)
  r = f32[4,128] parameter(4)
  z = f32[] constant(0)
  k = s32[] constant(0)
  ROOT made = {instruction}
}}
"""


@pytest.mark.parametrize(("computations", "instruction", "flops", "less"), APPLIES.values(), ids=APPLIES.keys())
def test_what_is_applied_is_counted_as_often_as_it_is(computations, instruction, flops, less):
    """By what one application asks for, as XLA counts it, but for one that a reduction saves for each result."""
    text = module_of(computations, instruction)
    assert kernel_named(lower_module_text(text), "made").flops == flops
    hlo, client = (pytest.importorskip(f"jaxlib.{name}") for name in ("_hlo", "xla_client"))
    cpu = pytest.importorskip("jax").devices("cpu")[0].client
    found = client._xla.hlo_module_cost_analysis(cpu, hlo.hlo_module_from_text(text))
    assert found.get("flops", 0.0) == flops - less


@pytest.mark.parametrize("instruction", [ROWS, SUMS])
def test_a_window_over_a_row_takes_each_element_once(instruction):
    """One position has what the next one needs: of 128 squared there would be more than the chip could do."""
    assert kernel_named(lower_module_text(module_of(ADD, instruction)), "made").flops == 2048


# Their sizes, and how many elements each of 16 * 65 asks for, as XLA has it and by doubling.
LONG = {"64": ("1x64", 64, 2 * 6), "50": ("1x50 pad=0_0x0_-14", 50, 2 * 6), "three": ("1x3 pad=0_0x0_-61", 3, 3)}


@pytest.mark.parametrize(("window", "each", "shared"), LONG.values(), ids=LONG)
def test_long_windows_share_what_they_have_in_common(window, each, shared):
    """Which is what the vector unit does of them, and never more than each by itself."""
    text = module_of(ADD, f"f32[16,65] reduce-window(p, z), window={{size={window}}}, to_apply=c")
    kernel = kernel_named(lower_module_text(text), "made")
    assert kernel.flops == 16 * 65 * min(each, shared)


def test_strided_windows_share_nothing():
    """Doubling would need those between them."""
    text = module_of(ADD, "f32[16,33] reduce-window(p, z), window={size=1x64 stride=1x2}, to_apply=c")
    assert kernel_named(lower_module_text(text), "made").flops == 16 * 33 * 64


def test_windows_along_two_dimensions_are_one_along_each():
    """First along one, then along the other: each as long as it is, or by doubling."""
    text = module_of(ADD, "f32[9,121] reduce-window(p, z), window={size=8x8}, to_apply=c")
    assert kernel_named(lower_module_text(text), "made").flops == 9 * 121 * (2 * 3 + 2 * 3)


CALLED = (
    "g{n} {{\n  x = f32[] parameter(0)\n{y}  m = f32[] call({a}), to_apply=g{k}\n"
    "  ROOT v = f32[] call({b}), to_apply=g{k}\n}}\n"
)


def doubling(levels, is_reduction):
    """Return computations of two calls each, of one parameter or of two, the last one to be applied."""
    second = "  y = f32[] parameter(1)\n" if is_reduction else ""
    first, then = ("x, y", "m, y") if is_reduction else ("x", "m")
    made = f"g0 {{\n  x = f32[] parameter(0)\n{second}  ROOT v = f32[] add(x, {'y' if is_reduction else 'x'})\n}}\n"
    for n in range(1, levels + 1):
        made += CALLED.format(n=n, k=n - 1, y=second, a=first, b=then)
    return made


@pytest.mark.parametrize(("is_reduction", "call"), [(False, MAP), (True, REDUCE)])
def test_calls_in_what_is_applied_multiply_to_so_many(is_reduction, call):
    """Beyond that no figure would have a number; the instruction that applies them has its place in the message."""
    few = lower_module_text(module_of(doubling(180, is_reduction), f"{call}g180"))
    assert kernel_named(few, "made").flops == pytest.approx(2048 * 2.0**180)
    said = rf"m.hlo:\d+:8: made: expected {APPLIED.what}, at most a number of some 61 digits, found .* 2\d\d digits"
    with pytest.raises(UnsupportedError, match=said):
        lower_module_text(module_of(doubling(650, is_reduction), f"{call}g650"))
