"""The commands about the model of the core: lower, explain, validate, calibrate."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from tpusim.cli.options import CHIP, MACHINE, TOPOLOGY, TRIPS, command, json_option, machine, number, option
from tpusim.cli.output import answer, console
from tpusim.errors import ConfigError

_INDEX = "measured programs: traces/*/index.csv; with --memory also programs, or folders of them"


@command(
    "lower",
    "write a program as the machine's steps, to read, edit and run",
    option("program", metavar="PROGRAM", help="HLO text"),
    option("-o", "--output", metavar="FILE", help="a .json file (default: standard output)"),
    CHIP,
    TOPOLOGY,
    TRIPS,
)
def lower(options: Namespace) -> None:
    """Write the lowered program."""
    from tpusim.pipeline.stages import lower
    from tpusim.program.stored import encode_program, save_program

    if options.output and not options.output.endswith(".json"):
        # By that ending `run` tells a lowered program from HLO text.
        raise ConfigError(f"--output: expected a name that ends in .json, found {options.output!r}")
    trips = options.default_trip_count
    program = lower(options.program, options.chip, topology=options.topology, default_trip_count=trips)
    if options.output:
        save_program(program, options.output)
    else:
        sys.stdout.write(encode_program(program))


@command(
    "explain",
    "say why one kernel takes as long as it does",
    option("program", metavar="PROGRAM", help="HLO text, or a lowered program"),
    option("--op", metavar="NAME", required=True, help="an instruction, as `tpusim run` names it"),
    *MACHINE,
    json_option("print one JSON object instead of text"),
)
def explain(options: Namespace) -> None:
    """Explain one kernel."""
    from tpusim.pipeline.explain import explain
    from tpusim.report.json.model import explanation_page
    from tpusim.report.terminal.explain import render_explanation

    found = explain(options.program, options.op, options.chip, **machine(options))
    answer(options, explanation_page, render_explanation, found)


@command(
    "validate",
    "compare predictions with times measured on hardware",
    option("index", metavar="INDEX.csv", nargs="+", help=_INDEX),
    option("--chip", metavar="C", help="only the rows of this chip"),
    option("--collectives", action="store_true", help="rows of traces/collectives: no programs, only links"),
    option("--memory", action="store_true", help="HBM temporaries beside the compiler's: traces/memory/index.csv"),
    json_option("print one JSON object with every row"),
)
def validate(options: Namespace) -> None:
    """Compare predictions with measured times, or memory with the compiler's."""
    from tpusim.report.json.memory import memory_accuracy_page
    from tpusim.report.json.model import accuracy_page
    from tpusim.report.terminal.accuracy import render_accuracy
    from tpusim.report.terminal.memory_accuracy import render_memory_accuracy
    from tpusim.report.terminal.progress import CountLine
    from tpusim.validation.memory import validate_memory
    from tpusim.validation.times import validate

    line = CountLine("comparing" if options.memory else "predicting")
    try:
        if options.memory:
            found = validate_memory(options.index, options.chip, line)
            answer(options, memory_accuracy_page, render_memory_accuracy, found)
        else:
            times = validate(options.index, options.chip, collectives=options.collectives, progress=line)
            answer(options, accuracy_page, render_accuracy, times)
    finally:
        line.close()


@command(
    "calibrate",
    "fit what nobody published about a chip to measured times",
    option("index", metavar="INDEX.csv", nargs="+", help="programs with their times"),
    option("--chip", metavar="C", required=True, help="the chip whose figures are fitted"),
    option("--fits", metavar="FILE", help="what to fit (default: configs/fits.toml)"),
    option("--folds", metavar="N", type=number, default=5, help="for cross-validation (default 5)"),
    option("--write", metavar="CHIP.toml", help="write the values into this chip file"),
)
def calibrate(options: Namespace) -> None:
    """Fit a chip's parameters."""
    from tpusim.hardware.load import fits_path, resolve_chip_name
    from tpusim.report.terminal.accuracy import render_fit
    from tpusim.validation.calibration import calibrate, read_plans, write_fit
    from tpusim.validation.kernels import measured_as, read_cases

    if options.chip.endswith(".toml"):
        raise ConfigError(
            f"--chip: expected a chip by its name, found {options.chip!r}; --write names a file to change"
        )
    if options.write and not Path(options.write).is_file():
        raise ConfigError(f"--write: expected a chip file to change, found none at {options.write!r}")
    name = measured_as(resolve_chip_name(options.chip))
    path = options.fits or fits_path()
    plans = read_plans(path)
    if name not in plans:
        raise ConfigError(f"{path}: expected a table of parameters for {name}, found {', '.join(sorted(plans))}")
    cases = [case for index in options.index for case in read_cases(index)]
    fit = calibrate(name, plans[name], cases, options.folds)
    if options.write:
        write_fit(fit, options.write)
    render_fit(fit, console())
