"""Pass 3: what is taken apart has the values of the whole, by NumPy, and the instructions of the real compiler."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import ml_dtypes
import numpy as np
import pytest

from tpusim.compiler.decompose.rules import TOLERANCES, tolerance
from tpusim.compiler.passes import compile_module
from tpusim.compiler.target import Target
from tpusim.errors import UnsupportedError
from tpusim.hardware.load import load_chip
from tpusim.limits import BLOCKS
from tpusim.pipeline.stages import check, execute
from tpusim.shapes.dtype import DTYPES, numpy_dtype
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

ADD = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }\n"
MULTIPLY = "multiply { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] multiply(a, b) }\n"
LESS = "less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=LT TYPE }\n"


def decomposed(entry, regions=""):
    """Return the program of an entry's lines, and what the pass and the simplifier after it make of it."""
    lines = "\n".join(entry.strip().splitlines())
    module = parse_module(SourceText("test", f"HloModule test\n{regions}\nENTRY main {{\n{lines}\n}}\n"))
    made = compile_module(module, Target(load_chip("v5e"), narrows=False), "clean-up")
    assert check(module) == check(made) == []
    return module, made


def opcodes(module):
    """Return how often each opcode stands in the entry."""
    return Counter(i.opcode for i in module.entry.instructions)


def values(module, *inputs):
    """Return what a program computes, in the precision that it states."""
    named = {f"in{number}": array for number, array in enumerate(inputs)}
    return execute(module, named, precision="exact", chip="v5e")


def close(found, expected, opcode):
    """Return whether values are as near to the expected ones as the table of tolerances says."""
    return np.abs(found - expected).max() <= TOLERANCES[opcode] * np.abs(expected).max()


def divided(dtype, number):
    """Return a program that divides four numbers by one, and what is made of it."""
    return decomposed(f"""
    x = {dtype}[4] parameter(0)
    c = {dtype}[] constant({number})
    d = {dtype}[4] broadcast(c), dimensions={{}}
    ROOT out = {dtype}[4] divide(x, d)
    """)


def normal(*sizes):
    """Return an array of random numbers, the same each time."""
    return np.random.default_rng(7).standard_normal(sizes).astype(np.float32)


@pytest.mark.parametrize("length", [1000, 128 * 130 + 5])
@pytest.mark.parametrize(("pad", "turn"), [("{}_0", slice(None)), ("0_{}", slice(None, None, -1))])
def test_running_sums_go_by_blocks_of_128(length, pad, turn):
    """As XLA's ReduceWindowRewriter makes them: inner sums, sums of their totals, both added."""
    entry = f"""
    x = f32[2,{length}] parameter(0)
    zero = f32[] constant(0)
    ROOT out = f32[2,{length}] reduce-window(x, zero),
      window={{size=1x{length} pad=0_0x{pad.format(length - 1)}}}, to_apply=add
    """
    _, made = decomposed(entry, ADD)
    x = normal(2, length)
    expected = np.cumsum(x.astype(np.float64)[:, turn], axis=1)[:, turn]
    assert close(values(made, x), expected, "reduce-window")
    wide = [i.attributes["window"].dimensions[-1].size for i in made.entry.instructions if i.opcode == "reduce-window"]
    assert max(wide) == 128
    assert len(wide) == (2 if length == 1000 else 3)


@pytest.mark.parametrize(("number", "is_apart"), [("0", True), ("0.0", True), ("5", False)])
def test_running_sums_begin_once(number, is_apart):
    """What they begin with is in every block, and again in the sum of the blocks: it must be nothing."""
    entry = f"""
    x = f32[300] parameter(0)
    start = f32[] constant({number})
    ROOT out = f32[300] reduce-window(x, start), window={{size=300 pad=299_0}}, to_apply=add
    """
    _, made = decomposed(entry, ADD)
    assert (values(made, np.ones(300, np.float32)) == float(number) + np.arange(1, 301)).all()
    assert (opcodes(made)["reduce-window"] > 1) == is_apart


def test_running_products_down_the_columns():
    """The dimension of the window is turned to the end and back."""
    entry = """
    x = f32[300,3] parameter(0)
    one = f32[] constant(1)
    ROOT out = f32[300,3] reduce-window(x, one), window={size=300x1 pad=299_0x0_0}, to_apply=multiply
    """
    _, made = decomposed(entry, MULTIPLY)
    x = 1 + 0.1 * normal(300, 3)
    assert close(values(made, x), np.cumprod(x.astype(np.float64), axis=0), "reduce-window")


@pytest.mark.parametrize("window", ["size=1x256 pad=0_0x255_0 stride=1x1", "size=1x100 pad=0_0x99_0"])
def test_a_window_is_cumulative_only_if_it_takes_in_all(window):
    """A moving sum stays one window."""
    size = 256 if "256" in window else 300
    entry = f"""
    x = f32[2,{size}] parameter(0)
    zero = f32[] constant(0)
    ROOT out = f32[2,{size}] reduce-window(x, zero), window={{{window}}}, to_apply=add
    """
    _, made = decomposed(entry, ADD)
    assert opcodes(made)["reduce-window"] == (2 if size == 256 else 1)


@pytest.mark.parametrize("order", ["", ", type=TOTALORDER"])
def test_a_stable_sort_sorts_the_places_too(order):
    """StableSortExpander: they decide between equals, of which there are many here; NaNs and zeros of both signs."""
    entry = """
    k = f32[3,50] parameter(0)
    v = s32[3,50] parameter(1)
    both = (f32[3,50], s32[3,50]) sort(k, v), dimensions={1}, is_stable=true, to_apply=less
    ROOT out = s32[3,50] get-tuple-element(both), index=1
    """
    less = LESS.replace("f32[] parameter(1)", "f32[] parameter(1)  p = s32[] parameter(2)  q = s32[] parameter(3)")
    module, made = decomposed(entry, less.replace(" TYPE", order))
    k = np.random.default_rng(7).choice(np.float32([1, -1, 2, 0.0, -0.0]), (3, 50))
    v = np.arange(150, dtype=np.int32).reshape(3, 50)
    assert (values(made, k, v) == values(module, k, v)).all()
    assert len(next(i for i in made.entry.instructions if i.opcode == "sort").operands) == 3
    if not order:
        rows = np.argsort(k, axis=1, kind="stable")
        assert (values(made, k, v) == np.take_along_axis(v, rows, axis=1)).all()


def test_an_argument_sort_has_its_places_already():
    """They are not sorted twice."""
    entry = """
    k = f32[3,50] parameter(0)
    v = s32[3,50] iota(), iota_dimension=1
    both = (f32[3,50], s32[3,50]) sort(k, v), dimensions={1}, is_stable=true, to_apply=less
    ROOT out = s32[3,50] get-tuple-element(both), index=1
    """
    less = LESS.replace("f32[] parameter(1)", "f32[] parameter(1)  p = s32[] parameter(2)  q = s32[] parameter(3)")
    _, made = decomposed(entry, less.replace(" TYPE", ""))
    k = np.round(normal(3, 50))
    assert (values(made, k) == np.argsort(k, axis=1, kind="stable")).all()
    assert len(next(i for i in made.entry.instructions if i.opcode == "sort").operands) == 2


def test_total_order_is_an_order_of_integers():
    """Of zeros, infinities and NaNs of both signs too (IEEE 754, 5.10)."""
    order = np.float32([-np.nan, -np.inf, -1, -0.0, 0.0, 1e-40, 2, np.inf, np.nan])
    order[0] = np.copysign(np.nan, -1)
    entry = """
    x = f32[9,9] parameter(0)
    y = f32[9,9] parameter(1)
    ROOT out = pred[9,9] compare(x, y), direction=LT, type=TOTALORDER
    """
    _, made = decomposed(entry)
    x, y = np.broadcast_arrays(order[:, None], order[None, :])
    found = values(made, np.ascontiguousarray(x), np.ascontiguousarray(y))
    assert (found == (np.arange(9)[:, None] < np.arange(9)[None, :])).all()


def test_indices_lose_the_dimension_of_one_number_and_stay_inside():
    """A row of them has no padding, and what lies outside is brought to the nearest row."""
    entry = """
    x = f32[40,5] parameter(0)
    i = s32[6,1] parameter(1)
    ROOT out = f32[6,5] gather(x, i), offset_dims={1},
      collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,5}
    """
    _, made = decomposed(entry)
    x, i = normal(40, 5), np.int32([[3], [-1], [39], [40], [0], [1000]])
    assert (values(made, x, i) == x[np.clip(i[:, 0], 0, 39)]).all()
    gather = made.entry.root
    assert made.entry[gather.operands[1]].opcode == "clamp"
    assert made.entry[gather.operands[1]].shape.dimensions == (6,)


@pytest.mark.parametrize(
    ("sizes", "shape", "named"),
    [
        ((7, 9, 1), "7,6,1", "offset_dims={0,2}, collapsed_slice_dims={1}, start_index_map={1}, slice_sizes={7,1,1}"),
        ((1, 9, 7), "1,6,7", "offset_dims={0,2}, collapsed_slice_dims={1}, start_index_map={1}, slice_sizes={1,1,7}"),
        (
            (9, 1, 7, 1),
            "6,1,7,1",
            "offset_dims={1,2,3}, collapsed_slice_dims={0}, start_index_map={0}, slice_sizes={1,1,7,1}",
        ),
    ],
)
def test_what_is_gathered_has_no_dimensions_of_one_element(sizes, shape, named):
    """They would be padded to the lanes of a register; a reshape gives them back."""
    text = ",".join(map(str, sizes))
    x, i = normal(*sizes), np.int32([3, 0, 8, 8, -2, 20]).reshape(6, 1)
    module, made = decomposed(f"""
    x = f32[{text}] parameter(0)
    i = s32[6,1] parameter(1)
    ROOT out = f32[{shape}] gather(x, i), {named}, index_vector_dim=1
    """)
    assert (values(made, x, i) == values(module, x, i)).all()
    (gather,) = (one for one in made.entry.instructions if one.opcode == "gather")
    assert sorted(gather.shape.dimensions) == [6, 7]


@pytest.mark.parametrize(
    ("table", "places", "made", "named", "split"),
    [
        ((40, 16), (6, 9), (6, 9, 16), "collapsed_slice_dims={0}, start_index_map={0}, slice_sizes={1,16}", True),
        ((40, 16), (6, 8), (6, 8, 16), "collapsed_slice_dims={0}, start_index_map={0}, slice_sizes={1,16}", False),
        (
            (20, 40, 16),
            (4, 3, 9, 2),
            (4, 3, 9, 16),
            "collapsed_slice_dims={0,1}, start_index_map={1,0}, slice_sizes={1,1,16}",
            True,
        ),
        (
            (6, 40, 16),
            (6, 9, 1),
            (6, 9, 16),
            "collapsed_slice_dims={1}, start_index_map={1}, slice_sizes={1,1,16}, operand_batching_dims={0}, "
            "start_indices_batching_dims={0}, indices_are_sorted=true",
            True,
        ),
    ],
)
def test_rows_are_gathered_one_behind_the_other_unless_registers_hold_whole_ones(table, places, made, named, split):
    """As libtpu 0.0.52 has it; what lies outside is brought inside as before."""
    x, i = normal(*table), np.sort(np.random.default_rng(5).integers(-9, 50, places).astype(np.int32), axis=1)
    module, after = decomposed(f"""
    x = f32[{",".join(map(str, table))}] parameter(0)
    i = s32[{",".join(map(str, places))}] parameter(1)
    ROOT out = f32[{",".join(map(str, made))}] gather(x, i), offset_dims={{{len(made) - 1}}}, {named},
      index_vector_dim={len(made) - 1}
    """)
    assert (values(after, x, i) == values(module, x, i)).all()
    (gather,) = (one for one in after.entry.instructions if one.opcode == "gather")
    assert (gather.shape.rank == 2) == split


def test_a_slice_of_nothing_keeps_its_dimension_of_one_element():
    """What is gathered of it has none there: without the dimension it would have some."""
    module, made = decomposed("""
    x = f32[1,3] parameter(0)
    i = s32[6,1] parameter(1)
    ROOT out = f32[6,0] gather(x, i), offset_dims={1}, collapsed_slice_dims={1}, start_index_map={1},
      index_vector_dim=1, slice_sizes={0,1}
    """)
    assert check(module) == []
    assert values(made, normal(1, 3), np.zeros((6, 1), np.int32)).shape == (6, 0)


def test_what_is_scattered_onto_zeros_and_added_is_scattered_onto_the_sum():
    """As in a graph network's step; what lies outside is left out."""
    entry = """
    h = f32[40,5] parameter(0)
    i = s32[6,1] parameter(1)
    u = f32[6,5] parameter(2)
    zero = f32[] constant(0)
    zeros = f32[40,5] broadcast(zero), dimensions={}
    s = f32[40,5] scatter(zeros, i, u), update_window_dims={1},
      inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
    ROOT out = f32[40,5] add(h, s)
    """
    _, made = decomposed(entry, ADD)
    h, i, u = normal(40, 5), np.int32([[3], [3], [39], [40], [0], [3]]), normal(6, 5)
    expected = h.astype(np.float64)
    np.add.at(expected, i[[0, 1, 2, 4, 5], 0], u[[0, 1, 2, 4, 5]])
    assert close(values(made, h, i, u), expected, "add")
    assert made.entry.root.opcode == "scatter"
    assert made.entry[made.entry.root.operands[0]].opcode == "parameter"


KEEP = "keep { a = f32[] parameter(0)  ROOT b = f32[] parameter(1) }\n"


@pytest.mark.parametrize("region", ["keep", "add"])
@pytest.mark.parametrize("row", [0, 3, 7, 8, -1])
def test_a_scatter_of_one_update_is_an_update_in_place(row, region):
    """As XLA's ScatterExpander makes it of ``x.at[i].set(u)``; what lies outside is left out."""
    entry = f"""
    x = f32[8,5,4] parameter(0)
    i = s32[1] parameter(1)
    u = f32[5,4] parameter(2)
    ROOT out = f32[8,5,4] scatter(x, i, u), update_window_dims={{0,1}},
      inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=0, to_apply={region}
    """
    _, made = decomposed(entry, KEEP + ADD)
    x, u = normal(8, 5, 4), normal(5, 4)
    expected = x.copy()
    if 0 <= row < 8:
        expected[row] = u + (x[row] if region == "add" else 0)
    assert np.array_equal(values(made, x, np.int32([row]), u), expected)
    assert made.entry.root.opcode == "dynamic-update-slice"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("subtract(a, b)", lambda old, new: old - new),
        ("subtract(b, a)", lambda old, new: new - old),
        ("add(b, a)", lambda old, new: new + old),
        ("select(c, b, a)", lambda old, new: np.where(old > new, new, old)),
    ],
)
def test_what_a_scatter_does_with_old_and_new_is_kept(made, expected):
    """Whatever order its computation takes them in, and however many operations it has."""
    region = (
        "made { a = f32[] parameter(0)  b = f32[] parameter(1)  c = pred[] compare(a, b), direction=GT\n"
        f"ROOT d = f32[] {made} }}\n"
    )
    entry = """
    x = f32[8,4] parameter(0)
    i = s32[1] parameter(1)
    u = f32[4] parameter(2)
    ROOT out = f32[8,4] scatter(x, i, u), update_window_dims={0}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=made
    """
    _, compiled = decomposed(entry, region)
    x, u = normal(8, 4), normal(4)[::-1].copy()
    wanted = x.copy()
    wanted[3] = expected(x[3], u)
    assert np.array_equal(values(compiled, x, np.int32([3]), u), wanted)


def test_a_comparison_is_not_told_by_its_opcode():
    """A scatter of truth values whose computation compares them stays right."""
    region = (
        "differ { a = pred[] parameter(0)  b = pred[] parameter(1)  ROOT d = pred[] compare(a, b), direction=NE }\n"
    )
    entry = """
    x = pred[8] parameter(0)
    i = s32[1] parameter(1)
    u = pred[] parameter(2)
    ROOT out = pred[8] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=differ
    """
    _, compiled = decomposed(entry, region)
    x = np.arange(8) % 2 == 0
    assert (values(compiled, x, np.int32([2]), np.bool_(True)) == (x & (np.arange(8) != 2))).all()


def test_places_of_a_narrow_type_do_not_decide_between_equals():
    """Eight bits begin again at 256."""
    less = LESS.replace("f32[] parameter(1)", "f32[] parameter(1)  p = u8[] parameter(2)  q = u8[] parameter(3)")
    entry = """
    k = f32[600] parameter(0)
    v = u8[600] iota(), iota_dimension=0
    both = (f32[600], u8[600]) sort(k, v), dimensions={0}, is_stable=true, to_apply=less
    ROOT out = u8[600] get-tuple-element(both), index=1
    """
    _, made = decomposed(entry, less.replace(" TYPE", ""))
    assert (values(made, np.zeros(600, np.float32)) == np.arange(600).astype(np.uint8)).all()


def test_a_number_scattered_by_narrow_indices_goes_to_one_place():
    """Column 5 and not 261 as well."""
    entry = """
    i = u8[4] parameter(0)
    l = u8[4,1] reshape(i)
    nought = f32[] constant(0)
    zeros = f32[4,600] broadcast(nought), dimensions={}
    one = f32[] constant(1)
    u = f32[4,1] broadcast(one), dimensions={}
    ROOT out = f32[4,600] scatter(zeros, l, u), update_window_dims={}, inserted_window_dims={1},
      input_batching_dims={0}, scatter_indices_batching_dims={0}, scatter_dims_to_operand_dims={1},
      index_vector_dim=2, to_apply=add
    """
    _, made = decomposed(entry, ADD)
    i = np.uint8([5, 0, 255, 7])
    assert (values(made, i) == (np.arange(600) == i[:, None])).all()


ADDED, PUT = ADD, "add { a = f32[] parameter(0)  ROOT b = f32[] parameter(1) }"


@pytest.mark.parametrize("vector", [",1", ""], ids=["one number each", "no vector"])
@pytest.mark.parametrize(("per_row", "is_one_row"), [(31, False), (32, True)])
def test_many_numbers_scattered_side_by_side_go_into_one_row(per_row, is_one_row, vector):
    """A number outside its own row goes nowhere, though the array as one row has a place for it. Fewer stay."""
    entry = f"""
    i = s32[{per_row},33{vector}] parameter(0)
    u = f32[{per_row},33] parameter(1)
    x = f32[33,40] parameter(2)
    ROOT out = f32[33,40] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{1}},
      scatter_dims_to_operand_dims={{1}}, input_batching_dims={{0}}, scatter_indices_batching_dims={{1}},
      index_vector_dim=2, to_apply=add
    """
    _, made = decomposed(entry, ADD)
    (scatter,) = (node for node in made.entry if node.opcode == "scatter")
    assert (scatter.shape.rank == 1) == is_one_row
    i = np.arange(per_row * 33, dtype=np.int32).reshape(per_row, 33) * 7 % 50 - 5
    u, x = (np.float32(np.random.default_rng(7).integers(-99, 99, size)) for size in (i.shape, (33, 40)))
    expected = x.copy()
    rows = np.broadcast_to(np.arange(33), i.shape)
    is_inside = (i >= 0) & (i < 40)
    np.add.at(expected, (rows[is_inside], i[is_inside]), u[is_inside])
    assert (values(made, i[..., None] if vector else i, u, x) == expected).all()


@pytest.mark.parametrize("region", [ADDED, PUT])
@pytest.mark.parametrize("update", ["broadcast(number), dimensions={}", "parameter(1)"])
@pytest.mark.parametrize(("form", "scatters"), [("list", 0), ("two", 1), ("number", 1)])
def test_what_is_scattered_once_a_row_by_a_list_of_one_is_selected(form, scatters, update, region):
    """As in the gradient of a cross-entropy; outside of the row it goes nowhere. Not so a list of two, nor a number."""
    end = {"list": ",1", "two": ",2", "number": ""}[form]
    entry = f"""
    i = s32[3,5{end},1] parameter(0)
    x = f32[5,3,40] parameter(2)
    number = f32[] constant(0.25)
    u = f32[3,5{end}] {update}
    ROOT out = f32[5,3,40] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{2}},
      scatter_dims_to_operand_dims={{2}}, input_batching_dims={{0,1}}, scatter_indices_batching_dims={{1,0}},
      index_vector_dim={2 + len(end) // 2}, to_apply=add
    """
    if "broadcast" in update:
        entry = entry.replace("parameter(2)", "parameter(1)")
    module, made = decomposed(entry, region)
    assert opcodes(made)["scatter"] == scatters
    count = 2 if form == "two" else 1
    i = np.arange(-1, -1 + 3 * 15 * count, 3, dtype=np.int32).reshape(3, 5, *([count] if end else []), 1)
    inputs = [i, *([] if "broadcast" in update else [normal(3, 5, *([count] if end else []))]), normal(5, 3, 40)]
    assert values(module, *inputs).tobytes() == values(made, *inputs).tobytes()


@pytest.mark.parametrize(
    ("indices", "update", "into", "vector"), [("s64[1,1]", "f32[1]", "0", 1), ("s32[1,0]", "f32[1]", "", 1)]
)
def test_a_number_for_an_array_without_rows_is_put_in_its_place(indices, update, into, vector):
    """By a long index, or by none: then its place is known."""
    entry = f"""
    x = f32[8] parameter(0)
    i = {indices} parameter(1)
    u = {update} parameter(2)
    ROOT out = f32[8] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{0}},
      scatter_dims_to_operand_dims={{{into}}}, index_vector_dim={vector}, to_apply=add
    """
    module, made = decomposed(entry, ADD)
    place = np.int64([[3]]) if into else np.zeros((1, 0), np.int32)
    inputs = normal(8), place, normal(1)
    assert np.array_equal(values(module, *inputs), values(made, *inputs))


def loops(module):
    """Return how many loops a program has."""
    return sum(i.opcode == "while" for computation in module.computations for i in computation.instructions)


@pytest.mark.parametrize(
    ("table", "row", "expected"),
    [
        # 128 rows of 1 KiB of each table, one row more, a part of the lanes, one row.
        ("4,1024,256", "128,256", 0),
        ("4,1024,256", "129,256", 1),
        ("4,1024,256", "16,128", 1),
        ("4,1024,256", "1,256", 0),
        # Rows of 8 take as many lanes as rows of 128.
        ("4,512,8", "256,8", 0),
        ("4,512,8", "257,8", 1),
        # Parts lie outside of tiles, however large they are.
        ("4,512,8,128", "500,8,128", 0),
        ("4,512", "16", 1),
    ],
)
def test_windows_that_no_kernel_gathers_are_read_in_a_loop(table, row, expected):
    """As of ``jax.vmap(dynamic_slice)``; the limits are those of programs compiled ahead of time for v5e."""
    offsets = ",".join(str(d) for d in range(1, 1 + len(row.split(","))))
    entry = f"""
    x = f32[{table}] parameter(0)
    i = s32[4,1] parameter(1)
    ROOT out = f32[4,{row}] gather(x, i), offset_dims={{{offsets}}}, collapsed_slice_dims={{}}, start_index_map={{1}},
      operand_batching_dims={{0}}, start_indices_batching_dims={{0}}, index_vector_dim=1, slice_sizes={{1,{row}}}
    """
    module, made = decomposed(entry)
    assert loops(made) == expected
    inputs = normal(*map(int, table.split(","))), np.int32([[-3], [7], [0], [5000]])
    assert np.array_equal(values(module, *inputs), values(made, *inputs))


def test_windows_without_another_dimension_for_sublanes_are_read_in_a_loop():
    """As of one table that all places are of; the dimensions of the result stand in any order."""
    entry = """
    x = f32[64,256] parameter(0)
    i = s32[2,2,3] parameter(1)
    ROOT out = f32[2,8,3,128] gather(x, i), offset_dims={1,3}, collapsed_slice_dims={}, start_index_map={1,0},
      index_vector_dim=1, slice_sizes={8,128}
    """
    module, made = decomposed(entry)
    assert loops(made) == 1
    inputs = normal(64, 256), np.int32([[[0, 5, 300], [1, -1, 60]], [[128, 127, 129], [56, 57, 55]]])
    assert np.array_equal(values(module, *inputs), values(made, *inputs))


def test_no_windows_are_read_in_no_loop():
    """Of a batch of none."""
    module, made = decomposed("""
    x = f32[64,256] parameter(0)
    i = s32[0,2] parameter(1)
    ROOT out = f32[0,8,128] gather(x, i), offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0,1},
      index_vector_dim=1, slice_sizes={8,128}
    """)
    assert loops(made) == 0
    assert values(made, normal(64, 256), np.zeros((0, 2), np.int32)).shape == (0, 8, 128)
    assert check(module) == []


def test_windows_of_nothing_are_read_in_no_loop():
    """Also where what is left out has no place: XLA lets a size of 0 pass for one of 1."""
    module, made = decomposed("""
    x = f32[9,7,11] parameter(0)
    i = s32[5,2] parameter(1)
    ROOT out = f32[5,7] gather(x, i), offset_dims={1}, collapsed_slice_dims={0,2}, start_index_map={0,2},
      index_vector_dim=1, slice_sizes={1,7,0}
    """)
    assert loops(made) == 0
    assert check(module) == []


def test_many_updates_of_nothing_are_not_one():
    """Three windows without elements have as many as one has."""
    _, made = decomposed(
        """
    x = f32[8,5] parameter(0)
    i = s32[3,1] parameter(1)
    u = f32[3,0] parameter(2)
    ROOT out = f32[8,5] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=keep
    """,
        KEEP,
    )
    x = normal(8, 5)
    assert np.array_equal(values(made, x, np.int32([[0], [1], [2]]), np.zeros((3, 0), np.float32)), x)


@pytest.mark.parametrize(
    ("indices", "updates", "named"),
    [
        ("0", "1", "update_window_dims={0}, inserted_window_dims={1}, scatter_dims_to_operand_dims={}"),
        ("2,1", "2,1", "update_window_dims={1}, inserted_window_dims={1}, scatter_dims_to_operand_dims={0}"),
    ],
)
def test_nothing_is_scattered_onto_an_array_without_elements(indices, updates, named):
    """What an update leaves out counts as one of it there, and it has none."""
    vector = indices.count(",")
    module, made = decomposed(
        f"""
    x = f32[3,0] parameter(0)
    i = s32[{indices}] parameter(1)
    u = f32[{updates}] parameter(2)
    ROOT out = f32[3,0] scatter(x, i, u), {named}, index_vector_dim={vector}, to_apply=keep
    """,
        KEEP,
    )
    assert "scatter" in opcodes(module)
    assert made.entry.root.opcode == "parameter"


def test_several_arrays_without_elements_are_scattered_onto_together():
    """Each of them is as it was."""
    keep = "keep { a = f32[] parameter(0) b = s32[] parameter(1) c = f32[] parameter(2) d = s32[] parameter(3) "
    _, made = decomposed(
        """
    x = f32[0] parameter(0)
    y = s32[0] parameter(1)
    i = s32[2,1] parameter(2)
    u = f32[2] parameter(3)
    v = s32[2] parameter(4)
    ROOT out = (f32[0], s32[0]) scatter(x, y, i, u, v), update_window_dims={}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=keep
    """,
        keep + "ROOT out = (f32[], s32[]) tuple(c, d) }",
    )
    assert made.entry.root.operands == ("x", "y")


CACHE_UPDATES = """
    x = f32[3,9,5] parameter(0)
    i = s32[4,3,1] parameter(1)
    u = f32[4,3,1,5] parameter(2)
    ROOT out = f32[3,9,5] scatter(x, i, u), update_window_dims={2,3}, inserted_window_dims={},
      scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={1},
      index_vector_dim=2, to_apply=REGION
    """


@pytest.mark.parametrize("region", ["keep", "add"])
@pytest.mark.parametrize("is_row", [False, True])
def test_windows_that_begin_along_a_dimension_are_written_in_a_loop(is_row, region):
    """As ``jax.vmap(dynamic_update_slice)`` makes them of a cache; rows that are said to be rows stay."""
    entry = CACHE_UPDATES.replace("REGION", region)
    if is_row:
        entry = entry.replace("f32[4,3,1,5]", "f32[4,3,5]").replace("={2,3}", "={2}")
        entry = entry.replace("inserted_window_dims={}", "inserted_window_dims={1}")
    _, made = decomposed(entry, KEEP + ADD)
    assert loops(made) == 1 - is_row
    x, i = normal(3, 9, 5), np.int32([[0, 3, 8], [9, -1, 3], [2, 3, 2], [5, 6, 7]])[..., None]
    u = normal(4, 3, 5).reshape((4, 3, 5) if is_row else (4, 3, 1, 5))
    expected = x.copy()
    for times, table in np.ndindex(4, 3):
        if 0 <= (row := i[times, table, 0]) < 9:
            expected[table, row] = u[times, table].ravel() + (expected[table, row] if region == "add" else 0)
    assert np.array_equal(values(made, x, i, u), expected)


@pytest.mark.parametrize(("count", "rank"), [(1023, 2), (1024, 1)])
def test_many_numbers_scattered_by_several_indices_go_into_one_row(count, rank):
    """So does the TPU compiler from 1,024 on; what lies outside in one dimension comes to lie in no other row."""
    entry = f"""
    x = f32[7,5] parameter(0)
    i = s32[{count},2] parameter(1)
    u = f32[{count}] parameter(2)
    ROOT out = f32[7,5] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{0,1}},
      scatter_dims_to_operand_dims={{1,0}}, index_vector_dim=1, to_apply=add
    """
    _, made = decomposed(entry, ADD)
    (scatter,) = [i for i in made.entry.instructions if i.opcode == "scatter"]
    assert scatter.shape.rank == rank
    generator = np.random.default_rng(3)
    x, i = np.zeros((7, 5), np.float32), generator.integers(-1, 8, (count, 2)).astype(np.int32)
    expected = x.copy()
    inside = (i >= 0).all(1) & (i < (5, 7)).all(1)
    np.add.at(expected, (i[inside, 1], i[inside, 0]), 1)
    assert np.array_equal(values(made, x, i, np.ones(count, np.float32)), expected)


@pytest.mark.parametrize(("start", "is_inside"), [(1, True), (3, False)])
def test_an_update_known_to_lie_inside_is_not_looked_at(start, is_inside):
    """As in a stencil, ``u.at[1:-1, 1:-1].set(...)``."""
    entry = f"""
    x = f32[8,8] parameter(0)
    u = f32[6,6] parameter(1)
    one = s32[] constant({start})
    i = s32[2] broadcast(one), dimensions={{}}
    ROOT out = f32[8,8] scatter(x, i, u), update_window_dims={{0,1}},
      inserted_window_dims={{}}, scatter_dims_to_operand_dims={{0,1}}, index_vector_dim=0, to_apply=keep
    """
    _, made = decomposed(entry, KEEP)
    x, u = normal(8, 8), normal(6, 6)
    expected = x.copy()
    if is_inside:
        expected[1:-1, 1:-1] = u
    assert np.array_equal(values(made, x, u), expected)
    assert made.entry.root.opcode == "dynamic-update-slice"
    assert "select" not in opcodes(made)


def test_a_division_in_eight_bits_stays_one():
    """The reciprocal of 3 has too few digits, that of 2**-9 is beyond them."""
    assert divided("f8e4m3fn", "3")[1].entry.root.opcode == "divide"


DYNAMIC = """
    p = f32[6,2] parameter(0)
    n = s32[] constant(4)
    z = f32[] constant(0)
    d = f32[<=6,2] set-dimension-size(p, n), dimensions={0}
    MADE
    g = s32[] get-dimension-size(x), dimensions={0}
    s = f32[] reduce(x, z), dimensions={0,1}, to_apply=add
    ROOT r = (s32[], f32[]) tuple(g, s)
"""


@pytest.mark.parametrize(
    "made",
    [
        "ten = f32[] constant(10)  b = f32[<=6,2] broadcast(ten), dimensions={}  x = f32[<=6,2] divide(d, b)",
        "v = f32[2] parameter(1)  t = (f32[<=6,2], f32[2], f32[2]) batch-norm-training(d, v, v), epsilon=0.01,"
        " feature_index=1  x = f32[<=6,2] get-tuple-element(t), index=0",
        "x = f32[<=6,2] sort(d), dimensions={0}, is_stable=true, to_apply=less",
        "c = f32[<=6,1] slice(d), slice={[0:6], [0:1]}  b = f32[<=6,1,2] broadcast(c), dimensions={0,1}"
        "  x = f32[<=6,2] reshape(b)",
    ],
    ids=["divide", "normalise", "sort", "broadcast"],
)
def test_sizes_that_are_known_at_run_time_are_kept(made):
    """What counts with the bounds instead computes something else; no step is left out of the whole compiler."""
    text = DYNAMIC.replace("MADE", made)
    regions = ADD + LESS.replace(" TYPE", "")
    module = parse_module(SourceText("test", f"HloModule test\n{regions}\nENTRY main {{\n{text}\n}}\n"))
    compiled = compile_module(module, Target(load_chip("v5e")))
    inputs = [normal(6, 2), *([normal(2)] if "parameter(1)" in made else [])]
    for ours, theirs in zip(values(compiled, *inputs), values(module, *inputs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.parametrize(("number", "stays"), [("3", False), ("-0.1", False), ("0", True), ("inf", True)])
def test_a_division_by_a_number_is_a_product_with_its_reciprocal(number, stays):
    """But for zero and infinity."""
    entry = f"""
    x = f32[8,128] parameter(0)
    c = f32[] constant({number})
    d = f32[8,128] broadcast(c), dimensions={{}}
    ROOT out = f32[8,128] divide(x, d)
    """
    _, made = decomposed(entry)
    assert made.entry.root.opcode == ("divide" if stays else "multiply")
    x = normal(8, 128)
    if not stays:
        assert close(values(made, x), x / np.float64(number), "divide")


@pytest.mark.parametrize(("dtype", "number"), [("c64", "(2, 1)"), ("c128", "(3, 0)"), ("f32", "nan(0x400001)")])
def test_what_has_no_reciprocal_stays_a_divisor(dtype, number):
    """A complex number, whose division is taken apart otherwise, and a NaN, also one with a payload."""
    module, made = divided(dtype, number)
    x = normal(4).astype({"c64": np.complex64, "c128": np.complex128, "f32": np.float32}[dtype])
    np.testing.assert_allclose(values(made, x), values(module, x), rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "number"),
    [("f32", "1e-39"), ("f32", "3e38"), ("bf16", "1e-39"), ("f16", "6e-8"), ("f16", "1e-5"), ("f16", "60000")],
)
def test_a_division_stays_whose_reciprocal_is_not_normal(dtype, number):
    """It would be infinite, or have too few digits."""
    assert divided(dtype, number)[1].entry.root.opcode == "divide"


@pytest.mark.parametrize(("dtype", "number"), [("bf16", "3"), ("bf16", "0.1"), ("f16", "3"), ("f16", "0.1")])
def test_a_reciprocal_of_16_bits_is_as_near_as_its_type_allows(dtype, number):
    """The TPU compiler multiplies by it too: of 3 by 0.334 in bf16, by 0.33325 in f16."""
    module, made = divided(dtype, number)
    assert made.entry.root.opcode == "multiply"
    x = (1 + 99 * np.abs(normal(4))).astype({"bf16": ml_dtypes.bfloat16, "f16": np.float16}[dtype])
    found, whole = (np.float64(values(each, x)) for each in (made, module))
    assert (np.abs(found - whole) <= tolerance("divide", DTYPES[dtype]) * np.abs(whole)).all()


def test_a_reciprocal_has_all_digits_of_a_wide_type():
    """Nine are enough for f32, 17 for f64."""
    _, made = divided("f64", "3")
    assert made.entry.root.opcode == "multiply"
    x = np.float64([1, 7, -5, 1e9])
    np.testing.assert_allclose(values(made, x), x / 3, rtol=3e-16)


def sum_of(dtype, term):
    """Return a program that sums up the rows of a term of a matrix ``x`` and a number per row, and what it becomes."""
    add = ADD.replace("f32", dtype)
    return decomposed(
        f"""
    x = {dtype}[4,128] parameter(0)
    w = {dtype}[4] parameter(1)
    b = {dtype}[4,128] broadcast(w), dimensions={{0}}
    t = {dtype}[4,128] {term}
    z = {dtype}[] constant(0)
    ROOT out = {dtype}[4] reduce(t, z), dimensions={{1}}, to_apply=add
    """,
        add,
    )


@pytest.mark.parametrize(("dtype", "large"), [("f16", 1024), ("f8e5m2", 1024), ("f8e4m3fn", 256)])
def test_a_factor_stays_in_a_sum_that_could_overflow_without_it(dtype, large):
    """128 times such a number is more than its type holds, 128 times its 128th part is not."""
    _, made = sum_of(dtype, "multiply(x, b)")
    x = np.full((4, 128), large, numpy_dtype(DTYPES[dtype]))
    assert (np.float64(values(made, x, np.full(4, 2**-7, x.dtype))) == large).all()


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
def test_a_factor_goes_before_a_sum_in_types_that_reach_far(dtype):
    """One multiplication per row and not per element."""
    whole, made = sum_of(dtype, "multiply(b, x)")
    (product,) = (i for i in made.entry.instructions if i.opcode == "multiply")
    assert product.shape.dimensions == (4,)
    x, w = (each.astype(numpy_dtype(DTYPES[dtype])) for each in (1 + np.abs(normal(4, 128)), normal(4)))
    found, expected = (np.float64(values(each, x, w)) for each in (made, whole))
    np.testing.assert_allclose(found, expected, rtol=tolerance("reduce", DTYPES[dtype]))


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_a_sign_goes_before_a_sum(dtype):
    """In every type, since sums are rounded alike on both sides of 0."""
    whole, made = sum_of(dtype, "negate(x)")
    assert made.entry.root.opcode == "negate"
    x, w = (each.astype(numpy_dtype(DTYPES[dtype])) for each in (normal(4, 128), normal(4)))
    assert (values(made, x, w) == values(whole, x, w)).all()


FOURIER = [
    ("FFT", (3, 300), (300,)),
    ("FFT", (2, 1024), (1024,)),
    ("FFT", (5, 480), (480,)),
    ("IFFT", (2, 3, 384), (384,)),
    ("FFT", (2, 6, 260, 8), (260, 8)),
    ("FFT", (98304,), (98304,)),
    ("IFFT", (98304, 2), (98304, 2)),
    ("RFFT", (4, 640), (640,)),
    ("RFFT", (3, 6, 9), (6, 9)),
    ("IRFFT", (3, 6, 9), (6, 9)),
    ("IRFFT", (2, 512), (512,)),
    ("IRFFT", (2, 1), (1,)),
]
LARGE = [
    ("FFT", (4099,), (4099,)),
    ("IFFT", (2, 16381), (16381,)),
    ("FFT", (131168,), (131168,)),
    ("RFFT", (4, 2053), (4, 2053)),
    ("IRFFT", (3, 1030), (1030,)),
]
TRANSFORMS = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}


@pytest.mark.parametrize(("kind", "sizes", "lengths"), FOURIER)
def test_fourier_transforms_are_products(kind, sizes, lengths):
    """Of NumPy's values; three for a short dimension, six for a long one that can be split."""
    half = (*sizes[:-1], sizes[-1] // 2 + 1)
    taken, given = {"RFFT": (sizes, half), "IRFFT": (half, sizes)}.get(kind, (sizes, sizes))
    shape = f"{'f32' if kind == 'RFFT' else 'c64'}{list(taken)}".replace(" ", "")
    result = f"{'f32' if kind == 'IRFFT' else 'c64'}{list(given)}".replace(" ", "")
    lengths_text = ",".join(map(str, lengths))
    _, made = decomposed(f"""
    x = {shape} parameter(0)
    ROOT out = {result} fft(x), fft_type={kind}, fft_length={{{lengths_text}}}
    """)
    x = normal(*taken) if kind == "RFFT" else normal(*taken) + 1j * normal(*taken, 2)[..., 0]
    axes = tuple(range(-len(lengths), 0))
    expected = TRANSFORMS[kind](x.astype(np.complex128) if kind != "RFFT" else x, lengths, axes)
    assert close(values(made, x.astype(np.float32 if kind == "RFFT" else np.complex64)), expected, "fft")
    # 512 is 128 times 4, 480 is 32 times 15, 98,304 is 128 times 128 times 6, but 300 and 260 have no such part.
    # What is not needed of the last product is left out.
    products = sum(9 if length > 65536 else 6 if length > 256 and length % 32 == 0 else 3 for length in lengths)
    products -= kind == "IRFFT"
    assert opcodes(made)["dot"] == products or lengths == (1,)


@pytest.mark.parametrize(("kind", "lengths"), [("FFT", "6"), ("IFFT", "0"), ("IFFT", "3,512"), ("IFFT", "4099")])
def test_what_lengths_a_complex_transform_states_changes_nothing(kind, lengths):
    """The TPU compiler makes the same program of all (v5e, libtpu 0.0.52): those that the operand has count."""
    own = "4,512" if "," in lengths else "512"
    other, same = (
        decomposed(f"""
        x = c64[3,4,512] parameter(0)
        ROOT out = c64[3,4,512] fft(x), fft_type={kind}, fft_length={{{stated}}}
        """)[1]
        for stated in (lengths, own)
    )
    assert [str(i) for i in other.entry.instructions] == [str(i) for i in same.entry.instructions]


def test_complex_numbers_between_transforms_are_pairs():
    """A convolution by spectra has no complex arrays but those of its arguments."""
    _, made = decomposed("""
    x = c64[4,64] parameter(0)
    y = c64[4,64] parameter(1)
    f = c64[4,64] fft(x), fft_type=FFT, fft_length={64}
    g = c64[4,64] fft(y), fft_type=FFT, fft_length={64}
    h = c64[4,64] multiply(f, g)
    m = c64[4,64] negate(h)
    s = c64[4,32] slice(m), slice={[0:4], [0:64:2]}
    i = c64[4,32] fft(s), fft_type=IFFT, fft_length={32}
    ROOT out = f32[4,32] real(i)
    """)
    x, y = ((normal(2, 4, 64)[0] + 1j * normal(3, 4, 64)[1 + n]).astype(np.complex64) for n in (0, 1))
    expected = np.fft.ifft(-(np.fft.fft(x) * np.fft.fft(y))[:, ::2]).real
    assert close(values(made, x, y), expected, "fft")
    assert {i.opcode for i in made.entry.instructions if "c64" in str(i.shape)} == {"parameter"}


def transform(kind, sizes, lengths):
    """Return a program that transforms the squares of an array and doubles what comes, that array, and the values."""
    half = (*sizes[:-1], sizes[-1] // 2 + 1)
    taken, given = {"RFFT": (sizes, half), "IRFFT": (half, sizes)}.get(kind, (sizes, sizes))
    operand, result = (
        f"{'f32' if kind == real else 'c64'}[{','.join(map(str, shape))}]"
        for real, shape in (("RFFT", taken), ("IRFFT", given))
    )
    x = normal(*taken) if kind == "RFFT" else normal(*taken) + 1j * normal(*taken, 2)[..., 0]
    text = f"""
    x = {operand} parameter(0)
    y = {operand} multiply(x, x)
    z = {result} fft(y), fft_type={kind}, fft_length={{{",".join(map(str, lengths))}}}
    ROOT out = {result} add(z, z)
    """
    x = x.astype(np.float32 if kind == "RFFT" else np.complex64)
    return (
        text,
        x,
        2
        * TRANSFORMS[kind](
            x.astype(complex if kind != "RFFT" else float) ** 2, lengths, tuple(range(-len(lengths), 0))
        ),
    )


@pytest.mark.parametrize(("kind", "sizes", "lengths"), LARGE)
def test_a_transform_by_a_large_matrix_stays_whole(kind, sizes, lengths):
    """Between complex numbers that are pairs; its memory does not grow with the square of its length."""
    text, x, expected = transform(kind, sizes, lengths)
    _, made = decomposed(text)
    assert opcodes(made)["fft"] == 1
    assert "dot" not in opcodes(made)
    # The first one in a process loads what transforms, which is not of its length.
    small, few, _ = transform(kind, *(tuple(min(size, 6) for size in each) for each in (sizes, lengths)))
    values(decomposed(small)[0], few)
    tracemalloc.start()
    found = values(made, x)
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert close(found, expected, "fft")
    assert most_bytes < (8 << 20) + 40 * x.nbytes


def positive_definite(*sizes):
    """Return matrices that have a Cholesky factor."""
    half = normal(*sizes)
    return (half @ np.swapaxes(half, -1, -2) / sizes[-1] + np.eye(sizes[-1])).astype(np.float32)


@pytest.mark.parametrize(("size", "calls"), [(40, 1), (128, 1), (300, 5)])
@pytest.mark.parametrize("is_lower", ["true", "false"])
def test_cholesky_factors_go_by_panels_of_128(size, calls, is_lower):
    """One call for each block of the diagonal, and one for the inverse of all but the last; NaN where there is none."""
    _, made = decomposed(f"""
    x = f32[3,{size},{size}] parameter(0)
    ROOT out = f32[3,{size},{size}] cholesky(x), lower={is_lower}
    """)
    x = positive_definite(3, size, size)
    x[1, size - 1, size - 1] = -1
    found = values(made, x)
    assert np.isnan(found[1]).all()
    expected = np.linalg.cholesky(x[::2].astype(np.float64))
    assert close(found[::2], expected if is_lower == "true" else np.swapaxes(expected, 1, 2), "cholesky")
    assert opcodes(made)["custom-call"] == calls
    # A part of a part is one slice of the whole.
    slices = {i.name for i in made.entry.instructions if i.opcode == "slice"}
    assert not any(made.entry[name].operands[0] in slices for name in slices)


@pytest.mark.parametrize("is_left", [True, False])
@pytest.mark.parametrize("is_lower", [True, False])
@pytest.mark.parametrize("turned", ["NO_TRANSPOSE", "TRANSPOSE"])
@pytest.mark.parametrize(("size", "unit"), [(50, False), (256, True), (300, False), (300, True)])
def test_triangular_solves_are_products_with_inverses_of_blocks(is_left, is_lower, turned, size, unit):
    """One call inverts all; what lies in the other triangle, and on a diagonal of ones, is not read."""
    sizes = (2, size, 5) if is_left else (2, 5, size)
    flags = f"left_side={is_left}, lower={is_lower}, unit_diagonal={unit}, transpose_a={turned}".replace("T", "t", 0)
    flags = flags.replace("True", "true").replace("False", "false")
    shape = str(list(sizes)).replace(" ", "")
    _, made = decomposed(f"""
    a = f32[2,{size},{size}] parameter(0)
    b = f32{shape} parameter(1)
    ROOT out = f32{shape} triangular-solve(a, b), {flags}
    """)
    a, b = 0.05 * normal(2, size, size) + 2 * np.eye(size, dtype=np.float32), normal(*sizes)
    read = (np.tril if is_lower else np.triu)(a, (-1 if is_lower else 1) if unit else 0)
    read = read.astype(np.float64) + (np.eye(size) if unit else 0)
    read = np.swapaxes(read, 1, 2) if turned == "TRANSPOSE" else read
    inverse = np.linalg.inv(read)
    assert close(values(made, a, b), inverse @ b if is_left else b @ inverse, "triangular-solve")
    assert opcodes(made)["custom-call"] == 1


@pytest.mark.parametrize("whole", ["cholesky(x)", "triangular-solve(x, x), left_side=true"])
def test_a_matrix_of_too_many_blocks_is_not_taken_apart(whole):
    """There are instructions for each block: those of 10^9 columns would take all time and memory."""
    size = 128 * BLOCKS.most + 1
    with pytest.raises(UnsupportedError, match=f"at most {BLOCKS.most}, found {BLOCKS.most + 1}"):
        decomposed(f"x = f32[{size},{size}] parameter(0)\nROOT out = f32[{size},{size}] {whole}")


@pytest.mark.parametrize(
    ("a", "b", "named", "result", "einsum"),
    [
        ((40, 24), (24, 1), "lhs_contracting_dims={1}, rhs_contracting_dims={0}", (40, 1), "mk,kn->mn"),
        ((24,), (24,), "lhs_contracting_dims={0}, rhs_contracting_dims={0}", (), "k,k->"),
        (
            (3, 8, 16),
            (3, 5, 8, 16),
            "lhs_batch_dims={0,1}, lhs_contracting_dims={2}, rhs_batch_dims={0,2}, rhs_contracting_dims={3}",
            (3, 8, 5),
            "bhd,bthd->bht",
        ),
        (
            (4, 2, 8, 5),
            (4, 8, 2),
            "lhs_batch_dims={0,2}, lhs_contracting_dims={1}, rhs_batch_dims={0,1}, rhs_contracting_dims={2}",
            (4, 8, 5),
            "nkec,nek->nec",
        ),
        ((4, 2), (4, 2, 8), "lhs_batch_dims={0,1}, rhs_batch_dims={0,1}", (4, 2, 8), "nk,nke->nke"),
    ],
)
def test_a_product_with_a_vector_is_a_sum_of_products(a, b, named, result, einsum):
    """As XLA's AlgebraicSimplifier makes it, by NumPy's einsum."""
    sizes = ["f32[" + ",".join(map(str, sizes)) + "]" for sizes in (a, b, result)]
    entry = f"""
    a = {sizes[0]} parameter(0)
    b = {sizes[1]} parameter(1)
    ROOT out = {sizes[2]} dot(a, b), {named}
    """
    _, made = decomposed(entry)
    assert "dot" not in opcodes(made)
    left, right = normal(*a), normal(*b)
    assert close(values(made, left, right), np.einsum(einsum, np.float64(left), np.float64(right)), "reduce")


@pytest.mark.parametrize("depth", [1, 2])
def test_a_product_with_a_vector_keeps_the_sign_of_zero_where_one_term_is_all(depth):
    """As the product itself does: longer sums begin with +0, as in programs compiled ahead of time for v5e."""
    module, made = decomposed(f"""
    a = f32[4,{depth}] parameter(0)
    b = f32[{depth}] parameter(1)
    ROOT out = f32[4] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
    """)
    assert "dot" not in opcodes(made)
    inputs = np.zeros((4, depth), np.float32), np.full(depth, -3, np.float32)
    for each in (module, made):
        assert np.signbit(values(each, *inputs)).tolist() == [depth == 1] * 4


@pytest.mark.parametrize("dtype", ["c64", "f64", "s32"])
def test_a_product_with_a_vector_keeps_what_f32_does_not_hold(dtype):
    """Imaginary parts, and the digits of wider numbers, which cancel here."""
    module, made = decomposed(f"""
    a = {dtype}[4,2] parameter(0)
    b = {dtype}[2] parameter(1)
    ROOT out = f32[4] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
    """)
    large = np.full((4, 2), 2**24 + 1)
    a, b = (each.astype(numpy_dtype(DTYPES[dtype])) for each in (large, np.array([1, -1])))
    a[:, 1] -= 1
    if dtype == "c64":
        a, b = a + 1j, b + 1j
    assert (values(made, a, b) == values(module, a, b)).all()


@pytest.mark.parametrize(
    ("weights", "broadcast", "named", "is_one"),
    [
        ((8, 5), (1, 2), "rhs_batch_dims={0}, rhs_contracting_dims={1}", True),
        ((5, 8), (1, 2), "rhs_batch_dims={0}, rhs_contracting_dims={2}", True),
        ((8,), (1,), "rhs_batch_dims={0}, rhs_contracting_dims={1}", True),
        ((3, 8, 5), (0, 1, 2), "rhs_batch_dims={0}, rhs_contracting_dims={1}", False),
    ],
)
def test_a_batch_times_copies_of_one_matrix_is_one_product(weights, broadcast, named, is_one):
    """As PyTorch exports a layer; by NumPy. What differs from one of the batch to the next stays."""
    sizes = (3, 8, 5) if weights != (5, 8) else (3, 5, 8)
    entry = f"""
    a = f32[3,4,8] parameter(0)
    w = f32[{",".join(map(str, weights))}] parameter(1)
    copies = f32[{",".join(map(str, sizes))}] broadcast(w), dimensions={{{",".join(map(str, broadcast))}}}
    ROOT out = f32[3,4,5] dot(a, copies), lhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, {named}
    """
    _, made = decomposed(entry)
    (product,) = [i for i in made.entry.instructions if i.opcode == "dot"]
    assert is_one == (not product.attributes.get("rhs_batch_dims"))
    a, w = normal(3, 4, 8), normal(*weights)
    matrices = np.broadcast_to(w if w.ndim > 1 else w[:, None], sizes)
    if sizes == (3, 5, 8):
        matrices = matrices.swapaxes(1, 2)
    assert close(values(made, a, w), np.einsum("bmk,bkn->bmn", np.float64(a), np.float64(matrices)), "dot")


def test_wide_complex_numbers_are_narrowed_part_by_part():
    """Neither is lost."""
    entry = """
    x = c128[3,3] parameter(0)
    y = c64[3,3] convert(x)
    ROOT out = c64[3,3] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    """
    _, made = decomposed(entry)
    x = normal(3, 3).astype(np.complex128) * (1 + 2j)
    np.testing.assert_allclose(values(made, x), x @ x, rtol=1e-5)


def test_a_product_of_complex_matrices_is_three_of_their_parts():
    """As the TPU compiler makes it for v4 and v5e; by NumPy."""
    _, made = decomposed("""
    a = c64[2,8,16] parameter(0)
    b = c64[2,16,4] parameter(1)
    ROOT out = c64[2,8,4] dot(a, b), lhs_batch_dims={0}, lhs_contracting_dims={2},
      rhs_batch_dims={0}, rhs_contracting_dims={1}
    """)
    assert opcodes(made)["dot"] == 3
    a, b = (normal(*sizes, 2).view(np.complex64)[..., 0] for sizes in ((2, 8, 16), (2, 16, 4)))
    assert close(values(made, a, b), np.complex128(a) @ np.complex128(b), "dot")


FEATURES = """
    x = f32[4,6,5] parameter(0)
    scale = f32[6] parameter(1)
    offset = f32[6] parameter(2)
"""


def normalised(x, scale, offset, mean, variance):
    """Return what batch normalisation makes of its second dimension."""
    scale, offset, mean, variance = (each.astype(np.float64)[:, None] for each in (scale, offset, mean, variance))
    return (x - mean) / np.sqrt(variance + 0.001) * scale + offset


def slopes(function, given):
    """Return the gradients of a function of some arrays, by differences."""
    found = [np.zeros_like(each) for each in given]
    for array, slope in zip(given, found, strict=True):
        for at in np.ndindex(array.shape):
            kept = array[at]
            low, high = (array.__setitem__(at, kept + step) or function(*given) for step in (-1e-5, 1e-5))
            array[at], slope[at] = kept, (high - low) / 2e-5
    return found


def test_the_gradient_of_normalisation_is_that_of_its_definition():
    """By differences of the definition in double precision."""
    _, made = decomposed(f"""{FEATURES.replace("offset = f32[6] parameter(2)", "mean = f32[6] parameter(2)")}
    variance = f32[6] parameter(3)
    grad = f32[4,6,5] parameter(4)
    ROOT out = (f32[4,6,5], f32[6], f32[6]) batch-norm-grad(x, scale, mean, variance, grad), epsilon=0.001,
      feature_index=1
    """)
    x, (scale, offset), grad = (np.float64(each) for each in (3 + normal(4, 6, 5), normal(2, 6), normal(5, 6, 4).T))

    def loss(x, scale, offset):
        return (normalised(x, scale, offset, x.mean((0, 2)), x.var((0, 2))) * grad).sum()

    inputs = [np.float32(each) for each in (x, scale, x.mean((0, 2)), x.var((0, 2)), grad)]
    for one, other in zip(values(made, *inputs), slopes(loss, [x, scale, offset]), strict=True):
        assert close(one, other, "batch-norm-grad")


def test_normalisation_by_given_moments_is_arithmetic():
    """BatchNormExpander; the reciprocal of the spread is made once for each feature."""
    _, made = decomposed(f"""{FEATURES}
    mean = f32[6] parameter(3)
    variance = f32[6] parameter(4)
    ROOT out = f32[4,6,5] batch-norm-inference(x, scale, offset, mean, variance), epsilon=0.001, feature_index=1
    """)
    x, scale, offset, mean = normal(4, 6, 5), *normal(3, 6)
    variance = 1 + mean**2
    expected = normalised(x, scale, offset, mean, variance)
    assert close(values(made, x, scale, offset, mean, variance), expected, "batch-norm-inference")
    assert next(i for i in made.entry.instructions if i.opcode == "rsqrt").shape.dimensions == (6,)


def test_normalisation_of_a_batch_makes_its_moments():
    """Mean and variance are results too."""
    _, made = decomposed(f"""{FEATURES}
    ROOT out = (f32[4,6,5], f32[6], f32[6]) batch-norm-training(x, scale, offset), epsilon=0.001, feature_index=1
    """)
    x, scale, offset = 3 + normal(4, 6, 5), *normal(2, 6)
    mean, variance = x.mean((0, 2), dtype=np.float64), x.var((0, 2), dtype=np.float64)
    found = values(made, x, scale, offset)
    for one, other in zip(found, (normalised(x, scale, offset, mean, variance), mean, variance), strict=True):
        assert close(one, other, "batch-norm-training")
    assert opcodes(made)["reduce"] == 2


@pytest.mark.parametrize(("chip", "space"), [("v5e", 1), ("v5p", 0)])
def test_what_calls_make_of_blocks_is_left_in_fast_memory(chip, space):
    """As in programs compiled ahead of time, but not where two cores run one program."""
    text = """HloModule factor
ENTRY main {
  x = f32[8,128,128] parameter(0)
  ROOT out = f32[8,128,128] cholesky(x), lower=true
}
"""
    module = compile_module(parse_module(SourceText("test", text)), Target(load_chip(chip)))
    (call,) = (i for i in module.entry.instructions if i.opcode == "custom-call")
    assert call.shape.memory_space == space


@pytest.mark.parametrize(("groups", "is_whole"), [(2, True), (3, True), (12, False)])
def test_groups_of_features_are_a_dimension_that_a_window_goes_along(groups, is_whole):
    """As XLA's ConvolutionGroupConverter makes it: stride of one less, as many holes; single features stay."""
    entry = f"""
    x = f32[2,9,7,12] parameter(0)
    w = f32[3,2,{12 // groups},24] parameter(1)
    ROOT out = f32[2,5,6,24] convolution(x, w), window={{size=3x2 stride=2x1 pad=1_1x0_0}}, dim_labels=b01f_01io->b01f,
      feature_group_count={groups}
    """
    module, made = decomposed(entry)
    (convolution,) = [i for i in made.entry if i.opcode == "convolution"]
    assert ("feature_group_count" not in convolution.attributes) == is_whole
    inputs = normal(2, 9, 7, 12), normal(3, 2, 12 // groups, 24)
    assert close(values(made, *inputs), values(module, *inputs), "convolution")


def test_groups_of_features_may_have_no_window():
    """A convolution of a batch with features alone has no dimension for one."""
    module, made = decomposed("""
    x = f32[3,4] parameter(0)
    w = f32[2,10] parameter(1)
    ROOT out = f32[3,10] convolution(x, w), dim_labels=bf_io->bf, feature_group_count=2
    """)
    inputs = normal(3, 4), normal(2, 10)
    assert close(values(made, *inputs), values(module, *inputs), "convolution")


def test_a_scalar_is_broadcast_with_dimensions_or_without():
    """Where a product asks what its operand repeats: the text need not say that a scalar has no dimensions."""
    text = """
    x = f32[4,8,16] parameter(0)
    two = f32[] constant(2)
    w = f32[4,16,32] broadcast(two)
    ROOT y = f32[4,8,32] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
      rhs_contracting_dims={1}
    """
    assert opcodes(decomposed(text)[1]) == opcodes(decomposed(text.replace("(two)", "(two), dimensions={}"))[1])
