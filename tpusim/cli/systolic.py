"""The command ``tpusim systolic``: options in, one call of the pipeline out."""

from __future__ import annotations

from argparse import Namespace

from tpusim.cli.options import DATAFLOW, array_sides, command, json_option, option
from tpusim.cli.output import answer
from tpusim.errors import ConfigError

# Written out, so that --help need not load the rooms; a test holds them against those of hardware/array.py.
MODES = ("overlap", "scale-sim")

_DESCRIPTION = """\
Matrix products on one kind of systolic array, without a chip around it: cycles, utilisation and mapping efficiency.
A product is M x K times K x N. A CSV of layers is one of SCALE-Sim's topology files: Layer, M, N, K, or convolutions
(Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides)."""

_EXAMPLES = """\
examples:
  tpusim systolic --rows 128 --cols 128 --dataflow ws --m 1000 --n 256 --k 384
  tpusim systolic --layers resnet50.csv --mode scale-sim --json
  tpusim systolic --rows 256 --cols 256 --rows-per-cycle 2 --arrays 2 --m 4096 --n 4096 --k 4096
  tpusim systolic --rows 8 --cols 8 --m 100 --n 20 --k 30 --model cycle"""

_COUNTS = {
    "rows-per-cycle": "rows that stream in per cycle, 2 on 256-wide TPUs",
    "arrays": "arrays that share each product",
    "passes": "times that every tile is gone through",
}


@command(
    "systolic",
    "cycles and utilisation of matrix products on a systolic array",
    *array_sides(128, int),
    DATAFLOW,
    option("--mode", choices=MODES, default="overlap", help="tiles load behind others, or never do"),
    option("--model", choices=("fast", "cycle"), default="fast", help="closed form, or count cycles"),
    *(
        option(f"--{name}", metavar="N", type=int, default=1, help=f"{text} (default: 1)")
        for name, text in _COUNTS.items()
    ),
    *(option(f"--{name}", metavar=name.upper(), type=int, help=f"{name.upper()} of one product") for name in "mnk"),
    option("--layers", metavar="FILE", help="CSV of layers; - reads standard input"),
    json_option("print one JSON object instead of a table"),
    description=_DESCRIPTION,
    epilog=_EXAMPLES,
)
def systolic(options: Namespace) -> None:
    """Price the layers and print them."""
    from tpusim.hardware.array import Array
    from tpusim.pipeline.stages import run_layers
    from tpusim.program.layers import Layer
    from tpusim.report.json.model import systolic_page
    from tpusim.report.terminal.systolic import print_systolic

    array = Array(
        rows=options.rows,
        columns=options.cols,
        dataflow=options.dataflow,
        mode=options.mode,
        rows_per_cycle=options.rows_per_cycle,
        count=options.arrays,
        passes=options.passes,
    )
    if options.layers and {options.m, options.n, options.k} != {None}:
        raise ConfigError("--m, --n and --k are of one product, --layers of many: give either")
    layers = options.layers or [Layer(name="product", **_sizes(options))]
    rows = run_layers(layers, array, options.model)
    answer(options, systolic_page, print_systolic, rows, array, options.model)


def _sizes(options: Namespace) -> dict[str, int]:
    sizes = {name: getattr(options, name) for name in "mnk"}
    for name, size in sizes.items():
        if size is None:
            raise ConfigError(f"--{name}: expected --m, --n and --k, or --layers FILE, found no --{name}")
        if size < 1:
            raise ConfigError(f"--{name}: expected a whole number from 1, found {size}")
    return sizes
