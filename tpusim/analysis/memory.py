"""How much memory a program needs: its arguments, outputs and temporaries, and the peaks over its schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tpusim.program.buffers import peak_bytes

if TYPE_CHECKING:
    from tpusim.program.module import Program


class MemoryUse(msgspec.Struct, frozen=True, gc=False):
    """Physical bytes, tile padding included. ``temp_bytes`` is the peak of HBM temporaries alone."""

    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    peak_hbm_bytes: int
    peak_vmem_bytes: int


def memory_use(program: Program) -> MemoryUse:
    """Return the memory figures of a program; arguments and outputs hold their memory throughout."""
    # XLA's own memory statistics tell temporaries apart in the same way, so that the two can be compared.
    temporaries = [b for b in program.buffers if b.kind == "temporary" and b.space == "hbm"]
    temp_bytes = peak_bytes(temporaries)
    constants = sum(b.n_bytes for b in program.buffers if b.kind == "constant" and b.space == "hbm")
    return MemoryUse(
        argument_bytes=program.argument_bytes,
        output_bytes=program.output_bytes,
        temp_bytes=temp_bytes,
        peak_hbm_bytes=program.argument_bytes + program.output_bytes - program.alias_bytes + temp_bytes + constants,
        peak_vmem_bytes=peak_bytes(b for b in program.buffers if b.space == "vmem"),
    )
