"""Pass 4: which maxima of rows become windows. Source: softmax in programs compiled ahead of time."""

from __future__ import annotations

import pytest

from tests.compiler.programs import compiled

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
