"""Pallas kernels that devices run together: what comes out is what each is for."""

from __future__ import annotations

import numpy as np
import pytest

import tpusim
from tests.numerics.pallas.inputs import FOLDER
from tpusim.errors import ProgramError
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

pytest.importorskip("jaxlib")

PARTS = np.split(np.arange(32 * 128, dtype=np.float32).reshape(32, 128), 4)


def each(name):
    """Return what each of four devices has after a kernel."""
    return tpusim.execute(FOLDER / f"{name}.v5e_2x2.hlo.txt.gz", [[part] for part in PARTS])


def test_a_copy_to_the_right_brings_the_array_of_the_left():
    """Remote copies go to the device that is named, and signal at both ends."""
    np.testing.assert_array_equal(each("shift"), np.roll(PARTS, 1, axis=0))


def test_a_ring_with_a_barrier_adds_up_all_arrays():
    """Signals to neighbours say when a buffer may be written again."""
    np.testing.assert_array_equal(each("total"), [sum(PARTS)] * 4)


def test_the_librarys_gather_brings_all_arrays_everywhere():
    """In both directions at once."""
    np.testing.assert_array_equal(each("all_gather"), [np.concatenate(PARTS)] * 4)


def test_a_kernel_for_several_devices_needs_them():
    """Alone, there is no device to copy to."""
    text = tpusim.load(FOLDER / "shift.v5e_2x2.hlo.txt.gz").text.replace("num_partitions=4", "num_partitions=1")
    with pytest.raises(ProgramError, match=r"enqueue_dma: expected a device of \[0\], found 1"):
        tpusim.execute(parse_module(SourceText("alone.v5e.hlo.txt", text)), [PARTS[0]])
