"""The commands about the model: lower, validate, calibrate."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from tpusim.cli.options import HLO, LOWERING, command, json_option, machine, number, option, trips, written
from tpusim.cli.output import answer, console, write_stage
from tpusim.errors import ConfigError
from tpusim.files import is_folder

_INDEX = "measured programs: traces/*/index.csv; with --compiler programs; with --memory also programs, or folders"

_OUTSIDE = option("--outside", action="store_true", help="let an index name files outside its own folder")

_COMPARISONS = {
    "collectives": "rows of traces/collectives: no programs, only links",
    "memory": "HBM temporaries beside the compiler's: traces/memory/index.csv",
    "compiler": "kernels beside the compiler's own estimates: programs, as traces/*.hlo.txt.gz",
    "compiled": "programs that tpusim compiles beside the TPU compiler's: traces/unscheduled/index.csv",
    "power": "mean power beside the published one: traces/power/index.csv",
    "steps": "whole steps beside published times: traces/steps/index.csv",
}


@command(
    "lower",
    "write a program as the machine's steps, to read, edit and run",
    HLO,
    written("-o", "--output", metavar="FILE", help="a .json file (default: standard output)"),
    *LOWERING,
)
def lower(options: Namespace) -> None:
    """Write the lowered program."""
    from tpusim.pipeline.stages import lower
    from tpusim.program.stored import encode_program, save_program

    if options.output and not options.output.endswith(".json"):
        # By that ending `run` tells a lowered program from HLO text.
        raise ConfigError(f"--output: expected a name that ends in .json, found {options.output!r}")
    program = lower(options.program, options.chip, **machine(options), **trips(options))
    if options.output:
        save_program(program, options.output)
    else:
        write_stage(encode_program(program))


@command(
    "validate",
    "compare predictions with times measured on hardware",
    option("index", metavar="INDEX.csv", nargs="+", help=_INDEX),
    option("--chip", metavar="C", help="only the rows of this chip"),
    *(option(f"--{name}", action="store_true", help=text) for name, text in _COMPARISONS.items()),
    _OUTSIDE,
    json_option("print one JSON object with every row"),
)
def validate(options: Namespace) -> None:
    """Compare predictions with what was measured, or with what the compiler says."""
    from tpusim.report.terminal.progress import CountLine

    _allow_outside(options)
    chosen = [name for name in _COMPARISONS if getattr(options, name)]
    if len(chosen) > 1:
        raise ConfigError(f"expected one of {', '.join(f'--{name}' for name in _COMPARISONS)}, found {len(chosen)}")
    line = CountLine("predicting")
    kinds = {"memory": _memory, "compiler": _estimates, "compiled": _compiled, "steps": _steps, "power": _power}
    try:
        kinds.get("".join(chosen), _times)(options, line)
    finally:
        line.close()


def _allow_outside(options: Namespace) -> None:
    from tpusim.validation.rows import allow_outside

    allow_outside(options.outside)


def _times(options: Namespace, line: Any) -> None:
    from tpusim.report.json.model import accuracy_page
    from tpusim.report.terminal.accuracy import render_accuracy
    from tpusim.validation.times import validate

    found = validate(options.index, options.chip, collectives=options.collectives, progress=line)
    answer(options, accuracy_page, render_accuracy, found)


def _memory(options: Namespace, line: Any) -> None:
    from tpusim.report.json.memory import memory_accuracy_page
    from tpusim.report.terminal.accuracy import render_memory_accuracy
    from tpusim.validation.memory import validate_memory

    found = validate_memory(options.index, options.chip, line)
    answer(options, memory_accuracy_page, render_memory_accuracy, found)


def _estimates(options: Namespace, line: Any) -> None:
    from tpusim.report.json.accuracy import estimates_page
    from tpusim.report.terminal.estimates import render_estimates
    from tpusim.validation.estimates import validate_estimates

    answer(options, estimates_page, render_estimates, validate_estimates(options.index, options.chip, line))


def _compiled(options: Namespace, line: Any) -> None:
    from tpusim.report.json.accuracy import compiled_page
    from tpusim.report.terminal.compiler import render_compiled
    from tpusim.validation.compiled import validate_compiled

    answer(options, compiled_page, render_compiled, validate_compiled(options.index, options.chip, line))


def _steps(options: Namespace, line: Any) -> None:
    from tpusim.report.json.accuracy import steps_page
    from tpusim.report.terminal.steps import render_steps
    from tpusim.validation.steps import validate_steps

    answer(options, steps_page, render_steps, validate_steps(options.index, options.chip, line))


def _power(options: Namespace, line: Any) -> None:
    from tpusim.report.json.accuracy import power_page
    from tpusim.report.terminal.accuracy import render_power
    from tpusim.validation.power import validate_power

    answer(options, power_page, render_power, validate_power(options.index, options.chip, line))


@command(
    "calibrate",
    "fit what nobody published about a chip to measured times",
    option("index", metavar="INDEX.csv", nargs="+", help="programs with their times"),
    option("--fits", metavar="FILE", help="what to fit (default: configs/fits.toml)"),
    option("--folds", metavar="N", type=number, default=5, help="for cross-validation (default: 5)"),
    option("--write", metavar="FOLDER", help="write the values into the chip files of this folder"),
    _OUTSIDE,
)
def calibrate(options: Namespace) -> None:
    """Fit the parameters of all chips."""
    from tpusim.hardware.load import fits_path
    from tpusim.report.terminal.accuracy import render_fit
    from tpusim.validation.calibration import calibrate, read_plan, write_fit
    from tpusim.validation.kernels import read_cases

    _allow_outside(options)
    if options.write and not is_folder(options.write):
        raise ConfigError(f"--write: expected a folder of chip files, found none at {options.write!r}")
    plan = read_plan(options.fits or fits_path())
    fit = calibrate(plan, [case for index in options.index for case in read_cases(index)], options.folds)
    render_fit(fit, console())
    if options.write:
        write_fit(fit, options.write)
