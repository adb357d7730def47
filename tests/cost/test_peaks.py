"""Products of several types, each measured at the peak of its own."""

from __future__ import annotations

import pytest
from msgspec import json, structs

from tests.lowering.hlo import lower_text
from tpusim.analysis.roofline import roofline
from tpusim.analysis.summary import summarise
from tpusim.cost.peaks import flops_by_type, peak_flops_per_second, seconds_at_peak, type_shares, typed
from tpusim.cost.tile import floor_ps
from tpusim.hardware.load import chip_names, load_chip
from tpusim.hardware.units import MATRIX
from tpusim.machine.run import simulate_program
from tpusim.program.steps import Kernel
from tpusim.program.work import Floor, Matmul, Work
from tpusim.units import PS_PER_SECOND

CHIP = load_chip("v5e")
FIRST = "%a = s32[4096,4096]{1,0:T(8,128)} convolution(%x.1, %x.1), dim_labels=bf_io->bf"
SECOND = "%b = f32[4096,4096]{1,0:T(8,128)} convolution(%w.1, %w.1), dim_labels=bf_io->bf"
FLOPS = 2.0 * 4096**3
"""Of either product."""
TWO = Work(matmuls=(Matmul(1.0, 3e6, operand_type="s8"), Matmul(1.0, 1e6)))


def both(*lines, types=("s8", "bf16"), chip="v5e"):
    """Return the program of a fusion of two products."""
    x, w = (f"{name}[4096,4096]{{1,0:T(8,128)}}" for name in types)
    out = "(s32[4096,4096]{1,0:T(8,128)}, f32[4096,4096]{1,0:T(8,128)})"
    fused = (f"%x.1 = {x} parameter(0)", f"%w.1 = {w} parameter(1)", *lines, f"ROOT %t = {out} tuple(%a, %b)")
    entry = f"%x = {x} parameter(0)\n%w = {w} parameter(1)\nROOT %y = {out} fusion(%x, %w), kind=kOutput, calls=%f"
    return lower_text(entry, "%f {\n" + "\n".join(fused) + "\n}\n", chip=chip)


@pytest.mark.parametrize("lines", [(FIRST, SECOND), (SECOND, FIRST)])
def test_products_of_two_types_have_a_roof_that_both_are_under(lines):
    """The sum of their times at the peaks of their types, in whichever order they stand; MFU is its share."""
    program = both(*lines)
    timeline = simulate_program(program, CHIP)
    least_s = FLOPS / peak_flops_per_second(CHIP, "s8") + FLOPS / peak_flops_per_second(CHIP, "bf16")
    assert roofline(timeline, CHIP).roofs_ps[MATRIX] == pytest.approx(least_s * PS_PER_SECOND)
    assert least_s * PS_PER_SECOND < timeline.total_ps
    summary = summarise(program, CHIP, timeline)
    assert summary.model_flops_utilisation == pytest.approx(least_s * PS_PER_SECOND / timeline.total_ps)
    assert set(summary.peak_types) == {"s8", "bf16"}


@pytest.mark.parametrize("lines", [(FIRST, SECOND), (SECOND, FIRST)])
def test_the_type_that_is_named_takes_most_time_at_its_peak(lines):
    """As many operations in bf16 as in s8 take twice as long."""
    (kernel,) = both(*lines).steps
    assert (kernel.flops_type, kernel.type_shares) == ("bf16", {"s8": 0.5, "bf16": 0.5})


def test_products_of_one_type_state_no_shares():
    """So that a file of theirs is what it was."""
    (kernel,) = both(FIRST, SECOND, types=("bf16", "bf16")).steps
    assert b"type_shares" not in json.encode(kernel)


@pytest.mark.parametrize("chip_name", chip_names())
def test_what_a_kernel_states_is_split_by_type(chip_name):
    """A quarter of it in s8, at whatever rate the chip has for that."""
    chip = load_chip(chip_name)
    kernel = Kernel(name="k", opcode="f", floor=Floor(flops=1e12), type_shares={"s8": 0.25, "bf16": 0.75})
    each = (0.25e12 / peak_flops_per_second(chip, "s8"), 0.75e12 / peak_flops_per_second(chip, "bf16"))
    assert floor_ps(kernel, chip) == pytest.approx(sum(each) * PS_PER_SECOND)


def test_a_kernel_without_shares_has_those_of_its_rows():
    """One of a file that an older version wrote; its record says it as well."""
    kernel = Kernel(name="k", opcode="f", work=TWO, flops=4e9, product_flops=4e9, flops_type="s8")
    assert type_shares(kernel) == {"s8": 0.75, "bf16": 0.25}
    (record,) = simulate_program(structs.replace(both(FIRST, SECOND), steps=(kernel,)), CHIP).records
    assert flops_by_type(record, 4e9) == flops_by_type(kernel, 4e9) == {"s8": 3e9, "bf16": 1e9}


def test_rows_of_one_type_state_no_shares():
    """However many products they are of."""
    alike = Work(matmuls=(Matmul(1.0, 1.0), Matmul(1.0, 2.0)))
    assert type_shares(Kernel(name="k", opcode="f", work=alike)) == {}


def test_types_without_operations_are_not_named():
    """What no step runs is there all the same; of nothing at all the first is named, of no product none."""
    assert typed({"s8": 0.0, "bf16": 1.0}, CHIP) == {"flops_type": "bf16", "type_shares": {}}
    assert typed({"s8": 0.0}, CHIP) == {"flops_type": "s8", "type_shares": {}}
    assert typed({}, CHIP) == {}


def test_operations_of_no_type_take_no_time():
    """Nothing takes none."""
    assert seconds_at_peak({}, CHIP) == 0
