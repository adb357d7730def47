"""``tpusim systolic``: products on an array by itself."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any, Final

from tpusim.cli.options import DATAFLOW, array_sides, command, integer, json_option, option
from tpusim.cli.output import answer
from tpusim.errors import ConfigError
from tpusim.limits import SIDE

# Written out, so that --help need not load the rooms; a test holds them against those of hardware/array.py.
MODES = ("overlap", "scale-sim")

_SYSTOLIC = """\
Matrix products on one kind of systolic array, without a chip around it: cycles, utilisation and mapping efficiency.
A product is M x K times K x N. A CSV of layers is one of SCALE-Sim's topology files: Layer, M, N, K, or convolutions
(Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides), each with a column
of sparsities N:M at its end if need be. With one of SCALE-Sim's configurations (-c) the array has SRAMs beside it: what
it waits for them (USER), or what DRAM has to do (CALC); -p writes SCALE-Sim's reports."""

_SYSTOLIC_EXAMPLES = """\
examples:
  tpusim systolic --rows 128 --cols 128 --dataflow ws --m 1000 --n 256 --k 384
  tpusim systolic --layers resnet50.csv --mode scale-sim --json
  tpusim systolic -c scale.cfg -t resnet50.csv -p results
  tpusim systolic --rows 256 --cols 256 --rows-per-cycle 2 --arrays 2 --m 4096 --n 4096 --k 4096
  tpusim systolic --rows 8 --cols 8 --m 100 --n 20 --k 30 --model cycle"""

_COUNTS = {
    "rows-per-cycle": "rows that stream in per cycle, 2 on 256-wide TPUs",
    "arrays": "arrays that share each product",
    "passes": "times that every tile is gone through",
}


_FIELDS: Final = {name: name.replace("-", "_") for name in _COUNTS}


@command(
    "systolic",
    "cycles and utilisation of matrix products on a systolic array",
    *array_sides(128, integer),
    DATAFLOW,
    option("--mode", choices=MODES, default="overlap", help="tiles load behind others, or never do"),
    option("--model", choices=("fast", "cycle"), default="fast", help="closed form, or count cycles"),
    *(
        option(f"--{name}", metavar="N", type=integer, default=1, help=f"{text} (default: 1)")
        for name, text in _COUNTS.items()
    ),
    *(option(f"--{name}", metavar=name.upper(), type=integer, help=f"{name.upper()} of one product") for name in "mnk"),
    option("-t", "--layers", metavar="FILE", help="CSV of layers, SCALE-Sim's topology; - reads standard input"),
    option("-c", "--config", metavar="FILE.cfg", help="SCALE-Sim's configuration: array, SRAMs, bandwidth"),
    option("-p", "--reports", metavar="DIR", help="with -c: write SCALE-Sim's reports into DIR/<run_name of FILE.cfg>"),
    json_option("print one JSON object instead of a table"),
    description=_SYSTOLIC,
    epilog=_SYSTOLIC_EXAMPLES,
)
def systolic(options: Namespace) -> None:
    """Price the layers and print them."""
    from msgspec.structs import replace

    from tpusim.pipeline.layers import run_layers
    from tpusim.program.layers import RowWise, load_layers
    from tpusim.report.json.model import systolic_page
    from tpusim.report.terminal.systolic import print_systolic

    config = _config(options)
    array = config.array if config else _array(options)
    if options.layers and {options.m, options.n, options.k} != {None}:
        raise ConfigError("--m, --n and --k are of one product, --layers of many: give either")
    layers = load_layers(options.layers) if options.layers else [_product(options)]
    if config and not config.sparse:
        # As SCALE-Sim: sparsities count where the configuration says so.
        layers = [replace(layer, kept=(1, 1)) for layer in layers]
    if config and config.rowwise:
        rowwise = RowWise(group=config.rowwise.rows, seed=config.rowwise.seed)
        layers = [replace(layer, rowwise=rowwise) for layer in layers]
    rows = run_layers(layers, array, options.model)
    memories = _memories(options, config, rows) if config else []
    answer(options, systolic_page, print_systolic, rows, memories, array, options.model)


def _product(options: Namespace) -> Any:
    """Return the one product that the options state."""
    from tpusim.program.layers import Layer

    sizes = product_sizes(options)
    return Layer(name="product", m=sizes["m"], n=sizes["n"], k=sizes["k"])


def _config(options: Namespace) -> Any:
    """Return what SCALE-Sim's configuration says, or None without one; other options may not say it again."""
    if not options.config:
        if options.reports:
            raise ConfigError("--reports: expected -c FILE.cfg as well, which states the SRAMs")
        return None
    from tpusim.hardware.scale_config import load_scale_config

    given = {"rows": 128, "cols": 128, "dataflow": "ws", "mode": "overlap"} | dict.fromkeys(_FIELDS.values(), 1)
    for name, default in given.items():
        if getattr(options, name) != default:
            raise ConfigError(f"--{name.replace('_', '-')}: {options.config} states the array: change it there")
    return load_scale_config(options.config)


def _array(options: Namespace) -> Any:
    """Return the array that the options state."""
    from tpusim.hardware.array import Array

    return Array(
        rows=options.rows,
        columns=options.cols,
        dataflow=options.dataflow,
        mode=options.mode,
        rows_per_cycle=options.rows_per_cycle,
        count=options.arrays,
        passes=options.passes,
    )


def _memories(options: Namespace, config: Any, rows: Any) -> Any:
    """Return what the layers take with their SRAMs; write SCALE-Sim's reports if they are asked for."""
    from tpusim.pipeline.layers import run_layers_with_memory
    from tpusim.report.scale_sim import scale_sim_reports, write_reports

    memories = run_layers_with_memory([layer for layer, _ in rows], config.array, config.buffers)
    if options.reports:
        reports = scale_sim_reports(
            [(*row, one) for row, one in zip(rows, memories, strict=True)], config.array, config.sparse
        )
        write_reports(reports, Path(options.reports) / config.run_name)
    return memories


def product_sizes(options: Namespace) -> dict[str, int]:
    """Return the sizes of one product by the letter of their option."""
    sizes = {name: getattr(options, name) for name in "mnk"}
    for name, size in sizes.items():
        if size is None:
            raise ConfigError(f"--{name}: expected --m, --n and --k, or --layers FILE, found no --{name}")
        if size < 1:
            raise ConfigError(f"--{name}: expected a whole number from 1, found {size}")
        if fault := SIDE.fault(size):
            raise ConfigError(f"--{name}: {fault}")
    return sizes
