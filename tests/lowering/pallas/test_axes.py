"""Which dimension of the grid the axes of values in a body go along."""

from __future__ import annotations

import pytest

from tpusim.ir.mosaic import Block, Operation, Type
from tpusim.lowering.pallas.axes import axes_along, grown


def vector(*dimensions):
    """Return the type of a vector."""
    return Type("vector", "f32", dimensions)


def along(types, operations, known):
    """Return what the axes of the last value go along."""
    block = Block((), tuple(Operation(name, *numbers) for name, *numbers in operations))
    return axes_along(block, types, known)[len(types) - 1]


@pytest.mark.parametrize(
    ("name", "operand", "result", "attributes", "axes"),
    [
        ("math.exp", (8, 256), (8, 256), {}, (0, 1)),
        ("vector.multi_reduction", (8, 256), (8,), {"reduction_dims": (1,)}, (0,)),
        ("vector.multi_reduction", (8, 256), (256,), {"reduction_dims": (0,)}, (1,)),
        ("tpu.reduce_index", (8, 256), (8,), {"axis": 1, "kind": "#tpu.reduction_kind<arg_max>"}, (0,)),
        ("tpu.reduce_index", (8, 256), (256,), {"axis": 0, "kind": "#tpu.reduction_kind<arg_min>"}, (1,)),
        ("tpu.transpose", (8, 256), (256, 8), {"permutation": (1, 0)}, (1, 0)),
        ("vector.shape_cast", (8, 256), (1, 8, 1, 256), {}, (-1, 0, -1, 1)),
        ("vector.shape_cast", (8, 256), (8, 2, 128), {}, (0, 1, -1)),
        ("vector.broadcast", (8, 256), (4, 8, 256), {}, (-1, 0, 1)),
        ("vector.extract_strided_slice", (8, 256), (8, 128), {}, (0, -1)),
        ("tpu.concatenate", (8, 256), (8, 512), {"dimension": 1}, (0, -1)),
    ],
)
def test_axes_go_where_their_operands_do(name, operand, result, attributes, axes):
    """What is reduced is gone; of what is cut or joined nothing is known."""
    assert along([vector(*operand), vector(*result)], [(name, (0,), (1,), attributes)], {0: (0, 1)}) == axes


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("tpu.matmul", {"dimension_numbers": "#tpu.dot_dimension_numbers<[1], [1], [0], [0], [0, 7, 3, 0], [], []>"}),
        ("tpu.matmul", {"dimension_numbers": "#tpu.dot_dimension_numbers<[1]>"}),
        ("tpu.matmul", {"indexing_maps": ["(d0) -> (d0)", "(d0) -> (d0)", "(d0, d1) -> (d1)"]}),
        ("tpu.transpose", {"permutation": (4, 0)}),
        ("tpu.reduce_index", {"axis": 0}),
    ],
)
def test_what_does_not_fit_the_types_of_a_body_tells_nothing(name, attributes):
    """Nothing verifies bodies: axes that no value has are passed over, and so are those of a result of no rank."""
    types = [vector(8, 256), vector(256, 8), vector()]
    assert along(types, [(name, (0, 1), (2,), attributes)], {0: (0, 1), 1: (1, 0)}) == ()


@pytest.mark.parametrize(
    "attributes",
    [
        {"dimension_numbers": "#tpu.dot_dimension_numbers<[1], [1], [0], [0], [0, 0, 1, 0], [], []>"},
        {"indexing_maps": ["(d0, d1, d2) -> (d0, d2)", "(d0, d1, d2) -> (d1, d2)", "(d0, d1, d2) -> (d0, d1)"]},
        {"transpose_rhs": True},
    ],
)
def test_products_have_the_rows_of_one_side_and_the_columns_of_the_other(attributes):
    """As queries and keys."""
    types = [vector(256, 64), vector(512, 64), vector(256, 512)]
    assert along(types, [("tpu.matmul", (0, 1), (2,), attributes)], {0: (1, -1), 1: (2, -1)}) == (1, 2)


def test_masks_are_as_large_as_what_they_mask_and_sums_of_rows_are_not():
    """A row's maximum is kept in lanes as many as a block has columns, which larger blocks do not change."""
    kept = Type("memref", "f32", (128, 128), "vmem")
    types = [vector(128, 128), vector(128, 128), kept, vector(128, 128), vector(128, 128), vector(128)]
    operations = [
        ("tpu.iota", (), (1,)),
        ("vector.load", (2,), (3,)),
        ("arith.addf", (0, 1), (4,)),
        ("arith.subf", (4, 3), (4,)),
        ("vector.multi_reduction", (4,), (5,), {"reduction_dims": (1,)}),
        ("vector.broadcast", (6,), (7,)),
        ("tpu.vector_store", (7, 2)),
    ]
    types += [vector(128, 1), vector(128, 128)]
    operations.insert(5, ("vector.shape_cast", (5,), (6,)))
    block = Block((), tuple(Operation(name, *rest) for name, *rest in operations))
    found = axes_along(block, types, {0: (1, 2)})
    assert [found[n] for n in (1, 2, 3, 4, 7)] == [(1, 2), (1, -1), (1, -1), (1, 2), (1, -1)]


def test_values_that_loops_hand_on_keep_their_axes():
    """Sums that begin with nothing are as large as what is added."""
    zero, block, total = vector(256, 128), vector(256, 128), vector(256, 128)
    counter, carried, sums = Type("scalar", "i32"), vector(256, 128), vector(256, 128)
    inside = Block((2, 3), (Operation("arith.addf", (3, 1), (4,)), Operation("scf.yield", (4,))))
    loop = ("scf.for", (2, 2, 2, 0), (5,), {}, (inside,))
    types = [zero, block, counter, carried, sums, total]
    assert along(types, [("arith.constant", (), (0,)), loop], {1: (0, -1)}) == (0, -1)


def test_axes_grow_by_the_counts_of_their_dimensions():
    """Twice as many rows, four times as many columns."""
    (kind,) = grown([vector(8, 1, 128)], {0: (0, -1, 1)}, (2, 4))
    assert kind.dimensions == (16, 1, 512)
