"""The matrix unit: how many cycles a core's arrays need for a product that is cut into weight tiles.

A weight-stationary array holds one tile of the right-hand operand while the rows of the left-hand operand stream past
it. The next tile loads under the current one, so that a tile costs the longer of the two; the core's arrays share the
tiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpusim.hardware.chip import Mxu
    from tpusim.program.work import Matmul


def matmul_cycles(matmul: Matmul, mxu: Mxu) -> float:
    """Return the cycles of one core for ``matmul``, weight loads hidden behind streaming where they are shorter."""
    rate = mxu.rate_by_type.get(matmul.operand_type, 1.0)
    stream_cycles = matmul.streamed_rows / (mxu.lhs_rows_per_cycle * rate)
    # Their maximum below, not their sum: arrays load the next weights while they multiply (US 10635740 and related).
    load_cycles = matmul.weight_rows / mxu.weight_load_rows_per_cycle
    switch_cycles = matmul.weight_tiles * mxu.tile_switch_cycles
    array_cycles = (max(stream_cycles, load_cycles) / mxu.efficiency + switch_cycles) / mxu.count
    # What leaves the arrays has to be popped and put away, whatever streams in.
    result_cycles = matmul.results / mxu.result_registers_per_cycle
    # Each pass has other pieces of both operands, so it loads its weights again.
    return matmul.passes * max(array_cycles, result_cycles)
