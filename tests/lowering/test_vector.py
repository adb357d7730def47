"""Vector work of single opcodes against counts by hand: registers of 8 sublanes and 128 lanes."""

from __future__ import annotations

import pytest

from tests.lowering.hlo import kernel_named, lower_text

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
