"""Bodies of Pallas kernels: from MLIR, as jaxlib reads it, to the noun."""

from __future__ import annotations

import base64
import sys

import pytest

from tests.lowering.pallas.bodies import COPY, PROGRAMS, body
from tpusim.ir.mosaic import Type, Unreadable, Window
from tpusim.pipeline.stages import load
from tpusim.text.mosaic.reader import read_kernel

pytest.importorskip("jaxlib")


def bodies(name):
    """Return the kernels of a stored program."""
    module = load(PROGRAMS / f"{name}.hlo.txt.gz")
    found = (i.backend_config.kernel_body for c in module.computations for i in c.instructions)
    return [read_kernel(encoded) for encoded in found if encoded]


def test_bytecode_of_a_product_is_read_whole():
    """Grid, what its dimensions are, blocks, and the operations of its body."""
    (kernel,) = bodies("matmul_1024_b128.v5e")
    assert (kernel.grid, kernel.semantics) == ((8, 8, 8), ("parallel", "parallel", "arbitrary"))
    assert (kernel.prefetched, kernel.scratch, kernel.version > 0) == (0, 1, True)
    assert kernel.windows == tuple(Window(f"transform_{n}", (128, 128)) for n in range(3))
    (product,) = [item for item in kernel.main.block.walk() if item.name == "tpu.matmul"]
    assert kernel.main.types[product.operands[0]] == Type("vector", "bf16", (128, 128))
    assert product.attributes["transpose_rhs"] is False


def test_all_kernels_of_a_program_are_read():
    """Splash attention forward and both backward kernels, with tables that they look up."""
    assert [kernel.prefetched > 0 for kernel in bodies("splash_2048.v5p")] == [True] * 3


def test_operations_that_nobody_knows_are_kept():
    """Names, attributes and regions of a newer dialect."""
    line = (
        '"stable_mosaic.tpu.frobnicate"(%a0) ({ ^bb0(%n: i32): "stable_mosaic.tpu.yield"() : () -> () })'
        ' {amount = 3 : i64, dense = dense<[1, 2]> : vector<2xi32>, half = 5.0e-01 : f32, word = "x"} : (i32) -> ()\n'
    )
    found = read_kernel(body(line)).main.block.operations[0]
    assert found.attributes == {"amount": 3, "dense": (1, 2), "half": 0.5, "word": "x"}
    assert found.operands == (0,)
    assert [operation.name for operation in found.regions[0].operations] == ["tpu.yield"]


WRITTEN_OUT = """module {
  func.func @main(%i: i32, %j: i32, %x: memref<128x128xf32, #tpu.memory_space<vmem>>,
      %o: memref<128x128xf32, #tpu.memory_space<vmem>>) attributes {
      dimension_semantics = [#tpu.dimension_semantics<parallel>, #tpu.dimension_semantics<arbitrary>],
      iteration_bounds = array<i64: 4, 8>, scratch_operands = 0 : i64,
      window_params = [{transform_indices = @at, window_bounds = array<i64: 128, 128>},
                       {transform_indices = @at, window_bounds = array<i64: 128, 128>}]} {
    %c0 = arith.constant 0 : index
    %first = arith.constant 0 : i32
    %is_first = arith.cmpi eq, %first, %j : i32
    scf.if %is_first {
      %low = arith.constant dense<0xFF800000> : vector<128x128xf32>
      vector.store %low, %o[%c0, %c0] : memref<128x128xf32, #tpu.memory_space<vmem>>, vector<128x128xf32>
    }
    %whole = vector.load %x[%c0, %c0] : memref<128x128xf32, #tpu.memory_space<vmem>>, vector<128x128xf32>
    %least = arith.constant dense<0xFF800000> : vector<128xf32>
    %most = vector.multi_reduction <maximumf>, %whole, %least [1] : vector<128x128xf32> to vector<128xf32>
    %column = vector.shape_cast %most : vector<128xf32> to vector<128x1xf32>
    %wide = vector.broadcast %column : vector<128x1xf32> to vector<128x128xf32>
    %exp = math.exp %wide : vector<128x128xf32>
    vector.store %exp, %o[%c0, %c0] : memref<128x128xf32, #tpu.memory_space<vmem>>, vector<128x128xf32>
    return
  }
  func.func @at(%i: i32, %j: i32) -> (i32, i32) {
    return %i, %j : i32, i32
  }
}
"""
"""Text in the syntax of each dialect, which the TPU compiler writes for kernels that it makes itself."""


def test_text_of_the_dialects_themselves_is_read():
    """The grid, and the same operations as bytecode would have."""
    kernel = read_kernel(base64.b64encode(WRITTEN_OUT.encode()).decode())
    assert (kernel.grid, kernel.semantics) == ((4, 8), ("parallel", "arbitrary"))
    assert kernel.windows == (Window("at", (128, 128)),) * 2
    names = [item.name for item in kernel.main.block.walk()]
    assert {"scf.if", "vector.multi_reduction", "vector.shape_cast", "math.exp", "vector.store"} <= {*names}
    assert kernel.functions["at"].block.operations[-1].operands == (0, 1)


def test_a_kernel_without_a_grid_has_its_operands_whole():
    """One that it fetches itself has no block."""
    (kernel,) = bodies("twice.v6e")
    assert (kernel.grid, [window.bounds for window in kernel.windows]) == ((), [(), (256, 1024)])


@pytest.mark.parametrize(
    "encoded", ["!", base64.b64encode(b"no MLIR").decode(), base64.b64encode(b"module {}").decode()]
)
def test_what_is_no_kernel_is_refused(encoded):
    """Neither base64, nor MLIR, nor a function in it."""
    with pytest.raises(Unreadable, match="its body"):
        read_kernel(encoded)


def test_names_that_are_no_text_are_refused_in_plain_words():
    """And not in those of Python's decoder."""
    body = b'module { "a\\80"() : () -> () }'
    with pytest.raises(Unreadable, match="expected names in UTF-8"):
        read_kernel(base64.b64encode(body).decode())


def test_without_jaxlib_it_says_what_to_install(monkeypatch):
    """The kernel then takes what it states."""
    monkeypatch.setitem(sys.modules, "jaxlib.mlir", None)
    with pytest.raises(Unreadable, match=r"jaxlib.*pip install"):
        read_kernel(body(COPY))
