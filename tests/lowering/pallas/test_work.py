"""The work of operations of a Pallas kernel's body, in whole registers of 8 x 128 words."""

from __future__ import annotations

import pytest

from tests.lowering.pallas.bodies import body, call, when
from tpusim.hardware.load import load_chip
from tpusim.program.work import scaled

pytest.importorskip("jaxlib")

CHIP = load_chip("v5e")
OPS, MOVES = CHIP.vector_ops.ops, CHIP.vector_ops.moves
REF = "memref<128x256xf32, #tpu.memory_space<vmem>>"
F = "vector<128x256xf32>"
"""Of 32 registers: 16 rows of two."""


def work_of(*lines):
    """Return the work of a body behind ``%v``, a loaded vector of 128 x 256."""
    load = (
        '%c = "stable_mosaic.arith.constant"() {value = 0 : index} : () -> index\n'
        f'%r = "stable_mosaic.memref.alloca"() : () -> {REF}\n'
        f'%v = "stable_mosaic.vector.load"(%r, %c, %c) : ({REF}, index, index) -> {F}\n'
    )
    (kernel,) = call(body(load + "\n".join(lines))).steps
    return kernel.work


def op(name, operands, types, result, attributes=""):
    """Return a line of MLIR."""
    return f'%w = "stable_mosaic.{name}"({operands}) {{{attributes}}} : ({types}) -> {result}'


def sums(*parts):
    """Return costs of the table, each so many times, as one."""
    found = {}
    for cost, count in parts:
        for unit, each in scaled(cost, count).items():
            found[unit] = found.get(unit, 0.0) + each
    return found


ADD = OPS["add"]
LANES, SUBLANES = "reduction_dims = array<i64: 1>", "reduction_dims = array<i64: 0>"
CASES = [
    (op("arith.mulf", "%v, %v", f"{F}, {F}", F), [(OPS["multiply"], 32)]),
    (op("math.exp", "%v", F, F), [(OPS["exponential"], 32)]),
    (op("arith.cmpf", "%v, %v", f"{F}, {F}", "vector<128x256xi1>", "predicate = 1 : i64"), [(OPS["compare"], 32)]),
    # Two registers of a row are added, then its lanes; sixteen rows of registers, then their sublanes in three turns.
    (
        op("vector.multi_reduction", "%v, %v", f"{F}, {F}", "vector<128xf32>", LANES),
        [(ADD, 16), (MOVES["lane_reduce"], 16)],
    ),
    (
        op("vector.multi_reduction", "%v, %v", f"{F}, {F}", "vector<256xf32>", SUBLANES),
        [(ADD, 30), (MOVES["sublane_reduce"], 2 * 3)],
    ),
    (op("tpu.transpose", "%v", F, "vector<256x128xf32>", "permutation = array<i64: 1, 0>"), [(MOVES["transpose"], 32)]),
    (op("tpu.transpose", "%v", F, F, "permutation = array<i64: 0, 1>"), []),
    (op("arith.truncf", "%v", F, "vector<128x256xbf16>"), [(CHIP.vector_ops.pack["bf16"], 32)]),
    (op("vector.shape_cast", "%v", F, "vector<1x128x256xf32>"), []),
    (op("vector.shape_cast", "%v", F, "vector<256x128xf32>"), [(MOVES["retile"], 32)]),
    (op("tpu.rotate", "%v", F, F, "dimension = 1 : i32, amount = 3 : i32"), [(MOVES["lane_shift"], 32)]),
    (op("tpu.rotate", "%v", F, F, "dimension = 0 : i32, amount = 3 : i32"), [(MOVES["sublane_shift"], 32)]),
    (op("tpu.concatenate", "%v, %v", f"{F}, {F}", "vector<128x512xf32>", "dimension = 1 : i32"), []),
    (
        op("vector.extract_strided_slice", "%v", F, "vector<128x128xf32>", "offsets = [0, 100], sizes = [128, 128]"),
        [(MOVES["lane_shift"], 16)],
    ),
    (
        op("vector.extract_strided_slice", "%v", F, "vector<64x128xf32>", "offsets = [64, 128], sizes = [64, 128]"),
        [],
    ),
    (
        op("vector.extract_strided_slice", "%v", F, "vector<8x256xf32>", "offsets = [4, 0]"),
        [(MOVES["sublane_shift"], 2)],
    ),
]


@pytest.mark.parametrize(("line", "costs"), CASES)
def test_an_operation_costs_what_its_registers_do(line, costs):
    """By the chip's table; loads aside."""
    found = {unit: count for unit, count in work_of(line).ops.items() if unit != "load"}
    assert found == pytest.approx({unit: count for unit, count in sums(*costs).items() if count})


def test_a_column_is_spread_once_for_each_row_of_registers():
    """Of one value a row, and for none where a reduction has left it spread already."""
    column = "vector<128x1xf32>"
    zero = '%z = "stable_mosaic.arith.constant"() {value = dense<0.0> : vector<128xf32>} : () -> vector<128xf32>'
    reduced = (
        zero,
        f'%m = "stable_mosaic.vector.multi_reduction"(%v, %z) {{{LANES}}} : ({F}, vector<128xf32>) -> vector<128xf32>',
        f'%k = "stable_mosaic.vector.shape_cast"(%m) : (vector<128xf32>) -> {column}',
        op("vector.broadcast", "%k", column, F),
    )
    loaded = (
        f'%k = "stable_mosaic.vector.load"(%r, %c, %c) : ({REF}, index, index) -> {column}',
        op("vector.broadcast", "%k", column, F),
    )
    assert work_of(*reduced).ops["xlu"] == 16 * MOVES["lane_reduce"]["xlu"]
    assert work_of(*loaded).ops["xlu"] == 16 * MOVES["lane_broadcast"]["xlu"]


def product(precision=""):
    """Return the line of a product of 128 x 256 by its own transpose."""
    zero = (
        '%z = "stable_mosaic.arith.constant"() {value = dense<0.0> : vector<128x128xf32>} : () -> vector<128x128xf32>'
    )
    types = f"{F}, {F}, vector<128x128xf32>"
    return zero, op("tpu.matmul", "%v, %v, %z", types, "vector<128x128xf32>", f"transpose_rhs = true{precision}")


def test_a_product_streams_its_rows_past_the_tiles_of_its_weights():
    """Two tiles deep: each sum leaves in two parts, which are added."""
    (matmul,) = work_of(*product()).matmuls
    assert (matmul.streamed_rows, matmul.weight_rows, matmul.weight_tiles) == (2 * 128, 2 * 128, 2)
    assert (matmul.results, matmul.passes) == (2 * 16, 1)
    assert work_of(*product()).ops["vector"] == 16


def typed_lines(left, right, number=0):
    """Return the lines of a product of 128 x 128 by 128 x 128 in these element types; its number names its values."""
    iota = '"stable_mosaic.tpu.iota"() {dimensions = array<i32: 0, 1>} : () ->'
    lines = [
        f"%{name}{number} = {iota} vector<128x128x{element}>"
        for name, element in (("l", left), ("m", right), ("z", "f32"))
    ]
    types = f"vector<128x128x{left}>, vector<128x128x{right}>, vector<128x128xf32>"
    product = op("tpu.matmul", f"%l{number}, %m{number}, %z{number}", types, "vector<128x128xf32>")
    return *lines, product.replace("%w", f"%w{number}")


def typed_product(left, right):
    """Return the work of a product of 128 x 128 by 128 x 128 in these element types."""
    return work_of(*typed_lines(left, right))


@pytest.mark.parametrize(
    ("left", "right", "made_in"),
    [
        ("i8", "i8", "s8"),
        ("bf16", "i8", "bf16"),
        ("f32", "bf16", "bf16"),
        ("f8E4M3FN", "f8E4M3FN", "f8e4m3fn"),
        ("bf16", "f8E5M2", "bf16"),
        ("i8", "i4", "s8"),
    ],
)
def test_a_product_is_made_in_a_type_that_both_sides_have(left, right, made_in):
    """Weights of 8 bits are no faster where they meet bf16."""
    (matmul,) = typed_product(left, right).matmuls
    assert matmul.operand_type == made_in


def test_products_of_two_types_are_counted_as_often_as_they_run():
    """One of bf16 in the first of 32 steps, one of s8 in all: its part of the code is as large as the other's."""
    zero = '%n = "stable_mosaic.arith.constant"() {value = 0 : i32} : () -> i32'
    first = '%i = "stable_mosaic.arith.addi"(%a0, %a1) : (i32, i32) -> i32'
    once = '%if = "stable_mosaic.arith.cmpi"(%i, %n) {predicate = 0 : i64} : (i32, i32) -> i1'
    inner, outer = ("\n".join(typed_lines(of, of, at)) + "\n" for at, of in enumerate(("bf16", "i8")))
    (kernel,) = call(body(outer + when("\n".join((zero, first, once)), inner))).steps
    assert kernel.flops == kernel.product_flops == pytest.approx(33 * 2 * 128**3)
    assert kernel.type_shares == pytest.approx({"s8": 32 / 33, "bf16": 1 / 33})
    assert kernel.flops_type == "s8"


def test_a_product_that_takes_longer_names_the_type():
    """Of two in s8 and three in bf16, which is half as fast."""
    products = (typed_lines(of, of, at) for at, of in enumerate(("i8", "i8", "bf16", "bf16", "bf16")))
    (kernel,) = call(body("\n".join("\n".join(lines) for lines in products))).steps
    assert (kernel.flops_type, kernel.type_shares) == ("bf16", pytest.approx({"s8": 2 / 5, "bf16": 3 / 5}))


def test_integers_are_widened_before_they_meet_other_numbers():
    """A 32-bit register of each 1,024 of them at a time: sixteen."""
    more = typed_product("bf16", "i8").ops["vector"] - typed_product("bf16", "bf16").ops["vector"]
    assert more == pytest.approx(16 * CHIP.vector_ops.unpack["s8"]["vector"])


def test_a_product_of_all_bits_takes_six_passes():
    """Three pieces of bf16 each, as far as they count."""
    (matmul,) = work_of(*product(", precision = #tpu.contract_precision<fp32>")).matmuls
    assert matmul.passes == 6
