"""What steps do, unit by unit, however long it takes: multiply-accumulates, operations and bytes.

The keys are those of ``hardware.units``. Multiply-accumulates are by type of the operands (``matrix.bf16``), and all
that clock: those of rows and columns that only pad a tile included. The vector units' operations are on whole
registers, the scalar core's instructions; memories and links count bytes. VMEM sees what registers load and store, and
what comes in from other memories and goes out to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpusim.cost.dma import link_of
from tpusim.hardware.units import HBM, HOST, HOST_IN, HOST_OUT, LOAD, STORE, VMEM, mac_key
from tpusim.program.work import scaled

if TYPE_CHECKING:
    from tpusim.hardware.chip import Chip
    from tpusim.program.steps import Copy, Kernel

Activity = dict[str, float]


def kernel_activity(kernel: Kernel, chip: Chip) -> Activity:
    """Return what one execution of a kernel does in all its tiles, on all its cores."""
    done = scaled(kernel.work.ops, kernel.tiles)
    done[HBM] = kernel.hbm_bytes
    done[VMEM] = (done.get(LOAD, 0.0) + done.get(STORE, 0.0)) * chip.vpu.register_bytes
    for stream in kernel.streams:
        # What lies in VMEM already is only loaded and stored.
        if stream.space != VMEM:
            done[VMEM] += stream.total_bytes
        if stream.space not in (VMEM, HBM):
            done[link_of(stream)] = done.get(link_of(stream), 0.0) + stream.total_bytes
    for matmul in kernel.work.matmuls:
        macs = matmul.streamed_rows * matmul.passes * kernel.tiles * chip.mxu.rows * chip.mxu.columns
        done[mac_key(matmul.operand_type)] = done.get(mac_key(matmul.operand_type), 0.0) + macs
    return done


def copy_activity(copy: Copy) -> Activity:
    """Return the bytes that a copy reads and writes; within one memory it does both."""
    source = HOST_IN if copy.source_space == HOST else copy.source_space
    target = HOST_OUT if copy.target_space == HOST else copy.target_space
    return {source: copy.n_bytes * 2} if source == target else {source: copy.n_bytes, target: copy.n_bytes}
