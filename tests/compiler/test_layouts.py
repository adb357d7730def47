"""Layouts: tiles and orders against programs that the TPU compiler made, bitcasts against where every element lies."""

from __future__ import annotations

import random
from itertools import permutations
from math import prod
from pathlib import Path

import pytest

from tests.compiler.programs import compiled
from tests.growth import within
from tpusim.compiler.layouts.bitcasts import carried_orders, stays
from tpusim.compiler.layouts.orders import boundary_order, laid_out, with_boundary_layouts
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import load
from tpusim.shapes.address import physical_bytes, positions, split
from tpusim.shapes.dtype import dtype
from tpusim.shapes.notation import parse_shape
from tpusim.shapes.shape import ArrayShape, leaves

TRACES = Path(__file__).parents[2] / "traces"
CHIP = load_chip("v5e")
COMPILED = sorted(
    path for path in TRACES.glob("*.hlo.txt.gz") if path.name.split(".")[-4] in ("v3", "v4", "v5e", "v5p", "v6e")
)


def arrays_of(module):
    """Return the different arrays of a module that have tiles and lie in HBM or VMEM."""
    found = {leaf for c in module.computations for i in c.instructions for leaf in leaves(i.shape)}
    return [leaf for leaf in found if leaf.layout and leaf.layout.tiles and not leaf.layout.element_size_bits]


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.name.removesuffix(".hlo.txt.gz"))
def test_tiles_are_those_of_the_compiler(path):
    """But for arrays of 8 bits, of which a few kernels keep 32 rows a tile."""
    chip = load_chip(path.name.split(".")[-4])
    arrays = [array for array in arrays_of(load(path)) if array.dtype.bits >= 16]
    assert arrays
    wrong = [a for a in arrays if laid_out(a, a.layout.minor_to_major, chip).layout.tiles != a.layout.tiles]
    assert len(wrong) <= 0.001 * len(arrays), [str(array) for array in wrong[:5]]


@pytest.mark.parametrize(
    "text",
    [
        "s4[33,1000]{1,0:T(8,128)(8,1)E(4)}",
        "s4[3,72,200]{2,1,0:T(8,128)(8,1)E(4)}",
        "s4[5,4,200]{2,0,1:T(8,128)(8,1)E(4)}",
        "s4[100000]{0:T(1024)(128)(8,1)E(4)}",
        "s4[100]{0:T(1024)(128)(8,1)E(4)}",
    ],
)
def test_types_of_four_bits_are_packed(text):
    """Arguments of programs that libtpu 0.0.52 compiled for v5e."""
    shape = parse_shape(text)
    assert with_boundary_layouts(shape.with_layout(None), CHIP) == shape


@pytest.mark.parametrize(
    ("name", "element_bits"), [("s2", 2), ("u2", 2), ("s4", 4), ("u4", 4), ("f4e2m1fn", 4), ("s8", 0), ("pred", 0)]
)
def test_the_layout_says_how_many_bits_a_packed_type_has(name, element_bits):
    """As in programs of libtpu 0.0.52: E(2) for s2, E(4) for s4, u4 and f4e2m1fn, nothing for whole bytes."""
    array = laid_out(ArrayShape(dtype(name), (1024, 4096)), (1, 0), CHIP)
    assert array.layout.element_size_bits == element_bits
    assert physical_bytes(array) == 1024 * 4096 * (element_bits or 8) // 8


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.name.removesuffix(".hlo.txt.gz"))
def test_arguments_lie_in_the_order_of_the_compiler(path):
    """Of every parameter of the entry."""
    chip = load_chip(path.name.split(".")[-4])
    for parameter in load(path).entry.parameters:
        for leaf in leaves(parameter.shape):
            assert boundary_order(leaf, chip) == leaf.layout.minor_to_major, str(leaf)


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.name.removesuffix(".hlo.txt.gz"))
def test_products_have_one_dimension_of_each_kind_in_lanes_and_in_sublanes(path):
    """Of every convolution of the compiler; it is the rule by which ours lays out products."""
    for computation in load(path).computations:
        for instruction in (i for i in computation.instructions if i.opcode == "convolution"):
            labels = instruction.attributes["dim_labels"]
            lhs, rhs = (computation[name].shape for name in instruction.operands)
            for shape, text, two in (
                (lhs, labels.lhs, "bf"),
                (rhs, labels.rhs, "io"),
                (instruction.shape, labels.output, "bf"),
            ):
                assert {text[d] for d in shape.layout.minor_to_major[:2]} == set(two)


ATTENTION = """HloModule m

ENTRY e {
  q = f32[4,256,8,64]{3,2,1,0} parameter(0)
  k = f32[4,256,8,64]{3,2,1,0} parameter(1)
  ROOT scores = f32[4,8,256,256]{3,2,1,0} dot(q, k), lhs_batch_dims={0,2}, rhs_batch_dims={0,2},
    lhs_contracting_dims={3}, rhs_contracting_dims={3}
}
"""


def test_the_batch_of_a_product_goes_round_its_registers():
    """Positions fill the lanes, and the 64 features the sublanes, where nothing has to be padded."""
    entry = compiled(ATTENTION, stop_after="layouts").entry
    product = next(i for i in entry if i.opcode == "dot")
    assert {entry[name].shape.layout.minor_to_major for name in product.operands} == {(1, 3, 2, 0)}
    assert product.shape.layout.minor_to_major == (3, 2, 1, 0)


DOT = """HloModule m

ENTRY e {{
  x = bf16{x} parameter(0)
  y = bf16{y} parameter(1)
  made = bf16{made} dot(x, y), lhs_contracting_dims={{{left}}}, rhs_contracting_dims={{{right}}}
  ROOT out = bf16{out} transpose(made), dimensions={{{turned}}}
}}
"""


def order_of_dot(sizes, contracted, turned):
    """Return the order that the result of a dot of two arrays lies in whose dimensions are turned after it."""
    made = [size for one, gone in zip(sizes, contracted, strict=True) for d, size in enumerate(one) if d != gone]
    text = DOT.format(
        x=list(sizes[0]),
        y=list(sizes[1]),
        made=made,
        left=contracted[0],
        right=contracted[1],
        out=[made[d] for d in turned],
        turned=",".join(map(str, turned)),
    )
    entry = compiled(text, stop_after="layouts").entry
    return next(i for i in entry if i.opcode == "dot").shape.layout.minor_to_major


@pytest.mark.parametrize(
    ("rows", "order"),
    [
        ((4096, 32), (2, 0, 1)),
        ((4096, 4), (2, 0, 1)),
        ((512, 129), (2, 0, 1)),
        ((132, 129), (2, 0, 1)),
        ((128, 132), (2, 0, 1)),
        ((120, 113), (2, 0, 1)),
        ((113, 120), (2, 1, 0)),
        ((120, 136), (2, 1, 0)),
        ((640, 384), (2, 1, 0)),
        ((128, 24), (2, 0, 1)),
        ((136, 16), (2, 1, 0)),
        ((160, 32), (2, 1, 0)),
        ((96, 24), (2, 1, 0)),
        ((196, 64), (2, 1, 0)),
        ((64, 196), (2, 1, 0)),
        ((32, 50), (2, 1, 0)),
        ((40, 100), (2, 1, 0)),
        ((72, 50), (2, 0, 1)),
        ((200, 50), (2, 0, 1)),
        ((136, 50), (2, 0, 1)),
        ((200, 113), (2, 1, 0)),
        ((8, 577), (2, 1, 0)),
        ((256, 32, 8), (3, 0, 2, 1)),
        ((32, 256, 8), (3, 1, 2, 0)),
        ((512, 2, 16), (3, 0, 2, 1)),
        ((64, 24, 24), (3, 2, 1, 0)),
        ((80, 8, 16), (3, 2, 1, 0)),
        ((2, 16, 56, 24), (4, 3, 2, 1, 0)),
    ],
)
def test_one_dimension_of_the_rows_lies_in_tiles(rows, order):
    """As libtpu 0.0.52 has it for v5e, the first nine of them for v5p and v6e as well."""
    assert order_of_dot([(*rows, 256), (256, 512)], (len(rows), 0), range(len(order))) == order


@pytest.mark.parametrize(
    ("columns", "order"),
    [
        ((512, 64), (1, 0, 2)),
        ((64, 512), (2, 0, 1)),
        ((512, 128), (2, 0, 1)),
        ((128, 160), (1, 0, 2)),
        ((120, 320), (0, 1, 2)),
        ((320, 120), (0, 2, 1)),
        ((384, 200), (1, 0, 2)),
        ((64, 100), (0, 2, 1)),
    ],
)
def test_one_dimension_of_the_columns_lies_in_tiles(columns, order):
    """As libtpu 0.0.52 has it for v5e, v5p and v6e, whatever order the result is wanted in."""
    assert order_of_dot([(256, 512), (*columns, 256)], (0, 2), (1, 0, 2)) == order


def test_what_is_outside_of_tiles_lies_in_default_order():
    """As libtpu 0.0.52 has it, also where the other way round is wanted."""
    assert order_of_dot([(512, 512), (16, 8, 512, 512)], (0, 3), (2, 1, 3, 0)) == (3, 0, 2, 1)
    assert order_of_dot([(1024, 16, 64), (4, 2048, 1024)], (0, 2), (2, 0, 3, 1)) == (3, 1, 2, 0)


def random_shapes(count):
    """Yield arrays in random orders with other sizes that hold as many elements."""
    rng = random.Random(5)
    for _ in range(count):
        factors = [rng.choice([1, 2, 3, 4, 8, 16]) for _ in range(rng.randint(2, 5))]
        sizes = [tuple(prod(part) for part in cut(factors, rng)) for _ in range(2)]
        order = rng.choice(list(permutations(range(len(sizes[0])))))
        yield laid_out(ArrayShape(dtype(rng.choice(["f32", "bf16"])), sizes[0]), order, CHIP), sizes[1]


def cut(factors, rng):
    """Return a list in pieces, perhaps with ones between them."""
    ends = sorted({rng.randint(0, len(factors)) for _ in range(3)} | {len(factors)})
    return [factors[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def test_a_reshape_is_a_bitcast_where_no_element_moves():
    """Compared with the place of every element before and after: never wrong, and seldom blind."""
    missed = bitcasts = 0
    for before, sizes in random_shapes(600):
        orders = [laid_out(ArrayShape(before.dtype, sizes), o, CHIP) for o in permutations(range(len(sizes)))]
        kept = carried_orders(before, sizes)
        for after in orders:
            said = after.layout.minor_to_major in kept and stays(before, after)
            is_one = all(
                positions(before, split(at, before.dimensions)) == positions(after, split(at, after.dimensions))
                for at in range(before.element_count)
            )
            if said:
                assert is_one, f"{before} as {after}"
            bitcasts += is_one
            missed += is_one and not said
    assert bitcasts > 200
    # Dimensions of size 1 can stand anywhere; two of the places are found.
    assert missed < bitcasts


@pytest.mark.parametrize("batch", [1, 2])
def test_scores_of_heads_in_groups_have_them_joined_where_they_lie(batch):
    """A dimension of size 1 goes round what lies in tiles (as Gemma has it; libtpu 0.0.52 makes no copy for v5e)."""
    entry = compiled(GROUPED.replace("BATCH", str(batch)), stop_after="layouts").entry
    assert [i.shape.layout.minor_to_major for i in entry if i.opcode == "tanh"] == [(1, 3, 2, 0)]
    # Only the result is laid out anew.
    assert [i.opcode for i in entry if i.opcode in ("copy", "reshape") and i.shape.rank > 3] == ["copy"]


GROUPED = """HloModule grouped

ENTRY main {
  k = bf16[BATCH,4,256,64] parameter(0)
  q = bf16[BATCH,4,256,2,64] parameter(1)
  dot = bf16[BATCH,4,256,256,2] dot(k, q), lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3},
    rhs_contracting_dims={4}
  turned = bf16[BATCH,256,4,2,256] transpose(dot), dimensions={0,3,1,4,2}
  joined = bf16[BATCH,256,8,256] reshape(turned)
  ROOT out = bf16[BATCH,256,8,256] tanh(joined)
}
"""


@pytest.mark.parametrize(("width", "expected"), [(64, True), (128, True), (256, False)])
def test_low_tiles_below_each_other_are_high_ones(width, expected):
    """Of one tile's width; beside each other they are not. So the TPU compiler has it of four rows that a sum takes."""
    high = parse_shape(f"f32[64,{width}]{{1,0:T(8,128)}}")
    low = parse_shape(f"f32[16,4,{width}]{{2,1,0:T(4,128)}}")
    assert stays(high, low) == stays(low, high) == expected


CLASH = """HloModule m

ENTRY e {
  x = f32[256,512]{1,0} parameter(0)
  y = f32[512,256]{1,0} parameter(1)
  turned = f32[512,256]{1,0} transpose(x), dimensions={1,0}
  ROOT sum = f32[512,256]{1,0} add(turned, y)
}
"""


def test_a_copy_stands_where_two_orders_meet():
    """A transposed argument lies the other way round; of the sum both sides lie alike."""
    entry = compiled(CLASH, stop_after="layouts").entry
    total = entry["sum"]
    orders = {entry[name].shape.layout.minor_to_major for name in total.operands} | {total.shape.layout.minor_to_major}
    assert len(orders) == 1
    assert [i.opcode for i in entry].count("copy") == 1
    assert "transpose" not in [i.opcode for i in entry]


STATES = """HloModule states

ENTRY main {
  a = f32[4,256,1024] parameter(0)
  b = f32[4,256,16] parameter(1)
  as = f32[4,256,1024,16] broadcast(a), dimensions={0,1,2}
  bs = f32[4,256,1024,16] broadcast(b), dimensions={0,1,3}
  states = f32[4,256,1024,16] multiply(as, bs)
  first = f32[4,128,1024,16] slice(states), slice={[0:4], [0:128], [0:1024], [0:16]}
  last = f32[4,128,1024,16] slice(states), slice={[0:4], [128:256], [0:1024], [0:16]}
  sum = f32[4,128,1024,16] add(first, last)
  up = f32[4,128,1024,16] exponential(sum)
  add = f32[4,128,1024,16] multiply(up, sum)
  ROOT out = f32[2097152,4] reshape(add)
}
"""


def test_what_is_made_of_vectors_alone_pads_least():
    """As a state space model's states: 734 of the 869 arrays where the default order takes twice the room or more."""
    large = [i for i in compiled(STATES, stop_after="layouts").entry.instructions if i.shape.rank == 4]
    assert {i.shape.layout.minor_to_major for i in large} == {(2, 3, 1, 0)}


RUNNING = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[SIZES] parameter(0)
  zero = f32[] constant(0)
  ROOT out = f32[SIZES] reduce-window(x, zero), window={WINDOW}, to_apply=add
}
"""


@pytest.mark.parametrize(
    ("sizes", "along", "order"),
    [
        ("1024,8192", 1, (0, 1, 2)),
        ("8192,1024", 0, (0, 1, 2)),
        ("16,256,2048", 2, (1, 2, 3, 0)),
        ("16,32000", 1, (1, 0, 2)),
        # 16 or 8 numbers would fill few of 128 lanes.
        ("16,8,2048", 2, (3, 2, 1, 0)),
        ("1000000", 0, (0, 1)),
    ],
)
def test_running_sums_go_along_a_dimension_outside_of_tiles(sizes, along, order):
    """The orders of their sums over blocks in programs compiled ahead of time for v5e."""
    each = [int(size) for size in sizes.split(",")]
    window = "x".join(str(size) if d == along else "1" for d, size in enumerate(each))
    pad = "x".join(f"{size - 1}_0" if d == along else "0_0" for d, size in enumerate(each))
    text = RUNNING.replace("SIZES", sizes).replace("WINDOW", f"size={window} pad={pad}")
    module = compiled(text, stop_after="layouts")
    first = next(i for i in module.entry if i.opcode == "reduce-window")
    assert first.shape.layout.minor_to_major == order


def test_other_windows_are_taken_as_they_lie():
    """Nine columns each, and the maximum of a row for all of it."""
    for window in ("size=1x9 pad=0_0x4_4", "size=1x2047 pad=0_0x1023_1023"):
        text = RUNNING.replace("SIZES", "256,1024").replace("WINDOW", window)
        (found,) = [i for i in compiled(text, stop_after="layouts").entry if i.opcode == "reduce-window"]
        assert found.shape.layout.minor_to_major == (1, 0)
        assert found.operands[0] == "x"


ROWS = """HloModule rows
ENTRY main {
  table = f32[TABLE] parameter(0)
  places = s32[64,32] parameter(1)
  ROOT rows = f32[64,32,WIDTH] gather(table, places), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=2, slice_sizes={1,WIDTH}
}
"""


@pytest.mark.parametrize(
    ("rows", "width", "order"),
    [
        (4_000, 24, (1, 0)),
        # Copied for 154 MB, and for any size if that only doubles it; kept where it would be 205 MB.
        (300_000, 32, (1, 0)),
        (4_000_000, 64, (1, 0)),
        (400_000, 32, (0, 1)),
    ],
)
def test_a_gather_reads_rows_whose_elements_are_minor(rows, width, order):
    """A narrow table comes padded the least, with its rows in lanes, and is copied unless that is too large."""
    module = compiled(ROWS.replace("TABLE", f"{rows},{width}").replace("WIDTH", str(width)), stop_after="layouts")
    (gather,) = [i for i in module.entry if i.opcode == "gather"]
    table, taken = module.entry["table"].shape, module.entry[gather.operands[0]].shape
    assert table.layout.minor_to_major == (0, 1)
    assert taken.layout.minor_to_major == order
    assert (gather.shape.layout.minor_to_major == (2, 1, 0)) == (order == (1, 0))


def test_what_is_gathered_is_laid_out_by_its_rows_before_it_is_turned():
    """As libtpu 0.0.52 has it: rows of registers, then of nine each, then in the order that the program hands on."""
    text = ROWS.replace("TABLE", "4096,256").replace("WIDTH", "256").replace("64,32", "8192,9")
    made = [i for i in compiled(text, stop_after="layouts").entry if i.opcode in ("gather", "reshape", "copy")][-3:]
    assert [(i.opcode, i.shape.layout.minor_to_major) for i in made] == [
        ("gather", (1, 0)),
        ("reshape", (2, 1, 0)),
        ("copy", (2, 0, 1)),
    ]


GATHERED = """HloModule m
ENTRY main {
  x = f32[TABLE] parameter(0)
  i = s32[ROWS,1] parameter(1)
  ROOT g = f32[MADE] gather(x, i), offset_dims={OFFSETS}, collapsed_slice_dims={}, start_index_map={ALONG},
    operand_batching_dims={BATCH}, start_indices_batching_dims={BATCH}, index_vector_dim=1, slice_sizes={SLICES}
}
"""


@pytest.mark.parametrize(
    ("named", "table", "made"),
    [
        # ``x[:, i]``: a row's place in sublanes is taken by the other rows, and the table stays.
        (("64,4096,128", "512", "64,512,128", "0,2", "1", "", "64,1,128"), (2, 1, 0), (2, 1, 0)),
        # Windows of ``jax.vmap(dynamic_slice)``: where they begin lies outside of tiles.
        (("64,4096,256", "64", "64,16,256", "1,2", "1", "0", "1,16,256"), (2, 0, 1), (2, 0, 1)),
        (("64,256,4096", "64", "64,256,16", "1,2", "2", "0", "1,256,16"), (1, 0, 2), (1, 0, 2)),
        (("8,16,2048,128", "8", "8,16,8,128", "1,2,3", "2", "0", "1,16,8,128"), (3, 1, 0, 2), (3, 1, 2, 0)),
        (("16,256,256,8", "16", "16,224,256,8", "1,2,3", "1", "0", "1,224,256,8"), (2, 3, 0, 1), (2, 3, 1, 0)),
        (
            ("8,64,64,8,128", "8", "8,64,16,8,128", "1,2,3,4", "2", "0", "1,64,16,8,128"),
            (4, 3, 1, 0, 2),
            (4, 3, 1, 2, 0),
        ),
    ],
)
def test_what_rows_have_all_of_lies_in_tiles(named, table, made):
    """The orders of programs compiled ahead of time for v5e."""
    text = GATHERED
    for word, value in zip(("TABLE", "ROWS", "MADE", "OFFSETS", "ALONG", "BATCH", "SLICES"), named, strict=True):
        text = text.replace(word, value)
    text = text.replace(
        "collapsed_slice_dims={}", "collapsed_slice_dims={1}" if not named[5] else "collapsed_slice_dims={}"
    )
    module = compiled(text, stop_after="layouts")
    (gather,) = [i for i in module.entry if i.opcode == "gather"]
    assert module.entry[gather.operands[0]].shape.layout.minor_to_major == table
    assert gather.shape.layout.minor_to_major == made


SCATTERED = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[TARGET] parameter(0)
  i = s32[512] parameter(1)
  u = f32[UPDATES] parameter(2)
  ROOT s = f32[TARGET] scatter(x, i, u), update_window_dims={WINDOW}, inserted_window_dims={ALONG},
    scatter_dims_to_operand_dims={ALONG}, index_vector_dim=1, to_apply=add
}
"""


@pytest.mark.parametrize(
    ("named", "target", "updates"),
    [
        # ``x.at[:, i].add(u)`` and narrow rows: copied so that a row is in lanes, and back.
        (("4096,8192", "4096,512", "0", "1"), (0, 1), (0, 1)),
        (("1000000,16", "512,16", "1", "0"), (1, 0), (1, 0)),
        (("4096,8192", "512,8192", "1", "0"), (1, 0), (1, 0)),
        # Copied for 0.5 GB, and not for 2 GB.
        (("4000000,64", "512,64", "1", "0"), (0, 1), (0, 1)),
    ],
)
def test_what_rows_are_scattered_onto_has_them_in_lanes(named, target, updates):
    """The orders of programs compiled ahead of time for v5e."""
    text = SCATTERED
    for word, value in zip(("TARGET", "UPDATES", "WINDOW", "ALONG"), named, strict=True):
        text = text.replace(word, value)
    module = compiled(text, stop_after="layouts")
    (scatter,) = [i for i in module.entry if i.opcode == "scatter"]
    found = [module.entry[scatter.operands[at]].shape.layout.minor_to_major for at in (0, 2)]
    assert found == [target, updates]
    assert module.entry.root.shape.layout == module.entry["x"].shape.layout


def test_rows_that_fill_registers_stay_as_they_lie():
    """No copy before the gather: so does the TPU compiler with the cache of a beam search, of which rows are moved."""
    module = compiled("""HloModule m

ENTRY main {
  cache = bf16[6,8,128,64] parameter(0)
  places = s32[8] parameter(1)
  ROOT rows = bf16[6,8,128,64] gather(cache, places), offset_dims={0,2,3}, collapsed_slice_dims={1},
    start_index_map={1}, index_vector_dim=1, slice_sizes={6,1,128,64}
}
""")
    (gather,) = [i for i in module.entry if i.opcode == "gather"]
    assert all(i.operands != ("cache",) for i in module.entry if i.opcode == "copy")
    assert gather.shape.layout.minor_to_major == (2, 3, 0, 1)


def test_a_copy_stands_on_the_side_where_there_is_less_to_copy():
    """Rows of 24 are narrow: they are laid out with their elements in sublanes before they are negated, not after."""
    text = """HloModule narrow
ENTRY main {
  table = f32[4000,24] parameter(0)
  places = s32[2048] parameter(1)
  rows = f32[2048,24] gather(table, places), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1,24}
  ROOT less = f32[2048,24] negate(rows)
}
"""
    module = compiled(text, stop_after="layouts")
    (negate,) = [i for i in module.entry if i.opcode == "negate"]
    assert module.entry[negate.operands[0]].opcode == "copy"
    assert negate.shape.layout.minor_to_major == (0, 1)


MODES = """\
HloModule m, frontend_attributes={arg_layout_modes=%s,out_layout_modes=%s}

ENTRY e {
  p = f32[256,512] parameter(0)
  ROOT n = f32[256,512] negate(p)
}
"""


@pytest.mark.parametrize(
    ("argument", "result", "copies"),
    [
        ('"default"', '"default"', 0),
        ('"{0,1}"', '"default"', 1),
        ('"{0,1}"', '"auto"', 0),
        ('"auto"', '"{0,1:T(8,128)}"', 0),
        # As XLA prints them.
        ("{0,1}", '"default"', 1),
    ],
)
def test_arguments_and_results_lie_as_the_user_says(argument, result, copies):
    """In an order of its own, or as suits the rest; where two orders meet, one copy stands between them."""
    module = compiled(MODES % (argument, result), stop_after="layouts")
    assert [i.opcode for i in module.entry].count("copy") == copies
    orders = [i.shape.layout.minor_to_major for i in (module.entry.parameters[0], module.entry.root)]
    stated = [(0, 1) if "{0,1" in mode else (1, 0) for mode in (argument, result)]
    assert orders == ([(0, 1)] * 2 if '"auto"' in (argument, result) else stated)


def test_an_array_without_elements_has_them_in_any_order():
    """Its sizes have no common factors: what is behind a zero would be left over."""
    empty = parse_shape("bf16[7,0,3]{2,1,0:T(8,128)(2,1)}")
    assert carried_orders(empty, (7, 0)) == [(1, 0)]


def test_of_many_dimensions_those_of_other_sizes_are_tried():
    """The two minor ones of hundreds: all pairs of them would be tens of thousands of orders of hundreds."""
    array = ArrayShape(dtype("f32"), (2,) * 150 + (128,) + (2,) * 149 + (8, 3))
    assert within(1, lambda: boundary_order(array, CHIP))[:2] == (150, 300)


@pytest.mark.parametrize("operands", ["x, d", "d, x"])
def test_what_is_added_to_a_product_is_brought_to_the_order_of_that(operands):
    """As libtpu 0.0.52 has it for v5e: 196 rows are the batch, though 64 would pad less, here and for what follows."""
    entry = compiled(
        f"""HloModule m

ENTRY e {{
  p = bf16[196,64,256] parameter(0)
  w = bf16[256,256] parameter(1)
  v = bf16[256,512] parameter(2)
  x = bf16[64,196,256] transpose(p), dimensions={{1,0,2}}
  d = bf16[64,196,256] dot(x, w), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}
  s = bf16[64,196,256] add({operands})
  t = bf16[64,196,256] tanh(s)
  ROOT r = bf16[64,196,512] dot(t, v), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}
}}
""",
        stop_after="layouts",
    ).entry
    orders = {i.name: i.shape.layout.minor_to_major for i in entry if i.opcode in ("dot", "add", "tanh")}
    assert orders == dict.fromkeys(("d", "s", "t", "r"), (2, 1, 0))


COMBINED = """HloModule m

add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }}

ENTRY main {{
  x = bf16[8,{rows},128] parameter(0)
  w = bf16[8,{columns},128] parameter(1)
  {bias}
  d = bf16[8,{rows},{columns}] dot(x, w), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}},
    rhs_contracting_dims={{2}}
  {made}
  n = f32[] constant(0)
  ROOT s = f32[8,{left}] reduce(r, n), dimensions={{{along}}}, to_apply=add
}}
"""
WHOLE = "b = bf16[8,{rows},{columns}] parameter(2)", "y = {whole} add(d, b)  r = f32[8,{rows},{columns}] convert(y)"
SPREAD = (
    "b = bf16[{rows},{columns}] parameter(2)  c = {whole} broadcast(b), dimensions={{1,2}}",
    "y = {whole} add(d, c)  r = f32[8,{rows},{columns}] convert(y)",
)
WIDENED = (
    "b = bf16[8,{rows},{columns}] parameter(2)  c = f32[8,{rows},{columns}] convert(b)",
    "y = f32[8,{rows},{columns}] convert(d)  r = f32[8,{rows},{columns}] add(y, c)",
)
BEHIND = (
    "b = bf16[1,8,{rows},{columns}] parameter(2)",
    "e = bf16[1,8,{rows},{columns}] reshape(d)  y = bf16[1,8,{rows},{columns}] add(e, b)"
    "  f = f32[1,8,{rows},{columns}] convert(y)  r = f32[8,{rows},{columns}] reshape(f)",
)


def combined(rows, columns, bias, along=2):
    """Compile stacked products that are added to a bias and summed along a dimension; return orders of that, copies."""
    left = columns if along == 1 else rows
    named = {"rows": rows, "columns": columns, "whole": f"bf16[8,{rows},{columns}]"}
    texts = [text.format(**named) for text in bias]
    module = compiled(
        COMBINED.format(**named, bias=texts[0], made=texts[1], left=left, along=along), stop_after="layouts"
    )
    (dot,) = [i for i in module.entry if i.opcode == "dot"]
    return dot.shape.layout.minor_to_major, [str(i.shape.dtype) for i in module.entry if i.opcode == "copy"]


@pytest.mark.parametrize(
    ("rows", "columns", "along", "turned"),
    [(1024, 1024, 2, True), (1024, 512, 2, True), (512, 1024, 2, False), (1024, 512, 1, False), (512, 1024, 1, False)],
)
def test_rows_that_are_combined_go_along_the_sublanes_unless_they_are_long(rows, columns, along, turned):
    """As in programs compiled ahead of time for v5e (libtpu 0.0.52), with what is added turned."""
    assert combined(rows, columns, WHOLE, along) == (((1, 2, 0), ["bf16"]) if turned else ((2, 1, 0), []))


@pytest.mark.parametrize("bias", [SPREAD, WIDENED, BEHIND], ids=["spread", "widened", "behind a dimension of size 1"])
def test_what_is_added_to_rows_is_turned_as_it_comes(bias):
    """Before it is spread or widened, and whatever the product is called (libtpu 0.0.52, v5e)."""
    assert combined(512, 512, bias) == ((1, 2, 0), ["bf16"])


def test_rows_that_no_product_makes_stay_as_they_lie():
    """Nothing is turned for a sum of what is an argument (libtpu 0.0.52, v5e)."""
    alone = COMBINED.replace("  d = bf16", "  unused = bf16")
    named = {"rows": 64, "columns": 64, "left": 64, "along": 2, "bias": "b = bf16[8,64,64] parameter(2)"}
    module = compiled(alone.format(**named, made="r = f32[8,64,64] convert(b)"), stop_after="layouts")
    assert not [i for i in module.entry if i.opcode == "copy"]
