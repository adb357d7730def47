"""An array in which a tile of results stays while both operands stream past it.

PYTHONPATH=examples tpusim run traces/mlp_b1024.v5e.hlo.txt.gz --plugin output_stationary \
        -o mxu.model=output_stationary:OutputStationary
"""

from __future__ import annotations

from math import ceil

from tpusim.models import ArrayWork, Chip, Matmul, TileProduct


class OutputStationary:
    """Folds over rows and columns of the result, each as long as the sum is deep."""

    def work(self, tile: TileProduct, chip: Chip) -> ArrayWork:
        """Return the steps of all folds, the rows of sums that shift out, and both operands' elements."""
        rows, columns = chip.mxu.rows, chip.mxu.columns
        folds = ceil(tile.rows / rows) * ceil(tile.columns / columns) * tile.separate
        steps = folds * ceil(tile.depth * tile.taps)
        matmul = Matmul(
            weight_rows=folds * rows,
            streamed_rows=steps,
            weight_tiles=folds,
            operand_type=tile.operand_type,
            passes=tile.passes,
        )
        return ArrayWork(matmul, loaded_elements=steps * (rows + columns), parts=1)

    def cycles(self, matmul: Matmul, chip: Chip) -> float:
        """Return the longer of streaming all passes and of shifting the sums out, on arrays that share the folds."""
        mxu = chip.mxu
        rate = mxu.lhs_rows_per_cycle * mxu.rate_by_type.get(matmul.operand_type, 1.0)
        streaming = matmul.passes * matmul.streamed_rows / rate
        return max(streaming, matmul.weight_rows / mxu.weight_load_rows_per_cycle) / mxu.count
