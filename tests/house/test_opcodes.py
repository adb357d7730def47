"""Every operation can be built, parsed, inferred, verified, computed and timed."""

from __future__ import annotations

import pytest

from tpusim.ir.ops import OPERATIONS
from tpusim.pipeline.stages import opcode_rules

BEYOND_THE_BUILDER = frozenset(
    (
        *(
            "add-dependency",
            "async-done",
            "async-start",
            "async-update",
            "bitcast",
            "copy-done",
            "copy-start",
            "domain",
        ),
        *("all-gather-done", "all-gather-start", "all-reduce-done", "all-reduce-start", "collective-permute-done"),
        *("collective-permute-start", "dynamic-reshape", "fusion", "ragged-dot", "scaled-dot"),
    )
)
"""Opcodes that compilers make, or that came after XLA's document: ``Builder.emit`` makes them."""


@pytest.mark.parametrize("what", ["parsed", "inferred", "verified", "computed", "timed"])
def test_no_opcode_is_left_out(what):
    """Each of XLA's opcodes has its rule in the room."""
    assert set(OPERATIONS) - opcode_rules()[what] == set()


def test_every_operation_of_the_document_has_a_method():
    """The builder has a method for all but what no client builds."""
    assert set(OPERATIONS) - opcode_rules()["built"] == BEYOND_THE_BUILDER


def test_rules_are_for_opcodes_that_exist():
    """A rule for a name that is no opcode would never run."""
    assert all(opcodes <= set(OPERATIONS) for opcodes in opcode_rules().values())
