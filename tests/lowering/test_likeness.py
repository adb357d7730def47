"""Fusions and values that are alike are lowered once: those that differ in what they take are not alike."""

from __future__ import annotations

import pytest

from .hlo import kernel_named, lower_text

GIVEN = {"a": "f32[64,512]{1,0:T(8,128)}", "b": "f32[24,256]{1,0:T(8,128)}"}
SQUARE = "f32[512,512]{1,0:T(8,128)}"


def two(first: tuple[str, ...], second: tuple[str, ...]):
    """Return the kernels ``y0`` and ``y1`` of two fusions that hold these lines, each of arrays of its own."""
    entry, called = [], []
    for number, lines in enumerate((first, second)):
        used = [name for name in GIVEN if f"%{name}" in " ".join(lines)]
        named = [f"%{name} = {GIVEN[name]} parameter({at})" for at, name in enumerate(used)]
        called.append("\n".join((f"%called{number} {{", *named, *lines, "}\n")))
        entry += [
            f"%{name}{number} = {GIVEN[name]} parameter({number * len(used) + at})" for at, name in enumerate(used)
        ]
        operands = ", ".join(f"%{name}{number}" for name in used)
        entry.append(f"%y{number} = {GIVEN['a']} fusion({operands}), kind=kLoop, calls=%called{number}")
    entry.append(f"ROOT %out = ({GIVEN['a']}, {GIVEN['a']}) tuple(%y0, %y1)")
    program = lower_text("\n".join(entry), "\n".join(called))
    return kernel_named(program, "y0"), kernel_named(program, "y1")


def test_kernels_that_are_alike_have_names_and_lines_of_their_own():
    """What they take is the same."""
    one, other = two((f"ROOT %p = {GIVEN['a']} negate(%a)",), (f"ROOT %q = {GIVEN['a']} negate(%a)",))
    assert (one.work, one.tiles, one.flops) == (other.work, other.tiles, other.flops)
    assert [stream.operand for stream in other.streams] == ["a1", "y1"]
    assert other.line == one.line + 2


def update(row: int) -> tuple[str, ...]:
    """Return the lines of an update of ``a`` by ``b`` that begins at a row."""
    constants = f"%i = s32[] constant({row})", "%j = s32[] constant(0)"
    return *constants, f"ROOT %y = {GIVEN['a']} dynamic-update-slice(%a, %b, %i, %j)"


@pytest.mark.parametrize("first", [8, 9])
def test_an_update_that_begins_elsewhere_takes_work_of_its_own(first):
    """Aligned to registers or not: shapes and attributes are the same, but not the value that says where."""
    one, other = two(update(first), update(17 - first))
    alone, _ = two(update(first), update(first))
    assert one.work == alone.work != other.work


def test_values_of_one_shape_that_state_something_else_are_not_alike():
    """Spreading elements over lanes takes other work than spreading them over rows."""
    line = "%s = f32[512]{0:T(512)} iota(), iota_dimension=0"
    sliced = f"%u = {GIVEN['a']} slice(%t), slice={{[0:64], [0:512]}}"
    end = f"ROOT %y = {GIVEN['a']} add(%a, %u)"
    over_rows, over_lanes = (f"%t = {SQUARE} broadcast(%s), dimensions={{{d}}}" for d in (1, 0))
    one, other = two((line, over_rows, sliced, end), (line, over_lanes, sliced, end))
    assert one.work != other.work
