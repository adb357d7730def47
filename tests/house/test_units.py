"""Units and memories are named in their table and nowhere else; one more needs a row, a rate and work."""

from __future__ import annotations

import ast

import pytest

import tpusim
from tests.house.source_tree import read_files
from tpusim import export, plot
from tpusim.hardware.load import load_chip
from tpusim.hardware.units import MEMORY_SPACES, UNITS, Unit
from tpusim.program.module import Program
from tpusim.program.steps import Kernel
from tpusim.program.work import Work
from tpusim.shapes import layout

PLAIN_WORDS = frozenset({"matrix", "vector", "load", "store", "scalar", "host", "other"})
"""Keys and labels that are words of their own: refused as keys of tables only."""

MAY_NAME = {
    "tpusim/hardware/units.py": "the table itself",
    "tpusim/shapes/layout.py": "shapes stand below hardware; a test below holds both tables together",
}

SORTER = Unit(
    key="sorter", label="sort unit", short="sort", bound="SORT", less="fewer sorts", colour="#405060", hatch="**",
    slots="units.sorter.slots", op_cycles="units.sorter.cycles_per_op",
)  # fmt: skip


def names_of_units(tree):
    """Yield the places that name units: literals, and tables with two of them as keys."""
    keys = set(UNITS)
    words = {word for unit in UNITS.values() for word in (unit.key, unit.label, unit.bound, unit.name)} - PLAIN_WORDS
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value and node.value in words:
            yield node.lineno, node.value
        if isinstance(node, ast.Dict):
            found = [key.value for key in node.keys if isinstance(key, ast.Constant) and key.value in keys]
            if len(found) > 1:
                yield node.lineno, f"a table of {', '.join(found)}"


def test_units_are_named_in_their_table_only():
    """A literal elsewhere would have to be found when a unit comes or is renamed."""
    files = [file for file in read_files("tpusim") if file.path not in MAY_NAME]
    assert [f"{file.path}:{line} {what}" for file in files for line, what in names_of_units(file.tree)] == []


@pytest.mark.parametrize("text", ["x = {'matrix': 1, 'vector': 2}", "y == 'xlu'", "'vector ALU'", "z['hbm']"])
def test_a_name_elsewhere_would_be_found(text):
    """The search finds what it is for."""
    assert list(names_of_units(ast.parse(text)))


def test_shapes_call_memories_as_the_table_does():
    """By XLA's number, for the page of a layout."""
    assert {number: UNITS[space].label for number, space in MEMORY_SPACES.items()} == layout.MEMORY_SPACES


@pytest.fixture
def run(monkeypatch):
    """Return the run of a kernel on a chip with a unit that nothing but the table, the chip and the work knows."""
    monkeypatch.setitem(UNITS, SORTER.key, SORTER)
    chip = load_chip("v5e", {"units.sorter.slots": 2, "units.sorter.cycles_per_op": 8})
    step = Kernel(
        name="k", opcode="fusion", category="sort", work=Work(ops={SORTER.key: 1000.0, "vector": 10.0}), tiles=5
    )
    return tpusim.simulate(Program(name="p", chip="v5e", steps=(step,)), chip)


def test_a_new_unit_is_costed_and_recorded(run):
    """1,000 operations of 8 cycles on 2 slots, five times; it bounds the kernel."""
    (record,) = run.timeline.records
    assert record.units[SORTER.key] == pytest.approx(5 * 4000 / run.chip.clock_hz * 1e12, rel=1e-6)
    assert record.activity[SORTER.key] == 5000
    assert record.bound_by == "SORT"


def test_a_new_unit_is_in_the_report_and_the_explanation(run):
    """Its share of the time, what bounds, and what would help."""
    assert "sort unit 9" in str(run)
    assert "SORT" in str(run)
    assert "The sort unit is the longest of a tile: fewer sorts" in str(tpusim.explain(run.program, "k", chip=run.chip))


def test_a_new_unit_is_in_pictures_and_traces(run, tmp_path):
    """A row of the time line, a column of the layers, a thread of the trace."""
    texts = {text.get_text() for figure in (plot.timeline(run), plot.utilisation(run)) for text in figure.findobj(
        lambda artist: hasattr(artist, "get_text"))}  # fmt: skip
    assert {"sort unit", "sort", "SORT"} <= texts
    export.perfetto(run, tmp_path / "trace.json")
    assert "sort unit" in (tmp_path / "trace.json").read_text()


def test_opcodes_may_cost_operations_of_a_new_unit(run):
    """The table of operations takes every unit that counts them."""
    assert load_chip("v5e", {"vector_ops.ops.sort.sorter": 3}).vector_ops.ops["sort"]["sorter"] == 3


def test_work_for_a_unit_that_the_chip_does_not_have_is_refused(run):
    """Not timed as nothing."""
    with pytest.raises(tpusim.ConfigError, match=r"chip 'v6e': expected 'units.sorter.*' for work of that unit"):
        tpusim.simulate(run.program, load_chip("v6e"))
