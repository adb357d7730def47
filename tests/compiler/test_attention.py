"""Which softmax is made with its scores. Source: 84 programs with attention compiled ahead of time for v5e."""

from __future__ import annotations

import pytest

from tests.compiler.programs import compiled

TEXT = """HloModule attention

larger {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }}
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }}

ENTRY main {{
  {made}
  scores = f32[2,16,1024,1024] dot(q, k), lhs_batch_dims={{0,2}}, rhs_batch_dims={{0,2}}, lhs_contracting_dims={{3}},
    rhs_contracting_dims={{3}}
  low = f32[] constant(-inf)
  most = f32[2,16,1024] reduce(scores, low), dimensions={{3}}, to_apply=larger
  wide = f32[2,16,1024,1024] broadcast(most), dimensions={{0,1,2}}
  less = f32[2,16,1024,1024] subtract(scores, wide)
  e = f32[2,16,1024,1024] exponential(less)
  zero = f32[] constant(0)
  sums = f32[2,16,1024] reduce(e, zero), dimensions={{3}}, to_apply=add
  row = f32[2,16,1024,1024] broadcast(sums), dimensions={{0,1,2}}
  shares = f32[2,16,1024,1024] divide(e, row)
  weights = bf16[2,16,1024,1024] convert(shares)
  o = bf16[2,16,1024,64] dot(weights, v), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,2}}, lhs_contracting_dims={{3}},
    rhs_contracting_dims={{1}}
  ROOT out = bf16[2,1024,16,64] transpose(o), dimensions={{0,2,1,3}}
}}
"""

SEPARATE = """v = bf16[2,1024,16,64] parameter(2)
  k = bf16[2,1024,16,64] parameter(1)"""
PROJECTION = """x = bf16[2,1024,1024] parameter(0)
  w = bf16[1024,3072] parameter(1)
  u = bf16[2,1024,3072] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}"""
SPLIT = "y = bf16[2,1024,3,16,64] reshape(u)"


def parts(sizes, *names):
    """Return what cuts an array, here with three parts along one of its dimensions, into parts with names."""
    along = sizes.index(3)
    lines = []
    for number, name in enumerate(names):
        ends = [f"[{number}:{number + 1}]" if d == along else f"[0:{size}]" for d, size in enumerate(sizes)]
        shape = ",".join("1" if d == along else str(size) for d, size in enumerate(sizes))
        lines += [f"{name}_cut = bf16[{shape}] slice(y), slice={{{','.join(ends)}}}"]
        lines += [f"{name} = bf16[2,1024,16,64] reshape({name}_cut)"]
    return "\n  ".join(lines)


def is_one_kernel(*made, chip="v5e", columns=64):
    """Return whether the kernel with the maxima of the rows makes the scores too."""
    text = TEXT.format(made="\n  ".join(made)).replace("16,64]", f"16,{columns}]")
    module = compiled(text, chip)
    kernels = [module[i.attributes["calls"]].opcodes for i in module.entry if i.opcode == "fusion"]
    (found,) = ["dot" in opcodes for opcodes in kernels if "reduce-window" in opcodes]
    return found


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((3, 2, 1024, 16, 64), True),
        ((2, 3, 1024, 16, 64), False),
        ((2, 1024, 3, 16, 64), False),
        ((2, 1024, 16, 3, 64), False),
    ],
)
def test_parts_of_an_argument_are_taken_where_they_lie_if_they_lie_behind_each_other(sizes, expected):
    """What lies otherwise is laid out anew by a kernel first, and the product takes what that has made."""
    array = f"y = bf16[{','.join(map(str, sizes))}] parameter(0)"
    assert is_one_kernel(array, parts(sizes, "q", "k", "v")) == expected


def test_the_only_part_that_is_used_is_taken_where_it_lies():
    """For one part nothing is laid out anew."""
    assert is_one_kernel("y = bf16[2,1024,3,16,64] parameter(0)", SEPARATE, parts((2, 1024, 3, 16, 64), "q"))


@pytest.mark.parametrize(("chip", "expected"), [("v5e", False), ("v6e", True)])
def test_heads_within_positions_are_taken_where_they_lie_by_wide_arrays(chip, expected):
    """Heads of 128 columns, which an argument has beside each other, as compiled for both chips (libtpu 0.0.52)."""
    queries = "q = bf16[2,1024,16,64] parameter(0)"
    assert is_one_kernel(queries, SEPARATE, chip=chip, columns=128) == expected


def test_what_is_computed_of_parts_takes_them_along():
    """Queries are scaled as the product takes them in."""
    scaled = """half = bf16[] constant(0.5)
  halves = bf16[2,1024,16,64] broadcast(half), dimensions={}
  q = bf16[2,1024,16,64] multiply(p, halves)
  k = bf16[2,1024,16,64] multiply(r, halves)"""
    array = "y = bf16[2,1024,3,16,64] parameter(0)"
    assert not is_one_kernel(array, parts((2, 1024, 3, 16, 64), "p", "r", "v"), scaled)


def test_parts_of_a_projection_are_laid_out_anew():
    """A projection makes rows of the three together, in which they lie beside each other."""
    assert not is_one_kernel(PROJECTION, SPLIT, parts((2, 1024, 3, 16, 64), "q", "k", "v"))


@pytest.mark.parametrize(
    ("order", "sizes"), [((2, 0, 1, 3, 4), (3, 2, 1024, 16, 64)), ((0, 2, 1, 3, 4), (2, 3, 1024, 16, 64))]
)
def test_parts_of_what_is_turned_are_taken_where_they_lie(order, sizes):
    """It is laid out anew once, when it is turned."""
    turned = f"y = bf16[{','.join(map(str, sizes))}] transpose(z), dimensions={{{','.join(map(str, order))}}}"
    made = PROJECTION, SPLIT.replace("y =", "z ="), turned
    assert is_one_kernel(*made, parts(sizes, "q", "k", "v"))


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ("w = bf16[1024,3,16,64] parameter(1)", True),
        ("s = bf16[1,1024,3072] parameter(1)  t = bf16[1024,3072] reshape(s)", True),
        ("s = f32[1,1024,3072] parameter(1)  r = f32[1024,3072] reshape(s)  t = bf16[1024,3072] convert(r)", True),
        ("t = bf16[1024,3072] parameter(1)", False),
    ],
)
def test_parts_of_a_projection_that_makes_heads_are_taken_where_they_lie(weights, expected):
    """So does one of weights with heads, and one of weights that are reshaped, as in every loop over layers."""
    whole = """y = bf16[2,1024,3,16,64] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}"""
    flat = """u = bf16[2,1024,3072] dot(x, t), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  y = bf16[2,1024,3,16,64] reshape(u)"""
    made = "x = bf16[2,1024,1024] parameter(0)", weights, whole if "w =" in weights else flat
    assert is_one_kernel(*made, parts((2, 1024, 3, 16, 64), "q", "k", "v")) == expected


def test_matrices_in_another_order_than_those_that_are_made_of_them_are_turned():
    """The product makes what it is given first outermost: heads of the three, each of which has all sequences."""
    made = """x = bf16[2,1024,1024] parameter(0)
  w = bf16[1024,3,16,64] parameter(1)
  z = bf16[3,16,64,2,1024] dot(w, x), lhs_contracting_dims={0}, rhs_contracting_dims={2}
  y = bf16[3,2,1024,16,64] transpose(z), dimensions={0,3,4,1,2}"""
    assert not is_one_kernel(made, parts((3, 2, 1024, 16, 64), "q", "k", "v"))


@pytest.mark.parametrize(("heads", "expected"), [("16,64", False), ("1024", True)])
def test_weights_of_a_layer_are_cut_out_before_they_are_turned(heads, expected):
    """Split by heads they lie with what is summed up in the lanes; where nothing is split they stay as they are."""
    module = compiled(f"""HloModule layer

ENTRY main {{
  x = bf16[2,1024,1024] parameter(0)
  all = bf16[4,1024,1024] parameter(1)
  i = s32[] parameter(2)
  zero = s32[] constant(0)
  one = bf16[1,1024,1024] dynamic-slice(all, i, zero, zero), dynamic_slice_sizes={{1,1024,1024}}
  w = bf16[1024,1024] reshape(one)
  u = bf16[2,1024,1024] dot(x, w), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}
  y = bf16[2,1024,{heads}] reshape(u)
  ROOT z = bf16[2,1024,{heads}] tanh(y)
}}
""")
    kernels = [module[i.attributes["calls"]].opcodes for i in module.entry if i.opcode == "fusion"]
    assert any({"dynamic-slice", "dot"} <= opcodes for opcodes in kernels) == expected
    assert not any({"dynamic-slice", "reshape"} <= opcodes for opcodes in kernels)


SCALED = "scaled = f32[2,8,SIZE,SIZE] multiply(wider, halves)"
MASKED = """low = f32[] constant(-9)
  lows = f32[2,8,SIZE,SIZE] broadcast(low), dimensions={}
  mask = pred[2,8,SIZE,SIZE] parameter(3)
  masked = f32[2,8,SIZE,SIZE] select(mask, scaled, lows)"""
BIAS = """bias = f32[2,8,SIZE,SIZE] parameter(3)
  masked = f32[2,8,SIZE,SIZE] add(scaled, bias)"""
CAP = """less_steep = f32[2,8,SIZE,SIZE] multiply(scaled, halves)
  capped = f32[2,8,SIZE,SIZE] tanh(less_steep)
  masked = f32[2,8,SIZE,SIZE] multiply(capped, halves)"""


@pytest.mark.parametrize(
    ("made", "longest"),
    [
        ((SCALED,), 2560),
        ((SCALED.replace("multiply(wider, halves)", "negate(wider)"), MASKED), 1792),
        ((SCALED, BIAS), 1792),
        ((SCALED, MASKED), 1408),
        ((SCALED, CAP), 1408),
    ],
)
def test_scores_are_read_as_the_product_leaves_them_where_rows_are_short_for_what_is_made_of_them(made, longest):
    """As compiled ahead of time for v5e, of heads with 128 elements that lie side by side; a tanh combines nothing."""
    last = "masked" if len(made) > 1 else "scaled"
    for size, expected in ((longest, "bf16"), (longest + 256, "f32")):
        assert read_scores(_OF_NARROW.replace("MADE", "\n  ".join(made)).replace("LAST", last), size) == expected


def read_scores(text, size):
    """Return the type of the scores that the kernel of their maxima reads."""
    module = compiled(text.replace("SIZE", str(size)))
    (kernel,) = [
        module[i.attributes["calls"]]
        for i in module.entry
        if i.opcode == "fusion" and "reduce-window" in module[i.attributes["calls"]].opcodes
    ]
    large = [p.shape.dtype.name for p in kernel.parameters if p.shape.dimensions[-2:] == (size, size)]
    return large[0 if large[0] != "pred" else 1]


def with_added(bias, added):
    """Return a softmax of scores that are added to something while they are narrow."""
    text = _OF_NARROW.replace("MADE", SCALED).replace("LAST", "scaled").replace("convert(scores)", "convert(more)")
    return text.replace("  wider =", f"  {bias}\n  {added}\n  wider =")


WHOLE = "b = bf16[2,8,SIZE,SIZE] parameter(3)", "more = bf16[2,8,SIZE,SIZE] add(scores, b)"


def test_what_is_added_to_scores_of_16_bits_is_added_where_they_are_made():
    """It counts for nothing where they are read: 1,792 is the most for a bias that is added there (libtpu 0.0.52)."""
    assert read_scores(with_added(*WHOLE), 2048) == "bf16"


@pytest.mark.parametrize(
    ("bias", "added", "expected"),
    [
        (*WHOLE, False),
        (
            "b = bf16[SIZE,SIZE] parameter(3)  c = bf16[2,8,SIZE,SIZE] broadcast(b), dimensions={2,3}",
            "more = bf16[2,8,SIZE,SIZE] multiply(scores, c)",
            False,
        ),
        (
            "b = bf16[SIZE] parameter(3)  c = bf16[2,8,SIZE,SIZE] broadcast(b), dimensions={3}",
            "more = bf16[2,8,SIZE,SIZE] add(scores, c)",
            True,
        ),
        (
            "b = f32[2,8,SIZE,SIZE] parameter(3)",
            "f = f32[2,8,SIZE,SIZE] convert(scores)  more = f32[2,8,SIZE,SIZE] add(f, b)",
            True,
        ),
    ],
    ids=["all", "spread", "a vector", "wider"],
)
def test_what_was_turned_is_added_by_the_kernel_of_the_product(bias, added, expected):
    """To scores of 16 bits; else one kernel makes them with their maxima, as compiled for v5e (libtpu 0.0.52)."""
    # Heads lie outside of their matrices: the product moves nothing by itself.
    text = with_added(bias, added).replace("[2,SIZE,8,128] parameter", "[2,8,SIZE,128] parameter")
    text = text.replace("batch_dims={0,2}", "batch_dims={0,1}").replace(
        "lhs_contracting_dims={1}", "lhs_contracting_dims={2}"
    )
    module = compiled(text.replace("SIZE", "512"))
    kernels = [module[i.attributes["calls"]].opcodes for i in module.entry if i.opcode == "fusion"]
    assert any({"dot", "reduce-window"} <= opcodes for opcodes in kernels) == expected
    assert not any({"dot", "copy"} <= opcodes for opcodes in kernels)


_OF_NARROW = """HloModule attention

larger { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

ENTRY main {
  q = bf16[2,SIZE,8,128] parameter(0)
  k = bf16[2,SIZE,8,128] parameter(1)
  v = bf16[2,SIZE,8,128] parameter(2)
  scores = bf16[2,8,SIZE,SIZE] dot(q, k), lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={3},
    rhs_contracting_dims={3}
  wider = f32[2,8,SIZE,SIZE] convert(scores)
  half = f32[] constant(0.5)
  halves = f32[2,8,SIZE,SIZE] broadcast(half), dimensions={}
  MADE
  least = f32[] constant(-inf)
  most = f32[2,8,SIZE] reduce(LAST, least), dimensions={3}, to_apply=larger
  wide = f32[2,8,SIZE,SIZE] broadcast(most), dimensions={0,1,2}
  less = f32[2,8,SIZE,SIZE] subtract(LAST, wide)
  e = f32[2,8,SIZE,SIZE] exponential(less)
  zero = f32[] constant(0)
  sums = f32[2,8,SIZE] reduce(e, zero), dimensions={3}, to_apply=add
  row = f32[2,8,SIZE,SIZE] broadcast(sums), dimensions={0,1,2}
  shares = f32[2,8,SIZE,SIZE] divide(e, row)
  weights = bf16[2,8,SIZE,SIZE] convert(shares)
  o = bf16[2,8,128,SIZE] dot(v, weights), lhs_batch_dims={0,2}, rhs_batch_dims={0,1}, lhs_contracting_dims={1},
    rhs_contracting_dims={3}
  ROOT out = bf16[2,SIZE,8,128] transpose(o), dimensions={0,3,1,2}
}
"""
