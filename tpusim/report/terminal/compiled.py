"""Programs of our compiler beside those of the TPU's, on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from tpusim.analysis.compiled import FAR, NEAR, CompiledAccuracy
from tpusim.hardware.units import HBM, UNITS
from tpusim.report.tables import plain_table, size_text, us_text


def render_compiled(found: CompiledAccuracy, console: Console) -> None:
    """Print a line for each pair, then how far off they are together."""
    hbm = UNITS[HBM].label
    columns = (">ours", ">TPU compiler's", ">ratio", ">kernels", ">theirs", f">{hbm}", ">theirs")
    table = plain_table("program", "chip", *columns)
    for pair in found.pairs:
        ours, theirs = pair.ours, pair.theirs
        times = (us_text(ours.time_us), us_text(theirs.time_us), f"{pair.ratio:.2f}")
        kernels = (f"{ours.kernels:,}", f"{theirs.kernels:,}")
        table.add_row(
            escape(pair.program),
            escape(pair.chip),
            *(*times, *kernels, size_text(ours.hbm_bytes), size_text(theirs.hbm_bytes)),
        )
    console.print(table)
    console.print()
    console.print(
        f"off by a factor of {found.factor:.2f} (geometric mean of {len(found.pairs)} pairs, both simulated); "
        f"within {NEAR:.0%}: {found.near:.0%}, within {FAR:.0%}: {found.not_far:.0%}"
    )
    console.print(f"by chip: {', '.join(f'{escape(chip)} {factor:.2f}' for chip, factor in found.by_chip.items())}")
    medians = ", ".join(f"{name} {factor:.2f}" for name, factor in found.medians.items())
    console.print(f"median factors: {medians}")
