"""Parts of shapes in the order of XLA's ShapeTree: a tuple before its elements."""

from __future__ import annotations

import pytest

from tpusim.shapes.notation import parse_shape
from tpusim.shapes.shape import element_begins, node_count, node_number, nodes

NESTED = parse_shape("(f32[2], (s32[], u8[3]), pred[])")


def test_parts_come_depth_first():
    """The outer tuple, its first element, the inner tuple and its elements, the last element."""
    assert [str(part) for part in nodes(NESTED)][1:] == ["f32[2]", "(s32[], u8[3])", "s32[]", "u8[3]", "pred[]"]
    assert node_count(NESTED) == 6
    assert element_begins(NESTED) == (1, 2, 5, 6)


@pytest.mark.parametrize(
    ("index", "number"), [((), 0), ((0,), 1), ((1,), 2), ((1, 1), 4), ((2,), 5), ((3,), None), ((0, 0), None)]
)
def test_an_index_leads_to_a_part(index, number):
    """As in input_output_alias; one that leads nowhere is None."""
    assert node_number(NESTED, index) == number
