"""The command ``tpusim systolic``: options in, one call of the pipeline out."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.program.layers import Layer

# Written out, so that --help need not load the rooms; a test holds them against those of hardware/array.py.
DATAFLOWS = ("ws", "os", "is")
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


def add_systolic(commands: Any) -> None:
    """Add ``tpusim systolic`` to the commands."""
    systolic = commands.add_parser(
        "systolic",
        help="cycles and utilisation of matrix products on a systolic array",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, help_text in (("rows", "rows of the array"), ("cols", "columns of the array")):
        systolic.add_argument(f"--{name}", metavar="N", type=int, default=128, help=f"{help_text} (default: 128)")
    systolic.add_argument("--dataflow", choices=DATAFLOWS, default="ws", help="what stays: weights, outputs or inputs")
    systolic.add_argument("--mode", choices=MODES, default="overlap", help="tiles load behind others, or never do")
    systolic.add_argument("--model", choices=("fast", "cycle"), default="fast", help="closed form, or count cycles")
    for name, help_text in (
        ("rows-per-cycle", "rows that stream in per cycle, 2 on 256-wide TPUs"),
        ("arrays", "arrays that share each product"),
        ("passes", "times that every tile is gone through"),
    ):
        systolic.add_argument(f"--{name}", metavar="N", type=int, default=1, help=f"{help_text} (default: 1)")
    for name in "mnk":
        systolic.add_argument(f"--{name}", metavar=name.upper(), type=int, help=f"{name.upper()} of one product")
    systolic.add_argument("--layers", metavar="FILE", help="CSV of layers; - reads standard input")
    systolic.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    systolic.set_defaults(run=_systolic)


def _systolic(options: argparse.Namespace) -> None:
    """Price the layers and print them."""
    from tpusim.hardware.array import Array
    from tpusim.pipeline.stages import run_layers
    from tpusim.report.terminal.systolic import systolic_json, systolic_text

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
    rows = run_layers(options.layers or [_layer(options)], array, options.model)
    if options.json:
        text = json.dumps(systolic_json(rows, array, options.model), indent=1)
    else:
        text = systolic_text(rows, array, options.model)
    sys.stdout.write(text + "\n")


def _layer(options: argparse.Namespace) -> Layer:
    """Return the one product that the options give."""
    from tpusim.program.layers import Layer

    sizes = {name: getattr(options, name) for name in "mnk"}
    for name, size in sizes.items():
        if size is None:
            raise ConfigError(f"--{name}: expected --m, --n and --k, or --layers FILE, found no --{name}")
        if size < 1:
            raise ConfigError(f"--{name}: expected a whole number from 1, found {size}")
    return Layer(name="product", **sizes)
