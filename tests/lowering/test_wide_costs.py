"""Vector work on 64-bit and complex numbers: a register's number of elements at a time, with all words of each."""

from __future__ import annotations

import pytest

from tests.lowering.hlo import kernel_named, lower_text
from tests.lowering.test_vector_costs import CHIP, MOVES, OPS, assert_computes, at_cost, tiled
from tpusim.cost.operations.table import cost_of_type, operation_cost
from tpusim.shapes.notation import parse_shape

REGISTERS = 32
"""Of one word of each element of an array of 64 x 512."""


def work_of(element_type, result, call, shape="[64,512]"):
    """Return the whole work, by unit, of one instruction of ``a`` and ``b``, arrays of a type."""
    scalars = f"%x = {element_type}[] parameter(0)\n%w = {element_type}[] parameter(1)\n"
    others = f"%add {{\n{scalars}ROOT %r = {element_type}[] add(%x, %w)\n}}\n"
    others += f"%less {{\n{scalars}ROOT %r = pred[] compare(%x, %w), direction=LT\n}}\n"
    number = "(0, 0)" if element_type.startswith("c") else "0"
    lines = [f"%{name} = {tiled(element_type + shape)} parameter({n})" for n, name in enumerate("ab")]
    lines += [f"%zero = {element_type}[] constant({number})", f"ROOT %y = {tiled(result)} {call}"]
    kernel = kernel_named(lower_text("\n".join(lines), others, CHIP), "y")
    return {unit: count * kernel.tiles for unit, count in kernel.work.ops.items()}


@pytest.mark.parametrize("element_type", ["s64", "u64", "f64", "c64", "c128"])
@pytest.mark.parametrize("opcode", ["add", "multiply", "divide"])
def test_arithmetic_costs_what_the_table_says_of_the_type(element_type, opcode):
    """Elements of two and of four words fill as many more registers, which the table has in it already."""
    found = work_of(element_type, f"{element_type}[64,512]", f"{opcode}(%a, %b)")
    assert_computes(found, at_cost((REGISTERS, cost_of_type(CHIP, opcode, element_type))))


def test_a_product_of_complex_numbers_is_six_operations():
    """Four products, a sum and a difference: no fewer than half of what six of f32 take."""
    found = work_of("c64", "c64[64,512]", "multiply(%a, %b)")
    assert_computes(found, at_cost((6 * REGISTERS, OPS["multiply"])))


@pytest.mark.parametrize(("direction", "operations"), [("LT", 5), ("EQ", 3), ("NE", 3)])
def test_a_comparison_is_of_the_words_that_it_takes(direction, operations):
    """Its result is narrow; that two words are equal is quicker known than which are less."""
    found = work_of("s64", "pred[64,512]{1,0:T(8,128)(4,1)}", f"compare(%a, %b), direction={direction}")
    assert found["vector"] - PACKED == pytest.approx(operations * REGISTERS)


PACKED = REGISTERS * CHIP.vector_ops.pack["pred"]["vector"]
"""What it takes to put the bits into memory, as of any comparison."""


@pytest.mark.parametrize("target", ["s64", "f64", "u64"])
def test_a_conversion_is_between_its_two_types(target):
    """To and from words, and from one pair of words to another."""
    for source in ("s32", "f64" if target != "f64" else "s64"):
        shapes = parse_shape(f"{target}[64,512]"), [parse_shape(f"{source}[64,512]")]
        found = work_of(source, f"{target}[64,512]", "convert(%a)")
        assert_computes(found, at_cost((REGISTERS, operation_cost(CHIP, "convert", {}, *shapes))))


def test_a_reduction_combines_all_words_of_an_element():
    """Whole registers are added: four of each place, of real and of imaginary parts."""
    call = "reduce(%a, %zero), dimensions={0}, to_apply=%add"
    found = work_of("c64", "c64[64,512]", call, "[4,64,512]")
    assert_computes(found, at_cost((4 * REGISTERS, cost_of_type(CHIP, "add", "c64"))))


def test_both_words_of_a_row_are_folded():
    """One register of every eight rows goes through the cross-lane unit, and another one of imaginary parts."""
    found = work_of("c64", "c64[64]", "reduce(%a, %zero), dimensions={1}, to_apply=%add")
    folds = 2 * 8, MOVES["lane_reduce"]
    assert_computes(found, at_cost((REGISTERS, cost_of_type(CHIP, "add", "c64")), folds))


def test_a_window_combines_all_words_and_shifts_each():
    """Two neighbours along the sublanes, each of two words."""
    found = work_of("s64", "s64[62,512]", "reduce-window(%a, %zero), window={size=3x1}, to_apply=%add")
    shifts = 2 * 2 * REGISTERS, MOVES["sublane_shift"]
    assert_computes(found, at_cost((2 * REGISTERS, cost_of_type(CHIP, "add", "s64")), shifts))


def test_a_sort_compares_elements_and_exchanges_words():
    """Of 512 in a row: 45 stages, in each of which half as many comparisons as elements decide over both words."""
    found = work_of("u64", "u64[64,512]", "sort(%a), dimensions={1}, to_apply=%less")
    swap = (45 * 2 * REGISTERS, OPS["sort"]), (45 * 2 * REGISTERS, MOVES["lane_exchange"])
    assert_computes(found, at_cost(*swap, (45 * REGISTERS / 2 * 5, {"vector": 1})))


def test_a_computation_is_mapped_over_elements():
    """As often as there are some."""
    found = work_of("f64", "f64[64,512]", "map(%a, %b), dimensions={0,1}, to_apply=%add")
    assert_computes(found, at_cost((REGISTERS, cost_of_type(CHIP, "add", "f64"))))


def test_values_of_one_shape_are_told_apart_by_what_they_are_made_of():
    """What a kernel's value takes is kept for those that are alike: not for comparisons of other types."""
    body = """
%made {
  %a = s64[64,512]{1,0:T(8,128)} parameter(0)
  %b = s32[64,512]{1,0:T(8,128)} parameter(1)
  %p = pred[64,512]{1,0:T(8,128)(4,1)} compare(%a, %a), direction=LT
  %q = pred[64,512]{1,0:T(8,128)(4,1)} compare(%b, %b), direction=LT
  %e = pred[64,512]{1,0:T(8,128)(4,1)} compare(%a, %a), direction=EQ
  %pq = pred[64,512]{1,0:T(8,128)(4,1)} and(%p, %q)
  ROOT %r = pred[64,512]{1,0:T(8,128)(4,1)} and(%pq, %e)
}
"""
    entry = """
%a = s64[64,512]{1,0:T(8,128)} parameter(0)
%b = s32[64,512]{1,0:T(8,128)} parameter(1)
ROOT %y = pred[64,512]{1,0:T(8,128)(4,1)} fusion(%a, %b), kind=kLoop, calls=%made
"""
    kernel = kernel_named(lower_text(entry, body, CHIP), "y")
    assert kernel.work.ops["vector"] * kernel.tiles - PACKED == pytest.approx((5 + 1 + 3 + 2) * REGISTERS)
