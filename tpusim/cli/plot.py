"""The command ``tpusim plot``: a kind of picture and what it is of in, a file out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpusim.cli.options import CHIP_HELP, number, overrides
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.hardware.array import Array
    from tpusim.pipeline.result import Result

# Written out, so that --help need not load Matplotlib; tests hold them against those of the rooms.
FORMATS = ("png", "svg", "pdf")
FILMS = ("gif", "mp4")
DATAFLOWS = ("ws", "os", "is")

_EXAMPLES = """\
examples:
  tpusim plot layout "bf16[10,300]{1,0:T(8,128)(2,1)}" -o layout.png
  tpusim plot timeline traces/resnet50_train_b64.v5e.hlo.txt.gz --from 5000 --to 6000 -o timeline.svg
  tpusim plot roofline step.hlo.txt --chip v5p -o roofline.pdf
  tpusim plot systolic --rows 8 --cols 8 --m 12 --n 7 --k 6 -o wavefront.gif"""


def add_plot(commands: Any) -> None:
    """Add ``tpusim plot`` and its kinds to the commands."""
    plot = commands.add_parser(
        "plot",
        help="draw a layout, a run or a sweep",
        description="Draw a picture into a file, whose name ends in .png, .svg or .pdf.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = plot.add_subparsers(title="kinds", metavar="KIND", required=True)
    _add_shapes(kinds)
    _add_runs(kinds)
    _add_arrays(kinds)
    _add_sweeps(kinds)


def _kind(kinds: Any, name: str, help_text: str, run: Any) -> argparse.ArgumentParser:
    """Add a kind of picture and return its parser."""
    parser: argparse.ArgumentParser = kinds.add_parser(name, help=help_text, description=f"Draw {help_text}.")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="ends in .png, .svg or .pdf")
    parser.set_defaults(run=run)
    return parser


def _add_shapes(kinds: Any) -> None:
    """Add the pictures of shapes."""
    layout = _kind(kinds, "layout", "an array's tiles, words, padding and memory", _layout)
    layout.add_argument("shape", metavar="SHAPE", help='such as "bf16[10,300]{1,0:T(8,128)(2,1)}"')
    relayout = _kind(kinds, "relayout", "an array before and after a copy to another layout", _relayout)
    relayout.add_argument("before", metavar="BEFORE", help='such as "f32[8,256]{1,0:T(8,128)}"')
    relayout.add_argument("after", metavar="AFTER", help='such as "f32[8,256]{0,1:T(8,128)}"')


def _add_runs(kinds: Any) -> None:
    """Add the pictures of runs."""
    timeline = _run_kind(kinds, "timeline", "a run over time: core, units, memories, transfers", _timeline)
    timeline.add_argument("--from", metavar="US", type=float, default=0.0, help="begin here (microseconds)")
    timeline.add_argument("--to", metavar="US", type=float, help="end here (microseconds)")
    _run_kind(kinds, "roofline", "the ops of a run under the roofs of the chip", _roofline)
    _run_kind(kinds, "memory", "HBM and VMEM over the schedule, and the buffers at the peak", _memory)
    utilisation = _run_kind(kinds, "utilisation", "what the time of each layer went to, and busy units", _utilisation)
    utilisation.add_argument("--by", choices=("source", "category", "op"), default="source", help="what a layer is")
    _run_kind(kinds, "links", "how busy every link of a slice was", _links)


def _run_kind(kinds: Any, name: str, help_text: str, run: Any) -> argparse.ArgumentParser:
    """Add a picture of a run, with the options of a run."""
    parser = _kind(kinds, name, help_text, run)
    parser.add_argument("program", metavar="PROGRAM", help="HLO text, or a lowered program (*.json)")
    parser.add_argument("--chip", metavar="C", help=CHIP_HELP)
    parser.add_argument("--topology", metavar="T", help="the slice that the program runs on, as in v5e:2x4")
    parser.add_argument("--override", metavar="K=V", action="append", default=[], help="replace a figure of the chip")
    parser.add_argument("--warm", action="store_true", help="one of many runs: cross-program prefetches have come in")
    return parser


def _add_arrays(kinds: Any) -> None:
    """Add the pictures of systolic arrays."""
    systolic = _kind(
        kinds, "systolic", "the wavefront in a systolic array; a film if FILE ends in .gif or .mp4", _systolic
    )
    _add_array(systolic, 8)
    for name, size in (("m", 12), ("n", 8), ("k", 8)):
        systolic.add_argument(f"--{name}", metavar=name.upper(), type=number, default=size, help=f"(default: {size})")
    systolic.add_argument("--cycle", metavar="N", type=number, help="the cycle to show (default: half way through)")
    layers = _kind(kinds, "layers", "what the slots of an array did in each layer of a CSV file", _layers)
    layers.add_argument("layers", metavar="LAYERS.csv", help="as `tpusim systolic --layers` takes it")
    _add_array(layers, 128)


def _add_array(parser: argparse.ArgumentParser, size: int) -> None:
    """Add the options of a systolic array."""
    for name, help_text in (("rows", "rows of the array"), ("cols", "columns of the array")):
        parser.add_argument(f"--{name}", metavar="N", type=number, default=size, help=f"{help_text} (default: {size})")
    parser.add_argument("--dataflow", choices=DATAFLOWS, default="ws", help="what stays: weights, outputs or inputs")


def _add_sweeps(kinds: Any) -> None:
    """Add the pictures of sweeps."""
    pareto = _kind(kinds, "pareto", "designs by two figures of which less is better", _pareto)
    pareto.add_argument("points", metavar="POINTS.csv", help="a design a row, under a head line")
    for axis in "xy":
        pareto.add_argument(f"--{axis}", metavar="COLUMN", required=True, help=f"the column along {axis}")
    pareto.add_argument("--name", metavar="COLUMN", default="", help="what designs are called")
    sensitivity = _kind(kinds, "sensitivity", "what a change of each parameter does", _sensitivity)
    sensitivity.add_argument("effects", metavar="EFFECTS.csv", help="columns parameter, low, high")
    sensitivity.add_argument("--measure", metavar="TEXT", default="time (%)", help="what changes, with its unit")


def _check_output(path: str, endings: tuple[str, ...] = FORMATS) -> None:
    """Refuse a file that no picture can be written to, before anything is simulated for it."""
    found = Path(path).suffix.lower().lstrip(".")
    if found not in endings:
        known = ", ".join(f".{name}" for name in endings)
        raise ConfigError(f"--output: expected a name that ends in one of {known}, found {path!r}")


def _save(options: argparse.Namespace, figure: Any) -> None:
    """Write the picture."""
    from tpusim.plot import save

    save(figure, options.output)


def _layout(options: argparse.Namespace) -> None:
    """Draw a layout."""
    from tpusim import plot

    _check_output(options.output)
    _save(options, plot.layout(options.shape))


def _relayout(options: argparse.Namespace) -> None:
    """Draw a relayout."""
    from tpusim import plot

    _check_output(options.output)
    _save(options, plot.relayout(options.before, options.after))


def _simulated(options: argparse.Namespace) -> Result:
    """Run the program that is to be drawn."""
    from tpusim.pipeline.stages import simulate

    _check_output(options.output)
    replaced = overrides(options)
    return simulate(options.program, options.chip, topology=options.topology, overrides=replaced, warm=options.warm)


def _timeline(options: argparse.Namespace) -> None:
    """Draw a run over time, or a part of it."""
    from tpusim import plot

    result = _simulated(options)
    begin, end = getattr(options, "from"), result.time_us if options.to is None else options.to
    if not 0 <= begin < min(end, result.time_us):
        raise ConfigError(
            f"--from, --to: expected a part of the run's {result.time_us:,.2f} us, found {begin:g} to {end:g}"
        )
    _save(options, plot.timeline(result, window_us=(begin, end)))


def _roofline(options: argparse.Namespace) -> None:
    """Draw a roofline."""
    from tpusim import plot

    _save(options, plot.roofline(_simulated(options)))


def _memory(options: argparse.Namespace) -> None:
    """Draw memory over the schedule."""
    from tpusim import plot

    _save(options, plot.memory(_simulated(options)))


def _utilisation(options: argparse.Namespace) -> None:
    """Draw layers."""
    from tpusim import plot

    _save(options, plot.utilisation(_simulated(options), by=options.by))


def _links(options: argparse.Namespace) -> None:
    """Draw the links of a slice."""
    from tpusim import plot

    _save(options, plot.links(_simulated(options)))


def _array(options: argparse.Namespace) -> Array:
    """Return the array that the options describe."""
    from tpusim.hardware.array import Array

    return Array(rows=options.rows, columns=options.cols, dataflow=options.dataflow)


def _systolic(options: argparse.Namespace) -> None:
    """Draw one cycle of a product, or film all of them."""
    from tpusim import plot
    from tpusim.program.layers import Layer

    _check_output(options.output, (*FORMATS, *FILMS))
    for name in "mnk":
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name}: expected a whole number from 1, found {getattr(options, name)}")
    array = _array(options)
    if options.output.lower().endswith(FILMS):
        plot.animate_systolic(Layer(name="product", m=options.m, n=options.n, k=options.k), array, options.output)
        return
    _save(options, plot.systolic(options.m, options.n, options.k, array, options.cycle))


def _layers(options: argparse.Namespace) -> None:
    """Draw the layers of a file on an array."""
    from tpusim import plot
    from tpusim.pipeline.stages import run_layers

    _check_output(options.output)
    title = f"{Path(options.layers).name} on {options.rows} x {options.cols}, {options.dataflow} (simulated)"
    _save(options, plot.layers(run_layers(options.layers, _array(options)), title=title))


def _pareto(options: argparse.Namespace) -> None:
    """Draw designs and their Pareto front."""
    from tpusim import plot

    _check_output(options.output)
    _save(options, plot.pareto(plot.read_csv(options.points), options.x, options.y, options.name))


def _sensitivity(options: argparse.Namespace) -> None:
    """Draw effects of parameters."""
    from tpusim import plot
    from tpusim.report.plots.sweep import effects_of

    _check_output(options.output)
    _save(options, plot.sensitivity(effects_of(plot.read_csv(options.effects)), options.measure))
