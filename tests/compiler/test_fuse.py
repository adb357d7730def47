"""Pass 7: which kernels there are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tpusim.compiler.passes import compile_module
from tpusim.compiler.target import Target
from tpusim.hardware.load import load_chip
from tpusim.ir.ops import FREE
from tpusim.pipeline.stages import check, execute
from tpusim.semantics.contents import contents
from tpusim.semantics.marks import APART, mark_of
from tpusim.shapes.shape import TupleShape
from tpusim.source import SourceText
from tpusim.text.parser import parse_module


def compiled(text):
    """Return the module that our compiler makes of a text for v5e."""
    return compile_module(parse_module(SourceText("test", text)), Target(load_chip("v5e"), narrows=False))


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


MASKED = """HloModule masked

ENTRY main {
  p = f32[512,1024] parameter(0)
  q = f32[1024,1024] parameter(1)
  mask = f32[512,1024] parameter(2)
  made = f32[512,1024] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  masked = f32[512,1024] multiply(made, mask)
  one = f32[512,1024] dot(masked, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  two = f32[512,512] dot(masked, p), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT out = (f32[512,1024], f32[512,512]) tuple(one, two)
}
"""


def test_what_follows_a_product_and_is_used_twice_is_made_with_it():
    """Masked where it is made a gradient reads its mask once, as in convolutions compiled ahead of time."""
    fused = [i for i in compiled(MASKED).entry if i.opcode in ("fusion", "dot")]
    assert [i.opcode for i in fused] == ["fusion", "dot", "dot"]
    assert all(fused[0].name in product.operands for product in fused[1:])


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


REDUCED_TWICE = """HloModule reduced_twice

add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

ENTRY main {
  x = f32[512,256] parameter(0)
  z = f32[512,256] parameter(1)
  y = f32[512,256] multiply(x, z)
  zero = f32[] constant(0)
  sums = f32[256] reduce(y, zero), dimensions={0}, to_apply=add
  scaled = f32[512,256] multiply(y, z)
  others = f32[256] reduce(scaled, zero), dimensions={0}, to_apply=add
  ROOT all = (f32[512,256], f32[256], f32[256]) tuple(y, sums, others)
}
"""


def test_all_reductions_of_what_a_kernel_makes_are_made_with_it():
    """As the two or four sums of batch normalisation backwards, with the gradient that they are of."""
    entry = compiled(REDUCED_TWICE).entry
    assert [len(i.shape.elements) for i in entry.instructions if i.opcode == "fusion"] == [3]


SHARED = """HloModule shared

add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

ENTRY main {
  x = f32[2048,1024] parameter(0)
LINES
  zero = f32[] constant(0)
  sums = f32[2048] reduce(y, zero), dimensions={1}, to_apply=add
  row = f32[2048,1024] broadcast(sums), dimensions={0}
  ROOT out = f32[2048,1024] divide(y, row)
}
"""


@pytest.mark.parametrize(
    ("opcodes", "is_stored"), [(["exponential"], False), (["tanh", "exponential"], False), (["sine"] * 6, True)]
)
def test_what_takes_longer_to_compute_than_to_read_is_stored(opcodes, is_stored):
    """A softmax's exponentials are made twice in compiled programs, long chains once."""
    names = ["x", *(f"y{number}" for number in range(len(opcodes) - 1)), "y"]
    lines = (f"  {new} = f32[2048,1024] {op}({old})" for op, old, new in zip(opcodes, names, names[1:], strict=False))
    entry = compiled(SHARED.replace("LINES", "\n".join(lines))).entry
    first = next(i for i in entry.instructions if i.opcode == "fusion")
    assert isinstance(first.shape, TupleShape) == is_stored


@pytest.mark.parametrize(("operations", "is_stored"), [(100, False), (101, True)])
def test_what_takes_more_than_a_hundred_operations_is_stored(operations, is_stored):
    """As in compiled programs, for rows that are divided by their sums; cheap ones, as the mixing of random bits."""
    names = ["x", *(f"y{number}" for number in range(operations - 1)), "y"]
    opcodes = ["abs", "negate"] * operations
    lines = (f"  {new} = f32[2048,1024] {op}({old})" for op, old, new in zip(opcodes, names, names[1:], strict=False))
    first = next(i for i in compiled(SHARED.replace("LINES", "\n".join(lines))).entry if i.opcode == "fusion")
    assert isinstance(first.shape, TupleShape) == is_stored


def test_what_takes_many_operations_on_words_is_stored():
    """An exponential of f64 takes hundreds, so that all of a softmax's are made once."""
    text = SHARED.replace("LINES", "  y = f32[2048,1024] exponential(x)").replace("f32", "f64")
    first = next(i for i in compiled(text).entry.instructions if i.opcode == "fusion")
    assert isinstance(first.shape, TupleShape)


DROPPED = """HloModule dropped

add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

ENTRY main {
  x = f32[1024,512] parameter(0)
  key = u32[] parameter(1)
  given = u32[1024,512] parameter(2)
  w = f32[512,256] parameter(3)
  v = f32[512,384] parameter(4)
  keys = u32[1024,512] broadcast(key), dimensions={}
  number = u32[1024,512] iota(), iota_dimension=1
  b0 = u32[1024,512] add(START, keys)
LINES
  limit = u32[] constant(7)
  limits = u32[1024,512] broadcast(limit), dimensions={}
  mask = pred[1024,512] compare(b60, limits), direction=GT
  zero = f32[] constant(0)
  zeros = f32[1024,512] broadcast(zero), dimensions={}
  y = f32[1024,512] select(mask, x, zeros)
  z = f32[1024,512] select(mask, zeros, x)
  one = f32[1024,256] dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  USER
  ROOT all = (f32[1024,256], f32[OTHER]) tuple(one, other)
}
"""

BITS = "\n".join(
    f"  m{n} = u32[1024,512] xor(b{n}, keys)  b{n + 1} = u32[1024,512] multiply(m{n}, number)" for n in range(60)
)


@pytest.mark.parametrize(
    ("user", "other"),
    [
        ("other = f32[1024,384] dot(z, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "1024,384"),
        ("other = f32[1024] reduce(z, zero), dimensions={1}, to_apply=add", "1024"),
    ],
    ids=["two products", "a product and a sum"],
)
@pytest.mark.parametrize(("start", "is_again"), [("number", True), ("given", False)])
def test_what_is_made_of_no_array_is_made_again_for_a_product(start, is_again, user, other):
    """As a dropout's mask in compiled programs, however long random bits take."""
    text = DROPPED.replace("LINES", BITS).replace("START", start).replace("USER", user).replace("OTHER", other)
    module = compiled(text)
    kernels = [module[i.attributes["calls"]] for i in module.entry.instructions if i.opcode == "fusion"]
    found = [kernel for kernel in kernels if any(each.opcode == "xor" for each in kernel.instructions)]
    assert len(found) == (2 if is_again else 1)


@pytest.mark.parametrize("columns", [16, 128])
def test_what_is_computed_of_padding_counts_as_what_is_stored_of_it(columns):
    """Rows of 16 fill registers as rows of 128 do, and take as long to make again."""
    lines = "\n".join(f"  {new} = f32[ALL] sine({old})" for old, new in pairwise(["x", "y0", "y1", "y2", "y"]))
    text = SHARED.replace("2048,1024", "ALL").replace("LINES", lines).replace("{1}", "{3}").replace("{0}", "{0,1,2}")
    text = text.replace("ALL", f"16,16,16,{columns}").replace("f32[2048]", "f32[16,16,16]")
    first = next(i for i in compiled(text).entry if i.opcode == "fusion")
    assert isinstance(first.shape, TupleShape)


SCORES = """HloModule scores

larger { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

ENTRY main {
  q = f32[8,256,64] parameter(0)
  k = f32[8,256,64] parameter(1)
  x = f32[8,256,256] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={2}
  low = f32[] constant(-inf)
  most = f32[8,256] reduce(x, low), dimensions={2}, to_apply=larger
  wide = f32[8,256,256] broadcast(most), dimensions={0,1}
  less = f32[8,256,256] subtract(x, wide)
  y = f32[8,256,256] exponential(less)
  zero = f32[] constant(0)
  sums = f32[8,256] reduce(y, zero), dimensions={2}, to_apply=add
  row = f32[8,256,256] broadcast(sums), dimensions={0,1}
  ROOT out = f32[8,256,256] divide(y, row)
}
"""


def test_what_is_made_with_a_row_window_is_stored():
    """Scores, their maxima and exponentials are one kernel, as in compiled attention; its scores are never stored."""
    kernels = [i for i in compiled(SCORES).entry.instructions if i.opcode == "fusion"]
    assert len(kernels) == 2
    assert sorted(len(leaf.dimensions) for leaf in kernels[0].shape.elements) == [2, 3]


def attention(rows, columns, dtype="f32", summed=128, made=""):
    """Return of the kernels with row windows, for scores of some rows and columns, which have a product too."""
    text = SCORES.replace("f32[8,256,256]", f"{dtype}[8,{rows},{columns}]").replace("f32[8,256]", f"{dtype}[8,{rows}]")
    made = made or f"q = {dtype}[8,{rows},{summed}] parameter(0)  k = {dtype}[8,{columns},{summed}] parameter(1)"
    first, _, rest = text.partition("  q = f32[8,256,64] parameter(0)\n")
    text = f"{first}  {made}\n{rest.partition('parameter(1)')[2]}".replace(" f32[]", f" {dtype}[]")
    module = compiled(text)
    kernels = [module[i.attributes["calls"]].opcodes for i in module.entry if i.opcode == "fusion"]
    return ["dot" in opcodes for opcodes in kernels if "reduce-window" in opcodes]


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "summed", "is_one"),
    [
        (2816, 2816, "f32", 128, True),
        (3072, 3072, "f32", 128, False),
        (3072, 3072, "f32", 64, True),
        (4096, 4096, "f32", 64, False),
        (512, 4096, "f32", 128, True),
        (512, 5120, "f32", 128, False),
        (4096, 4096, "bf16", 128, True),
    ],
)
def test_rows_of_scores_are_made_with_their_product_as_long_as_they_are_short(rows, columns, dtype, summed, is_one):
    """In attention over long sequences scores are stored. Source: kernels compiled ahead of time for v5e."""
    assert attention(rows, columns, dtype, summed) == [is_one]


@pytest.mark.parametrize(
    ("made", "is_one"),
    [
        ("q = f32[8,512,128] parameter(0)  r = f32[8,512,128] parameter(1)  k = f32[8,512,128] negate(r)", True),
        (
            "q = f32[8,512,128] parameter(0)  r = f32[2,512,128] parameter(1)"
            "  s = f32[2,4,512,128] broadcast(r), dimensions={0,2,3}  k = f32[8,512,128] reshape(s)",
            False,
        ),
        (
            "q = f32[8,512,128] parameter(0)  r = f32[24,512,128] parameter(1)"
            "  k = f32[8,512,128] slice(r), slice={[8:16],[0:512],[0:128]}",
            True,
        ),
        (
            "k = f32[8,512,128] parameter(0)  r = f32[24,512,128] parameter(1)"
            "  q = f32[8,512,128] slice(r), slice={[8:16],[0:512],[0:128]}",
            False,
        ),
    ],
    ids=["computed", "repeated", "keys cut out", "queries of an array"],
)
def test_a_product_that_moves_what_it_takes_makes_no_rows(made, is_one):
    """Heads that share keys, for one. Matrices of an array are read where they lie by the first operand alone."""
    assert attention(512, 512, made=made) == [is_one]


STACKS = """HloModule stacks, buffer_donor={ (1, {}), (2, {}) }

ENTRY main {
  g = f32[64,512] parameter(0)
  a = f32[32,64,512] parameter(1)
  b = f32[32,64,512] parameter(2)
  i = s32[] parameter(3)
  zero = s32[] constant(0)
  one = f32[64,512] tanh(g)
  first = f32[1,64,512] reshape(one)
  new = f32[32,64,512] dynamic-update-slice(a, first, i, zero, zero)
  part = f32[1,64,512] dynamic-slice(READ, i, zero, zero), dynamic_slice_sizes={1,64,512}
  flat = f32[64,512] reshape(part)
  other = f32[64,512] add(g, flat)
  second = f32[1,64,512] reshape(other)
  also = f32[32,64,512] dynamic-update-slice(b, second, i, zero, zero)
  ROOT both = (f32[32,64,512], f32[32,64,512]) tuple(new, also)
}
"""


@pytest.mark.parametrize(("read", "kernels"), [("b", 1), ("a", 2)])
def test_updates_of_what_is_read_once_are_made_together(read, kernels):
    """As the steps of a recurrent net store them, unless one would write over what the other reads."""
    entry = compiled(STACKS.replace("READ", read)).entry
    updated = [i for i in entry.instructions if i.opcode == "fusion"]
    assert len(updated) == kernels


NEIGHBOURS = """HloModule neighbours

less { a = f32[] parameter(0)  b = f32[] parameter(1)  c = s32[] parameter(2)  d = s32[] parameter(3)
  ROOT e = pred[] compare(a, b), direction=LT }

ENTRY main {
  q = f32[256,128] parameter(0)
  rows = f32[4096,128] parameter(1)
  near = f32[256,4096] dot(q, rows), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  far = f32[256,4096] negate(near)
  place = s32[256,4096] iota(), iota_dimension=1
  most = f32[] constant(inf)
  none = s32[] constant(-1)
  ROOT some = (f32[256,128], s32[256,128]) custom-call(far, place, most, none), custom_call_target="PartialReduce",
    called_computations={less}, backend_config={"log2_reduction": 5, "reduction_dim": 1, "to_apply_type": "comparator",
    "top_k": 10, "recall_target": 0.95}
}
"""


def test_candidates_for_the_nearest_are_reduced_where_they_are_made():
    """As ``lax.approx_min_k`` of distances is compiled: they are never stored."""
    assert [i.opcode for i in compiled(NEIGHBOURS).entry.instructions if i.opcode in ("fusion", "custom-call")] == [
        "fusion"
    ]


def test_a_kernel_says_which_neighbours_it_does_not_make():
    """By name and rule, in the text, so that a program read from a file knows it as well."""
    module = compiled(RESIDUAL.replace("ADDED", "multiply(a, multiply(b, multiply(c, c)))"))
    apart = {i.name: mark_of(i, APART) for i in module.entry if mark_of(i, APART)}
    assert any("a reduce ends its kernel" in text for text in apart.values())
    assert check(parse_module(SourceText("again", module.text))) == []


PADDED = """\
HloModule m

ENTRY e {
  x = f32[256,128] parameter(0)
  zero = f32[] constant(0)
  wide = f32[512,128] pad(x, zero), padding=PADDING
  ROOT z = f32[512,128] exponential(wide)
}
"""


@pytest.mark.parametrize(("padding", "kernels"), [("0_256x0_0", 1), ("0_1_1x0_0", 2)])
def test_a_pad_between_elements_is_a_kernel(padding, kernels):
    """Programs compiled ahead of time: 72 of 72 of them are, of 486 other pads 29."""
    assert contents(compiled(PADDED.replace("PADDING", padding))).kernels == kernels


TURNED = """\
HloModule m

ENTRY e {
  a = f32[4096,16,16] parameter(0)
  b = f32[4096,16,16] parameter(1)
  ROOT c = f32[4096,16,16] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0},
    lhs_contracting_dims={2}, rhs_contracting_dims={1}
}
"""


def test_a_product_takes_copies_from_memory():
    """Programs compiled ahead of time for v5e: none of 330 copies is made for the product that takes it."""
    entry = compiled(TURNED).entry
    product = next(i for i in entry if i.opcode in ("dot", "fusion"))
    assert [entry[name].opcode for name in product.operands] == ["copy", "copy"]


SOFTMAX = """HloModule softmax

most { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }

sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

ENTRY main {
  x = f32[4096,8192] parameter(0)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[4096] reduce(x, low), dimensions={1}, to_apply=most
  tops = f32[4096,8192] broadcast(top), dimensions={0}
  below = f32[4096,8192] subtract(x, tops)
  raised = f32[4096,8192] exponential(below)
  total = f32[4096] reduce(raised, zero), dimensions={1}, to_apply=sum
  totals = f32[4096,8192] broadcast(total), dimensions={0}
  ROOT out = f32[4096,8192] divide(raised, totals)
}
"""


def test_a_sum_that_needs_the_maximum_of_its_row_is_another_kernel():
    """It goes through the row once more; of libtpu 0.0.52 all six softmaxes over rows of matrices (v5e) have three."""
    opcodes = [i.opcode for i in compiled(SOFTMAX).entry.instructions if i.opcode not in ("parameter", "constant")]
    assert opcodes == ["reduce", "fusion", "fusion"]


PLACES = """HloModule places
largest {
  a = f32[] parameter(0)  i = s32[] parameter(1)  b = f32[] parameter(2)  j = s32[] parameter(3)
  is_more = pred[] compare(a, b), direction=GT
  value = f32[] select(is_more, a, b)
  place = s32[] select(is_more, i, j)
  ROOT both = (f32[], s32[]) tuple(value, place)
}
maximum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }
ENTRY main {
  x = f32[2048,2048] parameter(0)
  least = f32[] constant(-inf)
  none = s32[] constant(0)
  columns = s32[2048,2048] iota(), iota_dimension=1
  rows = s32[2048,2048] iota(), iota_dimension=0
  across = (f32[2048], s32[2048]) reduce(x, columns, least, none), dimensions={1}, to_apply=largest
  down = (f32[2048], s32[2048]) reduce(x, rows, least, none), dimensions={0}, to_apply=largest
  high = f32[2048] reduce(x, least), dimensions={1}, to_apply=maximum
  wide = f32[2048] reduce(x, least), dimensions={0}, to_apply=maximum
  ROOT out = ((f32[2048], s32[2048]), (f32[2048], s32[2048]), f32[2048], f32[2048]) tuple(across, down, high, wide)
}
"""


def test_reductions_of_values_and_their_places_are_kernels_by_themselves():
    """As of ``argmax`` along both dimensions; plain maxima of one array are one kernel."""
    entry = compiled(PLACES).entry
    assert [i.opcode for i in entry.instructions].count("fusion") == 3


CACHE = """HloModule cache, input_output_alias={ {1}: (0, {}, may-alias) }

ENTRY main {
  keys = bf16[8,512,8,128] parameter(0)
  key = bf16[8,1,8,128] parameter(1)
  q = bf16[8,8,4,128] parameter(2)
  at = s32[] parameter(3)
  zero = s32[] constant(0)
  updated = bf16[8,512,8,128] dynamic-update-slice(keys, key, zero, at, zero, zero)
  scores = f32[8,8,4,512] dot(q, updated), lhs_batch_dims={0,1}, rhs_batch_dims={0,2},
    lhs_contracting_dims={3}, rhs_contracting_dims={3}
  ROOT out = (f32[8,8,4,512], bf16[8,512,8,128]) tuple(scores, updated)
}
"""


def test_a_product_takes_a_cache_that_was_updated_as_it_lies():
    """As the TPU compiler has it of caches of 4 to 16 heads of 64 and 128, which lie between keys and batch."""
    entry = compiled(CACHE).entry
    assert "copy" not in [i.opcode for i in entry]


BOTH_WAYS = """HloModule both_ways

ENTRY main {
  x = bf16[64,64,64,128] parameter(0)
  v = bf16[64,128] parameter(1)
  w = bf16[64,128] parameter(2)
  tall = bf16[128,64,64,128] dot(v, x), lhs_contracting_dims={0}, rhs_contracting_dims={1}
  ROOT wide = bf16[128,64,128,128] dot(tall, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
}
"""


def test_a_product_takes_in_what_another_made_with_the_same_lanes():
    """As libtpu 0.0.52 has it of images that are made larger, in one direction and then in the other."""
    assert "copy" not in [i.opcode for i in compiled(BOTH_WAYS).entry]


LOSS = """HloModule loss

most { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }

sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=LT }

ENTRY main {
  narrow = TYPE[2048,8192] parameter(0)
  x = f32[2048,8192] MADE
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[2048] reduce(x, low), dimensions={1}, to_apply=most
  tops = f32[2048,8192] broadcast(top), dimensions={0}
  below = f32[2048,8192] subtract(x, tops)
  raised = f32[2048,8192] exponential(below)
  total = f32[2048] reduce(raised, zero), dimensions={1}, to_apply=sum
  sorted = f32[2048,8192] sort(x), dimensions={1}, to_apply=less
  ROOT out = (f32[2048], f32[2048,8192]) tuple(total, sorted)
}
"""


@pytest.mark.parametrize(
    ("dtype", "made", "read"),
    [("bf16", "convert(narrow)", "bf16"), ("f32", "negate(narrow)", "f32"), ("f32", "power(narrow, narrow)", "f32")],
)
def test_what_is_stored_for_others_is_made_again_where_that_reads_less(dtype, made, read):
    """As libtpu 0.0.52 has it of logits that a loss gathers from; what reads as much is read as it is stored."""
    entry = compiled(LOSS.replace("TYPE", dtype).replace("MADE", made)).entry
    # Of two kernels that make one number of each row the second adds them up.
    *_, total = [i for i in entry if i.opcode == "fusion" and "f32[2048]{" in str(i.shape)]
    large = [entry[name] for name in total.operands if entry[name].shape.rank == 2]
    assert [(i.opcode == "parameter", i.shape.dtype.name) for i in large] == [(dtype == "bf16", read)]


SCALED = """HloModule scaled

most { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }

ENTRY main {
  q = f32[2048,64] parameter(0)
  k = f32[64,8192] parameter(1)
  u = f32[2048,8192] dot(q, k), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  x = f32[2048,8192] negate(u)
  low = f32[] constant(-inf)
  top = f32[2048] reduce(x, low), dimensions={1}, to_apply=most
  tops = f32[2048,8192] broadcast(top), dimensions={0}
  ROOT below = f32[2048,8192] subtract(x, tops)
}
"""


def test_what_is_made_of_a_product_is_stored_in_its_place_if_others_would_make_it_again():
    """As libtpu 0.0.52 has scores in bf16 beside their maximum: they are scaled and masked once."""
    module = compiled(SCALED)
    kernels = [module[i.attributes["calls"]].opcodes for i in module.entry if i.opcode == "fusion"]
    assert ["dot" in opcodes for opcodes in kernels if "negate" in opcodes] == [True]


PARTS = """HloModule parts

ENTRY main {{
  x = bf16[4096,1024] parameter(0)
  i = s32[] parameter(1)
  zero = s32[] constant(0)
  t = bf16[4096,1024] tanh(x)
  {parts}
}}
"""


@pytest.mark.parametrize(
    ("parts", "kernels"),
    [
        ("s = bf16[2000,1024] slice(t), slice={[1000:3000], [0:1024]}  ROOT y = bf16[2000,1024] negate(s)", 1),
        (
            "s = bf16[64,1024] dynamic-slice(t, i, zero), dynamic_slice_sizes={64,1024}"
            "  ROOT y = bf16[64,1024] negate(s)",
            1,
        ),
        ("s = bf16[2048,1024] slice(t), slice={[0:4096:2], [0:1024]}  ROOT y = bf16[2048,1024] negate(s)", 2),
        (
            "s = bf16[4096,512] slice(t), slice={[0:4096], [0:512]}  r = bf16[4096,512] slice(t),"
            " slice={[0:4096], [512:1024]}  ROOT y = bf16[4096,512] multiply(r, s)",
            2,
        ),
    ],
    ids=["rows", "rows anywhere", "every other row", "both halves"],
)
def test_of_what_is_cut_out_no_more_is_computed(parts, kernels):
    """As libtpu 0.0.52 has it for v5e: where one slice alone takes it, and the rows lie together."""
    entry = compiled(PARTS.format(parts=parts)).entry
    assert len([i for i in entry if i.opcode not in FREE]) == kernels


EDGES = """HloModule edges

add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

ENTRY main {
  x = f32[1024,1024] parameter(0)
  y = f32[1024,1024] parameter(1)
  zero = f32[] constant(0)
  wide = f32[1026,1026] pad(x, zero), padding=PADDING
  up = f32[1024,1024] slice(wide), slice={[0:1024], [1:1025]}
  down = f32[1024,1024] slice(wide), slice={[2:1026], [1:1025]}
  both = f32[1024,1024] add(up, down)
  of = f32[1024,1024] multiply(both, y)
  sum = f32[] reduce(of, zero), dimensions={0,1}, to_apply=add
  sums = f32[1024,1024] broadcast(sum), dimensions={}
  ROOT out = f32[1024,1024] subtract(both, sums)
}
"""


@pytest.mark.parametrize(("padding", "pads"), [("1_1x1_1", 0), ("0_0_1x1_1", 1)])
def test_edges_are_put_on_where_parts_are_cut_out(padding, pads):
    """Of programs compiled ahead of time none of 87 such pads is stored, unless it puts elements apart."""
    text = EDGES.replace("PADDING", padding)
    if pads:
        text = text.replace("[1026,1026]", "[2047,1026]")
    module = compiled(text)
    assert sum(i.opcode == "pad" for i in module.entry) == pads


def test_edges_are_put_on_where_a_part_is_cut_out_at_a_place_that_data_tell():
    """Two products take their parts of two weights side by side, as halves of a collective matrix product do.

    In programs compiled ahead of time all of 116 pads that dynamic slices take are in the kernels of these.
    """
    module = compiled(HALVES)
    kernels = [i for i in module.entry if i.opcode in ("fusion", "pad")]
    assert [str(i.shape).partition("{")[0] for i in kernels] == ["bf16[8,1024]"] * 2


HALVES = """HloModule halves

ENTRY main {
  v = bf16[4096,1024] parameter(0)
  w = bf16[4096,1024] parameter(1)
  x = bf16[8,2,512] parameter(2)
  at = s32[] parameter(3)
  on = s32[] parameter(4)
  none = s32[] constant(0)
  edge = bf16[] constant(-inf)
  v1 = bf16[1,4096,1024] reshape(v)
  w1 = bf16[1,4096,1024] reshape(w)
  first = bf16[2,4096,1024] pad(v1, edge), padding=0_1x0_0x0_0
  last = bf16[2,4096,1024] pad(w1, edge), padding=1_0x0_0x0_0
  f1 = bf16[2,512,1024] dynamic-slice(first, none, at, none), dynamic_slice_sizes={2,512,1024}
  l1 = bf16[2,512,1024] dynamic-slice(last, none, on, none), dynamic_slice_sizes={2,512,1024}
  one = bf16[2,512,1024] maximum(f1, l1)
  f2 = bf16[2,512,1024] dynamic-slice(first, none, on, none), dynamic_slice_sizes={2,512,1024}
  l2 = bf16[2,512,1024] dynamic-slice(last, none, at, none), dynamic_slice_sizes={2,512,1024}
  two = bf16[2,512,1024] maximum(f2, l2)
  y = bf16[8,1024] dot(x, one), lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}
  z = bf16[8,1024] dot(x, two), lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}
  ROOT out = (bf16[8,1024], bf16[8,1024]) tuple(y, z)
}
"""


def test_a_stencil_is_computed_once():
    """Its parts are shifted: two kernels read what is made of them, and neither makes it again."""
    module = compiled(EDGES.replace("PADDING", "1_1x1_1"))
    slices = [i for computation in module.computations for i in computation if i.opcode == "slice"]
    assert len(slices) == 2


ROWS = """HloModule rows

sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

ENTRY main {
  i = s32[64] parameter(0)
  u = f32[64,256] parameter(1)
  t = f32[512,256] parameter(2)
  zero = f32[] constant(0)
  w = f32[64,256] tanh(u)
  onto = f32[512,256] broadcast(zero), dimensions={}
  row = f32[256] constant({1,2,ROW})
  rows = f32[512,256] broadcast(row), dimensions={1}
  ROOT s = f32[512,256] scatter(TARGET, i, w), update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum
}
"""


@pytest.mark.parametrize(("target", "kernel"), [("onto", "fusion"), ("t", "scatter"), ("rows", "scatter")])
def test_a_scatter_begins_with_the_number_that_it_puts_rows_onto(target, kernel):
    """It is not written to memory first; the rows themselves are read from there, and computed as they were."""
    text = ROWS.replace("TARGET", target).replace("ROW", ",".join(["0"] * 254))
    module = compiled(text)
    assert module.entry.root.opcode == kernel
    assert kernel == "scatter" or module.entry.root.attributes["kind"] == "kCustom"
    expected = 3 if target == "rows" else 2
    assert sum(one.opcode in ("tanh", "fusion", "broadcast", "scatter") for one in module.entry) == expected
    random = np.random.default_rng(2)
    inputs = [random.integers(-4, 520, 64, "i4"), *(random.standard_normal((n, 256), "f4") for n in (64, 512))]
    one, other = (execute(each, inputs) for each in (parse_module(SourceText("m", text)), module))
    np.testing.assert_array_equal(one, other)


BYTES = """HloModule bytes

ENTRY main {
  x = bf16[256,512] parameter(0)
  b = s8[512,1024] parameter(1)
  eight = bf16[] constant(8)
  eights = bf16[256,512] broadcast(eight), dimensions={}
  scaled = bf16[256,512] multiply(x, eights)
  taken = s8[256,512] convert(MADE)
  zero = s8[] constant(0)
  zeros = s8[256,512] broadcast(zero), dimensions={}
  largest = s8[256,512] maximum(taken, zeros)
  ROOT out = s32[256,1024] dot(largest, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize(
    ("text", "kernels"),
    [
        (BYTES.replace("MADE", "x"), 1),
        (BYTES.replace("MADE", "scaled"), 2),
        (BYTES.replace("MADE", "scaled").replace("s32", "bf16").replace("s8", "bf16"), 1),
    ],
    ids=["converted", "computed", "bf16"],
)
def test_what_a_product_takes_in_a_byte_is_computed_before_it(text, kernels):
    """As layers of bytes are compiled for v5e: what lies in memory is converted, and bytes are computed, on the way."""
    assert [i.opcode for i in compiled(text).entry.instructions].count("fusion") == kernels


LAYERS = """HloModule turned

ENTRY main {
  x = bf16[1024,32,256] parameter(0)
  a = bf16[256,512] parameter(1)
  b = bf16[512,256] parameter(2)
  n = bf16[1024,32,256] negate(x)
  t = bf16[32,1024,256] transpose(TAKEN), dimensions={1,0,2}
  h = bf16[32,1024,512] dot(t, a), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  g = bf16[32,1024,512] tanh(h)
  y = bf16[32,1024,256] dot(g, b), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  ROOT out = RESULT
}
"""
UNTURNED = LAYERS.replace("[1024,32,", "[32,1024,").replace("dimensions={1,0,2}", "dimensions={0,1,2}")


@pytest.mark.parametrize(
    ("text", "taken", "result", "kernels"),
    [
        (LAYERS, "x", "bf16[32,1024,512] tanh(h)", 1),
        (LAYERS, "n", "bf16[32,1024,512] tanh(h)", 2),
        (LAYERS, "x", "bf16[32,1024,256] tanh(y)", 2),
        (LAYERS, "n", "bf16[32,1024,256] tanh(y)", 3),
        (UNTURNED, "n", "bf16[32,1024,512] tanh(h)", 1),
        (UNTURNED, "n", "bf16[32,1024,256] tanh(y)", 1),
    ],
)
def test_a_product_that_turns_its_rows_reads_them_and_is_in_no_kernel_of_two(text, taken, result, kernels):
    """As libtpu 0.0.52 compiles these six for v5e."""
    entry = compiled(text.replace("TAKEN", taken).replace("RESULT", result)).entry
    assert len([i for i in entry.instructions if i.opcode in ("fusion", "negate")]) == kernels


def test_bytes_are_made_wider_by_a_product_that_turns_them():
    """As libtpu 0.0.52 compiles it for v5e."""
    text = LAYERS.replace("x = bf16", "x = s8").replace("negate(x)", "convert(x)")
    entry = compiled(text.replace("TAKEN", "n").replace("RESULT", "bf16[32,1024,512] tanh(h)")).entry
    assert [i.opcode for i in entry.instructions].count("fusion") == 1
