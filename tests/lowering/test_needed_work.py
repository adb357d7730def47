"""What a kernel computes and moves of its inner values: what is needed of them, as often as it is made anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lowering.hlo import kernel_named, lower_text
from tpusim.hardware.load import load_chip
from tpusim.hardware.units import EUP
from tpusim.pipeline.stages import simulate

DATA = Path(__file__).parents[1] / "data" / "hlo"
BIG = "f32[4096,1024]{1,0:T(8,128)}"
PART = "f32[512,1024]{1,0:T(8,128)}"
REGISTERS = 512 * 1024 / 1024
"""Registers of 8 x 128 that ``PART`` fills."""


def fused(called, result=PART, operands=(BIG,), config="", chip="v5e"):
    """Return the kernel of a fusion of operands of these shapes."""
    names = [f"%x{n}" for n in range(len(operands))]
    lines = [f"{name} = {shape} parameter({n})" for n, (name, shape) in enumerate(zip(names, operands, strict=True))]
    call = f"ROOT %y = {result} fusion({', '.join(names)}), kind=kLoop, calls=%f"
    lines.append(f"{call}, backend_config={config}" if config else call)
    return kernel_named(lower_text("\n".join(lines), f"%f {{\n{called}\n}}\n", chip), "y")


SLICED = f"""%s = {BIG} parameter(0)
    %e = {BIG} exponential(%s)
    ROOT %d = {PART} slice(%e), slice={{[512:1024], [0:1024]}}"""


def test_a_slice_of_an_element_wise_chain_moves_the_slice():
    """Of 16 MiB that are exponentiated and cut, 2 MiB come in and 2 go out."""
    assert fused(SLICED).hbm_bytes == 4 * 2**20


def test_a_slice_of_an_element_wise_chain_computes_the_slice():
    """As many registers are exponentiated as are kept, and as many operations asked for as elements."""
    kernel = fused(SLICED)
    alone = fused(f"%s = {PART} parameter(0)\nROOT %e = {PART} exponential(%s)", operands=(PART,))
    assert kernel.work.ops[EUP] * kernel.tiles == pytest.approx(alone.work.ops[EUP] * alone.tiles)
    assert kernel.flops == 512 * 1024


def product(trips, side="lhs"):
    """Return the kernel of a product whose one side is exponentiated inside it, cut as often as ``trips`` says.

    Trips are of columns, rows and depth; columns go round outermost.
    """
    columns, rows, depth = trips
    left, right = "bf16[1024,1024]{1,0:T(8,128)(2,1)}", "bf16[1024,1024]{1,0:T(8,128)(2,1)}"
    sides = ("%e", "%b") if side == "lhs" else ("%a", "%e")
    bounds = {
        "kernel_window_bounds": (128 // depth, 8 // columns),
        "output_window_bounds": (128 // rows, 8 // columns),
        "input_window_bounds": (128 // rows, 8 // depth),
        "iteration_bounds": trips,
    }
    config = json.dumps({"window_config": {key: [str(n) for n in value] for key, value in bounds.items()}})
    called = f"""%a = {left} parameter(0)
        %b = {right} parameter(1)
        %e = {left} exponential({"%a" if side == "lhs" else "%b"})
        ROOT %c = {left} convolution({sides[0]}, {sides[1]}), dim_labels=bf_io->bf"""
    return fused(called, left, (left, right), config)


USES = [
    ("lhs", (1, 1, 1), 1),
    ("lhs", (4, 2, 1), 4),
    ("lhs", (4, 1, 1), 1),
    ("rhs", (4, 2, 1), 1),
    ("rhs", (4, 2, 2), 2),
]


@pytest.mark.parametrize(("side", "trips", "uses"), USES)
def test_what_feeds_a_product_is_computed_each_time_that_its_tile_comes_anew(side, trips, uses):
    """A tile stays while only loops that do not touch it go round: four columns of two rows take each row four times,
    and rows that lie in one tile are made once.
    """
    kernel = product(trips, side)
    assert kernel.tiles == trips[0] * trips[1] * trips[2]
    cost = load_chip("v5e").vector_ops.ops["exponential"][EUP]
    assert kernel.work.ops[EUP] * kernel.tiles == pytest.approx(uses * 1024 * cost)


def test_what_comes_behind_a_product_is_computed_once():
    """The epilogue sees each element of the result one time, however often operands come in."""
    shape = "bf16[1024,1024]{1,0:T(8,128)(2,1)}"
    called = f"""%a = {shape} parameter(0)
        %b = {shape} parameter(1)
        %c = {shape} convolution(%a, %b), dim_labels=bf_io->bf
        ROOT %e = {shape} exponential(%c)"""
    kernel = fused(called, shape, (shape, shape))
    cost = load_chip("v5e").vector_ops.ops["exponential"][EUP]
    assert kernel.work.ops[EUP] * kernel.tiles == pytest.approx(1024 * cost)


STACK = "bf16[32,1024,1024]{2,1,0:T(16,128)(2,1)}"
COMPACT = "bf16[32,1024,1024]{2,1,0:T(8,128)(2,1)}"


def relaid_out(alias=""):
    """Return a kernel that relays out a stack of 32 layers in a fusion of its own before it takes one of them."""
    inner = f"%c {{\n%p = {STACK} parameter(0)\nROOT %q = {COMPACT} copy(%p)\n}}\n"
    layer = "bf16[1,1024,1024]{2,1,0:T(8,128)(2,1)}"
    lines = f"""%x = {STACK} parameter(0)
        %k = s32[] parameter(1)
        ROOT %y = {layer} fusion(%x, %k), kind=kLoop, calls=%f"""
    called = f"""%s = {STACK} parameter(0)
        %i = s32[] parameter(1)
        %o = s32[] constant(0)
        %w = {COMPACT} fusion(%s), kind=kLoop, {alias}calls=%c
        ROOT %d = {layer} dynamic-slice(%w, %i, %o, %o), dynamic_slice_sizes={{1,1024,1024}}"""
    return kernel_named(lower_text(lines, f"{inner}\n%f {{\n{called}\n}}\n", "v7x"), "y")


def test_a_relayout_before_a_slice_is_of_the_slice():
    """Retiling costs what the registers of one layer of 32 cost, and one layer moves in and out."""
    kernel = relaid_out()
    chip = load_chip("v7x")
    assert [stream.total_bytes for stream in kernel.streams if stream.operand in ("x", "y")] == [2 * 1024 * 1024] * 2
    for unit, cost in chip.vector_ops.moves["retile"].items():
        assert kernel.work.ops[unit] * kernel.tiles == pytest.approx(cost * 1024 / 2)


def test_a_relayout_that_is_stated_to_lie_where_its_operand_does_moves_nothing():
    """The compiler aliases result and operand of the fusion: another layout in name only."""
    aliased = relaid_out("output_to_operand_aliasing={{}: (0, {})}, ")
    units = load_chip("v7x").vector_ops.moves["retile"]
    assert not any(aliased.work.ops.get(unit) for unit in units)


def test_a_decode_step_reads_each_weight_once():
    """LLaMA 1B on v7x, whose compiler relays out stacked weights inside fusions before it slices one layer.

    What the core moves is at most 1.3 times arguments and outputs; what the sparse cores move to relay out all of them
    stands in the program. The time lies between the roofline and twice that.
    """
    result = simulate(DATA / "llama1b_decode_b16s2048.v7x.hlo.txt.gz")
    summary = result.summary
    beside = sum(record.hbm_bytes for record in result.timeline.records if record.row == "sparsecore")
    moved = sum(op.hbm_bytes for op in summary.ops) - beside
    assert moved <= 1.3 * (summary.memory.argument_bytes + summary.memory.output_bytes)
    assert summary.roofline.bound_ps <= summary.total_ps <= 2 * summary.roofline.bound_ps


def test_runs_of_a_slice_are_those_of_its_tiles():
    """A product takes a tile of 128 columns of a slice: its runs are as short as those of the tile, not the slice."""
    wide, part = "bf16[1024,4096]{1,0:T(8,128)(2,1)}", "bf16[1024,1024]{1,0:T(8,128)(2,1)}"
    bounds = {"kernel_window_bounds": (128, 1), "output_window_bounds": (128, 1), "input_window_bounds": (128, 8)}
    bounds["iteration_bounds"] = (8, 1, 1)
    config = json.dumps({"window_config": {key: [str(n) for n in value] for key, value in bounds.items()}})
    called = f"""%a = {part} parameter(0)
        %b = {wide} parameter(1)
        %s = {part} slice(%b), slice={{[0:1024], [1024:2048]}}
        ROOT %c = {part} convolution(%a, %s), dim_labels=bf_io->bf"""
    (weights,) = [s for s in fused(called, part, (part, wide), config).streams if s.operand == "x1"]
    assert (weights.block_bytes, weights.chunk_bytes) == (1024 * 128 * 2, 8 * 128 * 2)
