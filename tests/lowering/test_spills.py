"""Values alive at once, against a count at every moment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.lowering.hlo import lower_text
from tpusim.hardware.load import load_chip
from tpusim.ir.module import Instruction
from tpusim.lowering.kernels.vector import most_alive
from tpusim.semantics.demand.inlining import Inner
from tpusim.shapes.notation import parse_shape

SHAPE = parse_shape("f32[8,128]")


class Named:
    """What stands in for a computation: only its name is asked for."""

    name = "c"


@st.composite
def straight_lines(draw):
    """Draw the operands of each of a few instructions: earlier ones, by number."""
    return [draw(st.lists(st.integers(0, n - 1), max_size=3)) if n else [] for n in range(draw(st.integers(1, 9)))]


@given(straight_lines())
def test_the_most_crowded_moment_is_found(program):
    """A value is alive from where it is computed to its last use, or at its own moment if it has none."""
    items = [Inner(Named(), Instruction(f"v{n}", SHAPE, "add"), tuple(uses)) for n, uses in enumerate(program)]
    last = [max([n, *(u for u, uses in enumerate(program) if n in uses)]) for n in range(len(program))]
    assert most_alive(range(len(items)), items) == max(
        sum(n <= at <= last[n] for n in range(len(program))) for at in range(len(program))
    )


def wide_sum(width):
    """Return a fusion that keeps ``width`` products before it adds them up, last first."""
    shape = "f32[512,128]{1,0:T(8,128)}"
    lines = [f"%p = {shape} parameter(0)", *(f"%m{n} = {shape} sine(%p)" for n in range(width))]
    lines += [f"%sum0 = {shape} add(%m{width - 1}, %m{width - 2})"]
    lines += [f"%sum{n} = {shape} add(%sum{n - 1}, %m{width - 2 - n})" for n in range(1, width - 1)]
    lines[-1] = f"ROOT {lines[-1]}"
    called = "%f {\n  " + "\n  ".join(lines) + "\n}\n"
    return f"%x = {shape} parameter(0)\nROOT %y = {shape} fusion(%x), kind=kLoop, calls=%f", called


def test_values_beyond_the_registers_are_spilled():
    """Sixteen more values than registers: each is stored and loaded once for each of the 64 registers of the array."""
    count = load_chip("v5e").vpu.registers
    stores = {}
    for width in (count // 2, count + 15):
        (kernel,) = lower_text(*wide_sum(width)).steps
        stores[width] = kernel.work.ops["store"] * kernel.tiles
    assert stores[count + 15] - stores[count // 2] == 64 * 16


def test_a_value_that_is_used_through_a_view_lives_until_then():
    """What a nested fusion takes and bitcasts is alive until that is computed with."""
    texts = [("add", ()), ("add", ()), ("bitcast", (0,)), ("add", (1,)), ("add", (2,))]
    items = [Inner(Named(), Instruction(f"v{n}", SHAPE, opcode), uses) for n, (opcode, uses) in enumerate(texts)]
    assert most_alive((0, 1, 3, 4), items) == 3


def test_the_largest_value_is_spilled():
    """A value of one register beside the others is computed first: what does not fit are 16 of 64 registers still."""
    count = load_chip("v5e").vpu.registers
    entry, called = wide_sum(count + 15)
    tile = "f32[8,128]{1,0:T(8,128)}"
    small = f"%c = {tile} slice(%p), slice={{[0:8], [0:128]}}\n  %s = {tile} sine(%c)"
    root = called.partition("ROOT ")[2].partition(" = ")[0]
    pair = f"({tile}, f32[512,128]{{1,0:T(8,128)}})"
    called = (
        called.replace("\n  %m0", f"\n  {small}\n  %m0")
        .replace("ROOT ", "")
        .replace("\n}", f"\n  ROOT %t = {pair} tuple(%s, {root})\n}}")
    )
    stores = []
    for text, body in (
        (entry, wide_sum(count + 15)[1]),
        (entry.replace("%y = f32[512,128]{1,0:T(8,128)}", f"%y = {pair}"), called),
    ):
        (kernel,) = lower_text(text, body).steps
        stores.append(kernel.work.ops["store"] * kernel.tiles)
    assert stores[1] - stores[0] == 1
