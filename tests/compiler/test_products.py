"""Pass 3: what becomes of products that sum nothing up, and of those with vectors."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.programs import compiled
from tests.compiler.test_decompose import close, decomposed, normal, opcodes, values
from tpusim.compiler.decompose.rules import TOLERANCES
from tpusim.pipeline.stages import check, execute
from tpusim.shapes.dtype import DTYPES, numpy_dtype

OUTER = [
    ((6, 5), (6, 7), "lhs_batch_dims={0}, rhs_batch_dims={0}", (6, 5, 7), "bi,bj->bij"),
    ((5,), (7,), "lhs_batch_dims={}, rhs_batch_dims={}", (5, 7), "i,j->ij"),
    ((6, 3, 5), (3, 6, 7), "lhs_batch_dims={0,1}, rhs_batch_dims={1,0}", (6, 3, 5, 7), "bci,cbj->bcij"),
    ((5, 1), (1, 7), "lhs_contracting_dims={1}, rhs_contracting_dims={0}", (5, 7), "ik,kj->ij"),
    ((6, 5), (6, 5), "lhs_batch_dims={0,1}, rhs_batch_dims={0,1}", (6, 5), "bi,bi->bi"),
]
"""Products that sum nothing up: two operands, what is named, the result, and NumPy's word for it."""


@pytest.mark.parametrize("product", OUTER)
@pytest.mark.parametrize(
    ("given", "dtype"),
    [("f32", "f32"), ("bf16", "bf16"), ("bf16", "f32"), ("s8", "s32"), ("f64", "f64"), ("c64", "c64")],
)
def test_a_product_that_sums_nothing_up_multiplies_elements(product, given, dtype):
    """As XLA's AlgebraicSimplifier makes it: the values of the whole, and those of NumPy's einsum."""
    a, b, named, result, einsum = product
    sizes = [",".join(map(str, sizes)) for sizes in (a, b, result)]
    module, made = decomposed(f"""
    a = {given}[{sizes[0]}] parameter(0)
    b = {given}[{sizes[1]}] parameter(1)
    ROOT out = {dtype}[{sizes[2]}] dot(a, b), {named}
    """)
    assert "dot" not in opcodes(made)
    left, right = ((8 * normal(*size)).astype(numpy_dtype(DTYPES[given])) for size in (a, b))
    wide = numpy_dtype(DTYPES[{"bf16": "f32"}.get(dtype, dtype)])
    expected = np.einsum(einsum, left.astype(wide), right.astype(wide)).astype(numpy_dtype(DTYPES[dtype]))
    found = values(made, left, right)
    if dtype == "c64":
        assert close(found, expected, "dot")
    else:
        assert (found == expected).all()
        assert (found == values(module, left, right)).all()


@pytest.mark.parametrize(("given", "dtype"), [("pred", "pred"), ("s32", "f32")])
def test_a_product_of_types_without_a_common_one_stays(given, dtype):
    """Of truth values there is no product of elements, and no float holds all integers."""
    _, made = decomposed(f"""
    a = {given}[5] parameter(0)
    b = {given}[7] parameter(1)
    ROOT out = {dtype}[5,7] dot(a, b)
    """)
    assert opcodes(made)["dot"] == 1


@pytest.mark.parametrize(("given", "dtype"), [("s32", "s32"), ("s8", "s32"), ("u8", "u8"), ("s64", "s64")])
@pytest.mark.parametrize("batch", [False, True])
def test_integers_are_added_up_without_the_mxu_where_there_is_no_batch(given, dtype, batch):
    """As in programs compiled ahead of time, bit for bit."""
    named = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
    one = named if batch else "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    sizes = ((3, 8, 5), (3, 5), (3, 8)) if batch else ((8, 5), (5,), (8,))
    a, b, result = (",".join(map(str, each)) for each in sizes)
    module, made = decomposed(f"""
    a = {given}[{a}] parameter(0)
    b = {given}[{b}] parameter(1)
    ROOT out = {dtype}[{result}] dot(a, b), {one}
    """)
    assert ("dot" in opcodes(made)) == (batch or dtype == "s64")
    left, right = ((100 * normal(*each)).astype(numpy_dtype(DTYPES[given])) for each in sizes[:2])
    np.testing.assert_array_equal(values(made, left, right), values(module, left, right))


WITH_VECTORS = [
    ("i,ijk->jk", "lhs_contracting_dims={0}, rhs_contracting_dims={0}", "c, large", "f32[5]", "f32[6,7]"),
    ("ijk,j->ik", "lhs_contracting_dims={1}, rhs_contracting_dims={0}", "large, c", "f32[6]", "f32[5,7]"),
    (
        "ji,ijk->jk",
        "lhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_batch_dims={1}, rhs_contracting_dims={0}",
        "c, large",
        "f32[6,5]",
        "f32[6,7]",
    ),
]
"""Products with a vector, or many: NumPy's word for it, what is named, operands, the vector's type, the result's."""

OF_BROADCASTS = """
  rows = f32[5,6,7] broadcast(a), dimensions={0,1}
  columns = f32[5,6,7] broadcast(b), dimensions={0,2}
  both = f32[5,6,7] subtract(rows, columns)
  number = f32[5,6,7] iota(), iota_dimension=1
  limit = f32[] constant(2)
  low = f32[5,6,7] broadcast(limit), dimensions={}
  test = pred[5,6,7] compare(both, number), direction=LT
  chosen = f32[5,6,7] select(test, both, low)
  large = f32[5,6,7] multiply(chosen, rows)
"""

OF_PRODUCT = "  large = f32[5,6,7] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}"


def product_with_vector(named, operands, vector, result, lines=OF_BROADCASTS):
    """Return the text of a product with a vector, and what is made of it."""
    text = f"""HloModule m

ENTRY e {{
  c = {vector} parameter(0)
  a = f32[5,6] parameter(1)
  b = f32[5,7] parameter(2)
{lines}
  ROOT z = {result} dot({operands}), {named}
}}
"""
    return compiled(text, stop_after="simplify"), compiled(text, stop_after="decompose")


@pytest.mark.parametrize(("einsum", "named", "operands", "vector", "result"), WITH_VECTORS)
def test_what_is_made_of_broadcasts_has_what_a_vector_sums_up_last(einsum, named, operands, vector, result):
    """As in programs compiled ahead of time, with the values of the whole."""
    before, made = product_with_vector(named, operands, vector, result)
    (total,) = [each for each in made.entry.instructions if each.opcode == "reduce"]
    assert total.attributes["dimensions"] == (2,)
    assert check(made) == []
    rng = np.random.default_rng(7)
    sizes = {"f32[5]": (5,), "f32[6]": (6,), "f32[6,5]": (6, 5)}[vector]
    inputs = {f"in{n}": rng.standard_normal(each).astype(np.float32) for n, each in enumerate((sizes, (5, 6), (5, 7)))}
    c, a, b = (each.astype(np.float64) for each in inputs.values())
    both = a[:, :, None] - b[:, None, :]
    array = np.where(both < np.arange(6)[:, None], both, 2) * a[:, :, None]
    expected = np.einsum(einsum, *((c, array) if operands.startswith("c") else (array, c)))
    for module in (before, made):
        found = execute(module, inputs, precision="exact", chip="v5e")
        assert np.abs(found - expected).max() <= TOLERANCES["dot"] * np.abs(expected).max()


@pytest.mark.parametrize(
    ("lines", "named", "vector", "result"),
    [
        ("x = f32[5,6,7] parameter(3)  large = f32[5,6,7] tanh(x)", WITH_VECTORS[0][1], "f32[5]", "f32[6,7]"),
        (OF_PRODUCT, WITH_VECTORS[0][1], "f32[5]", "f32[6,7]"),
        (OF_BROADCASTS, "lhs_contracting_dims={0}, rhs_contracting_dims={2}", "f32[7]", "f32[5,6]"),
        (OF_BROADCASTS, "lhs_contracting_dims={1}, rhs_contracting_dims={0}", "f32[2,5]", "f32[2,6,7]"),
    ],
    ids=["an array", "a product", "in order", "a matrix"],
)
def test_other_products_sum_up_what_they_did(lines, named, vector, result):
    """What reads a whole array would have to turn it; a matrix goes through the MXU; a product is no broadcast."""
    _, made = product_with_vector(named, "c, large", vector, result, lines)
    arrays = {each.shape.dimensions for each in made.entry.instructions if 7 in each.shape.dimensions[2:]}
    assert arrays - {(2, 6, 7)} == {(5, 6, 7)}
