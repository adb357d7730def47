"""The commands that run programs: ``run`` for the time, ``exec`` for the values, ``diff`` for what changes."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpusim.cli.options import (
    HLO,
    OVERFLOW,
    OVERRIDE,
    PLUGIN,
    RUN,
    SCHEDULES,
    TRIPS,
    WARM,
    amount,
    command,
    group,
    json_option,
    machine,
    microseconds,
    number,
    option,
    overrides,
    trips,
    written,
)
from tpusim.cli.output import answer, console, write, write_json, write_stage
from tpusim.cli.show import fmt
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.analysis.communication import PodUse
    from tpusim.analysis.compare import RunFigures
    from tpusim.analysis.energy.price import Cost
    from tpusim.pipeline.result import Result

_EXPORTS = {"trace": "perfetto", "counts": "accelergy"} | {name: name for name in ("html", "xprof", "model_explorer")}
"""By option the function of ``tpusim.export``."""

_ENDINGS = {"trace": (".json", ".json.gz"), "save": (".json",), "links": (".json",)}
"""What the names of files end in: by that `diff` tells a saved result from a program, and viewers what they read."""


def _overlay(name: str) -> tuple[str]:
    """Return what is written beside a graph."""
    from tpusim.report.viewers.model_explorer import overlay_name

    return (overlay_name(name),)


_PACE = "50us, normal:50us:5us:SEED, exponential:50us:SEED, or a file of times (default: no queue, sent when asked for)"
_GRAPH = "a graph for Model Explorer, and in FILE.node_data.json the times to lay over it"
_VIEWERS = (
    written("--html", metavar="FILE", help="a report to open in a browser: tables and charts in one file"),
    option("--against", metavar="A", help="a saved result or a program that --html compares this run with"),
    written("--trace", metavar="FILE", help="a time line for Perfetto (.json or .json.gz)"),
    option("--xprof", metavar="DIR", help="a profile in DIR, for xprof --logdir DIR and TensorBoard"),
    written("--model-explorer", metavar="FILE.json", help=_GRAPH, also=_overlay),
    written("--counts", metavar="FILE.yaml", help="what was done, with energies and areas, as Accelergy's tables"),
)

_DIFF = """\
What changes from one run to another: time, memory and traffic, by op and category, the largest change first.
A and B may each be a program (HLO text or lowered) or a result that `tpusim run --save` wrote. With two --chip, or
two --schedule, the first is A's and the second B's, and -o replaces figures of B's chip; B may then be left out, and A
runs on both."""

_DIFF_EXAMPLES = """\
examples:
  tpusim diff before.v5e.hlo.txt after.v5e.hlo.txt
  tpusim diff step.v5e.hlo.txt --chip v5e --chip v6e
  tpusim diff step.v5e.hlo.txt --schedule given --schedule compiled
  tpusim diff step.v5e.hlo.txt -o hbm.bandwidth_bytes_per_second=x2
  tpusim run step.v5e.hlo.txt --save monday.json && tpusim diff monday.json step.v5e.hlo.txt"""


@command(
    "run",
    "simulate a program and say how long it takes and why",
    *RUN,
    option("--by", choices=("op", "category", "source"), default="op", help="what a line of the table is"),
    TRIPS,
    OVERFLOW,
    option(
        "--with", dest="beside", metavar="PROGRAM", action="append", default=[], help="run this on the next devices"
    ),
    option("--energy-table", metavar="FILE.yaml", help="Accelergy's tables (ERT, ART) instead of the chip's figures"),
    option("--price", metavar="USD", type=amount, help="of an hour of a chip (default: as listed, where it is)"),
    option("--tokens", metavar="N", type=amount, help="that a run makes or reads, for rate and price of tokens"),
    option("--timeout", metavar="US", type=microseconds, help="end a run that takes longer, in simulated microseconds"),
    option("--infeed-pace", metavar="P", help=f"the host's time for an infeed: {_PACE}"),
    option("--outfeed-pace", metavar="P", help="the host's time for an outfeed, written likewise"),
    option("--queue-depth", metavar="N", type=number, default=2, help="feeds that may wait (default: 2)"),
    WARM,
    group("files for viewers", "each says that it is simulated", _VIEWERS),
    written("--save", metavar="FILE.json", help="write the result, for `tpusim diff`"),
    written("--links", metavar="FILE", help="write what every link carried, for a heat map (.json)"),
    option("--stop-after", choices=("text", "lowering", "machine"), help="print what that stage made instead"),
    json_option(),
    option("--quiet", action="store_true", help="no progress line"),
)
def run(options: Namespace) -> None:
    """Simulate a program and report."""
    _check_files(options)
    if options.stop_after == "text":
        fmt.run(options)
        return
    if options.stop_after == "lowering":
        from tpusim.pipeline.stages import lower
        from tpusim.program.stored import encode_program

        program = lower(options.program, options.chip, **machine(options), **trips(options))
        write_stage(encode_program(program))
        return
    # Before the run, which may take long: a wrong file is told of at once.
    before = _read_before(options)
    result = _simulate(options)
    # Before anything is printed: a pipe that closes early must not cost a file.
    _write_files(result, options, before)
    if options.stop_after == "machine":
        from tpusim.timeline.records import encode_timeline

        write_stage(encode_timeline(result.timeline).decode())
        return
    _report(result, options)


def _check_files(options: Namespace) -> None:
    """Refuse files of a run that is none, names that are no such files', and what only one of them has a use for."""
    asked = next((name for name in (*_EXPORTS, "save", "links") if getattr(options, name)), "")
    if asked and options.stop_after in ("text", "lowering"):
        flag = f"--{asked.replace('_', '-')}"
        raise ConfigError(f"{flag}: nothing runs with --stop-after {options.stop_after}, of which to write a file")
    if options.json and options.stop_after == "text":
        raise ConfigError("--json: expected a stage that has a form of JSON, found --stop-after text")
    if options.against and not options.html:
        raise ConfigError("--against: expected --html FILE as well, which has the comparison")
    for name, endings in _ENDINGS.items():
        given = getattr(options, name) or ""
        # What is a pipe has a name without one.
        if Path(given).suffix and not given.lower().endswith(endings):
            raise ConfigError(f"--{name}: expected a name that ends in {' or '.join(endings)}, found {given!r}")
    if options.model_explorer:
        from tpusim.report.viewers.model_explorer import check_graph_name

        check_graph_name(options.model_explorer)


def _read_before(options: Namespace) -> RunFigures | None:
    """Return the figures of what the run is compared with, None where that is nothing."""
    if not options.against:
        return None
    from tpusim.pipeline.stages import figures

    return figures(options.against)


def _simulate(options: Namespace) -> Result:
    from tpusim.pipeline.stages import simulate
    from tpusim.program.feed import parse_feed
    from tpusim.report.terminal.progress import RunLine

    paces = options.infeed_pace, options.outfeed_pace
    infeed, outfeed = (None if pace is None else parse_feed(pace, options.queue_depth) for pace in paces)
    line = RunLine()
    try:
        return simulate(
            options.program,
            options.chip,
            **machine(options),
            **trips(options),
            warm=options.warm,
            allow_overflow=options.allow_overflow,
            timeout_us=options.timeout,
            beside=options.beside,
            infeed=infeed,
            outfeed=outfeed,
            progress=None if options.quiet else line.record,
        )
    finally:
        # After an error as well: its message would else begin behind half a line of progress.
        line.close()


def _write_files(result: Result, options: Namespace, before: RunFigures | None) -> None:
    wanted = {name: getattr(options, option) for option, name in _EXPORTS.items() if getattr(options, option)}
    if wanted:
        from tpusim import export

        for name, target in wanted.items():
            more = {"before": before} if name == "html" else {}
            getattr(export, name)(result, target, **more)
    if options.save or options.links:
        from tpusim.report.json.run import save_links, save_result

        if options.save:
            save_result(result.summary, options.save, _cost(result, options), *_of_all(result))
        if options.links:
            save_links(result.pod, options.links)


def _cost(result: Result, options: Namespace) -> Cost | None:
    """Return what the run costs at the price, and for the tokens, of the command line."""
    return result.cost(options.price, options.tokens or 0.0)


def _of_all(result: Result) -> tuple[PodUse | None, float | None]:
    """Return what the devices of a slice did together, and the joules of them all; nothing of one alone."""
    return (result.communication, result.all_devices_j) if result.pod.device_count > 1 else (None, None)


def _report(result: Result, options: Namespace) -> None:
    if options.json:
        groups = result.groups(options.by)
        pod, all_j = _of_all(result)
        from tpusim.report.json.run import run_page

        # Ops are in every object already; only another grouping adds something.
        by = {} if options.by == "op" else {options.by: groups}
        write_json(run_page(result.summary, pod, by, _cost(result, options), all_j))
        return
    from tpusim.report.terminal.run import render_result

    render_result(result, options.by, console(), _cost(result, options))


@command(
    "exec",
    "compute a program's results as a TPU would",
    HLO,
    option("--inputs", metavar="IN.npz", help="arrays in0, in1, ... in the order of the parameters"),
    option("--random", metavar="SEED", type=number, help="make the inputs that are not given"),
    written("--outputs", metavar="OUT.npz", help="write arrays out0, out1, ... (default: describe them)"),
    option("--precision", choices=("tpu", "exact"), default="tpu", help="bf16 passes, or IEEE"),
    option("--chip", metavar="C", help="whose arrays sum the products (default: the chip it was compiled for)"),
    option("--schedule", choices=SCHEDULES, default="given", help="compute what runs on the chip under this schedule"),
    option("--replicas", metavar="N", type=number, default=1, help="devices that run it together"),
    option("--infeed", metavar="F.npz", help="arrays in0, in1, ... that infeeds read, a tuple one by one"),
    written("--outfeed", metavar="F.npz", help="write what outfeeds send, as out0, out1, ..."),
    option("--seed", metavar="N", type=number, default=0, help="of rng instructions"),
    option("--max-iterations", metavar="N", type=number, help="trips of a loop (default: 2**20 instructions in all)"),
)
def execute(options: Namespace) -> None:
    """Compute a program's results."""
    from tpusim.numerics.files import describe, name_outputs, numbered, read_arrays, with_random, write_arrays
    from tpusim.pipeline.stages import computed_module, execute
    from tpusim.semantics.verify.module import verify_module

    # Inputs are made for what is computed, whose parameters the compiler may have cut up.
    module = computed_module(options.program, chip=options.chip, schedule=options.schedule)
    shapes = [parameter.shape for parameter in module.entry.parameters]
    arrays = read_arrays(options.inputs) if options.inputs else {}
    if options.random is not None:
        # What is wrong with the program is told before anything is made for it.
        verify_module(module)
        arrays = with_random(arrays, shapes, options.random)
    fed_out: list[Any] = []
    result = execute(
        module,
        arrays,
        replicas=options.replicas,
        precision=options.precision,
        seed=options.seed,
        max_iterations=options.max_iterations,
        infeed=numbered(read_arrays(options.infeed)) if options.infeed else None,
        outfeed=fed_out,
        chip=options.chip,
    )
    if options.outfeed:
        write_arrays(options.outfeed, name_outputs(tuple(fed_out)))
    outputs = name_outputs(tuple(result) if isinstance(result, list) else result)
    if options.outputs:
        write_arrays(options.outputs, outputs)
    else:
        write(describe(outputs))


@command(
    "diff",
    "compare two programs, two chips or two saved results, by op and category",
    option("before", metavar="A", help="a program, or a saved result"),
    option("after", metavar="B", nargs="?", help="another (default: A on the second chip)"),
    option(
        "--chip", metavar="C", action="append", default=[], help="a chip's name or TOML file; twice: of A, then of B"
    ),
    option(
        "--schedule", choices=SCHEDULES, action="append", default=[], help="as `run` takes it; twice: of A, then of B"
    ),
    OVERRIDE,
    PLUGIN,
    TRIPS,
    OVERFLOW,
    json_option("print one JSON object with every op"),
    description=_DIFF,
    epilog=_DIFF_EXAMPLES,
)
def diff(options: Namespace) -> None:
    """Compare two runs."""
    from tpusim.pipeline.stages import diff, load
    from tpusim.report.json.run import comparison_page
    from tpusim.report.terminal.compare import render_comparison

    chips, schedules = options.chip, options.schedule
    for name, given in (("chip", chips), ("schedule", schedules)):
        if len(given) > 2:
            raise ConfigError(f"--{name}: expected at most two, A's and B's, found {len(given)}")
    replaced = overrides(options)
    if options.after is None and not replaced and 2 not in (len(chips), len(schedules)):
        raise ConfigError(
            "expected two programs or results, or one program and two --chip, two --schedule or -o; found no second"
        )
    wanted: dict[str, Any] = dict(zip(("schedule", "other_schedule"), schedules, strict=False))
    wanted |= {"other_overrides": replaced, "allow_overflow": options.allow_overflow, **trips(options)}
    # Standard input is there once, for both runs of one program.
    before = load(options.before) if options.before == "-" and options.after is None else options.before
    found = diff(before, before if options.after is None else options.after, *chips, **wanted)
    answer(options, comparison_page, render_comparison, found)
