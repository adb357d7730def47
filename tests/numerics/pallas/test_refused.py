"""What is not computed, and what no machine defines, ends in an error that says where."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import tpusim
from tests.lowering.pallas.bodies import REF, body
from tests.numerics.pallas.inputs import read_kernel
from tpusim.errors import ProgramError, SimulationError, UnsupportedError
from tpusim.ir.mosaic import read_body
from tpusim.numerics.pallas.kernel import bound_kernel
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

pytest.importorskip("jaxlib")

LOAD = f"""\
%c = "stable_mosaic.arith.constant"() {{value = 0 : index}} : () -> index
%v = "stable_mosaic.vector.load"(%x, %c, %c) : ({REF}, index, index) -> vector<128x128xf32>
"""
STORE = f"""\
"stable_mosaic.tpu.vector_store"(%w, %o, %c, %c) : (vector<128x128xf32>, {REF}, index, index) -> ()
"""


def run(lines):
    """Return what a body of these lines makes of zeros, in two steps."""
    config = json.dumps({"custom_call_config": {"body": body(lines, grid=(1, 2))}})
    shape = "f32[128,256]{1,0:T(8,128)}"
    kernel = f'custom-call(x), custom_call_target="tpu_custom_call", backend_config={config}'
    text = (
        f"HloModule m, is_scheduled=true\n\nENTRY e {{\n  x = {shape} parameter(0)\n  ROOT k = {shape} {kernel}\n}}\n"
    )
    return tpusim.execute(parse_module(SourceText("m.v5e.hlo.txt", text)), [np.zeros((128, 256), np.float32)])


def test_an_operation_that_is_not_computed_is_named():
    """With the nearest one that is."""
    line = '%w = "stable_mosaic.math.tann"(%v) : (vector<128x128xf32>) -> vector<128x128xf32>\n'
    with pytest.raises(UnsupportedError, match=r"m.v5e.hlo.txt:5:.*math.tann in the body.*not computed.*math.tan"):
        run(LOAD + line + STORE)


def test_what_nothing_uses_need_not_be_computed():
    """JAX loads what it is about to overwrite."""
    line = (
        '%w = "stable_mosaic.arith.addf"(%v, %v) : (vector<128x128xf32>, vector<128x128xf32>) -> vector<128x128xf32>\n'
    )
    unused = (
        LOAD.replace("%c, %c)", "%far, %far)").replace("%v", "%u").replace("%c = ", "%far = ").replace("0 :", "999 :")
    )
    assert not run(LOAD + unused + line + STORE).any()


def test_a_load_beyond_the_end_is_refused():
    """The machine has no answer either."""
    far = LOAD.replace("value = 0", "value = 8").replace("%v", "%w")
    with pytest.raises(ProgramError, match=r"vector.load.*expected a part of a memory of \[128, 128\].*\[8, 8\]"):
        run(
            far
            + STORE.replace("%c, %c)", "%z, %z)").replace(
                '"stable', '%z = "stable_mosaic.arith.constant"() {value = 0 : index} : () -> index\n"stable', 1
            )
        )


def test_a_semaphore_that_nothing_signals_is_a_deadlock():
    """It says which device waits."""
    memory = "memref<!tpu.semaphore, #tpu.memory_space<semaphore_mem>>"
    lines = f'%s = "stable_mosaic.tpu.sem_alloc"() : () -> {memory}\n'
    lines += '%n = "stable_mosaic.arith.constant"() {value = 2 : i32} : () -> i32\n'
    lines += f'"stable_mosaic.tpu.sem_wait"(%s, %n) : ({memory}, i32) -> ()\n'
    with pytest.raises(SimulationError, match="device 0 waits for 2"):
        run(lines)


def test_without_jaxlib_it_says_what_to_install(monkeypatch):
    """Its reader is what decodes a body."""
    module, inputs, _ = read_kernel("negate_abs_sign")
    monkeypatch.setitem(sys.modules, "jaxlib.mlir", None)
    bound_kernel.cache_clear()
    read_body.cache_clear()
    with pytest.raises(UnsupportedError, match=r"pip install 'tpusim\[jax\]'"):
        tpusim.execute(module, inputs)


def test_random_bits_follow_their_seed():
    """The hardware's generator is not published: what is kept is the distribution."""
    lines = f"""\
%c = "stable_mosaic.arith.constant"() {{value = 0 : index}} : () -> index
"stable_mosaic.tpu.prng_set_seed_32"(%a1) : (i32) -> ()
%b = "stable_mosaic.tpu.prng_random_bits"() : () -> vector<128x128xi32>
%w = "stable_mosaic.arith.sitofp"(%b) : (vector<128x128xi32>) -> vector<128x128xf32>
{STORE}"""
    one, other = np.split(run(lines) / 2**31, 2, axis=1)
    np.testing.assert_array_equal(run(lines)[:, :128] / 2**31, one)
    assert abs(one.mean()) < 0.02
    assert abs(one.std() - 3**-0.5) < 0.02
    assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.05
