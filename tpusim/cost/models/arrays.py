"""The matrix units that ship, by what stays in the arrays while the rest of a product passes.

Cycles follow one recurrence for all of them: what a fold shifts in (weights, inputs) or out (sums) goes on under the
next one's stream, so that a fold costs the longer of the two (``systolic/closed_form.py`` counts the same). What
differs is how many folds there are, how long each streams, and what passes: a stationary operand is loaded once a fold
and streams the other one past, partial sums leaving at each cut of the depth; stationary outputs stream both operands
for as long as the sum is deep, and leave once.
"""

from __future__ import annotations

from math import ceil

from tpusim.cost.models.checked import amount_fault, array_work_fault
from tpusim.cost.models.protocols import Array, ArrayWork, TileProduct
from tpusim.cost.models.registry import Registry
from tpusim.cost.mxu import matmul_cycles, operand_held, packed_depth_tiles, pass_cycles, round_up
from tpusim.hardware.chip import Chip
from tpusim.program.work import Matmul

ARRAYS: Registry[Array] = Registry("mxu.model", work=array_work_fault, cycles=amount_fault)
"""By the name in a chip's file."""


def array_of(chip: Chip) -> Array:
    """Return the model of a chip's matrix units."""
    return ARRAYS.of(chip.mxu)


class _OperandStationary:
    """One operand stays, the other streams past it; partial sums leave at each cut of the depth."""

    def cycles(self, matmul: Matmul, chip: Chip) -> float:
        """Return the cycles of a core's arrays."""
        return matmul_cycles(matmul, chip.mxu)

    def _work(self, matmul: Matmul, tile: TileProduct, chip: Chip) -> ArrayWork:
        parts = packed_depth_tiles(tile.depth, tile.taps, chip)
        # What stays comes in once a fold beside it, by a way of its own; only what streams is loaded by the register.
        return ArrayWork(matmul, matmul.streamed_rows * chip.mxu.rows, parts)


@ARRAYS.enter("weight-stationary")
class WeightStationary(_OperandStationary):
    """Either operand can be the weights that stay: the compiler chooses, as it also may swap the operands."""

    def work(self, tile: TileProduct, chip: Chip) -> ArrayWork:
        """Return the work of the way that takes least."""
        ways = (operand_held(tile, tile.rows, tile.columns, chip), operand_held(tile, tile.columns, tile.rows, chip))
        return self._work(min(ways, key=lambda way: pass_cycles(way, chip.mxu)), tile, chip)


@ARRAYS.enter("input-stationary")
class InputStationary(_OperandStationary):
    """The left operand stays, and the columns of the right one stream past it."""

    def work(self, tile: TileProduct, chip: Chip) -> ArrayWork:
        """Return the work of holding the left operand, whatever it takes."""
        return self._work(operand_held(tile, tile.columns, tile.rows, chip), tile, chip)


@ARRAYS.enter("output-stationary")
class OutputStationary:
    """A tile of sums stays while both operands stream past it, as many steps as the sum is deep.

    Sums that are ready shift out, a row a cycle as weights do elsewhere, while the next fold's come about.
    """

    def work(self, tile: TileProduct, chip: Chip) -> ArrayWork:
        """Return the folds over the rows and columns of the result, and both operands' elements for each."""
        mxu = chip.mxu
        folds = ceil(tile.rows / mxu.rows) * ceil(tile.columns / mxu.columns)
        steps = round_up(ceil(tile.depth * tile.taps), chip.vpu.sublanes)
        # A narrow tile of a wide array shifts its sums out as fast as it is narrow, as weights come in.
        lanes = round_up(ceil(tile.columns / ceil(tile.columns / mxu.columns)), chip.vpu.lanes)
        shifted = folds * mxu.rows * min(1.0, lanes / mxu.columns)
        one = Matmul(shifted, folds * steps, folds, operand_type=tile.operand_type, passes=tile.passes)
        whole = one * tile.separate
        return ArrayWork(whole, whole.streamed_rows * (mxu.rows + mxu.columns), 1)

    def cycles(self, matmul: Matmul, chip: Chip) -> float:
        """Return the cycles of a core's arrays."""
        # The passes add up in place: sums leave once for all of them.
        mxu, rate = chip.mxu, chip.mxu.rate_by_type.get(matmul.operand_type, 1.0)
        stream_cycles = matmul.passes * matmul.streamed_rows / (mxu.lhs_rows_per_cycle * rate)
        busy_cycles = max(stream_cycles, matmul.weight_rows / mxu.weight_load_rows_per_cycle) / mxu.efficiency
        switched_cycles = (busy_cycles + matmul.weight_tiles * mxu.tile_switch_cycles) / mxu.count
        parked_cycles = matmul.parked * mxu.parked_register_cycles
        return max(switched_cycles, matmul.results / mxu.result_registers_per_cycle) + parked_cycles
