"""Work: what a tile asks of the functional units, added and multiplied."""

from __future__ import annotations

import pytest

from tpusim.errors import ProgramError
from tpusim.hardware.load import chip_names, load_chip
from tpusim.hardware.units import UNITS, chip_value, counted_units
from tpusim.program.module import Program
from tpusim.program.steps import Kernel
from tpusim.program.verify import verify_program
from tpusim.program.work import Matmul, Work, sum_work


def test_work_adds_unit_by_unit():
    """Units that only one of the two uses are kept, products stand one after the other."""
    first, second = (
        Work((Matmul(1, 2),), {"vector": 3.0, "eup": 1.0}),
        Work((Matmul(3, 4),), {"vector": 4.0, "load": 2.0}),
    )
    assert first + second == Work((Matmul(1, 2), Matmul(3, 4)), {"vector": 7.0, "eup": 1.0, "load": 2.0})


def test_a_multiple_of_work_is_one_of_all_its_parts():
    """Rows, tiles, results and parked ones of a product, and operations of every unit; type and passes stay."""
    work = Work((Matmul(1, 2, 3, 4, 5, "s8", 3),), {"xlu": 5.0})
    assert work * 2 == Work((Matmul(2, 4, 6, 8, 10, "s8", 3),), {"xlu": 10.0})


def test_a_sum_names_no_unit_that_has_nothing_to_do():
    """So that files of programs are as short as their work."""
    assert sum_work([Work(ops={"load": 0.0}), Work(ops={"store": 1.0}), Work()]) == Work(ops={"store": 1.0})


def test_work_does_not_change_when_another_is_added_to_it():
    """Work is shared by instructions: a sum is an object of its own."""
    work = Work(ops={"vector": 1.0})
    assert (work + work).ops == {"vector": 2.0}
    assert work.ops == {"vector": 1.0}


@pytest.mark.parametrize(("unit", "words"), [("vectr", "'vectr' .did you mean 'vector'"), ("hbm", "found 'hbm'")])
def test_work_of_a_unit_that_does_not_exist_is_refused(unit, words):
    """A slip would else cost nothing; bytes of a memory are streams, not operations."""
    step = Kernel(name="k", opcode="f", work=Work(ops={unit: 1.0}))
    with pytest.raises(ProgramError, match=f"'k': work.ops: expected one of vector, .*{words}"):
        verify_program(Program(name="p", chip="v5e", steps=(step,)))


@pytest.mark.parametrize("name", chip_names())
def test_every_chip_has_the_rates_that_the_table_of_units_names(name):
    """A key that no chip has would be found only when a kernel uses the unit."""
    chip = load_chip(name)
    keys = [key for unit in UNITS.values() for key in (unit.slots, unit.op_cycles, unit.share, unit.rate)]
    assert all(chip_value(chip, key) >= 0 for key in keys if key)
    assert {unit.key for unit in counted_units()} == {"vector", "eup", "xlu", "load", "store", "scalar"}
