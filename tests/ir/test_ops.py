"""The table of operations against XLA's list of opcodes and its parser."""

from __future__ import annotations

import pytest

from tpusim.ir.ops import COMMON_ATTRIBUTES, OPERATIONS, OWN_ASYNC_OPCODES, Category, async_parts, find_operation

SEMANTICS = {
    "add": (2, 2, set()),
    "clamp": (3, 3, set()),
    "batch-norm-training": (3, 3, {"epsilon", "feature_index"}),
    "gather": (2, 2, {"offset_dims", "collapsed_slice_dims", "start_index_map", "index_vector_dim", "slice_sizes"}),
    "dynamic-update-slice": (2, None, set()),
    "fusion": (0, None, {"calls", "kind"}),
    "while": (1, 1, {"condition", "body"}),
    "iota": (0, 0, {"iota_dimension"}),
    "reduce-scatter": (0, None, {"to_apply", "dimensions"}),
    "sort": (1, None, {"dimensions", "to_apply"}),
}
"""Operands at least and at most, and required attributes, from XLA's operation semantics."""


def test_there_is_a_row_for_each_of_xlas_opcodes() -> None:
    """As many as XLA has; each name is one that XLA's text can hold."""
    xla = pytest.importorskip("jaxlib._hlo")
    assert len(OPERATIONS) == sum(name.startswith("k") for name in dir(xla.HloOpcode)) == 133


@pytest.mark.parametrize("opcode", OPERATIONS)
def test_xla_knows_the_opcode(opcode: str) -> None:
    """Where the operands should begin, XLA complains about what it meets there, not about the opcode."""
    xla = pytest.importorskip("jaxlib._hlo")
    with pytest.raises(Exception, match=r"expects '\('"):
        xla.hlo_module_from_text(f"HloModule m\n\nENTRY e {{\n  a = (f32[]) {opcode} ]\n}}")


@pytest.mark.parametrize("opcode", SEMANTICS)
def test_a_row_says_what_the_semantics_say(opcode: str) -> None:
    """Operand counts and required attributes of a few rows."""
    row = OPERATIONS[opcode]
    assert (row.fewest_operands, row.most_operands, set(row.required)) == SEMANTICS[opcode]


def test_every_category_has_rows() -> None:
    """A category without rows would be a word without use."""
    assert {row.category for row in OPERATIONS.values()} == set(Category)


def test_attributes_of_all_instructions_stand_in_no_row() -> None:
    """They are allowed everywhere and listed once."""
    for row in OPERATIONS.values():
        assert not COMMON_ATTRIBUTES & (row.required | row.optional)
        assert row.allows("metadata")
        assert not row.required & row.optional


@pytest.mark.parametrize(
    ("opcode", "parts"),
    [
        ("slice-start", ("slice", "start")),
        ("custom-call-update", ("custom-call", "update")),
        ("dot-done", ("dot", "done")),
        ("copy-start", None),
        ("all-reduce-done", None),
        ("send-done", None),
        ("async-start", None),
        ("nothing-start", None),
        ("add", None),
    ],
)
def test_the_short_form_of_an_asynchronous_operation_splits(opcode: str, parts: tuple[str, str] | None) -> None:
    """Any opcode but those with an asynchronous form of their own."""
    assert async_parts(opcode) == parts


def test_a_short_start_takes_the_attributes_of_what_it_wraps() -> None:
    """Its ``done`` takes none of them."""
    start, done = find_operation("slice-start"), find_operation("slice-done")
    assert start is not None
    assert done is not None
    assert start.required == {"slice"}
    assert start.allows("async_execution_thread")
    assert not done.allows("slice")


def test_operations_with_their_own_asynchronous_form_have_rows_for_it_or_none() -> None:
    """XLA has ``copy-start`` and ``send-done``, but no short form such as ``copy-update``."""
    for opcode in OWN_ASYNC_OPCODES:
        assert find_operation(f"{opcode}-update") is None
