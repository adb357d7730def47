"""Vector work by opcode: so many registers (of 8 x 128 words), each at what the chip's table says of one move."""

from __future__ import annotations

import pytest

from tests.lowering.hlo import ADD, kernel_named, lower_text
from tpusim.cost.operations.applied import computation_cost
from tpusim.hardware.load import load_chip
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

CHIP = load_chip("v5e")
MOVES, OPS = CHIP.vector_ops.moves, CHIP.vector_ops.ops
COMPUTATIONS = (
    ADD
    + """
%less {
  %x = f32[] parameter(0)
  %w = f32[] parameter(1)
  ROOT %r = pred[] compare(%x, %w), direction=LT
}
%less2 {
  %x = f32[] parameter(0)
  %w = f32[] parameter(1)
  %y = f32[] parameter(2)
  %z = f32[] parameter(3)
  ROOT %r = pred[] compare(%x, %w), direction=LT
}
"""
)
TILES = ["", "{0:T(1024)}", "{1,0:T(8,128)}", "{2,1,0:T(8,128)}", "{3,2,1,0:T(8,128)}"]


def tiled(shape):
    """Return a shape under its usual tiled layout, unless it has one."""
    return shape if "{" in shape or shape.endswith("[]") else shape + TILES[shape.count(",") + 1]


def work_of(operands, result, call, chip=CHIP):
    """Return the whole work, by unit, of one instruction of operands ``a``, ``b`` ... and the scalar ``zero``."""
    lines = [
        f"%{name} = {tiled(shape)} parameter({n})" for n, (name, shape) in enumerate(zip("abc", operands, strict=False))
    ]
    lines += ["%zero = f32[] constant(0)", f"ROOT %y = {tiled(result)} {call}"]
    kernel = kernel_named(lower_text("\n".join(lines), COMPUTATIONS, chip), "y")
    return {unit: count * kernel.tiles for unit, count in kernel.work.ops.items()}


def at_cost(*parts):
    """Return the work by unit of so many times each cost."""
    total = {}
    for times, cost in parts:
        for unit, count in cost.items():
            total[unit] = total.get(unit, 0.0) + times * count
    return total


def assert_computes(found, expected):
    """Compare what is computed: loads and stores of operands and results stand beside it."""
    units = ("vector", "xlu", "eup", "scalar")
    assert {u: found.get(u, 0.0) for u in units} == pytest.approx({u: expected.get(u, 0.0) for u in units})


MATRIX = "f32[64,512]"
"""32 registers: eight rows of tiles, four columns."""
CUTS = {
    "rows at an edge": (MATRIX, "f32[32,512]", "slice(%a), slice={[8:40], [0:512]}", 0, None),
    "rows off an edge": (MATRIX, "f32[32,512]", "slice(%a), slice={[3:35], [0:512]}", 16, "sublane_shift"),
    "every second row": (MATRIX, "f32[32,512]", "slice(%a), slice={[0:64:2], [0:512]}", 16, "sublane_shift"),
    "lanes at an edge": (MATRIX, "f32[64,256]", "slice(%a), slice={[0:64], [128:384]}", 0, None),
    "lanes off an edge": (MATRIX, "f32[64,256]", "slice(%a), slice={[0:64], [100:356]}", 16, "lane_shift"),
    "lanes and rows": (MATRIX, "f32[32,256]", "slice(%a), slice={[3:35], [100:356]}", 8, "lane_shift"),
    "a major dimension": ("f32[9,8,128]", "f32[5,8,128]", "slice(%a), slice={[3:8], [0:8], [0:128]}", 0, None),
    "pad below": (MATRIX, "f32[72,512]", "pad(%a, %zero), padding=0_8x0_0", 0, None),
    "pad above by a tile": (MATRIX, "f32[72,512]", "pad(%a, %zero), padding=8_0x0_0", 0, None),
    "pad above by a row": (MATRIX, "f32[72,512]", "pad(%a, %zero), padding=1_7x0_0", 36, "sublane_shift"),
    "pad between": (MATRIX, "f32[127,512]", "pad(%a, %zero), padding=0_0_1x0_0", 64, "sublane_shift"),
    "join at an edge": (MATRIX, "f32[128,512]", "concatenate(%a, %a), dimensions={0}", 0, None),
    "join off an edge": ("f32[60,512]", "f32[120,512]", "concatenate(%a, %a), dimensions={0}", 60, "sublane_shift"),
    "join of lanes": ("f32[64,100]", "f32[64,200]", "concatenate(%a, %a), dimensions={1}", 16, "lane_shift"),
    "reverse rows": (MATRIX, MATRIX, "reverse(%a), dimensions={0}", 32, "reverse"),
    "reverse lanes": (MATRIX, MATRIX, "reverse(%a), dimensions={1}", 32, "reverse"),
    "reverse matrices": ("f32[4,64,512]", "f32[4,64,512]", "reverse(%a), dimensions={0}", 0, None),
    "transpose": (MATRIX, "f32[512,64]", "transpose(%a), dimensions={1,0}", 64, "transpose"),
    "swap rows": ("f32[16,64,512]", "f32[64,16,512]", "transpose(%a), dimensions={1,0,2}", 512, "sublane_swap"),
    "major ones": ("f32[2,4,8,128]", "f32[4,2,8,128]", "transpose(%a), dimensions={1,0,2,3}", 0, None),
    # The same as that swap, under another name: 64 groups of eight rows of eight registers.
    "split into heads": ("f32[512,1024]", "f32[512,8,128]", "reshape(%a)", 512, "sublane_swap"),
    "heads joined": ("f32[512,8,256]", "f32[512,2048]", "reshape(%a)", 1024, "sublane_swap"),
    # The lanes stay: only rows of eight sublanes are named anew.
    "heads of columns": (
        "f32[128,512]{0,1:T(8,128)}",
        "f32[128,4,128]{0,2,1:T(8,128)}",
        "reshape(%a)",
        64,
        "retile",
    ),
    # Columns of eight images lie in the sublanes, then those of one: a swap as well.
    "stretches joined": (
        "f32[8,16,64,128]{3,0,2,1:T(8,128)}",
        "f32[128,64,128]{2,0,1:T(8,128)}",
        "reshape(%a)",
        1024,
        "sublane_swap",
    ),
    "copy": (MATRIX, MATRIX, "copy(%a)", 0, None),
    "copy to other tiles": (MATRIX, MATRIX + "{1,0:T(4,128)}", "copy(%a)", 32, "retile"),
    "copy to columns": (MATRIX, MATRIX + "{0,1:T(8,128)}", "copy(%a)", 64, "transpose"),
    # Of the same matrix in the registers only a name changes.
    "a dimension of one": (
        "f32[16,8,128]{2,0,1:T(8,128)}",
        "f32[16,1,8,128]{3,0,2,1:T(8,128)}",
        "reshape(%a)",
        0,
        None,
    ),
    "rows named anew": ("f32[64,128]{1,0:T(8,128)}", "f32[64,1,128]{2,0,1:T(8,128)}", "reshape(%a)", 0, None),
    # Four of eight rows, of another dimension than before.
    "rows of others": (
        "f32[4,8,128]{2,0,1:T(4,128)}",
        "f32[2,4,4,128]{3,1,2,0:T(4,128)}",
        "reshape(%a)",
        4,
        "sublane_swap",
    ),
    "rename": ("f32[4,16,8,128]", "f32[64,8,128]", "reshape(%a)", 0, None),
    "reshape": (MATRIX, "f32[512,64]", "reshape(%a)", 64, "retile"),
    "reshape to other tiles": (MATRIX, "f32[1,64,512]{2,1,0:T(4,128)}", "reshape(%a)", 32, "retile"),
}


@pytest.mark.parametrize(("operand", "result", "call", "registers", "move"), CUTS.values(), ids=CUTS.keys())
def test_a_move_costs_its_table_row_for_each_register_of_the_result(operand, result, call, registers, move):
    """Nothing where elements keep their place within a register."""
    assert_computes(work_of((operand,), result, call), at_cost((registers, MOVES[move] if move else {})))


def updated(update, *ones):
    """Return the work of an update of f32[64,512] where the compiler knows these bits of its start to be set."""
    bits = ",".join(f'{{"zeroes":"{~one & 7}","ones":"{one}","bitwidth":"32"}}' for one in ones)
    config = f'{{"indices_config":{{"index_known_bits":[{bits}],"is_index_aligned":[]}}}}'
    call = f"dynamic-update-slice(%a, %b, %i, %i), backend_config={config}"
    shapes = f"%a = {tiled(MATRIX)} parameter(0)\n%b = {tiled(update)} parameter(1)\n%i = s32[] parameter(2)\n"
    kernel = kernel_named(lower_text(f"{shapes}ROOT %y = {tiled(MATRIX)} {call}", "", CHIP), "y")
    return {unit: count * kernel.tiles for unit, count in kernel.work.ops.items()}


@pytest.mark.parametrize("ones", [(), (0, 0), (8, 128)], ids=["not said", "unknown", "aligned"])
def test_an_update_whose_start_is_not_said_to_be_crooked_computes_nothing(ones):
    """Whole registers are stored."""
    assert_computes(updated("f32[24,256]", *ones), {})


@pytest.mark.parametrize(("ones", "rotations"), [((1, 0), 0), ((9, 128), 0), ((0, 1), 48), ((1, 1), 48)])
def test_a_crooked_update_goes_row_by_row(ones, rotations):
    """24 rows of two registers: a load, two steps of a shift, a selection and a store, one after another.

    The row's second register is stored a cycle later, and then the loop turns; all slots of the unit are taken.
    """
    latency = CHIP.vector_ops.latency
    cycles = latency["load"] + 3 * latency["vector"] + latency["store"] + 1 + CHIP.fixed.tile_cycles
    found = updated("f32[24,256]", *ones)
    assert_computes(found, {"vector": 24 * cycles * CHIP.vpu.alu_slots, "xlu": rotations * MOVES["lane_shift"]["xlu"]})
    # Registers of the update are loaded and its place stored beside it, as of any update.
    around = updated("f32[24,256]")
    assert (found["load"] - around["load"], found["store"] - around["store"]) == (48, 48)


@pytest.mark.parametrize(("starts", "ones"), [((9, 128), (1, 0)), ((8, 3), (0, 1)), ((40, 256), (0, 0)), ((-1, 0), ())])
def test_a_constant_start_is_known(starts, ones):
    """All of its bits are, and one that would reach over the edge begins earlier."""
    row, column = starts
    shapes = f"%a = {tiled(MATRIX)} parameter(0)\n%b = {tiled('f32[24,256]')} parameter(1)\n"
    constants = f"%i = s32[] constant({row})\n%j = s32[] constant({column})\n"
    call = f"ROOT %y = {tiled(MATRIX)} dynamic-update-slice(%a, %b, %i, %j)"
    kernel = kernel_named(lower_text(shapes + constants + call, "", CHIP), "y")
    assert_computes(
        {unit: count * kernel.tiles for unit, count in kernel.work.ops.items()}, updated("f32[24,256]", *ones)
    )


BLOCKS = "f32[16,64,512]"
WINDOWS = {
    # Neighbours on both sides: two shifts, two sums.
    "three": (MATRIX, MATRIX, "size=3x1 pad=1_1x0_0", 32 * 2, 0, 32 * 2),
    # One dimension after the other, each by shifts of its own.
    "three by three": (MATRIX, MATRIX, "size=3x3 pad=1_1x1_1", 32 * 2, 32 * 2, 32 * 4),
    # By doubling, as a scan: two for each of six powers of two.
    "a scan": (MATRIX, MATRIX, "size=64x1 pad=63_0x0_0", 32 * 12, 0, 32 * 12),
    "a scan along lanes": (MATRIX, MATRIX, "size=1x512 pad=0_0x511_0", 0, 32 * 18, 32 * 18),
    # Whole registers lie behind each other: each sum is the one before and one register more.
    "a scan of registers": (BLOCKS, BLOCKS, "size=16x1x1 pad=15_0x0_0x0_0", 0, 0, 512),
    "a scan from behind": (BLOCKS, BLOCKS, "size=16x1x1 pad=0_15x0_0x0_0", 0, 0, 512),
    "registers in a window": (BLOCKS, BLOCKS, "size=3x1x1 pad=1_1x0_0x0_0", 0, 0, 512 * 2),
    # A stride skips what doubling needs: 31 further rows for each of 16 registers.
    "strided": (MATRIX, "f32[32,512]", "size=32x1 stride=2x1 pad=30_0x0_0", 16 * 31, 0, 16 * 31),
    # Windows of one element still combine it with the start.
    "single": (MATRIX, MATRIX, "size=1x1", 0, 0, 32),
}


@pytest.mark.parametrize(("operand", "result", "window", "rows", "lanes", "sums"), WINDOWS.values(), ids=WINDOWS.keys())
def test_a_window_is_shifted_and_combined(operand, result, window, rows, lanes, sums):
    """Where its dimension lies in registers; long windows by doubling."""
    found = work_of((operand,), result, f"reduce-window(%a, %zero), window={{{window}}}, to_apply=%add")
    shifts = (rows, MOVES["sublane_shift"]), (lanes, MOVES["lane_shift"])
    assert_computes(found, at_cost(*shifts, (sums, OPS["add"])))


def test_a_window_over_everything_is_a_reduction():
    """All rows under each position: 32 registers are added up and folded by three rotations in each of four columns."""
    found = work_of((MATRIX,), MATRIX, "reduce-window(%a, %zero), window={size=127x1 pad=63_63x0_0}, to_apply=%add")
    assert_computes(found, at_cost((32, OPS["add"]), (4 * 3, MOVES["sublane_reduce"])))


FOLDS = {
    "lanes": ("f32[64]", "{1}", 8, 0),
    "sublanes": ("f32[512]", "{0}", 0, 4),
    "both": ("f32[]", "{0,1}", 8 / 8, 1),
}


@pytest.mark.parametrize(("result", "dimensions", "lanes", "sublanes"), FOLDS.values(), ids=FOLDS.keys())
def test_a_reduction_folds_what_is_left_of_whole_registers(result, dimensions, lanes, sublanes):
    """The 32 registers are added first; one register of every eight rows goes through the cross-lane unit."""
    found = work_of((MATRIX,), result, f"reduce(%a, %zero), dimensions={dimensions}, to_apply=%add")
    folds = (lanes, MOVES["lane_reduce"]), (3 * sublanes, MOVES["sublane_reduce"])
    assert_computes(found, at_cost((32, OPS["add"]), *folds))


def test_a_reduced_major_dimension_needs_no_fold():
    """Whole registers are added: four of each place."""
    found = work_of(("f32[4,64,512]",), MATRIX, "reduce(%a, %zero), dimensions={0}, to_apply=%add")
    assert_computes(found, at_cost((128, OPS["add"])))


@pytest.mark.parametrize(("size", "per_row"), [(4096, 4), (128, 1)])
def test_rows_of_a_gather_are_addressed_one_by_one(size, per_row):
    """A row of 4,096 elements is four registers, one of 128 takes a whole access all the same."""
    call = "gather(%a, %b), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
    found = work_of((f"f32[512,{size}]", "s32[24]{0:T(128)}"), f"f32[24,{size}]", f"{call}slice_sizes={{1,{size}}}")
    assert_computes(found, at_cost((24, MOVES["row_access"]), (24 * per_row, {"vector": 1})))


def test_rows_of_a_scatter_are_those_of_its_updates():
    """24 updates of four registers into 512 rows."""
    call = (
        "scatter(%a, %b, %c), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=1, to_apply=%add"
    )
    found = work_of(("f32[512,4096]", "s32[24]{0:T(128)}", "f32[24,4096]"), "f32[512,4096]", call)
    assert_computes(found, at_cost((24, MOVES["row_access"]), (24 * 4, {"vector": 1})))


@pytest.mark.parametrize(("length", "stages", "between_lanes"), [(512, 45, 45), (2**16, 136, 16 * 7)])
def test_a_sort_is_a_bitonic_network(length, stages, between_lanes):
    """Log n (log n + 1) / 2 stages; pairs within a register, at most seven strides of 128 lanes a level, rotate."""
    shape, count = f"f32[{2**20 // length},{length}]", 2**10
    found = work_of((shape,), shape, "sort(%a), dimensions={1}, to_apply=%less")
    swap = (stages * count, OPS["sort"]), (stages * count / 2, OPS["compare"])
    assert_computes(found, at_cost(*swap, (between_lanes * count, MOVES["lane_exchange"])))


def test_values_that_are_sorted_along_are_exchanged_but_not_compared():
    """Of two arrays both move, and one comparison decides."""
    shape, count = "f32[2048,512]", 2**10
    pair = f"({tiled(shape)}, {tiled(shape)})"
    found = work_of((shape, shape), pair, "sort(%a, %b), dimensions={1}, to_apply=%less2")
    swap = (2 * 45 * count, OPS["sort"]), (45 * count / 2, OPS["compare"])
    assert_computes(found, at_cost(*swap, (2 * 45 * count, MOVES["lane_exchange"])))


ALGORITHMS = {
    # 512 rows of 512 points in two words each: nine passes over 512 registers.
    "fft": ("c64[512,512]", "c64[512,512]", "fft(%a), fft_type=FFT, fft_length={512}", (9 * 512, "fft")),
    "rng": ("f32[]", "f32[64,512]", "rng(%zero, %zero), distribution=rng_uniform", (32, "rng")),
    "map": (MATRIX, MATRIX, "map(%a, %a), dimensions={0,1}, to_apply=%add", (32, "add")),
    "cholesky": ("f32[512,512]", "f32[512,512]", "cholesky(%a), lower=true", (256 * 256, "triangular-solve")),
}


@pytest.mark.parametrize(("operand", "result", "call", "cost"), ALGORITHMS.values(), ids=ALGORITHMS.keys())
def test_algorithms_take_their_passes(operand, result, call, cost):
    """So many registers, at the cost of one; a factorisation has a pivot for each column beside it."""
    pivots = 512 if "cholesky" in call else 0
    assert_computes(work_of((operand,), result, call), at_cost((cost[0], OPS[cost[1]]), (pivots, MOVES["pivot"])))


@pytest.mark.parametrize("stated", [0, 7, 4099])
def test_a_complex_transform_takes_as_long_as_its_own_sizes(stated):
    """Whatever lengths it states."""
    found, own = (
        work_of(("c64[512,512]",), "c64[512,512]", f"fft(%a), fft_type=IFFT, fft_length={{{length}}}")
        for length in (stated, 512)
    )
    assert found == own


ROOTS = 33 * 513
"""Registers of a matrix of 4,099 rows and columns."""


@pytest.mark.parametrize(("rows", "sums"), [(1, 3), (8, 0)])
def test_a_transform_by_a_large_matrix_takes_its_products(rows, sums):
    """Three, each of which makes the matrix anew; a row alone is multiplied and added up by the vector unit."""
    shape = f"c64[{rows},4099]"
    found = work_of((shape,), shape, "fft(%a), fft_type=FFT, fft_length={4099}")
    made = {"iota": 6, "multiply": 6, "remainder": 3, "convert": 3, "cosine": 3, "sine": 2, "add": 1, "subtract": 1}
    parts = [(ROOTS * count, OPS[name]) for name, count in made.items()]
    parts += [(ROOTS * sums, OPS["multiply"]), (ROOTS * sums, OPS["add"])]
    assert_computes(found, at_cost(*parts))


def test_a_window_of_the_largest_is_searched_and_added_into():
    """Nine compared positions and nine sums for each element of the source (one register)."""
    call = "select-and-scatter(%a, %b, %zero), window={size=3x3 stride=3x3}, select=%less, scatter=%add"
    found = work_of(("f32[24,384]", "f32[8,128]"), "f32[24,384]", call)
    assert_computes(found, at_cost((9, OPS["compare"]), (9, OPS["add"]), (9, OPS["select-and-scatter"])))


@pytest.mark.parametrize(("chip", "registers"), [("v5e", 32), ("v6e", 16)])
def test_bf16_fills_half_a_word_where_the_unit_computes_in_it(chip, registers):
    """On v5e it is widened to 32 bits: as many registers as of f32, and what widening and packing cost beside them."""
    shape, made = "bf16[64,512]{1,0:T(8,128)(2,1)}", load_chip(chip)
    ops = made.vector_ops
    around = [] if registers == 16 else [(32, ops.unpack["bf16"]), (32, ops.pack["bf16"])]
    expected = at_cost((registers, ops.ops["negate"]), *around)
    assert_computes(work_of((shape,), shape, "negate(%a)", made), expected)


def test_padding_is_computed_with():
    """Of 9 x 130 elements two tiles of each of two rows of tiles."""
    assert_computes(work_of(("f32[9,130]",), "f32[9,130]", "negate(%a)"), at_cost((4, OPS["negate"])))


@pytest.mark.parametrize("calls", [1, 2])
def test_scalar_computations_may_call_each_other_at_any_depth(calls):
    """Two calls at every level double the work, not the time that it takes to add it up."""
    depth = 3000 if calls == 1 else 60
    head = "x = f32[] parameter(0) y = f32[] parameter(1)"
    lines = [f"g0 {{ {head} ROOT r = f32[] add(x, y) }}"]
    for level in range(1, depth + 1):
        first = f"a = f32[] call(x, y), to_apply=g{level - 1}" if calls == 2 else ""
        last = f"ROOT r = f32[] call({'a' if calls == 2 else 'x'}, y), to_apply=g{level - 1}"
        lines.append(f"g{level} {{ {head} {first} {last} }}")
    entry = f"ENTRY e {{ a = f32[] parameter(0) ROOT n = f32[] call(a, a), to_apply=g{depth} }}"
    module = parse_module(SourceText("m.hlo", "\n".join(["HloModule m", *lines, entry])))
    chip = load_chip("v5e")
    one, all_ = computation_cost(module, "g0", chip), computation_cost(module, f"g{depth}", chip)
    assert all_.ops == {unit: count * calls**depth for unit, count in one.ops.items()}
