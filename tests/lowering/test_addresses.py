"""Streams say where they begin and how far apart their runs are, for a memory that asks."""

from __future__ import annotations

import pytest

from tests.closed_form.test_every_key import TRACES, text_of
from tpusim.hardware.load import load_chip, override_chip
from tpusim.pipeline.stages import lower
from tpusim.program.steps import Copy, Kernel
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

BANKED = {"hbm.model": "banked"}
MEGABYTE = "f32[512,512]{1,0:T(8,128)}"
IN_VMEM = "f32[512,512]{1,0:T(8,128)S(1)}"


def steps_of(*lines: str, chip=None):
    """Return the steps of a module on v5e with banks."""
    module = parse_module(SourceText("m.hlo", text_of(*lines)))
    return lower(module, chip or override_chip(load_chip("v5e"), BANKED)).steps


def test_arrays_lie_beside_each_other():
    """Two arguments, a temporary between them and a result, 1 MiB each: four places that do not overlap."""
    first, second = steps_of(
        f"%x = {MEGABYTE} parameter(0)",
        f"%z = {MEGABYTE} parameter(1)",
        f"%y = {MEGABYTE} add(%x, %z)",
        f"ROOT %w = {MEGABYTE} sqrt(%y)",
    )
    places = {stream.operand: stream.address for step in (first, second) for stream in step.streams}
    # What is returned may lie where the temporary did not.
    assert min(places.values()) == 0
    assert sorted(places) == ["w", "x", "y", "z"]
    assert all(abs(a - b) >= 2**20 for a in places.values() for b in places.values() if a != b)
    assert places["x"] != places["z"]


def test_a_copy_has_the_place_of_what_it_reads():
    """From HBM into VMEM: VMEM has no address here."""
    start, *_ = steps_of(
        f"%x = {MEGABYTE} parameter(0)",
        f"%s = ({IN_VMEM}, {MEGABYTE}, u32[]{{:S(2)}}) copy-start(%x)",
        f"ROOT %y = {IN_VMEM} copy-done(%s)",
    )
    assert isinstance(start, Copy)
    assert start.source_address >= 0
    assert start.target_address is None


@pytest.mark.parametrize("name", ["dlrm_b2048.v5p", "llama1b_decode_b16s2048.v6e"])
def test_every_stream_of_a_program_has_a_place(name):
    """Inside loops as well, where an operand is a part of the loop's state."""
    program = lower(TRACES / f"{name}.hlo.txt.gz", overrides=BANKED)
    kernels = [step for step in program.every_step if isinstance(step, Kernel)]
    streams = [stream for step in kernels for stream in step.streams if stream.space == "hbm"]
    assert streams
    assert all(stream.address is not None for stream in streams)
    assert all(stream.stride_bytes >= stream.chunk_bytes for stream in streams if stream.stride_bytes)


def test_a_memory_of_one_rate_asks_for_nothing():
    """Its programs are what they were."""
    (step,) = steps_of(f"%x = {MEGABYTE} parameter(0)", f"ROOT %y = {MEGABYTE} sqrt(%x)", chip=load_chip("v5e"))
    assert {(stream.address, stream.stride_bytes) for stream in step.streams} == {(None, 0)}


def test_rows_of_a_block_are_a_row_of_the_array_apart():
    """Blocks of 512 columns of 2048: runs of 4 tiles of a row of tiles, which is 16 tiles long."""
    shape = "f32[512,2048]{1,0:T(8,128)}"
    config = 'backend_config={"window_config":{"output_window_bounds":["64","4"],"iteration_bounds":["1","4"]}}'
    called = "%f {\n  %p = " + shape + " parameter(0)\n  ROOT %n = " + shape + " negate(%p)\n}\n"
    lines = (f"%x = {shape} parameter(0)", f"ROOT %y = {shape} fusion(%x), kind=kLoop, calls=%f, {config}")
    module = parse_module(SourceText("m.hlo", text_of(*lines, others=called)))
    (step,) = lower(module, override_chip(load_chip("v5e"), BANKED)).steps
    assert {(s.chunk_bytes, s.stride_bytes) for s in step.streams} == {(4 * 4096, 16 * 4096)}
