"""What branches are given they write over where they may, and results lie there (XLA, CopyInsertion)."""

from __future__ import annotations

from pathlib import Path

import pytest

import tpusim
from tests.compiler.overwrites import overwrites
from tests.compiler.programs import compiled
from tpusim.allocation.forwarding import branch_names
from tpusim.pipeline.stages import check

FOLDER = Path(__file__).parents[1] / "data" / "hlo" / "branches"
"""Programs of JAX 0.10.2, and what libtpu 0.0.52 makes of them."""

PARTS = """
same {
  p = (f32[128,128], f32[8,128]) parameter(0)
  ROOT a = f32[128,128] get-tuple-element(p), index=0
}
changed {
  p = (f32[128,128], f32[8,128]) parameter(0)
  a = f32[128,128] get-tuple-element(p), index=0
  u = f32[8,128] get-tuple-element(p), index=1
  zero = s32[] constant(0)
  ROOT d = f32[128,128] dynamic-update-slice(a, u, zero, zero)
}
doubled {
  p = (f32[128,128], f32[8,128]) parameter(0)
  a = f32[128,128] get-tuple-element(p), index=0
  ROOT d = f32[128,128] add(a, a)
}
squared {
  p = (f32[128,128], f32[8,128]) parameter(0)
  a = f32[128,128] get-tuple-element(p), index=0
  ROOT d = f32[128,128] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
inner {
  p = (f32[128,128], f32[8,128]) parameter(0)
  a = f32[128,128] get-tuple-element(p), index=0
  u = f32[8,128] get-tuple-element(p), index=1
  corner = f32[1,1] slice(u), slice={[0:1], [0:1]}
  first = f32[] reshape(corner)
  zero = f32[] constant(0)
  q = pred[] compare(first, zero), direction=GT
  t = (f32[128,128], f32[8,128]) tuple(a, u)
  ROOT c = f32[128,128] conditional(q, t, t), true_computation=same, false_computation=changed
}
swapped {
  p = (f32[128,128], f32[128,128], f32[8,128]) parameter(0)
  a = f32[128,128] get-tuple-element(p), index=0
  b = f32[128,128] get-tuple-element(p), index=1
  ROOT r = (f32[128,128], f32[128,128]) tuple(b, a)
}
kept {
  p = (f32[128,128], f32[128,128], f32[8,128]) parameter(0)
  a = f32[128,128] get-tuple-element(p), index=0
  b = f32[128,128] get-tuple-element(p), index=1
  ROOT r = (f32[128,128], f32[128,128]) tuple(a, b)
}
more {
  p = (s32[], f32[128,128], f32[8,128]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  most = s32[] constant(5)
  ROOT m = pred[] compare(n, most), direction=LT
}
body {
  p = (s32[], f32[128,128], f32[8,128]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  x = f32[128,128] get-tuple-element(p), index=1
  u = f32[8,128] get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(n, one)
  two = s32[] constant(2)
  q = pred[] compare(n, two), direction=LT
  t = (f32[128,128], f32[8,128]) tuple(x, u)
  c = f32[128,128] conditional(q, t, t), true_computation=same, false_computation=changed
  ROOT r = (s32[], f32[128,128], f32[8,128]) tuple(next, c, u)
}
"""
GIVEN = """
  q = pred[] parameter(0)
  x = f32[128,128] parameter(1)
  u = f32[8,128] parameter(2)
  t = (f32[128,128], f32[8,128]) tuple(x, u)
"""
DONATED = ", input_output_alias={ {}: (1, {}) }"


def program(entry, header=DONATED):
    """Return the compiled program of an entry behind its arguments, which reads nothing that was written over."""
    module = compiled(f"HloModule m{header}\n{PARTS}\nENTRY e {{{GIVEN}{entry}\n}}\n", "v3")
    assert check(module) == []
    assert overwrites(module) == []
    return module


def chosen(first, second, operand="t"):
    """Return a conditional of two parts."""
    return f"f32[128,128] conditional(q, {operand}, {operand}), true_computation={first}, false_computation={second}"


def copies(module):
    """Return how many large arrays are copied on the way through each branch of the first conditional."""
    outside, found = 0, []
    for computation in module.computations:
        outside += (
            sum(map(is_large_copy, computation)) if computation is module.entry or "body" in computation.name else 0
        )
        for instruction in computation:
            if instruction.opcode == "conditional" and not found:
                found = [sum(map(is_large_copy, module[name])) for name in branch_names(instruction)]
    return [outside + inside for inside in found]


def is_large_copy(instruction):
    """Return whether an instruction copies the array that is updated."""
    return instruction.opcode == "copy" and instruction.shape.element_count == 128 * 128


@pytest.mark.parametrize("other", ["same", "doubled", "changed"])
def test_an_array_that_is_given_away_lies_in_one_place_throughout(other):
    """One branch updates it; the other one leaves it alone, makes it anew element by element, or updates it too."""
    second = "changed" if other != "changed" else "inner"
    assert copies(program(f"ROOT c = {chosen(other, second)}")) == [0, 0]


def test_an_array_that_the_caller_keeps_is_copied():
    """Whichever branch runs."""
    assert copies(program(f"ROOT c = {chosen('same', 'changed')}", "")) == [1, 1]


def test_an_array_that_is_read_behind_the_branches_is_copied():
    """The sum needs it as it was."""
    entry = f"c = {chosen('same', 'changed')}\n  ROOT r = f32[128,128] add(x, c)"
    assert min(copies(program(entry))) > 0


@pytest.mark.parametrize("results", ["n, c", "c, n"])
def test_branches_of_an_entry_do_not_wait_for_others_that_read(results):
    """Whichever is returned first: the TPU compiler copies, although the negative could come before them."""
    entry = f"n = f32[128,128] negate(x)\n  c = {chosen('same', 'changed')}\n  ROOT r = (f32[128,128], f32[128,128]) "
    aliased = f"{{ {{{results.split(', ').index('c')}}}: (1, {{}}) }}"
    assert min(copies(program(f"{entry} tuple({results})", f", input_output_alias={aliased}"))) > 0


def test_branches_write_over_what_they_are_chosen_by():
    """What is read for the sake of the choice comes before it."""
    entry = """top = f32[1,1] slice(x), slice={[0:1], [0:1]}
  one = f32[] reshape(top)
  zero = f32[] constant(0)
  p = pred[] compare(one, zero), direction=GT
  """
    module = program(entry + "ROOT c = " + chosen("same", "changed").replace("(q,", "(p,"))
    assert copies(module) == [0, 0]


def test_a_branch_that_reads_in_another_order_keeps_the_array():
    """A product is written while its operands are still read: the branch that updates has its own copy."""
    entry = "y = f32[128,128] tanh(x)\n  s = (f32[128,128], f32[8,128]) tuple(y, u)\n"
    assert copies(program(f"{entry}  ROOT c = {chosen('squared', 'changed', 's')}", "")) == [0, 1]


def test_branches_in_branches_write_over_what_is_given_away():
    """The inner one is given what the outer one is."""
    module = program(f"ROOT c = {chosen('same', 'inner')}")
    assert not any(is_large_copy(instruction) for computation in module.computations for instruction in computation)


def test_branches_one_after_the_other_write_over_one_array():
    """The second is given what the first has left."""
    entry = f"b = {chosen('doubled', 'changed')}\n  s = (f32[128,128], f32[8,128]) tuple(b, u)\n"
    module = program(entry + f"  ROOT c = {chosen('same', 'inner', 's')}")
    assert not any(is_large_copy(instruction) for computation in module.computations for instruction in computation)


def test_branches_in_a_loop_write_over_what_it_carries():
    """From trip to trip."""
    entry = "zero = s32[] constant(0)\n  s = (s32[], f32[128,128], f32[8,128]) tuple(zero, x, u)\n"
    loop = "  w = (s32[], f32[128,128], f32[8,128]) while(s), condition=more, body=body\n"
    module = program(f"{entry}{loop}  ROOT r = f32[128,128] get-tuple-element(w), index=1")
    assert copies(module) == [0, 0]


@pytest.mark.parametrize(("one", "other"), [("x", "y"), ("x", "x")])
def test_arrays_that_change_places_in_a_branch_are_copied(one, other):
    """Two that another branch leaves where they are, and one that is given twice."""
    entry = f"""y = f32[128,128] tanh(x)
  s = (f32[128,128], f32[128,128], f32[8,128]) tuple({one}, {other}, u)
  c = (f32[128,128], f32[128,128]) conditional(q, s, s), true_computation=swapped, false_computation=kept
  a = f32[128,128] get-tuple-element(c), index=0
  ROOT r = f32[128,128] dot(a, a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"""
    assert max(copies(program(entry, ""))) > 0


def test_a_computation_that_is_both_branches_writes_over_nothing_of_its_own():
    """What one conditional may write over another one may have to keep."""
    program(f"ROOT c = {chosen('changed', 'changed')}")


@pytest.mark.parametrize("name", ["update", "scan", "doubled", "read_as_well", "read_first", "in_loop", "kept"])
def test_branches_take_what_they_take_as_the_tpu_compiler_leaves_them(name):
    """Time and memory, both simulated: a cache of 128 MiB is not copied for the sake of a row."""
    ours = tpusim.simulate(FOLDER / f"{name}.hlo.txt", "v5e")
    theirs = tpusim.simulate(FOLDER / f"{name}.v5e.hlo.txt")
    assert ours.timeline.total_ps == pytest.approx(theirs.timeline.total_ps, rel=0.25)
    assert ours.summary.memory.peak_hbm_bytes == pytest.approx(theirs.summary.memory.peak_hbm_bytes, rel=0.01)
