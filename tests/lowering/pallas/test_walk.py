"""What a kernel copies itself, where the program does not tell how much."""

from __future__ import annotations

import pytest

from tpusim.ir.mosaic import Block, Function, KernelBody, Operation, Type, Window
from tpusim.lowering.pallas.walk import Assumptions, Walk

pytest.importorskip("numpy")
UNKNOWN_SIZE = -(1 << 63)
CHUNK = (UNKNOWN_SIZE, 128)


def transfers(size, **attributes):
    """Return the copies of some rows of 64 x 128 f32 in HBM to a buffer of 16 x 128, with what was assumed.

    ``size`` is the operation that makes the number of rows, or None for an argument that only data decides.
    """
    types = (
        Type("memref", "f32", (64, 128), "hbm"),
        Type("memref", "f32", (16, 128), "vmem"),
        Type("scalar", "i32"),
        Type("scalar", "i32"),
        Type("memref", "f32", CHUNK, "hbm"),
        Type("memref", "f32", CHUNK, "vmem"),
        Type("scalar", "!tpu.dma_semaphore"),
    )
    zero = Operation("arith.constant", (), (2,), {"value": 0})
    rows = Operation(size, (), (3,), attributes) if size else zero
    views = [Operation("tpu.memref_slice", (whole, 2, 2, 3), (part,)) for whole, part in ((0, 4), (1, 5))]
    copy = Operation("tpu.enqueue_dma", (4, 5, 6), (), {"operandSegmentSizes": (1, 0, 1, 1, 0, 0, 0)})
    main = Function("main", Block((0, 1, 6), (zero, rows, *views, copy)), types)
    body = KernelBody(15, (), (), 0, (Window(), Window()), 1, main)
    assumed = Assumptions(1, {})
    return Walk(body, (), {}, assumed).run().transfers, assumed.warnings


def test_a_copy_of_a_size_that_is_known_moves_that():
    """Eight rows of 512 bytes."""
    ((copy,), warnings) = transfers("arith.constant", value=8)
    assert copy.n_bytes == 8 * 128 * 4
    assert not warnings


def test_a_copy_of_a_size_that_only_data_decides_moves_its_buffer():
    """Of 16 rows, though what it is cut out of has 64; and a warning says so."""
    ((copy,), warnings) = transfers("")
    assert copy.n_bytes == 16 * 128 * 4
    assert any("how much some copies move" in text for text in warnings)


def test_a_barrier_takes_no_time_but_not_in_silence():
    """There is no figure for it."""
    barrier = Operation("tpu.sem_barrier", (), (0,))
    main = Function("main", Block((), (barrier,)), (Type("memref", "!tpu.semaphore", (), "semaphore_mem"),))
    assumed = Assumptions(1, {})
    Walk(KernelBody(15, (), (), 0, (), 0, main), (), {}, assumed).run()
    assert any("barrier" in text for text in assumed.warnings)
