"""VMEM of the programs of traces/: the compiler placed them, so that no peak is above what the chip has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpusim.analysis.memory import memory_use
from tpusim.pipeline.stages import Prepared, prepare

TRACES = Path(__file__).parents[2] / "traces"
MIB = 2**20


def prepared(name: str) -> Prepared:
    """Return a program of traces/, lowered for its own chip."""
    return prepare(TRACES / f"{name}.hlo.txt.gz", None, None, None, 1)


# Where the scoped memory of the kernel ends that uses most of it; that of all three programs begins at 32 MiB.
STATED = {"memory/sgd.v7x": 65_167_360, "memory/block_grad.v7x": 64_851_968, "memory/gru.v7x": 41_943_040}


@pytest.mark.parametrize(("name", "n_bytes"), STATED.items(), ids=STATED)
def test_scoped_memory_begins_above_the_arrays(name, n_bytes):
    """Arrays of 32 MiB fill what is below: what kernels state as used counts them already."""
    assert memory_use(prepared(name).program).peak_vmem_bytes == n_bytes


def test_fields_of_a_stencil_that_came_in_as_slices_are_updated_where_they_lie():
    """Three fields of 8 MiB, one result of 8 MiB that is written into them, and a table of 1 KiB."""
    buffers = prepared("steps/fdtd_2d.v6e_1").program.buffers
    arrays = [b for b in buffers if b.space == "vmem" and b.kind == "temporary"]
    positions = {b.first for b in arrays}
    alive = (sum(b.n_bytes for b in arrays if b.first <= at <= b.last) for at in positions)
    assert max(alive) == 4 * 8 * MIB + 1024


def above_capacity() -> Iterator[tuple[str, int]]:
    """Yield the programs of traces/ whose peak of VMEM is above one core's capacity, and the peak."""
    for path in sorted(TRACES.rglob("*.hlo.txt.gz")):
        if re.search(r"\.v\d\w*\.hlo", path.name):
            program, chip, *_ = prepare(path, None, None, None, 1)
            peak = memory_use(program).peak_vmem_bytes
            if peak > chip.vmem.capacity_bytes:
                yield path.name, peak


@pytest.mark.slow
def test_no_compiled_program_needs_more_than_a_core_has():
    """The compiler placed all of them. With two cores to a program it plans for the VMEM of one all the same."""
    assert list(above_capacity()) == []
