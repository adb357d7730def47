"""Bodies of Pallas kernels as MLIR text, and calls of them as HLO."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import tpusim
from tests.lowering.hlo import lower_text

PROGRAMS = Path(__file__).parents[2] / "data" / "pallas"

REF = "memref<128x128xf32, #tpu.memory_space<vmem>>"
INDICES = "(i32, i32) -> (i32, i32)"


def program(name):
    """Return the lowered program of a stored file."""
    return tpusim.lower(PROGRAMS / f"{name}.hlo.txt.gz")


def kernels(name):
    """Return the kernels of a stored file that were written by hand."""
    return [step for step in program(name).every_step if getattr(step, "family", "") == "hand-written"]


def body(lines, grid=(4, 8), transforms=("%a0, %a1", "%a0, %a1"), semantics=("arbitrary", "arbitrary")):
    """Return an encoded body over f32 blocks of 128 x 128, an operand and a result, of the lines of its main function.

    ``%a0`` and ``%a1`` are the indices of the grid, ``%x`` and ``%o`` the blocks; ``transforms`` are what the windows'
    functions return: operations before a semicolon, then two values.
    """
    windows, functions = [], []
    for number, text in enumerate(transforms):
        *before, values = text.split(";")
        windows.append(f"{{transform_indices = @t{number}, window_bounds = array<i64: 128, 128>}}")
        functions.append(
            f'"stable_mosaic.func.func"() ({{ ^bb0(%a0: i32, %a1: i32):\n{chr(10).join(before)}\n'
            f'"stable_mosaic.func.return"({values}) : (i32, i32) -> () }}) '
            f'{{function_type = {INDICES}, sym_name = "t{number}"}} : () -> ()'
        )
    words = ", ".join(f"#tpu.dimension_semantics<{word}>" for word in semantics)
    says = (
        f"dimension_semantics = [{words}], iteration_bounds = array<i64: {', '.join(map(str, grid))}>,"
        ' scalar_prefetch = 0 : i64, scratch_operands = 0 : i64, sym_name = "main",'
        f" window_params = [{', '.join(windows)}]"
    )
    text = (
        'module attributes {stable_mosaic.version = 15 : i64} { "stable_mosaic.func.func"() ({\n'
        f"^bb0(%a0: i32, %a1: i32, %x: {REF}, %o: {REF}):\n{lines}\n"
        f'"stable_mosaic.func.return"() : () -> () }}) {{{says}}} : () -> ()\n{chr(10).join(functions)}\n}}'
    )
    return base64.b64encode(text.encode()).decode()


def call(encoded, shape="f32[512,1024]{1,0:T(8,128)}", **estimate):
    """Return the lowered program of one call of a body, which may state its cost."""
    config = {"custom_call_config": {"body": encoded} | ({"cost_estimate": estimate} if estimate else {})}
    lines = f'custom-call(%x), custom_call_target="tpu_custom_call", backend_config={json.dumps(config)}'
    return lower_text(f"%x = {shape} parameter(0)\nROOT %kernel.7 = {shape} {lines}")


COPY = f"""\
%c = "stable_mosaic.arith.constant"() {{value = 0 : index}} : () -> index
%v = "stable_mosaic.vector.load"(%x, %c, %c) : ({REF}, index, index) -> vector<128x128xf32>
"stable_mosaic.tpu.vector_store"(%v, %o, %c, %c) : (vector<128x128xf32>, {REF}, index, index) -> ()
"""


def when(condition, lines):
    """Return lines that run where a condition holds, which some other lines make as ``%if``."""
    end = '"stable_mosaic.scf.yield"() : () -> ()'
    return f'{condition}\n"stable_mosaic.scf.if"(%if) ({{\n{lines}{end}\n}}, {{ {end} }}) : (i1) -> ()'
