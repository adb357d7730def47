"""How shapes compare, over all pairs of some, against the definition on their notation."""

from __future__ import annotations

import re
from itertools import product

import pytest

from tpusim.semantics.infer.types import alike, dimensions_agree, indexed_leaves, is_prefix
from tpusim.shapes.notation import parse_shape

LEAVES = ["f32[2]", "bf16[2]", "f32[3]", "s32[2]", "f32[2,1]", "f32[]", "token[]"]
TREES = [
    *LEAVES,
    (),
    ("f32[2]",),
    ("bf16[2]",),
    ("f32[2]", "s32[2]"),
    ("f32[2]", "f32[3]"),
    (("f32[2]",), "s32[2]"),
    ((), "s32[2]"),
    (("f32[2]", "f32[3]"), "s32[2]"),
    (("bf16[2]",), "s32[2]"),
]
"""Arrays, and tuples of them."""


def notation(tree) -> str:
    """Return how a tree is written."""
    return tree if isinstance(tree, str) else f"({', '.join(map(notation, tree))})"


def begins(short, whole) -> bool:
    """Return whether a tree is another without some last elements of its tuples; nothing begins anything."""
    if isinstance(short, str):
        return short == whole
    if not short:
        return True
    return not isinstance(whole, str) and len(short) <= len(whole) and all(map(begins, short, whole))


PAIRS = list(product(TREES, repeat=2))


def test_shapes_are_alike_that_differ_in_the_precision_of_floats():
    """In whatever tuple they stand."""
    for one, other in PAIRS:
        same = len({re.sub(r"bf16|f32", "float", notation(tree)) for tree in (one, other)}) == 1
        assert alike(parse_shape(notation(one)), parse_shape(notation(other))) is same, (one, other)


def test_a_prefix_lacks_the_last_elements_of_tuples():
    """At any depth; of an empty tuple nothing is known yet."""
    for one, other in PAIRS:
        assert is_prefix(parse_shape(notation(one)), parse_shape(notation(other))) is begins(one, other), (one, other)


SIZES = ["f32[2]", "f32[3]", "f32[?]", "f32[2,3]", "f32[?,3]", "f32[2,?]", "f32[2,4]", "f32[]"]


@pytest.mark.parametrize(("one", "other"), list(product(SIZES, repeat=2)))
def test_sizes_agree_where_one_is_not_known(one, other):
    """And the ranks are equal."""
    sizes = [shape[4:-1].split(",") for shape in (one, other)]
    same = len(sizes[0]) == len(sizes[1]) and all(a == b or "?" in (a, b) for a, b in zip(*sizes, strict=True))
    # A scalar's list of sizes is empty; split, it has one that is no number.
    same = same and ("" in sizes[0]) == ("" in sizes[1])
    assert dimensions_agree(parse_shape(one), parse_shape(other)) is same


def test_leaves_come_with_their_places():
    """First to last, each after the numbers that lead to it."""
    shape = parse_shape("(f32[2], (s32[3], ()), token[])")
    found = [(index, str(leaf)) for index, leaf in indexed_leaves(shape)]
    assert found == [((0,), "f32[2]"), ((1, 0), "s32[3]"), ((2,), "token[]")]
    assert [index for index, _ in indexed_leaves(parse_shape("f32[2]"))] == [()]
