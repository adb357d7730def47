"""Which product of a fusion the compiler's bounds are about, and what a kernel may not do whatever they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lowering.hlo import ADD, kernel_named, lower_text
from tpusim.cost.classes import unit_cycles
from tpusim.cost.peaks import flops_by_type, seconds_at_peak
from tpusim.cost.tile import kernel_time, registers_cycles
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import simulate
from tpusim.timeline.records import CORE

TRACES = sorted((Path(__file__).parents[2] / "traces").glob("*.hlo.txt.gz"))


@pytest.mark.slow
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.partition(".hlo")[0])
def test_no_kernel_is_faster_than_its_roofs(path):
    """Each unit at its peak, and the operations asked for at the peak of their type."""
    result = simulate(path)
    for record in result.timeline.records:
        if record.is_kernel and record.row == CORE:
            asked_ps = seconds_at_peak(flops_by_type(record, record.flops), result.chip) * 1e12
            roofs = [*record.units.values(), asked_ps if "matrix" in record.units else 0]
            assert max(roofs) <= record.duration_ps * 1.0001 + 2, record.name


def config(**bounds):
    """Return a backend_config that states bounds."""
    window = {f"{name}_bounds": [str(n) for n in values] for name, values in bounds.items()}
    return json.dumps({"window_config": window})


TWO_PRODUCTS = """
%f {
  %a = bf16[1024,256]{1,0:T(8,128)(2,1)} parameter(0)
  %b = bf16[256,2048]{1,0:T(8,128)(2,1)} parameter(1)
  %first = bf16[1024,2048]{1,0:T(8,128)(2,1)} convolution(%a, %b), dim_labels=bf_io->bf
  %c = bf16[2048,512]{1,0:T(8,128)(2,1)} parameter(2)
  ROOT %second = bf16[1024,512]{1,0:T(8,128)(2,1)} convolution(%first, %c), dim_labels=bf_io->bf
}
"""


def fused(backend_config):
    """Return the kernel of a fusion of two products under bounds."""
    text = f"""
        %a = bf16[1024,256]{{1,0:T(8,128)(2,1)}} parameter(0)
        %b = bf16[256,2048]{{1,0:T(8,128)(2,1)}} parameter(1)
        %c = bf16[2048,512]{{1,0:T(8,128)(2,1)}} parameter(2)
        ROOT %y = bf16[1024,512]{{1,0:T(8,128)(2,1)}} fusion(%a, %b, %c), kind=kOutput, calls=%f, \
backend_config={backend_config}"""
    return kernel_named(lower_text(text, TWO_PRODUCTS), "y")


def test_bounds_are_those_of_the_product_that_they_fit():
    """Four tiles along the depth of the second product: its weights come in four blocks, the first one's in one."""
    bounds = config(kernel_window=(64, 4), output_window=(128, 4), input_window=(128, 4), iteration=(1, 1, 4))
    streams = {stream.operand: stream.fetches for stream in fused(bounds).streams if not stream.is_output}
    assert streams["c"] == 4


def test_bounds_may_be_those_of_the_first_product():
    """Four tiles along its columns: its rows come once, and its weights in four blocks."""
    bounds = config(kernel_window=(32, 4), output_window=(128, 4), input_window=(128, 2), iteration=(4, 1, 1))
    streams = {stream.operand: stream.fetches for stream in fused(bounds).streams if not stream.is_output}
    assert (streams["a"], streams["b"]) == (1, 4)


@pytest.mark.parametrize(
    "bounds",
    [
        {"kernel_window": (64,), "output_window": (128, 4), "input_window": (128, 4), "iteration": (1, 1, 4)},
        {"kernel_window": (64, 4, 1), "output_window": (128, 4)},
        {"kernel_window": (64, 4), "output_window": ()},
        {"kernel_window": (0, 4), "output_window": (128, 4)},
    ],
)
def test_bounds_that_fit_no_product_are_passed_over(bounds):
    """Another rank, or none at all: the tiles are our own."""
    assert fused(config(**bounds)).tiles >= 1


def test_a_dilated_input_is_no_batch():
    """A transposed convolution with stated bounds takes what it takes without them, within a factor of two."""
    text = """
        %x = bf16[8,28,28,256]{3,0,2,1:T(8,128)(2,1)} parameter(0)
        %w = bf16[4,4,256,256]{3,2,1,0:T(8,128)(2,1)} parameter(1)
        ROOT %y = bf16[8,56,56,256]{3,0,2,1:T(8,128)(2,1)} convolution(%x, %w), \
window={size=4x4 pad=2_2x2_2 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f"""
    bounds = config(kernel_window=(4, 4, 32, 2), output_window=(14, 56, 1, 2))
    (own,), (stated,) = lower_text(text).steps, lower_text(f"{text}, backend_config={bounds}").steps
    rows = [sum(m.streamed_rows for m in kernel.work.matmuls) * kernel.tiles for kernel in (own, stated)]
    assert 0.5 < rows[0] / rows[1] < 2


def test_both_elements_of_a_tuple_are_read():
    """Two equal arrays in one tuple are two arrays."""
    shape = "f32[1024,1024]{1,0:T(8,128)}"
    others = f"""
%f {{
  %t = ({shape}, {shape}) parameter(0)
  %a = {shape} get-tuple-element(%t), index=0
  %b = {shape} get-tuple-element(%t), index=1
  ROOT %s = {shape} add(%a, %b)
}}
"""
    text = f"%t = ({shape}, {shape}) parameter(0)\nROOT %y = {shape} fusion(%t), kind=kLoop, calls=%f"
    (kernel,) = lower_text(text, others).steps
    assert kernel.hbm_bytes == 3 * 4 * 2**20


def test_a_copy_to_another_layout_moves_whole_blocks_of_its_own():
    """Tiles of two rows in the result, of a block's eight in the operand: 64 blocks of 8 x 128 for each of 8 tiles."""
    text = f"""
        %x = f32[64,16,128]{{2,1,0:T(8,128)}} parameter(0)
        ROOT %y = f32[64,16,128]{{2,0,1:T(8,128)}} copy(%x), backend_config={config(output_window=(2, 8, 1))}"""
    (kernel,) = lower_text(text).steps
    came, went = kernel.streams
    assert (kernel.tiles, came.fetches, went.fetches) == (8, 8, 8)
    assert (came.block_bytes, came.chunk_bytes) == (64 * 4096, 4096)
    assert went.block_bytes == 2 * 8 * 4096


def test_an_operand_of_other_dimensions_moves_its_share():
    """What is padded on its way is not cut by bounds that are about the result."""
    operand, result = "f32[64,8,128]{2,1,0:T(8,128)}", "f32[64,16,128]{2,0,1:T(8,128)}"
    others = f"""
%f {{
  %b = {operand} parameter(0)
  %zero = f32[] constant(0)
  %wide = f32[64,16,128]{{2,1,0:T(8,128)}} pad(%b, %zero), padding=0_0x0_8x0_0
  ROOT %y = {result} copy(%wide)
}}
"""
    call = f"fusion(%b), kind=kLoop, calls=%f, backend_config={config(output_window=(2, 8, 1))}"
    (kernel,) = lower_text(f"%b = {operand} parameter(0)\nROOT %y = {result} {call}", others).steps
    came = next(stream for stream in kernel.streams if not stream.is_output)
    assert (kernel.tiles, came.total_bytes) == (8, 64 * 8 * 128 * 4)


def fused_into(root, shape, bounds):
    """Return the kernel of a fusion of an array of 1,024 x 256 that ends in some root."""
    others = f"""
{ADD}
%f {{
  %x = f32[1024,256]{{1,0:T(8,128)}} parameter(0)
  %zero = f32[] constant(0)
  %n = f32[1024,256]{{1,0:T(8,128)}} negate(%x)
  {root}
}}
"""
    text = f"""
        %x = f32[1024,256]{{1,0:T(8,128)}} parameter(0)
        ROOT %y = {shape} fusion(%x), kind=kInput, calls=%f, backend_config={config(output_window=bounds)}"""
    return kernel_named(lower_text(text, others), "y")


ROW = "f32[1024]{0:T(1024)}"
MANY = "f32[1024,256]{1,0:T(8,128)}"
REDUCE = "reduce(%n, %zero), dimensions={1}, to_apply=%add"
BY_ROOT = {
    "a reduction": (f"ROOT %r = {ROW} {REDUCE}", ROW),
    "the first of a tuple": (f"%r = {ROW} {REDUCE}\n  ROOT %t = ({ROW}, {MANY}) tuple(%r, %n)", f"({ROW}, {MANY})"),
    "the only one of a tuple": (f"%r = {ROW} {REDUCE}\n  ROOT %t = ({ROW}) tuple(%r)", f"({ROW})"),
    "no reduction": (f"%r = {ROW} {REDUCE}\n  ROOT %t = ({MANY}, {ROW}) tuple(%n, %r)", f"({MANY}, {ROW})"),
    "an operand": (f"%r = {ROW} {REDUCE}\n  ROOT %t = ({MANY}, {ROW}) tuple(%x, %r)", f"({MANY}, {ROW})"),
}


@pytest.mark.parametrize(("root", "shape"), BY_ROOT.values(), ids=BY_ROOT)
def test_a_reduction_is_tiled_by_what_it_takes_in(root, shape):
    """128 x 2 blocks in tiles of 8 x 1 are 32, wherever the reduction stands; a result as large is cut alike."""
    assert fused_into(root, shape, (8, 1)).tiles == 32


NEAR = "f32[1024,512]{1,0:T(8,128)S(1)}"
INSIDE = "f32[1024,512]{1,0:T(8,128)}"
LOOPS = {
    "window": f"ROOT %r = {NEAR} reduce-window(%p, %zero), window={{size=3x3 pad=1_1x1_1}}, to_apply=%add",
    "softmax": f"""%sums = f32[1024]{{0:T(1024)}} reduce(%p, %zero), dimensions={{1}}, to_apply=%add
  %spread = {INSIDE} broadcast(%sums), dimensions={{0}}
  %e = {INSIDE} exponential(%p)
  ROOT %r = {NEAR} divide(%e, %spread)""",
}


@pytest.mark.parametrize("rows", [1, 4, 64])
@pytest.mark.parametrize("body", LOOPS.values(), ids=LOOPS.keys())
def test_a_tile_in_vmem_costs_little_beside_its_work_and_depth(body, rows):
    """Nothing is transferred: what is left is the turn of the loop, below ten cycles."""
    chip = load_chip("v6e")
    fused = f"{ADD}%f {{\n  %p = {NEAR} parameter(0)\n  %zero = f32[] constant(0)\n  {body}\n}}\n"
    call = f"fusion(%x), kind=kLoop, calls=%f, backend_config={config(output_window=(rows, 4))}"
    kernel = kernel_named(lower_text(f"%x = {NEAR} parameter(0)\nROOT %y = {NEAR} {call}", fused, chip), "y")
    time = kernel_time(kernel, chip)
    work = max(*unit_cycles(kernel.work, chip).values(), registers_cycles(kernel, chip))
    taken = (time.between_ps + time.compute_ps) * chip.clock_hz / 1e12 / kernel.tiles
    assert (kernel.tiles, time.traffic, time.rounds_ps <= time.compute_ps) == (128 // rows, (), True)
    assert 0 <= taken - work - kernel.vector_loop.depth_cycles < 10
