"""Calls of bodies that are written by hand."""

from __future__ import annotations

import json

import tpusim
from tests.lowering.pallas.bodies import REF, body
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

LOAD = f"""\
%c = "stable_mosaic.arith.constant"() {{value = 0 : index}} : () -> index
%v = "stable_mosaic.vector.load"(%x, %c, %c) : ({REF}, index, index) -> vector<128x128xf32>
"""
STORE = f"""\
"stable_mosaic.tpu.vector_store"(%w, %o, %c, %c) : (vector<128x128xf32>, {REF}, index, index) -> ()
"""


def run_body(lines, x):
    """Return what a body of whole lines makes of an array of 128 rows, block by block of 128 columns."""
    grid = (1, x.shape[1] // 128)
    config = json.dumps({"custom_call_config": {"body": body(lines, grid=grid)}})
    shape = f"f32[{x.shape[0]},{x.shape[1]}]{{1,0:T(8,128)}}"
    kernel = f'custom-call(x), custom_call_target="tpu_custom_call", backend_config={config}'
    text = (
        f"HloModule m, is_scheduled=true\n\nENTRY e {{\n  x = {shape} parameter(0)\n  ROOT k = {shape} {kernel}\n}}\n"
    )
    return tpusim.execute(parse_module(SourceText("m.v5e.hlo.txt", text)), [x])


def run(lines, x):
    """Return what lines make of each block, which is ``%v``: they have to define ``%w``."""
    return run_body(LOAD + lines + "\n" + STORE, x)
