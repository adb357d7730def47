"""Two runs side by side: what one ``simulate`` more gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpusim.analysis.compare import Comparison, compare
from tpusim.pipeline.stages import figures

if TYPE_CHECKING:
    from pathlib import Path

    from tpusim.hardware.chip import Chip
    from tpusim.ir.module import Module
    from tpusim.program.module import Program


def diff(
    before: Module | Program | str | Path,
    after: Module | Program | str | Path,
    chip: Chip | str | None = None,
    other_chip: Chip | str | None = None,
) -> Comparison:
    """Return what changes from one run to another, by op and by category: what ``tpusim diff`` prints.

    Each is what ``simulate`` takes, or a path to a result that ``tpusim run --save`` wrote. ``other_chip`` is the
    second one's, by default ``chip``.
    """
    return compare(figures(before, chip), figures(after, other_chip or chip))
