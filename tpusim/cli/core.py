"""The commands about the model of the core: validate, calibrate, lower, explain. Options in, calls of the rooms out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpusim.cli.memory import validate_memory
from tpusim.cli.options import CHIP_HELP, number, overrides
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from tpusim.analysis.accuracy import Outcome


def add_commands(commands: Any) -> None:
    """Add the commands of this file to the command line."""
    for add in (_add_lower, _add_explain, _add_validate, _add_calibrate):
        add(commands)


def _add_lower(commands: Any) -> None:
    """Add ``tpusim lower``."""
    lower = commands.add_parser("lower", help="write a program as the machine's steps, to read, edit and run")
    lower.add_argument("program", metavar="PROGRAM", help="HLO text")
    lower.add_argument("-o", "--output", metavar="FILE", help="a .json file (default: standard output)")
    lower.add_argument("--chip", metavar="C", help=CHIP_HELP)
    lower.add_argument("--topology", metavar="T", help="the slice that the program runs on, as in v5e:2x4")
    lower.add_argument("--default-trip-count", metavar="N", type=number, default=1, help="for loops that do not tell")
    lower.set_defaults(run=_lower)


def _add_explain(commands: Any) -> None:
    """Add ``tpusim explain``."""
    explain = commands.add_parser("explain", help="say why one kernel takes as long as it does")
    explain.add_argument("program", metavar="PROGRAM", help="HLO text, or a lowered program")
    explain.add_argument("--op", metavar="NAME", required=True, help="an instruction, as `tpusim run` names it")
    explain.add_argument("--chip", metavar="C", help=CHIP_HELP)
    explain.add_argument("--topology", metavar="T", help="the slice that the program runs on, as in v5e:2x4")
    explain.add_argument(
        "-o", "--override", metavar="K=V", action="append", default=[], help="replace a figure of the chip"
    )
    explain.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    explain.set_defaults(run=_explain)


def _add_validate(commands: Any) -> None:
    """Add ``tpusim validate``."""
    validate = commands.add_parser("validate", help="compare predictions with times measured on hardware")
    indexes = "measured programs: traces/*/index.csv; with --memory also programs, or folders of them"
    validate.add_argument("index", metavar="INDEX.csv", nargs="+", help=indexes)
    validate.add_argument("--chip", metavar="C", help="only the rows of this chip")
    validate.add_argument(
        "--collectives", action="store_true", help="rows of traces/collectives: no programs, only links"
    )
    validate.add_argument(
        "--memory", action="store_true", help="HBM temporaries beside the compiler's: traces/memory/index.csv"
    )
    validate.add_argument("--json", action="store_true", help="print one JSON object with every row")
    validate.set_defaults(run=_validate)


def _add_calibrate(commands: Any) -> None:
    """Add ``tpusim calibrate``."""
    calibrate = commands.add_parser("calibrate", help="fit what nobody published about a chip to measured times")
    calibrate.add_argument("index", metavar="INDEX.csv", nargs="+", help="programs with their times")
    calibrate.add_argument("--chip", metavar="C", required=True, help="the chip whose figures are fitted")
    calibrate.add_argument("--fits", metavar="FILE", help="what to fit (default: configs/fits.toml)")
    calibrate.add_argument("--folds", metavar="N", type=number, default=5, help="for cross-validation (default 5)")
    calibrate.add_argument("--write", metavar="CHIP.toml", help="write the values into this chip file")
    calibrate.set_defaults(run=_calibrate)


def _lower(options: argparse.Namespace) -> None:
    """Write the lowered program."""
    from tpusim.pipeline.stages import lower
    from tpusim.program.stored import encode_program, save_program

    if options.output and not options.output.endswith(".json"):
        # By that ending `run` tells a lowered program from HLO text.
        raise ConfigError(f"--output: expected a name that ends in .json, found {options.output!r}")
    program = lower(
        options.program, options.chip, topology=options.topology, default_trip_count=options.default_trip_count
    )
    if options.output:
        save_program(program, options.output)
    else:
        sys.stdout.write(encode_program(program))


def _explain(options: argparse.Namespace) -> None:
    """Explain one kernel."""
    from tpusim.pipeline.explain import explain
    from tpusim.report.terminal.console import make_console
    from tpusim.report.terminal.explain import explanation_json, render_explanation

    found = explain(options.program, options.op, options.chip, topology=options.topology, overrides=overrides(options))
    if options.json:
        sys.stdout.write(json.dumps(explanation_json(found), indent=1) + "\n")
    else:
        render_explanation(found, make_console())


def _validate(options: argparse.Namespace) -> None:
    """Compare predictions with measured times."""
    from tpusim.hardware.load import load_chip, resolve_chip_name
    from tpusim.report.terminal.progress import CountLine
    from tpusim.validation.collectives import cross_validate, predict_collectives
    from tpusim.validation.kernels import measured_as, predict_all, read_cases

    if options.memory:
        validate_memory(options)
        return
    wanted = measured_as(resolve_chip_name(options.chip)) if options.chip else None
    if options.collectives:
        found = [row for index in options.index for row in predict_collectives(index, load_chip, wanted)]
        _require(found, options, wanted)
        both = [cross_validate(index, load_chip) for index in options.index]
        held_out = [[row for pair in both for row in pair[n] if wanted in (None, row.chip)] for n in (0, 1)]
        _print_accuracy(found, options, dict(zip(("row", "source"), held_out, strict=True)))
        return
    cases = [case for index in options.index for case in read_cases(index) if wanted in (None, case.chip)]
    _require(cases, options, wanted)
    line = CountLine("predicting", len(cases))
    try:
        outcomes: Sequence[Outcome] = predict_all(cases, load_chip, line)
    finally:
        line.close()
    _print_accuracy(outcomes, options)


def _print_accuracy(
    outcomes: Sequence[Outcome], options: argparse.Namespace, held_out: Mapping[str, Sequence[Outcome]] | None = None
) -> None:
    """Print errors by family, and those of predictions that do not know what they are compared with, if any."""
    from tpusim.analysis.accuracy import errors_by_predictor, mean_error
    from tpusim.report.terminal.accuracy import accuracy_json, render_accuracy
    from tpusim.report.terminal.console import make_console

    errors = errors_by_predictor(outcomes)
    overall = {"": outcomes, **(held_out or {})}
    totals = {what: mean_error(rows) for what, rows in overall.items() if rows}
    if options.json:
        sys.stdout.write(json.dumps(accuracy_json(errors, outcomes, totals), indent=1) + "\n")
    else:
        render_accuracy(errors, outcomes, make_console(), totals if held_out else {})


def _require(rows: Sequence[object], options: argparse.Namespace, chip: str | None) -> None:
    """Refuse indexes without a row of the chip that was asked for."""
    if not rows:
        raise ConfigError(f"{', '.join(options.index)}: expected measured rows{_of(chip)}, found none")


def _of(chip: str | None) -> str:
    """Return the words that narrow rows to a chip."""
    return f" of {chip}" if chip else ""


def _calibrate(options: argparse.Namespace) -> None:
    """Fit a chip's parameters."""
    from tpusim.hardware.load import fits_path, resolve_chip_name
    from tpusim.report.terminal.accuracy import render_fit
    from tpusim.report.terminal.console import make_console
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
    render_fit(fit, make_console())
