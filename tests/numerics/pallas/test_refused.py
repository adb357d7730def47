"""What is not computed, and what no machine defines, ends in an error that says where."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import tpusim
from tests.numerics.pallas.bodies import LOAD, STORE, run, run_body
from tests.numerics.pallas.inputs import read_kernel
from tpusim.errors import ProgramError, SimulationError, UnsupportedError
from tpusim.ir.mosaic import read_body
from tpusim.numerics.pallas.kernel import bound_kernel

pytest.importorskip("jaxlib")

ZEROS = np.zeros((128, 256), np.float32)


def test_an_operation_that_is_not_computed_is_named():
    """With the nearest one that is."""
    line = '%w = "stable_mosaic.math.tann"(%v) : (vector<128x128xf32>) -> vector<128x128xf32>\n'
    with pytest.raises(UnsupportedError, match=r"m.v5e.hlo.txt:5:.*math.tann in the body.*not computed.*math.tan"):
        run(line, ZEROS)


def test_what_nothing_uses_need_not_be_computed():
    """JAX loads what it is about to overwrite."""
    line = (
        '%w = "stable_mosaic.arith.addf"(%v, %v) : (vector<128x128xf32>, vector<128x128xf32>) -> vector<128x128xf32>\n'
    )
    unused = LOAD.replace("%c", "%far").replace("%v", "%u").replace("value = 0", "value = 999")
    assert not run(unused + line, ZEROS).any()


def test_a_load_beyond_the_end_is_refused():
    """The machine has no answer either."""
    far = LOAD.replace("%c", "%far").replace("%v", "%w").replace("value = 0", "value = 8")
    with pytest.raises(ProgramError, match=r"vector.load.*expected a part of a memory of \[128, 128\].*\[8, 8\]"):
        run(far, ZEROS)


@pytest.mark.parametrize(("rows", "fits"), [(2**19, True), (2**19 + 8, False), (10**12, False)])
def test_a_value_that_no_chip_holds_is_refused(rows, fits):
    """A body can state any size; twice the largest VMEM is made."""
    kind = f"vector<{rows}x128xf32>"
    line = '%w = "stable_mosaic.arith.negf"(%v) : (vector<128x128xf32>) -> vector<128x128xf32>\n'
    line += f'%u = "stable_mosaic.arith.constant"() {{value = dense<0.0> : {kind}}} : () -> {kind}\n'
    if fits:
        assert not run(line, ZEROS).any()
        return
    with pytest.raises(UnsupportedError, match="expected bytes on the chip, at most 268435456, found"):
        run(line, ZEROS)


def test_a_semaphore_that_nothing_signals_is_a_deadlock():
    """It says which device waits."""
    memory = "memref<!tpu.semaphore, #tpu.memory_space<semaphore_mem>>"
    lines = f'%s = "stable_mosaic.tpu.sem_alloc"() : () -> {memory}\n'
    lines += '%n = "stable_mosaic.arith.constant"() {value = 2 : i32} : () -> i32\n'
    lines += f'"stable_mosaic.tpu.sem_wait"(%s, %n) : ({memory}, i32) -> ()\n'
    with pytest.raises(SimulationError, match="device 0 waits for 2"):
        run_body(lines, ZEROS)


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
    one, other = np.split(run_body(lines, ZEROS) / 2**31, 2, axis=1)
    np.testing.assert_array_equal(run_body(lines, ZEROS)[:, :128] / 2**31, one)
    assert abs(one.mean()) < 0.02
    assert abs(one.std() - 3**-0.5) < 0.02
    assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.05
