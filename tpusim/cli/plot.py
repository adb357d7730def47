"""The command ``tpusim plot``: a kind of picture and what it is of in, a file out."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpusim.cli.options import (
    DATAFLOW,
    LONG_OVERRIDE,
    OVERFLOW,
    PLACED,
    TRIPS,
    WARM,
    Command,
    Option,
    array_sides,
    command,
    machine,
    number,
    option,
    real,
    trips,
    written,
)
from tpusim.cli.systolic import product_sizes
from tpusim.errors import ConfigError
from tpusim.files import is_folder

if TYPE_CHECKING:
    from tpusim.hardware.array import Array
    from tpusim.pipeline.result import Result

Draw = Callable[[Any, Namespace], Any]
"""From the module ``tpusim.plot`` and the options to a figure; None if it wrote its file itself."""

# Written out, so that --help need not load Matplotlib; tests hold them against those of the rooms.
FORMATS = ("png", "svg", "pdf")
FILMS = ("gif", "mp4")

_EXAMPLES = """\
examples:
  tpusim plot layout "bf16[10,300]{1,0:T(8,128)(2,1)}" -o layout.png
  tpusim plot timeline traces/resnet50_train_b64.v5e.hlo.txt.gz --from 5000 --to 6000 -o timeline.svg
  tpusim plot roofline step.hlo.txt --chip v5p -o roofline.pdf
  tpusim plot systolic --rows 8 --cols 8 --m 12 --n 7 --k 6 -o wavefront.gif"""

_OUTPUT = written("-o", "--output", metavar="FILE", required=True, help="ends in .png, .svg or .pdf")
_RUN = (*PLACED, LONG_OVERRIDE, TRIPS, WARM, OVERFLOW)
_OP = option("--op", metavar="NAME", required=True, help="an instruction, as `tpusim run` names it")
_BY = option("--by", choices=("source", "category", "op"), default="source", help="what a layer is")
_POINTS = (
    option("points", metavar="POINTS.csv", help="a design a row, under a head line; or the folder of a study"),
    *(option(f"--{axis}", metavar="COLUMN", required=True, help=f"the column along {axis}") for axis in "xy"),
    option("--per", metavar="COLUMN", default="", help="a picture for each value of it, such as program"),
)
_SIZES = {"m": 12, "n": 8, "k": 8}


def check_picture(name: str, endings: Sequence[str] = FORMATS) -> None:
    """Raise ConfigError for an output that no picture ends in: asked before anything is simulated for it."""
    if Path(name).suffix.lower().lstrip(".") not in endings:
        known = ", ".join(f".{ending}" for ending in endings)
        raise ConfigError(f"--output: expected a name that ends in one of {known}, found {name!r}")


def _kind(name: str, help_text: str, draw: Draw, *options: Option) -> Command:
    endings = (*FORMATS, *FILMS) if name == "systolic" else FORMATS

    def run(options: Namespace) -> None:
        check_picture(options.output, endings)
        # Pictures go to files: the backend of somebody's windows or notebooks may not even be there.
        if "matplotlib" not in sys.modules:
            os.environ["MPLBACKEND"] = "agg"
        from tpusim import plot

        figure = draw(plot, options)
        if figure is not None:
            plot.save(figure, options.output)

    return command(name, help_text, _OUTPUT, *options, description=f"Draw {help_text}.")(run)


def _simulated(options: Namespace) -> Result:
    from tpusim.pipeline.stages import simulate

    return simulate(
        options.program,
        options.chip,
        **machine(options),
        **trips(options),
        warm=options.warm,
        allow_overflow=options.allow_overflow,
    )


def _of_run(name: str) -> Draw:
    return lambda plot, options: getattr(plot, name)(_simulated(options))


def _timeline(plot: Any, options: Namespace) -> Any:
    from tpusim.report.plots.timeline import window_fault

    result = _simulated(options)
    window_us = None
    # All of a run is told exactly, however long it is, and of one that takes no time as well.
    if options.begin or options.end is not None:
        window_us = options.begin, result.time_us if options.end is None else options.end
        if fault := window_fault(result.timeline, window_us):
            raise ConfigError(f"--from, --to: {fault}")
    return plot.timeline(result, window_us=window_us, unfold=options.unfold)


def _tiles(plot: Any, options: Namespace) -> Any:
    from tpusim.pipeline.answers.explain import explain
    from tpusim.pipeline.answers.shown import ExplainedStep

    rest = {**machine(options), "allow_overflow": options.allow_overflow}
    found = explain(options.program, options.op, options.chip, **rest, tried=60)
    if isinstance(found, ExplainedStep):
        raise ConfigError(f"expected the name of a kernel, found {options.op!r}, which is {found.what}")
    return plot.tiles(found)


def _pallas(plot: Any, options: Namespace) -> Any:
    from tpusim.pipeline.answers.grid import kernel_grid

    return plot.pallas(kernel_grid(options.program, options.op, options.chip, **machine(options)))


def _array(options: Namespace) -> Array:
    from tpusim.hardware.array import Array

    return Array(rows=options.rows, columns=options.cols, dataflow=options.dataflow)


def _systolic(plot: Any, options: Namespace) -> Any:
    from tpusim.program.layers import Layer

    sizes, array = product_sizes(options), _array(options)
    if options.output.lower().endswith(FILMS):
        return plot.animate_systolic(
            Layer(name="product", m=sizes["m"], n=sizes["n"], k=sizes["k"]), array, options.output
        )
    return plot.systolic(**sizes, array=array, cycle=options.cycle)


def _layers(plot: Any, options: Namespace) -> Any:
    from tpusim.pipeline.layers import run_layers

    title = f"{Path(options.layers).name} on {options.rows} x {options.cols}, {options.dataflow} (simulated)"
    return plot.layers(run_layers(options.layers, _array(options)), title=title)


def _sensitivity(plot: Any, options: Namespace) -> Any:
    from tpusim.report.plots.sweep import effects_of
    from tpusim.study.table import FIGURES

    folder = Path(options.effects)
    records = plot.read_csv(folder / "effects.csv" if is_folder(folder) else folder)
    figure = FIGURES.get(options.figure, options.figure.partition("_")[0])
    measure = options.measure or f"{figure} (%)"
    if not options.per:
        # Of all programs together, where a study has told them apart.
        whole = [record for record in records if not record.get("program")]
        return plot.sensitivity(effects_of(whole, options.figure), measure)
    names = list(dict.fromkeys(str(record["program"]) for record in records if record.get("program")))
    if not names:
        raise ConfigError("--per: expected a study's effects.csv, which tells programs apart, found one that does not")
    return plot.sensitivities({name: effects_of(records, options.figure, name) for name in names}, measure)


_KINDS = (
    _kind(
        "layout",
        "an array's tiles, words, padding and memory",
        lambda plot, options: plot.layout(options.shape),
        option("shape", metavar="SHAPE", help='such as "bf16[10,300]{1,0:T(8,128)(2,1)}"'),
    ),
    _kind(
        "relayout",
        "an array before and after a copy to another layout",
        lambda plot, options: plot.relayout(options.before, options.after),
        option("before", metavar="BEFORE", help='such as "f32[8,256]{1,0:T(8,128)}"'),
        option("after", metavar="AFTER", help='such as "f32[8,256]{0,1:T(8,128)}"'),
    ),
    _kind(
        "timeline",
        "a run over time: core, units, memories, transfers",
        _timeline,
        *_RUN,
        option("--from", dest="begin", metavar="US", type=real, default=0.0, help="begin here (microseconds)"),
        option("--to", dest="end", metavar="US", type=real, help="end here (microseconds)"),
        option("--unfold", action="store_true", help="give what loops repeat its full length"),
    ),
    _kind("roofline", "the ops of a run under the roofs of the chip", _of_run("roofline"), *_RUN),
    _kind("memory", "HBM and VMEM over the schedule, and the buffers at the peak", _of_run("memory"), *_RUN),
    _kind(
        "utilisation",
        "what the time of each layer went to, and busy units",
        lambda plot, options: plot.utilisation(_simulated(options), by=options.by),
        *_RUN,
        _BY,
    ),
    _kind(
        "tiles",
        "the ways to cut one kernel into tiles, and what each takes",
        _tiles,
        *PLACED,
        LONG_OVERRIDE,
        OVERFLOW,
        _OP,
    ),
    _kind(
        "pallas",
        "the grid of a hand-written kernel: blocks fetched by each step, and when",
        _pallas,
        *PLACED,
        LONG_OVERRIDE,
        _OP,
    ),
    _kind("links", "how busy every link of a slice was", _of_run("links"), *_RUN),
    _kind(
        "systolic",
        "the wavefront in a systolic array; a film if FILE ends in .gif or .mp4",
        _systolic,
        *array_sides(8),
        DATAFLOW,
        *(
            option(f"--{name}", metavar=name.upper(), type=number, default=size, help=f"(default: {size})")
            for name, size in _SIZES.items()
        ),
        option("--cycle", metavar="N", type=number, help="the cycle to show (default: half way through)"),
    ),
    _kind(
        "layers",
        "what the slots of an array did in each layer of a CSV file",
        _layers,
        option("layers", metavar="LAYERS.csv", help="as `tpusim systolic --layers` takes it"),
        *array_sides(128),
        DATAFLOW,
    ),
    _kind(
        "pareto",
        "designs by two figures of which less is better",
        lambda plot, options: plot.pareto(
            plot.read_csv(options.points),
            options.x,
            options.y,
            options.name,
            per=options.per,
            normalise=options.normalise,
        ),
        *_POINTS,
        option(
            "--normalise", metavar="COLUMN", default="", help="figures over the least with the same, such as program"
        ),
        option("--name", metavar="COLUMN", default="", help="what designs are called"),
    ),
    _kind(
        "sweep",
        "a figure over a parameter of a study",
        lambda plot, options: plot.sweep(
            plot.read_csv(options.points), options.x, options.y, options.by, per=options.per
        ),
        *_POINTS,
        option("--by", metavar="COLUMN", default="", help="a line for each value of it"),
    ),
    _kind(
        "sensitivity",
        "what a change of each parameter does",
        _sensitivity,
        option("effects", metavar="EFFECTS.csv", help="columns parameter, low, high; or the folder of a study"),
        option(
            "--measure", metavar="TEXT", default="", help="what changes, with its unit (default: of the figure, %%)"
        ),
        option("--figure", metavar="COLUMN", default="time_us", help="of a study: the figure (default: time_us)"),
        option("--per", choices=("program",), default="", help="a picture for each program of a study"),
    ),
)


def _add_kinds(parser: Any) -> None:
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", required=True)
    for kind in _KINDS:
        kind.add_to(kinds)


@command(
    "plot",
    "draw a layout, a run or a sweep",
    _add_kinds,
    description="Draw a picture into a file, whose name ends in .png, .svg or .pdf.",
    epilog=_EXAMPLES,
)
def plot(options: Namespace) -> None:
    """Draw a picture: each kind replaces this function by its own."""
