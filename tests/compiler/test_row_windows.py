"""Pass 4: which maxima of rows become windows. Source: softmax in programs compiled ahead of time."""

from __future__ import annotations

import pytest

from tests.compiler.programs import compiled
from tpusim.pipeline.stages import check

MAXIMA = """HloModule maxima

larger {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }}

ENTRY main {{
  x = f32[{sizes}] parameter(0)
  low = f32[] constant(-inf)
  most = f32[{rows}] reduce(x, low), dimensions={{{last}}}, to_apply=larger
  wide = f32[{sizes}] broadcast(most), dimensions={{{kept}}}
  ROOT out = f32[{sizes}] subtract(x, wide)
}}
"""


@pytest.mark.parametrize(
    ("sizes", "is_window"),
    [
        ((8, 64, 128), True),
        ((8, 16, 8192), True),
        ((8, 16, 12288), False),
        ((512, 128), False),
        ((1, 512, 128), False),
        ((1, 8, 64, 128), False),
        ((8, 1, 64, 128), False),
        ((2, 8, 64, 128), True),
        ((8, 16, 0), False),
    ],
)
def test_rows_of_stacks_are_windows_unless_they_are_long(sizes, is_window):
    """As softmax is compiled for v4, v5e and v6e: not over the rows of one matrix, nor over 12,288 elements, nor 0."""
    texts = {"sizes": sizes, "rows": sizes[:-1], "last": [len(sizes) - 1], "kept": range(len(sizes) - 1)}
    text = MAXIMA.format(**{name: ",".join(map(str, numbers)) for name, numbers in texts.items()})
    opcodes = [i.opcode for i in compiled(text, stop_after="row-window").entry.instructions]
    assert ("reduce-window" in opcodes) == is_window


@pytest.mark.parametrize(
    ("region", "is_window"),
    [
        ("ROOT c = s32[] minimum(a, b)", True),
        ("n = s32[] not(b)  ROOT c = s32[] and(a, n)", False),
        ("ROOT c = s32[] xor(a, b)", False),
        ("g = pred[] compare(a, b), direction=GE  ROOT c = s32[] select(g, a, b)", False),
    ],
)
def test_what_counts_or_orders_the_elements_of_a_row_is_no_window(region, is_window):
    """A window may take in its initial value many times, and combines in any order."""
    sizes = {"sizes": "8,64,128", "rows": "8,64", "last": "2", "kept": "0,1"}
    text = MAXIMA.format(**sizes).replace("ROOT c = f32[] maximum(a, b)", region).replace("f32", "s32")
    text = text.replace("-inf", "0").replace("  ROOT c", "\n  ROOT c")
    opcodes = [i.opcode for i in compiled(text, stop_after="row-window").entry.instructions]
    assert ("reduce-window" in opcodes) == is_window


@pytest.mark.parametrize(
    ("sizes", "window"),
    [("100", "size=199 pad=99_99"), ("10,20", "size=1x1"), ("10,20", "size=19x39 pad=9_9x19_19"), ("", "")],
)
def test_a_window_of_a_text_has_rows_of_any_length(sizes, window):
    """Of one dimension, of one element, of all of a matrix, of a scalar: a kernel is made of each."""
    named = f", window={{{window}}}" if window else ""
    module = compiled(f"""HloModule m
larger {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }}
ENTRY e {{
  x = f32[{sizes}] parameter(0)
  y = f32[{sizes}] negate(x)
  low = f32[] constant(-inf)
  w = f32[{sizes}] reduce-window(y, low){named}, to_apply=larger
  ROOT z = f32[{sizes}] subtract(y, w)
}}
""")
    assert check(module) == []


WEIGHTS = """HloModule weights

larger { a = bf16[] parameter(0)  b = bf16[] parameter(1)  ROOT c = bf16[] maximum(a, b) }
add { a = bf16[] parameter(0)  b = bf16[] parameter(1)  ROOT c = bf16[] add(a, b) }

ENTRY main {
  q = bf16[8,256,64] parameter(0)
  k = bf16[8,256,64] parameter(1)
  s = bf16[8,256,256] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={2}
  x = bf16[8,256,256] MADE
  low = bf16[] constant(-inf)
  most = bf16[8,256] reduce(x, low), dimensions={2}, to_apply=larger
  wide = bf16[8,256,256] broadcast(most), dimensions={0,1}
  less = bf16[8,256,256] subtract(x, wide)
  y = bf16[8,256,256] exponential(less)
  zero = bf16[] constant(0)
  total = bf16[8,256] reduce(y, zero), dimensions={2}, to_apply=add
  totals = bf16[8,256,256] broadcast(total), dimensions={0,1}
  share = bf16[8,256,256] divide(y, totals)
  turned = f32[8,64,256] dot(k, share), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1},
    rhs_contracting_dims={2}
  plain = f32[8,256,64] dot(share, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={1}
  only = f32[8,256,64] dot(y, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={1}
  ROOT out = RESULT
}
"""
OF_SHARES = "f32[8,64,256] negate(turned)"


@pytest.mark.parametrize(
    ("made", "result", "is_window"),
    [
        ("negate(s)", OF_SHARES, False),
        ("parameter(2)", OF_SHARES, False),
        ("copy(s)", OF_SHARES, True),
        ("negate(s)", "bf16[8,256,256] negate(share)", True),
        ("negate(s)", "f32[8,256,64] negate(only)", True),
        ("negate(s)", "f32[8,256,64] negate(plain)", True),
    ],
)
def test_rows_of_which_exponentials_are_made_again_are_no_windows(made, result, is_window):
    """Scores are stored beside their maximum; what a product takes, unless it is plain, is made of them."""
    text = WEIGHTS.replace("MADE", made).replace("RESULT", result)
    for one in (text, text.replace("bf16", "f32")):
        module = compiled(one, stop_after="row-window")
        assert ("reduce-window" in [i.opcode for i in module.entry]) == is_window


def test_rows_are_windows_where_shares_become_narrower():
    """Attention of f32 whose shares a program rounds: exponentials are stored, and scores only without that."""
    text = WEIGHTS.replace("MADE", "negate(s)").replace("RESULT", OF_SHARES).replace("bf16", "f32")
    assert "reduce-window" not in compiled(text, stop_after="row-window").text
    rounded = text.replace("f32[8,256,256] divide(y, totals)", "bf16[8,256,256] convert(quotient)").replace(
        "  share =", "  quotient = f32[8,256,256] divide(y, totals)\n  share ="
    )
    assert "reduce-window" in compiled(rounded, stop_after="row-window").text


def test_plain_shares_are_windows_where_the_tpu_compiler_has_a_kernel():
    """On v4 it has none, and makes exponentials again for a plain product as for any other."""
    text = WEIGHTS.replace("MADE", "negate(s)").replace("RESULT", "f32[8,256,64] negate(plain)")
    # Of 16 bits shares are divided behind the product: that takes the exponentials.
    for one in (text, text.replace("f32[8,256,64]", "bf16[8,256,64]")):
        for chip, is_window in (("v5e", True), ("v5p", True), ("v6e", True), ("v4", False)):
            module = compiled(one, chip, stop_after="row-window")
            assert ("reduce-window" in module.text) == is_window


SCORES = """HloModule scores

larger {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }}

ENTRY main {{
  q = f32[1,64,8,128] parameter(0)
  k = f32[1,32,8,128] parameter(1)
  m = f32[1,32,{shared}128] parameter(2)
  s = f32[1,8,64,32] dot(q, k), lhs_batch_dims={{0,2}}, rhs_batch_dims={{0,2}}, lhs_contracting_dims={{3}},
    rhs_contracting_dims={{3}}
  {added}
  x = f32[1,8,64,32] add(s, t)
  low = f32[] constant(-inf)
  most = f32[1,8,64] reduce(x, low), dimensions={{3}}, to_apply=larger
  wide = f32[1,8,64,32] broadcast(most), dimensions={{0,1,2}}
  ROOT out = f32[1,8,64,32] subtract(x, wide)
}}
"""
ALIKE = """t = f32[1,8,64,32] dot(q, m), lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={3},
    rhs_contracting_dims={3}"""
TURNED = """u = f32[1,32,64,8] dot(m, q), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={3}
  t = f32[1,8,64,32] transpose(u), dimensions={0,3,2,1}"""


@pytest.mark.parametrize(("shared", "added", "is_window"), [("8,", ALIKE, True), ("", TURNED, False)])
def test_scores_of_one_sequence_are_stacks_without_it_unless_some_were_transposed(shared, added, is_window):
    """As scores of latent attention are not (libtpu 0.0.52, v5e): dimensions of size 1 stay where they stand."""
    module = compiled(SCORES.format(shared=shared, added=added), stop_after="row-window")
    assert any(i.opcode == "reduce-window" for i in module.entry) == is_window
