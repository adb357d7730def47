"""Loops, branches and barriers hand on tuples of arrays (XLA, WhileLoopSimplifier)."""

from __future__ import annotations

import numpy as np

from tests.compiler.overwrite_cases import CASES, written_out
from tests.compiler.programs import compiled
from tests.compiler.test_passes import flat
from tpusim.ir.ops import CONTROL_FLOW, VIEWS
from tpusim.pipeline.stages import check, execute
from tpusim.shapes.shape import TupleShape
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

LOOP = written_out(CASES["a loop swaps the arrays of a tuple in its state"])

DEEP = written_out("""HloModule m
pass { ROOT p = (((MATRIX), MATRIX), (), s32[]) parameter(0) }
turn {
 p = (((MATRIX), MATRIX), (), s32[]) parameter(0)
 outer = ((MATRIX), MATRIX) ELEMENT(p), index=0
 inner = (MATRIX) ELEMENT(outer), index=0
 a = MATRIX ELEMENT(inner), index=0
 b = MATRIX ELEMENT(outer), index=1
 n = s32[] ELEMENT(p), index=2
 d = MATRIX dot(a, b), TIMES
 one = (MATRIX) tuple(b)
 two = ((MATRIX), MATRIX) tuple(one, d)
 none = () ELEMENT(p), index=1
 ROOT out = (((MATRIX), MATRIX), (), s32[]) tuple(two, none, n) }
ENTRY e {
 p = (((MATRIX), MATRIX), (), s32[]) parameter(0)
 kept = (((MATRIX), MATRIX), (), s32[]) opt-barrier(p)
 n = s32[] ELEMENT(kept), index=2
 ROOT out = (((MATRIX), MATRIX), (), s32[]) conditional(n, p, kept), branch_computations={turn, pass} }
""")


def is_flat(shape):
    """Return whether there is no tuple in a tuple."""
    return not isinstance(shape, TupleShape) or not any(isinstance(one, TupleShape) for one in shape.elements)


def test_nothing_that_runs_hands_on_a_tuple_in_a_tuple():
    """Of the entry the caller knows what it is given and gets."""
    for text in (LOOP, DEEP):
        module = compiled(text, stop_after="flatten")
        assert check(module) == []
        runs = [one for each in module.computations for one in each if one.opcode in CONTROL_FLOW | VIEWS]
        called = [module[name] for one in runs for name in one.called_computations]
        assert [one.name for one in runs if not is_flat(one.shape)] == []
        assert [
            each.name for each in called if not is_flat(each.root.shape) or not is_flat(each.parameters[0].shape)
        ] == []
        before = parse_module(SourceText("before", text)).entry
        assert str(module.entry.root.shape) == str(before.root.shape)
        assert [str(one.shape) for one in module.entry.parameters] == [str(one.shape) for one in before.parameters]


def test_what_was_flattened_computes_the_same():
    """In both branches, and from place to place."""
    a, b = np.random.default_rng(7).integers(-3, 4, size=(2, 128, 128)).astype(np.float32)
    inputs = [(LOOP, (a, b)), (DEEP, (((a,), b), (), np.int32(0))), (DEEP, (((a,), b), (), np.int32(1)))]
    for text, given in inputs:
        plain = execute(parse_module(SourceText("plain", text)), [given])
        found = execute(compiled(text), [given])
        for one, other in zip(flat(found), flat(plain), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_copy_of_a_tuple_copies_its_arrays():
    """Each by itself, in tuples of tuples too: no kernel copies a tuple."""
    text = """HloModule m
ENTRY e {
  a = bf16[512,512] parameter(0)
  b = bf16[512,512] parameter(1)
  t = (bf16[512,512], bf16[512,512]) tuple(a, b)
  tt = ((bf16[512,512], bf16[512,512]), bf16[512,512]) tuple(t, a)
  c = ((bf16[512,512], bf16[512,512]), bf16[512,512]) copy(tt)
  inner = (bf16[512,512], bf16[512,512]) get-tuple-element(c), index=0
  x = bf16[512,512] get-tuple-element(inner), index=0
  y = bf16[512,512] get-tuple-element(c), index=1
  ROOT z = bf16[512,512] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    module = compiled(text, stop_after="flatten")
    assert all(not isinstance(i.shape, TupleShape) for i in module.entry if i.opcode == "copy")
    assert check(compiled(text)) == []
