"""The command ``tpusim sweep``: programs on many machines, from a study's file or from options."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpusim.cli.options import (
    CHIPS,
    OVERFLOW,
    PLUGIN,
    TOPOLOGIES,
    TRIPS,
    WARM,
    check_written,
    command,
    json_option,
    listed,
    number,
    once,
    option,
    trips,
    written,
)
from tpusim.cli.output import answer, console, write_json
from tpusim.errors import ConfigError, FaultError

if TYPE_CHECKING:
    from tpusim.study.study import Study

_DESCRIPTION = """\
Run programs on many machines, on all cores: a study's TOML file, or PROGRAMs (files or patterns) and axes.
An axis is a key of the chip with values (-o mxu.count=1,2,4), with prefixes (16Mi, 819G), factors of what the chip
has (x2), or a range (-o "hbm.bandwidth_bytes_per_second=log(400G, 3T, 8)"). What does not fit has a status and no time.
Outcomes are kept in --study DIR as they come: after any end the same command goes on, and other studies find them."""

_EXAMPLES = """\
examples:
  tpusim sweep study.toml
  tpusim sweep 'traces/*.v5e.hlo.txt.gz' -o vmem.capacity_bytes=64Mi,128Mi -o mxu.count=x1,x2,x4 --csv out.csv
  tpusim sweep step.v6e.hlo.txt.gz --schedule given,compiled -o vmem.capacity_bytes=16Mi,128Mi --study sweep/
  tpusim sweep 'bert_b{batch}.v6e.hlo.txt.gz' -o batch=8,32 --chip v5e,v6e --executor dask:local"""

# As `tpusim plot` looks for them.
_RESULTS, _EFFECTS = "results.csv", "effects.csv"


@command(
    "sweep",
    "run programs on many machines: a table of times",
    option("programs", metavar="PROGRAM", nargs="+", help="files or patterns; or one study (*.toml)"),
    option("-o", "--override", metavar="K=V,V", action="append", default=[], help="an axis: a key and its values"),
    CHIPS,
    TOPOLOGIES,
    listed("--schedule", "given, retiled, compiled", "S,S"),
    PLUGIN,
    TRIPS,
    OVERFLOW,
    WARM,
    option("--study", metavar="DIR", help="keep outcomes here (default for NAME.toml: NAME beside it)"),
    written("--csv", metavar="FILE", help="write the table"),
    written("--parquet", metavar="FILE", help="write the table as Parquet (extra data)"),
    option("--jobs", metavar="N", type=number, help="processes (default: one for each core; 1: none beside this one)"),
    option("--executor", metavar="E", default="", help="dask:ADDRESS, dask:local or ray:ADDRESS"),
    option("--optimise", metavar="F,F", help="search for the best machines by these columns (extra study)"),
    option("--trials", metavar="N", type=number, default=100, help="machines that a search tries (default: 100)"),
    option("--seed", metavar="N", type=number, default=0, help="of a search (default: 0)"),
    option("--no-reuse", action="store_true", help="work every point out by itself"),
    json_option(),
    option("--quiet", action="store_true", help="no progress line"),
    description=_DESCRIPTION,
    epilog=_EXAMPLES,
)
def sweep(options: Namespace) -> None:
    """Run a study."""
    from tpusim.report.terminal.progress import CountLine
    from tpusim.study.table import check_parquet

    if options.parquet:
        check_parquet()
    line = CountLine("sweeping")
    try:
        study = _study(options, None if options.quiet else line)
        check_written(options, *_files(study, options))
        rows = _found(study, options) if options.optimise else study.run().rows()
    finally:
        line.close()
    _tell(study, rows, options)
    if study.faults:
        points = (
            "1 point ended in" if len(study.faults) == 1 else f"{len(study.faults):,} points ended so, the first in"
        )
        raise FaultError(f"{points} {study.faults[0]}")


def _files(study: Study, options: Namespace) -> tuple[list[str], list[str], list[str]]:
    """Return the programs of a study, its chips, and the files that it writes by itself."""
    from tpusim.study.store import kept_files

    folder = _folder(options)
    kept = [*kept_files(folder), folder / _RESULTS, folder / _EFFECTS] if folder else []
    return [program.path for program in study.spec.programs], list(study.spec.chip_names), list(map(str, kept))


def _tell(study: Study, rows: list[dict[str, Any]], options: Namespace) -> None:
    """Write the tables that are asked for, and print what the study says."""
    from tpusim.report.json.sweep import sweep_page
    from tpusim.report.terminal.compare import render_search, render_sweep
    from tpusim.study.effects import EFFECT_COLUMNS
    from tpusim.study.table import write_csv, write_parquet

    if options.csv:
        write_csv(rows, options.csv)
    if options.parquet:
        write_parquet(rows, options.parquet)
    if options.optimise:
        answer(options, sweep_page, render_search, rows)
        return
    if folder := _folder(options):
        write_csv(rows, folder / _RESULTS)
        write_csv(study.effect_table(), folder / _EFFECTS, EFFECT_COLUMNS)
    if options.json:
        write_json(sweep_page(rows, study.unmoved(), study.excluded))
        return
    render_sweep(rows, study.spec.keys, study.unmoved(), study.excluded, console())


def _found(study: Study, options: Namespace) -> list[dict[str, Any]]:
    """Return the machines that a search has tried."""
    from tpusim.study.search import search

    return search(study, options.optimise.split(","), options.trials, options.seed)


def _folder(options: Namespace) -> Path | None:
    """Return where a study keeps its outcomes."""
    if options.study:
        return Path(options.study)
    return Path(options.programs[0]).with_suffix("") if _is_study(options) else None


def _is_study(options: Namespace) -> bool:
    return len(options.programs) == 1 and str(options.programs[0]).endswith(".toml")


def _study(options: Namespace, progress: Any) -> Study:
    from tpusim.study.spec import BASES, make_spec, read_table, spec_of_file, table_of
    from tpusim.study.study import Study

    table: dict[str, Any] = {"programs": options.programs}
    start = Path()
    if _is_study(options):
        table, start = read_table(options.programs[0]), Path(options.programs[0]).parent
    axes = dict(table_of(table, "axes", str(options.programs[0]))) | once(_axis(text) for text in options.override)
    for name, key in BASES.items():
        if getattr(options, name):
            axes[name] = getattr(options, name)
            table.pop(key, None)
    flags = {"warm": options.warm, "allow_overflow": options.allow_overflow}
    table = table | {"axes": axes} | {key: True for key, given in flags.items() if given} | trips(options)
    # Where axes are given beside a file an error may be theirs.
    is_file_alone = _is_study(options) and not options.override
    return Study(
        spec_of_file(table, options.programs[0]) if is_file_alone else make_spec(table, start),
        store=_folder(options),
        executor=options.executor,
        jobs=options.jobs,
        reuse=not options.no_reuse,
        progress=progress,
    )


def _axis(text: str) -> tuple[str, Any]:
    """Return an axis from ``key=value,value`` or ``key=log(low, high, n)``."""
    key, equals, values = (part.strip() for part in text.partition("="))
    if not equals or not key or not values:
        raise ConfigError(f"-o: expected KEY=VALUE,VALUE such as mxu.count=1,2,4, found {text!r}")
    form, bracket, inner = values.partition("(")
    if bracket and form in ("log", "lin") and inner.endswith(")"):
        return key, {form: [part.strip() for part in inner[:-1].split(",")]}
    return key, [part.strip() for part in values.split(",")]
