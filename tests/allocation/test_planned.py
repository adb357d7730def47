"""Buffers that are made when they are looked at: in every other way as the tuple of them, and none made by a run."""

from __future__ import annotations

import pickle

import pytest
from msgspec import structs

from tests.allocation.test_plan import LOOP
from tests.lowering.hlo import lower_module_text
from tpusim.hardware.units import HBM
from tpusim.pipeline.stages import simulate
from tpusim.program.buffers import Buffer, PlannedBuffers, sizes_of
from tpusim.program.module import Program

IN_VMEM = LOOP.replace("%t = f32[1024,1024]{1,0:T(8,128)}", "%t = f32[1024,1024]{1,0:T(8,128)S(1)}")


@pytest.fixture(name="program")
def _program() -> Program:
    return lower_module_text(IN_VMEM)


def shown(buffer: Buffer) -> tuple[object, ...]:
    """What a buffer and its size agree in."""
    offset = buffer.offset_bytes if buffer.space == HBM else None
    return buffer.n_bytes, buffer.space, buffer.kind, buffer.first, buffer.last, buffer.within, offset


def test_sizes_are_those_of_the_buffers(program: Program) -> None:
    """One for each, in their order, with its life and, in HBM, its place."""
    assert [shown(size) for size in sizes_of(program.buffers)] == [shown(buffer) for buffer in program.buffers]


def test_a_buffer_in_vmem_has_a_place_when_it_is_looked_at(program: Program) -> None:
    """Its size alone has none."""
    at = next(at for at, buffer in enumerate(program.buffers) if buffer.name == "t")
    assert program.buffers[at].offset_bytes is not None
    assert sizes_of(program.buffers)[at].offset_bytes is None


def test_a_run_makes_no_buffers(program: Program) -> None:
    """Nor do the figures of its memory."""
    result = simulate(program)
    assert result.summary.memory.peak_vmem_bytes > 0
    assert isinstance(program.buffers, PlannedBuffers)
    assert "made" not in vars(program.buffers)


def test_planned_buffers_are_as_a_tuple_of_them(program: Program) -> None:
    """Compared, hashed, cut, counted, printed, and sent to another process."""
    made, planned = tuple(program.buffers), program.buffers
    assert planned == made
    assert (hash(planned), len(planned), planned[1:3], repr(planned)) == (hash(made), len(made), made[1:3], repr(made))
    assert pickle.loads(pickle.dumps(planned)) == made
    assert structs.replace(program, buffers=made) == program
