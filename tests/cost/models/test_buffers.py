"""Buffers and costs of operations that a chip can name."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.closed_form.test_every_key import product_text, text_of
from tpusim.cost.models.operations import OPERATIONS, Table
from tpusim.cost.tile import kernel_time
from tpusim.hardware.load import load_chip, override_chip
from tpusim.pipeline.stages import lower
from tpusim.program.steps import Kernel
from tpusim.program.work import Stream, Work
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

V5E = load_chip("v5e")
VMEM = "f32[1024,1024]{1,0:T(8,128)S(1)}"


def time_of(kernel, **overrides):
    """Return the parts of a kernel's time with another figure of the DMA engines."""
    return kernel_time(kernel, override_chip(V5E, {f"dma.{key}": value for key, value in overrides.items()}))


def test_ideal_buffers_wait_for_nothing():
    """A latency of a millisecond for each of 63 later blocks counts in rounds of two buffers, or not at all."""
    kernel = Kernel(name="k", opcode="fusion", tiles=64, streams=(Stream("x", "hbm", 65536.0, 64),))
    slow = {"fixed_latency_seconds": 1e-3}
    moving_ps = time_of(kernel, **slow).moving_ps
    assert time_of(kernel, **slow).rounds_ps == (63 * 10**9 + moving_ps) // 2
    assert time_of(kernel, **slow, model="ideal").least_ps == 0


class Dear(Table):
    """Ten times the work of a tangent, and twice the tiles of what has one."""

    def work(self, instruction, work, chip):
        """Return ten times as much for a tangent."""
        return work * 10 if instruction.opcode == "tanh" else work

    def kernel(self, instruction, kernel, chip):
        """Return a kernel of twice the tiles."""
        return structs.replace(kernel, tiles=2 * kernel.tiles)


@pytest.fixture
def dear():
    """Return v5e with dear operations."""
    OPERATIONS.enter("dear")(Dear)
    return override_chip(V5E, {"vpu.model": "dear"})


class DearOnce(Table):
    """A thousand times the work of one direction of comparing."""

    def work(self, instruction, work, chip):
        """Return more for ``LT``."""
        return work * (1000 if instruction.attributes.get("direction") == "LT" else 1)


def kernel_of(text, chip):
    """Return the only step of a module."""
    (step,) = lower(parse_module(SourceText("m.hlo", text)), chip).steps
    return step


def test_an_operation_costs_what_its_model_says(dear):
    """Ten times the table's operations on its units, the loads and stores around it as before; and twice the tiles."""
    text = text_of(f"%x = {VMEM} parameter(0)", f"ROOT %y = {VMEM} tanh(%x)")
    own, before = kernel_of(text, dear), kernel_of(text, V5E)
    traffic = {unit: before.work.ops[unit] for unit in ("load", "store")}
    assert own.tiles == 2 * before.tiles
    expected = {unit: 10 * count for unit, count in before.work.ops.items() if unit not in traffic} | traffic
    assert own.work.ops == pytest.approx(expected)


def test_a_model_may_look_at_more_than_opcode_and_shape():
    """It is asked of each operation, also if it begins from the table."""
    OPERATIONS.enter("dear once")(DearOnce)
    chip, mask = override_chip(V5E, {"vpu.model": "dear once"}), "pred[1024,1024]{1,0:T(8,128)(4,1)S(1)}"
    times = []
    for one, other in (("GT", "LT"), ("LT", "GT"), ("GT", "GT")):
        lines = f"%a = {mask} compare(%p, %q), direction={one}\n%b = {mask} compare(%p, %q), direction={other}"
        called = f"%p = {VMEM} parameter(0)\n%q = {VMEM} parameter(1)\n{lines}\nROOT %c = {mask} and(%a, %b)"
        entry = f"%x = {VMEM} parameter(0)\nROOT %y = {mask} fusion(%x, %x), kind=kLoop, calls=%f"
        text = f"HloModule m, is_scheduled=true\n%f {{\n{called}\n}}\nENTRY %e {{\n{entry}\n}}\n"
        times.append(kernel_of(text, chip).work.ops["vector"])
    assert times[0] == times[1] > 100 * times[2]


def test_a_product_is_the_arrays(dear):
    """What the matrix units do is no operation of the table."""
    text = product_text("bf16", "f32")
    assert kernel_of(text, dear).work == kernel_of(text, V5E).work
    assert kernel_of(text, V5E).work != Work()
