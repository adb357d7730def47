"""Vector work of single opcodes against counts by hand: registers of 8 sublanes and 128 lanes."""

from __future__ import annotations

import pytest

from tests.lowering.hlo import kernel_named, lower_text
from tpusim.hardware.load import load_chip

BROADCASTS = [
    # A row under each other: one spread for each of its four registers, whatever the number of rows.
    ("f32[512]", "f32[1024,512]", "{1}", 4, 0),
    ("f32[512]", "f32[8,512]", "{1}", 4, 0),
    # A column along the lanes: one spread for each eight rows, and its one register is turned first.
    ("f32[1024]", "f32[1024,512]", "{0}", 129, 129),
    # A batch of columns, in two registers of eight rows.
    ("f32[16,64]", "f32[16,64,512]", "{0,1}", 130, 130),
    # One value for each matrix of a batch: it goes everywhere, lanes last.
    ("f32[16]", "f32[16,64,512]", "{0}", 16, 16),
    # Along a major dimension the same registers are used again.
    ("f32[64,512]", "f32[16,64,512]", "{1,2}", 0, 0),
    # One element is an immediate.
    ("f32[]", "f32[64,512]", "{}", 0, 0),
]
TILED = {1: "{0:T(1024)}", 2: "{1,0:T(8,128)}", 3: "{2,1,0:T(8,128)}", 0: ""}


def shape(text: str) -> str:
    """Return a shape under its usual tiled layout."""
    return text + TILED[0 if text.endswith("[]") else text.count(",") + 1]


@pytest.mark.parametrize(("source", "target", "dimensions", "vector", "crossing"), BROADCASTS)
def test_a_broadcast_spreads_each_register_once(source, target, dimensions, vector, crossing):
    """Free along major dimensions, one operation a register along sublanes, the cross-lane unit along lanes."""
    made = f"ROOT %y = {shape(target)} broadcast(%a), dimensions={dimensions}"
    kernel = kernel_named(lower_text(f"%a = {shape(source)} parameter(0)\n{made}"), "y")
    assert kernel.work.ops.get("vector", 0) * kernel.tiles == pytest.approx(vector)
    assert kernel.work.ops.get("xlu", 0) * kernel.tiles == pytest.approx(crossing)


EPILOGUE = """
%f {
  %a = bf16[1024,256]{1,0:T(8,128)(2,1)} parameter(0)
  %b = bf16[256,2048]{1,0:T(8,128)(2,1)} parameter(1)
  %p = f32[1024,2048]{1,0:T(8,128)} convolution(%a, %b), dim_labels=bf_io->bf
  %c = f32[1024,2048]{1,0:T(8,128)} parameter(2)
  ROOT %s = f32[1024,2048]{1,0:T(8,128)} add(%p, %c)
}
"""


def test_an_epilogue_loads_its_operand():
    """A residual of 8 MiB beside a product: 2,048 registers of 4 KiB; what the product takes comes by its own rule."""
    text = """
        %a = bf16[1024,256]{1,0:T(8,128)(2,1)} parameter(0)
        %b = bf16[256,2048]{1,0:T(8,128)(2,1)} parameter(1)
        %c = f32[1024,2048]{1,0:T(8,128)} parameter(2)
        ROOT %y = f32[1024,2048]{1,0:T(8,128)} fusion(%a, %b, %c), kind=kOutput, calls=%f"""
    with_residual = kernel_named(lower_text(text, EPILOGUE), "y")
    bare = text.replace("fusion(%a, %b, %c), kind=kOutput, calls=%f", "convolution(%a, %b), dim_labels=bf_io->bf")
    loads = [k.work.ops["load"] * k.tiles for k in (with_residual, kernel_named(lower_text(bare), "y"))]
    assert loads[0] - loads[1] == pytest.approx(2048)


def work_of(instruction, overrides, operand="f32[64,512]{1,0:T(8,128)}"):
    """Return the whole work by unit of one instruction on v5e with some keys changed."""
    text = f"%a = {operand} parameter(0)\n%z = f32[] constant(0)\nROOT %y = {instruction}"
    sum_ = "%s {\n  %x = f32[] parameter(0)\n  %w = f32[] parameter(1)\n  ROOT %r = f32[] add(%x, %w)\n}"
    kernel = kernel_named(lower_text(text, sum_, load_chip("v5e", overrides)), "y")
    return {unit: count * kernel.tiles for unit, count in kernel.work.ops.items()}


def test_sublanes_are_folded_by_doubling():
    """Four registers of a row of 512: three rotations each with 8 sublanes, four with 16, beside adding the rows."""
    found = []
    for sublanes in (8, 16):
        fold = "f32[512]{0:T(1024)} reduce(%a, %z), dimensions={0}, to_apply=%s"
        found.append(work_of(fold, {"vpu.sublanes": sublanes})["vector"] - 32 * 8 / sublanes)
    assert found == [4 * 3, 4 * 4]


LESS = """
%less {
  %x = f32[] parameter(0)
  %w = f32[] parameter(1)
  ROOT %r = pred[] compare(%x, %w), direction=LT
}
"""
SQUARE = "f32[512,512]{1,0:T(8,128)}"


@pytest.mark.parametrize(
    ("instruction", "key"),
    [
        (f"{SQUARE} sort(%a), dimensions={{1}}, to_apply=%less", "vector_ops.ops.sort.vector"),
        (f"{SQUARE} sort(%a), dimensions={{1}}, to_apply=%less", "vector_ops.moves.lane_exchange.xlu"),
        ("c64[512,257] fft(%a), fft_type=RFFT, fft_length={512}", "vector_ops.ops.fft.vector"),
        (f"{SQUARE} cholesky(%a), lower=true", "vector_ops.ops.triangular-solve.vector"),
        (f"{SQUARE} cholesky(%a), lower=true", "vector_ops.moves.pivot.eup"),
    ],
)
def test_algorithms_cost_what_the_chip_says(instruction, key):
    """A key of the table that is raised by half raises the unit that it names."""
    text = f"%a = {SQUARE} parameter(0)\nROOT %y = {instruction}"
    _, kind, name, unit = key.split(".")
    usual = getattr(load_chip("v5e").vector_ops, kind)[name][unit]
    before, after = (
        kernel_named(lower_text(text, LESS, load_chip("v5e", {key: value})), "y").work.ops[unit]
        for value in (usual, 1.5 * usual)
    )
    assert after > before


def test_smaller_blocks_make_more_tiles():
    """Of a copy of 64 MiB whose tiles the compiler does not state."""
    text = "%a = f32[4096,4096]{1,0:T(8,128)} parameter(0)\nROOT %y = f32[4096,4096]{1,0:T(8,128)} copy(%a)"
    tiles = [
        kernel_named(lower_text(text, chip=load_chip("v5e", {key: value})), "y").tiles
        for key, value in [
            ("vmem.scoped_bytes", 2**24),
            ("vmem.scoped_bytes", 2**23),
            ("dma.smallest_block_bytes", 2**26),
        ]
    ]
    # 128 MiB move; two copies of a block have to fit.
    assert tiles == [16, 32, 2]
