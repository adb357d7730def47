"""The loop inside a tile: how long a turn takes, and for how long it holds registers, against a schedule by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lowering.hlo import ADD, kernel_named, lower_text
from tpusim.cost.tile import alone_ps
from tpusim.hardware.load import load_chip

LATENCY = load_chip("v5e").vector_ops.latency
LOAD, STORE, VECTOR = LATENCY["load"], LATENCY["store"], LATENCY["vector"]
SHAPE = "f32[64,128]{1,0:T(8,128)}"


def loop_of(*lines, shape=SHAPE):
    """Return the loop of a fusion of one operand %p with these lines, the last its root."""
    *inner, root = (line.replace("$", shape) for line in lines)
    called = "\n  ".join([f"%p = {shape} parameter(0)", *inner, f"ROOT {root}"])
    entry = f"%x = {shape} parameter(0)\nROOT %y = {shape} fusion(%x), kind=kLoop, calls=%f"
    (kernel,) = lower_text(entry, f"%f {{\n  {called}\n}}\n").steps
    return kernel.vector_loop, kernel.tiles


def test_a_turn_lasts_from_its_load_to_its_store():
    """Two additions, one after the other, of eight registers."""
    loop, tiles = loop_of("%a = $ add(%p, %p)", "%b = $ add(%a, %p)")
    assert loop.turns * tiles == 8
    assert loop.depth_cycles == LOAD + 2 * VECTOR + STORE
    # Each result is read, or stored, as soon as it is there.
    assert loop.held_cycles == 2


def test_a_value_that_is_needed_later_is_held_until_then():
    """Four negations in a row, and the first operand of the last addition waits for all of them."""
    chain = [f"%n{n} = $ negate(%{'a' if not n else f'n{n - 1}'})" for n in range(4)]
    loop, _ = loop_of("%a = $ add(%p, %p)", *chain, "%b = $ add(%a, %n3)")
    assert loop.depth_cycles == LOAD + 6 * VECTOR + STORE
    assert loop.held_cycles == pytest.approx(1 + 4 * VECTOR + 4 + 1)


def test_an_expansion_is_as_deep_as_its_operations():
    """Those of an exponential wait for each other, and for the transcendental unit."""
    loop, _ = loop_of("%e = $ exponential(%p)")
    cost = load_chip("v5e").vector_ops.ops["exponential"]
    assert loop.depth_cycles == LOAD + sum(count * LATENCY[unit] for unit, count in cost.items()) + STORE


@pytest.mark.parametrize("slots", [2, 8])
def test_what_waits_is_as_deep_as_the_cycles_that_it_waits(slots):
    """A scan of 4096 additions: a cycle for each, whatever slots stay empty meanwhile."""
    step = (
        "step { x = f32[] parameter(0) c = f32[] parameter(1) y = f32[] add(x, c) ROOT r = (f32[], f32[]) tuple(y, y) }"
    )
    entry = """a = f32[4096] parameter(0)
        z = f32[] constant(0)
        ROOT r = (f32[4096], f32[]) scan(a, z), dimensions={0}, num_carries=1, to_apply=step"""
    (kernel,) = lower_text(entry, step, load_chip("v5e", {"vpu.alu_slots": slots})).steps
    turns = kernel.vector_loop.turns
    moved = sum(kernel.work.ops[unit] / turns * LATENCY[unit] for unit in ("load", "store"))
    assert kernel.vector_loop.depth_cycles == pytest.approx(LOAD + 4096 / turns + moved + STORE, rel=0.05)


ACCESS = sum(count * LATENCY.get(unit, 1.0) for unit, count in load_chip("v5e").vector_ops.moves["row_access"].items())
"""The address of a row and its bounds; then a register of it is loaded, moved or combined, and stored."""
LINES = "{0,1:T(8,128)}"
"""Rows of a single element lie side by side in the lanes: many of them in a register."""
TABLES = [8, 512, 4096, 32768, 2**20]
ROWS = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,1}"
UPDATES = (
    "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
    "to_apply=%add"
)
LOOK_UPS = {
    "gather": f"ROOT %y = f32[1024,1]{LINES} gather(%t, %i), {ROWS}",
    "scatter": f"%u = f32[1024,1]{LINES} parameter(2)\nROOT %y = f32[$,1]{LINES} scatter(%t, %i, %u), {UPDATES}",
}


def look_up(opcode, rows):
    """Return the kernel that reads or writes 1,024 single elements of a table of so many."""
    lines = f"%t = f32[$,1]{LINES} parameter(0)\n%i = s32[1024]{{0:T(1024)}} parameter(1)\n{LOOK_UPS[opcode]}"
    return kernel_named(lower_text(lines.replace("$", str(rows)), ADD), "y")


@pytest.mark.parametrize("rows", TABLES)
@pytest.mark.parametrize("opcode", LOOK_UPS)
def test_rows_that_are_addressed_do_not_wait_for_each_other(opcode, rows):
    """The last turn is as deep as one access, whatever the table's size, and however many fill a register."""
    assert look_up(opcode, rows).vector_loop.depth_cycles == LOAD + ACCESS + VECTOR + LOAD + STORE + STORE


def test_a_smaller_table_is_never_slower_to_read():
    """The same elements by the same indices."""
    chip = load_chip("v5e")
    times = [alone_ps(look_up("gather", rows), chip) for rows in TABLES]
    assert times == sorted(times)


@pytest.mark.parametrize(("width", "registers"), [(128, 1), (4096, 4)])
def test_a_wide_row_is_no_deeper_than_a_narrow_one(width, registers):
    """Its registers share an address, and wait for none of their neighbours."""
    lines = f"""%t = f32[64,{width}]{{1,0:T(8,128)}} parameter(0)
        %i = s32[24]{{0:T(128)}} parameter(1)
        ROOT %y = f32[24,{width}]{{1,0:T(8,128)}} gather(%t, %i), {ROWS.replace("{1,1}", f"{{1,{width}}}")}"""
    loop = kernel_named(lower_text(lines), "y").vector_loop
    assert loop.depth_cycles == pytest.approx(LOAD + ACCESS / registers + VECTOR + LOAD + STORE + STORE)


def test_a_kernel_that_only_moves_has_no_turns():
    """A copy in its own layout computes nothing."""
    (kernel,) = lower_text(f"%x = {SHAPE} parameter(0)\nROOT %y = {SHAPE} copy(%x)").steps
    assert kernel.vector_loop.held_cycles <= 1


STACKED = """
  %x = f32[ROWS,64,128]{2,1,0:T(8,128)} parameter(0)
  %u = f32[1,64,128]{2,1,0:T(8,128)} parameter(1)
  %i = s32[] parameter(2)
  ROOT %y = f32[ROWS,64,128]{2,1,0:T(8,128)} fusion(%x, %u, %i), kind=kLoop, calls=%f
"""
UPDATE = """%f {
  %p = f32[ROWS,64,128]{2,1,0:T(8,128)} parameter(0)
  %v = f32[1,64,128]{2,1,0:T(8,128)} parameter(1)
  %j = s32[] parameter(2)
  %zero = s32[] constant(0)
  %n = f32[1,64,128]{2,1,0:T(8,128)} negate(%v)
  ROOT %d = f32[ROWS,64,128]{2,1,0:T(8,128)} dynamic-update-slice(%p, %n, %j, %zero, %zero)
}
"""


def test_an_update_in_place_turns_as_often_as_it_has_registers():
    """Eight, whatever they are put into: as in a loop of many trips that stacks what it makes."""
    kernels = [lower_text(*(text.replace("ROWS", rows) for text in (STACKED, UPDATE))).steps for rows in ("2", "99999")]
    assert [kernel.vector_loop.turns * kernel.tiles for (kernel,) in kernels] == [8, 8]


@st.composite
def straight_lines(draw):
    """Draw the two operands of each of a few additions: earlier ones by number, or the parameter (-1)."""
    return [draw(st.tuples(*[st.integers(-1, n - 1)] * 2)) for n in range(draw(st.integers(1, 8)))]


@given(straight_lines())
def test_lifetimes_are_those_of_the_earliest_schedule(program):
    """Counted cycle by cycle: a register is taken from when it is written to when its last reader starts."""
    # Only what the result needs is computed.
    needed, todo = set(), [len(program) - 1]
    while todo:
        at = todo.pop()
        if at >= 0 and at not in needed:
            needed.add(at)
            todo.extend(program[at])
    start, ready = {}, {-1: LOAD}
    for at in sorted(needed):
        start[at] = max(ready[operand] for operand in program[at])
        ready[at] = start[at] + VECTOR
    held = 0
    for at in needed:
        readers = [start[other] for other in needed if at in program[other]]
        held += max([ready[at], *readers]) - ready[at] + 1
    lines = [f"%v{n} = $ add({', '.join(map(name, program[n]))})" for n in sorted(needed)]
    loop, _ = loop_of(*lines)
    assert loop.held_cycles == pytest.approx(held)
    assert loop.depth_cycles == max(ready.values()) + STORE


def name(number):
    """Return what an operand is called."""
    return f"%v{number}" if number >= 0 else "%p"
