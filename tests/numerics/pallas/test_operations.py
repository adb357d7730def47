"""Operations that JAX 0.10 seldom writes, or not at all: bodies by hand, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.numerics.pallas.bodies import run
from tests.numerics.pallas.inputs import eighths

pytest.importorskip("jaxlib")

V, WORDS = "vector<128x128xf32>", "vector<128x128xi32>"
X = eighths(128, 128)
WHOLE = X.astype(np.int32)
ROWS, COLUMNS = np.ogrid[:128, :128]
MAPS = (
    "[affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>]"
)
TO_INT = f'%n = "stable_mosaic.arith.fptosi"(%v) : ({V}) -> {WORDS}\n'
FROM_INT = f'%w = "stable_mosaic.arith.sitofp"(%m) : ({WORDS}) -> {V}'
ZERO = f'%z = "stable_mosaic.arith.constant"() {{value = dense<0.0> : {V}}} : () -> {V}\n'


def op(name, operands, types, result, attributes="", value="%w"):
    """Return an operation as a line."""
    return f'{value} = "stable_mosaic.{name}"({operands}) {{{attributes}}} : ({types}) -> {result}\n'


def part(offset):
    """Return the slice of a vector that begins at a row, of eight."""
    return op(
        "vector.extract_strided_slice",
        "%v",
        V,
        "vector<8x128xf32>",
        f"offsets = array<i64: {offset}, 0>, sizes = array<i64: 8, 128>, strides = array<i64: 1, 1>",
        "%part",
    )


def spread(name, attributes, function):
    """Return a reduction of rows spread over them again, and what it must give."""
    lines = op(name, "%v, %s", f"{V}, vector<128xf32>", "vector<128xf32>", attributes, "%r")
    start = '%s = "stable_mosaic.arith.constant"() {value = dense<1.5> : vector<128xf32>} : () -> vector<128xf32>\n'
    cast = op("vector.shape_cast", "%r", "vector<128xf32>", "vector<128x1xf32>", value="%c1")
    return start + lines + cast + op("vector.broadcast", "%c1", "vector<128x1xf32>", V), function


CASES = {
    "rotate": (op("tpu.rotate", "%v", V, V, "amount = 5 : i32, dimension = 1 : i32"), np.roll(X, 5, 1)),
    "rotate_by_rows": (
        op(
            "tpu.rotate",
            "%v",
            V,
            V,
            "amount = 1 : i32, dimension = 1 : i32, stride = 2 : i32, stride_dimension = 0 : i32",
        ),
        X[ROWS, (COLUMNS - 1 - 2 * ROWS) % 128],
    ),
    "gather": (
        op(
            "tpu.gather",
            "%v",
            V,
            V,
            f"indices = array<i32: {', '.join(map(str, range(127, -1, -1)))}>, dimension = 1 : i32",
        ),
        X[:, ::-1],
    ),
    "repeat": (
        part(8) + op("tpu.repeat", "%part", "vector<8x128xf32>", V, "dimension = 0 : i32, times = 16 : i32"),
        np.tile(X[8:16], (16, 1)),
    ),
    "relayout": (op("tpu.relayout", "%v", V, V), X),
    "reshape": (
        op("tpu.reshape", "%v", V, "vector<64x256xf32>", value="%u") + op("tpu.reshape", "%u", "vector<64x256xf32>", V),
        X,
    ),
    "transpose": (op("vector.transpose", "%v", V, V, "permutation = array<i64: 1, 0>"), X.T),
    "insert_slice": (
        part(0)
        + op(
            "vector.insert_strided_slice",
            "%part, %v",
            f"vector<8x128xf32>, {V}",
            V,
            "offsets = array<i64: 16, 0>, strides = array<i64: 1, 1>",
        ),
        np.concatenate([X[:16], X[:8], X[24:]]),
    ),
    "insert_row": (
        op("vector.extract", "%v", V, "vector<128xf32>", "static_position = array<i64: 3>", "%row")
        + op("vector.insert", "%row, %v", f"vector<128xf32>, {V}", V, "static_position = array<i64: 5>"),
        np.where(ROWS == 5, X[3], X),
    ),
    "contract": (
        ZERO
        + op("vector.contract", "%v, %v, %z", f"{V}, {V}, {V}", V, f"indexing_maps = {MAPS}, kind = #vector.kind<add>"),
        X @ X.T,
    ),
    "matmul_transposed": (
        ZERO + op("tpu.matmul", "%v, %v, %v", f"{V}, {V}, {V}", V, "transpose_lhs = false, transpose_rhs = true"),
        X @ X.T + X,
    ),
    "sum": spread(
        "vector.multi_reduction",
        "kind = #vector.kind<add>, reduction_dims = array<i64: 1>",
        np.broadcast_to(X.sum(1, keepdims=True) + 1.5, X.shape),
    ),
    "least": spread(
        "vector.multi_reduction",
        "kind = #vector.kind<minimumf>, reduction_dims = array<i64: 1>",
        np.broadcast_to(np.minimum(X.min(1, keepdims=True), 1.5), X.shape),
    ),
    "least_number": spread(
        "vector.multi_reduction",
        "kind = #vector.kind<minnumf>, reduction_dims = array<i64: 1>",
        np.broadcast_to(np.minimum(X.min(1, keepdims=True), 1.5), X.shape),
    ),
    "all_reduce": (
        op("tpu.all_reduce", "%v", V, V, "dim = 0 : i64, kind = #tpu.reduction_kind<max>"),
        np.broadcast_to(X.max(0), X.shape),
    ),
    "scan": (op("tpu.scan", "%v", V, V, "kind = #tpu.reduction_kind<sum>"), np.cumsum(X, -1)),
    "fused": (op("math.fma", "%v, %v, %v", f"{V}, {V}, {V}", V), X * X + X),
    "sign": (op("math.copysign", "%v, %v", f"{V}, {V}", V), X),
    "counted": (
        TO_INT
        + op("tpu.iota", "", "", WORDS, "dimensions = array<i32: 1, 0>", "%k")
        + op("arith.addi", "%n, %k", f"{WORDS}, {WORDS}", WORDS, value="%m")
        + FROM_INT,
        WHOLE + COLUMNS * 128 + ROWS,
    ),
    "floor": (
        TO_INT
        + f'%k = "stable_mosaic.arith.constant"() {{value = dense<3> : {WORDS}}} : () -> {WORDS}\n'
        + op("arith.floordivsi", "%n, %k", f"{WORDS}, {WORDS}", WORDS, value="%m")
        + FROM_INT,
        WHOLE // 3,
    ),
    "ceiling": (
        TO_INT
        + f'%k = "stable_mosaic.arith.constant"() {{value = dense<3> : {WORDS}}} : () -> {WORDS}\n'
        + op("arith.ceildivsi", "%n, %k", f"{WORDS}, {WORDS}", WORDS, value="%m")
        + FROM_INT,
        -(-WHOLE // 3),
    ),
    "high_words": (
        TO_INT
        + f'%k = "stable_mosaic.arith.constant"() {{value = dense<1073741824> : {WORDS}}} : () -> {WORDS}\n'
        + f'%low, %m = "stable_mosaic.arith.mulsi_extended"(%n, %k) : ({WORDS}, {WORDS}) -> ({WORDS}, {WORDS})\n'
        + FROM_INT,
        WHOLE >> 2,
    ),
    "rounded": (
        op("tpu.fptosi", "%v", V, WORDS, "rounding_mode = #tpu.rounding_mode<to_nearest_even>", "%m") + FROM_INT,
        np.rint(X),
    ),
    "mask": (
        "".join(f'%k{n} = "stable_mosaic.arith.constant"() {{value = {n} : index}} : () -> index\n' for n in (2, 9))
        + op("tpu.create_mask", "%k2, %k2, %k9, %k9", "index, index, index, index", "vector<128x128xi1>", value="%m")
        + ZERO
        + op("arith.select", "%m, %v, %z", f"vector<128x128xi1>, {V}, {V}", V),
        np.where((ROWS >= 2) & (ROWS < 9) & (COLUMNS >= 2) & (COLUMNS < 9), X, 0),
    ),
    "sorted": (
        f'%u, %w, %t = "stable_mosaic.tpu.sort"(%v, %v) {{descending = true}} : ({V}, {V})'
        f" -> (vector<128x128xi1>, {V}, {V})\n",
        -np.sort(-X, -1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operation_gives_what_numpy_does(name):
    """On eighths, of which sums and products are exact."""
    lines, expected = CASES[name]
    np.testing.assert_array_equal(run(lines, X), expected)


@pytest.mark.parametrize(("predicate", "expected"), [(1, 0), (6, 1), (7, 0), (8, 1), (13, 1), (14, 1), (0, 0), (15, 1)])
def test_comparisons_with_nan(predicate, expected):
    """Ordered ones are false, unordered ones true; JAX writes its own "not equal" as number 6."""
    lines = op("arith.cmpf", "%v, %v", f"{V}, {V}", "vector<128x128xi1>", f"predicate = {predicate} : i64", "%m")
    lines += op("arith.uitofp", "%m", "vector<128x128xi1>", V)
    assert (run(lines, np.full_like(X, np.nan)) == expected).all()
