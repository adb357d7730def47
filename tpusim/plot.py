"""Pictures of layouts, runs and sweeps, each a Matplotlib ``Figure`` that notebooks show and ``save`` writes.

    from tpusim import plot
    plot.save(plot.layout("bf16[10,300]{1,0:T(8,128)(2,1)}"), "layout.svg")
    plot.timeline(tpusim.simulate("step.v5e.hlo.txt.gz"))
    plot.pallas(tpusim.kernel_grid("attention.v5e.hlo.txt.gz", "flash_attention.1"))

With ``ax`` a picture is drawn into axes of your own; their figure is returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tpusim.analysis.explanation import Explanation
from tpusim.analysis.memory import memory_capacities, memory_profile
from tpusim.errors import ConfigError, did_you_mean
from tpusim.files import is_folder, read_table
from tpusim.hardware.array import Array
from tpusim.hardware.units import HBM, SPACES, VMEM, MemorySpace
from tpusim.limits import PROGRAM_BYTES
from tpusim.program.layers import Layer
from tpusim.report.plots import layout as plot_layout
from tpusim.report.plots import links as plot_links
from tpusim.report.plots import memory as plot_memory
from tpusim.report.plots import roofline as plot_roofline
from tpusim.report.plots import systolic as plot_systolic
from tpusim.report.plots import timeline as plot_timeline
from tpusim.report.plots import utilisation as plot_utilisation
from tpusim.report.plots.kernels import tiles as plot_tiles
from tpusim.report.plots.kernels.grid import pallas as pallas
from tpusim.report.plots.style import Axes, Figure
from tpusim.report.plots.style import save as save
from tpusim.report.plots.sweep import pareto as pareto
from tpusim.report.plots.sweep import scaling as scaling
from tpusim.report.plots.sweep import sensitivities as sensitivities
from tpusim.report.plots.sweep import sensitivity as sensitivity
from tpusim.report.plots.sweep import sweep as sweep
from tpusim.report.plots.systolic import animate_systolic as animate_systolic
from tpusim.report.plots.utilisation import layers as layers
from tpusim.shapes.notation import parse_shape
from tpusim.shapes.shape import Shape

if TYPE_CHECKING:
    from tpusim.pipeline.result import Result


def layout(shape: Shape | str, ax: Axes | None = None) -> Figure:
    """Draw how an array lies in memory: its tiles, the tiles within them, 32-bit words, padding, memory as a strip."""
    return plot_layout.layout(_shape(shape), ax)


def relayout(before: Shape | str, after: Shape | str) -> Figure:
    """Draw what a ``copy`` between two layouts of one array does to the order of its elements."""
    return plot_layout.relayout(_shape(before), _shape(after))


def timeline(
    result: Result, ax: Axes | None = None, window_us: tuple[float, float] | None = None, unfold: bool = False
) -> Figure:
    """Draw a run over time: the core, power, units and memories, what ran beside it; ``window_us`` is a part of it.

    What loops repeat is folded, unless it is to ``unfold``.
    """
    return plot_timeline.timeline(result.timeline, ax, window_us, result.chip, unfold)


def roofline(result: Result, ax: Axes | None = None) -> Figure:
    """Draw the ops of a run under the roofs of its chip; the area of a dot is the op's share of the time."""
    return plot_roofline.roofline(result.timeline, result.chip, ax)


def memory(result: Result, ax: Axes | None = None, spaces: Sequence[str] | str = (HBM, VMEM)) -> Figure:
    """Draw what is alive in memories over the schedule, where it lies, and the largest buffers at the peak.

    ``spaces`` are one or several memories, as buffers name them.
    """
    profiles = [memory_profile(result.program, space) for space in _spaces(spaces)]
    title = f"{result.program.name} on {result.chip.name} (simulated)"
    return plot_memory.memory(profiles, memory_capacities(result.chip), title, ax)


def utilisation(result: Result, ax: Axes | None = None, by: str = "source") -> Figure:
    """Draw what the time of each layer went to and how busy the units were; ``by`` source, category or op."""
    return plot_utilisation.utilisation(result.timeline, ax, by)


def links(result: Result, ax: Axes | None = None) -> Figure:
    """Draw how busy every link of the slice was."""
    return plot_links.links(result.pod, ax)


def tiles(kernel: Explanation, ax: Axes | None = None) -> Figure:
    """Draw the ways to cut a kernel into tiles and what each takes; ``tpusim.explain(..., tried=60)`` finds them."""
    return plot_tiles.tiles(kernel, ax)


def systolic(
    m: int, n: int, k: int, array: Array | None = None, cycle: int | None = None, ax: Axes | None = None
) -> Figure:
    """Draw the wavefront of an (m, k) times (k, n) product in one cycle, by default on an 8 x 8 array."""
    return plot_systolic.systolic(Layer(name="product", m=m, n=n, k=k), array or Array(rows=8, columns=8), cycle, ax)


def read_csv(path: str | Path) -> list[Mapping[str, object]]:
    """Return the rows of a CSV file with a head line, as ``pareto`` takes them. Raises ConfigError if it is none.

    Of the folder of a study, its table.
    """
    if is_folder(path):
        path = Path(path) / "results.csv"
    # Studies may have more points than a table has rows.
    _, rows = read_table(path, "cannot read these points", PROGRAM_BYTES)
    if not rows:
        raise ConfigError(f"{path}: expected a head line and at least one row, found none")
    return [{name: cell for name, cell in cells.items() if name is not None} for _, cells in rows]


def _spaces(given: Sequence[str] | str) -> list[MemorySpace]:
    """Return the memories of a list, or the one of a text; refuse what is none."""
    # A text is one of them, and no list of letters.
    found: Any = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    said = next((f"{one!r:.80}{did_you_mean(str(one), SPACES)}" for one in found if one not in SPACES), "")
    if said or not found:
        raise ConfigError(f"spaces: expected some of {', '.join(SPACES)}, found {said or 'none'}")
    return cast("list[MemorySpace]", found)


def _shape(shape: Shape | str) -> Shape:
    """Return a shape, read from its notation if need be."""
    return parse_shape(shape) if isinstance(shape, str) else shape
