"""The command line: options in, calls of the pipeline out. No logic of its own, and nothing heavy imported early."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from tpusim import __version__
from tpusim.cli.compare import add_compare
from tpusim.cli.core import add_commands
from tpusim.cli.memory import add_memory
from tpusim.cli.options import CHIP_HELP, number, overrides, positive
from tpusim.cli.plot import add_plot
from tpusim.cli.systolic import add_systolic
from tpusim.cli.viewers import add_viewers, write_views
from tpusim.errors import ConfigError, ProgramError, TpusimError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpusim.pipeline.result import Result

EXIT_REFUSED = 1
# 128 and the number of SIGINT, as shells report an interrupted command.
EXIT_INTERRUPTED = 130

_DESCRIPTION = """\
Simulate XLA programs for Google's TPU without one: how long a program runs on a chip, and why.
PROGRAM is HLO text as the TPU compiler leaves it (compiled.as_text() in JAX), plain or gzip-compressed; - reads
standard input."""

_EXAMPLES = """\
examples:
  tpusim run traces/mlp_b1024.v5e.hlo.txt.gz
  tpusim run step.hlo.txt --chip v5p --by category
  tpusim run step.hlo.txt --chip v5e -o hbm.bandwidth_bytes_per_second=1.2e12 --json
  tpusim layout "bf16[10,300]{1,0:T(8,128)(2,1)}" --at 3,129
  tpusim chips v5e"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 refused with a message, 2 wrong usage."""
    options = _parser().parse_args(_joined(sys.argv[1:] if arguments is None else arguments))
    try:
        options.run(options)
        # Here and not at exit, so that a full disk or a closed pipe meets the clauses below.
        sys.stdout.flush()
    # Before OSError, of which it is one: a reader that has seen enough is no failure.
    except BrokenPipeError:
        _forget_output()
    except TpusimError as error:
        sys.stderr.write(f"tpusim: {error}\n")
        return EXIT_REFUSED
    except OSError as error:
        sys.stderr.write(f"tpusim: {error.filename or 'output'}: {error.strerror}\n")
        return EXIT_REFUSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def _joined(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with ``--at -1,2`` as one, since argparse takes what begins with a dash for an option."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] == "--at":
            joined[-1] = f"--at={argument}"
        else:
            joined.append(argument)
    return joined


def _forget_output() -> None:
    """Send the rest of the output nowhere: its reader has gone (``tpusim run ... | head``)."""
    # Python would otherwise complain once more when it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("tpusim", description=_DESCRIPTION, epilog=_EXAMPLES, formatter_class=raw)
    parser.add_argument("--version", action="version", version=f"tpusim {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    plain = (_add_run, _add_exec, _add_check, _add_fmt, _add_layout, _add_chips, _add_ops)
    for add in (*plain, add_memory, add_compare, add_commands, add_systolic, add_plot):
        add(commands)
    return parser


def _add_run(commands: Any) -> None:
    """Add ``tpusim run``."""
    run = commands.add_parser("run", help="simulate a program and say how long it takes and why")
    run.add_argument("program", metavar="PROGRAM", help="HLO text, or a lowered program (*.json)")
    run.add_argument("--chip", metavar="C", help=CHIP_HELP)
    run.add_argument("--topology", metavar="T", help="the slice that the program runs on, as in v5e:2x4")
    run.add_argument(
        "-o", "--override", metavar="K=V", action="append", default=[], help="replace a figure of the chip"
    )
    run.add_argument("--by", choices=("op", "category", "source"), default="op", help="what a line of the table is")
    run.add_argument("--default-trip-count", metavar="N", type=number, default=1, help="for loops that do not tell")
    run.add_argument("--with", metavar="PROGRAM", action="append", default=[], help="run this on the next devices")
    run.add_argument(
        "--timeout", metavar="US", type=positive, help="end a run that takes longer, in simulated microseconds"
    )
    pace = "50us, normal:50us:5us:SEED, exponential:50us:SEED, or a file of times (default: always ready)"
    run.add_argument("--infeed-pace", metavar="P", help=f"the host's time for an infeed: {pace}")
    run.add_argument("--outfeed-pace", metavar="P", help="the host's time for an outfeed, written likewise")
    run.add_argument("--queue-depth", metavar="N", type=number, default=2, help="feeds that may wait (default 2)")
    run.add_argument("--warm", action="store_true", help="one of many runs: cross-program prefetches have come in")
    add_viewers(run)
    run.add_argument("--save", metavar="FILE.json", help="write the result, for `tpusim diff`")
    run.add_argument("--links", metavar="FILE", help="write what every link carried, for a heat map (.json)")
    run.add_argument("--stop-after", choices=("text", "lowering", "machine"), help="print what that stage made instead")
    run.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    run.add_argument("--quiet", action="store_true", help="no progress line")
    run.set_defaults(run=_run)


def _add_exec(commands: Any) -> None:
    """Add ``tpusim exec``."""
    execute = commands.add_parser("exec", help="compute a program's results as a TPU would")
    execute.add_argument("program", metavar="PROGRAM", help="HLO text, scheduled or not")
    execute.add_argument("--inputs", metavar="IN.npz", help="arrays in0, in1, ... in the order of the parameters")
    execute.add_argument("--random", metavar="SEED", type=number, help="make the inputs that are not given")
    execute.add_argument("--outputs", metavar="OUT.npz", help="write arrays out0, out1, ... (default: describe them)")
    execute.add_argument("--precision", choices=("tpu", "exact"), default="tpu", help="bf16 passes, or IEEE")
    execute.add_argument("--replicas", metavar="N", type=number, default=1, help="devices that run it together")
    execute.add_argument("--infeed", metavar="F.npz", help="arrays in0, in1, ... that infeeds read")
    execute.add_argument("--outfeed", metavar="F.npz", help="write what outfeeds send, as out0, out1, ...")
    execute.add_argument("--seed", metavar="N", type=number, default=0, help="of rng instructions")
    execute.add_argument("--max-iterations", metavar="N", type=number, help="stop a while that runs longer")
    execute.set_defaults(run=_exec)


def _add_check(commands: Any) -> None:
    """Add ``tpusim check``."""
    check = commands.add_parser("check", help="verify a program: shapes, schedules, channels, aliases, groups")
    check.add_argument("program", metavar="PROGRAM")
    check.add_argument("--json", action="store_true", help="print a list of messages as JSON")
    check.set_defaults(run=_check)


def _add_fmt(commands: Any) -> None:
    """Add ``tpusim fmt``."""
    fmt = commands.add_parser("fmt", help="print a program as canonical HLO text")
    fmt.add_argument("program", metavar="PROGRAM")
    fmt.set_defaults(run=_fmt)


def _add_layout(commands: Any) -> None:
    """Add ``tpusim layout``."""
    layout = commands.add_parser("layout", help="explain a shape's layout in words and numbers")
    layout.add_argument("shape", metavar="SHAPE", help='such as "bf16[10,300]{1,0:T(8,128)(2,1)}"')
    layout.add_argument("--at", metavar="I,J,...", type=_index, help="say where this element lies")
    layout.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    layout.set_defaults(run=_layout)


def _add_chips(commands: Any) -> None:
    """Add ``tpusim chips``."""
    chips = commands.add_parser("chips", help="list the chips, or show every figure of one with its source")
    chips.add_argument("name", metavar="NAME", nargs="?", help="a chip's name or TOML file")
    chips.add_argument("-o", "--override", metavar="K=V", action="append", default=[], help="replace a figure")
    chips.add_argument("--json", action="store_true", help="print JSON instead of tables")
    chips.set_defaults(run=_chips)


def _add_ops(commands: Any) -> None:
    """Add ``tpusim ops``."""
    ops = commands.add_parser("ops", help="list the operations of HLO and what is known of each")
    ops.add_argument("--json", action="store_true", help="print JSON instead of a table")
    ops.set_defaults(run=_ops)


def _index(text: str) -> tuple[int, ...]:
    """Return a comma-separated list of whole numbers; argparse reports anything else."""
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected whole numbers such as 3,129, found {text!r}") from error


def _run(options: argparse.Namespace) -> None:
    """Simulate a program and report."""
    if options.stop_after == "text":
        _fmt(options)
        return
    if options.stop_after == "lowering":
        _print_lowered(options)
        return
    result = _simulate(options)
    # Before anything is printed: a pipe that closes early must not cost a file.
    write_views(result, options)
    if options.save:
        from tpusim.report.terminal.compare import save_result

        save_result(result.summary, options.save)
    if options.links:
        from tpusim.report.terminal.pod import write_links

        write_links(result.pod, options.links)
    if options.stop_after == "machine":
        from tpusim.timeline.store import encode_timeline

        _print(encode_timeline(result.timeline).decode())
        return
    _report(result, options)


def _simulate(options: argparse.Namespace) -> Result:
    """Run the program, with a line of progress on a terminal."""
    from tpusim.pipeline.stages import simulate
    from tpusim.report.terminal.progress import ProgressLine

    line = ProgressLine()
    try:
        return simulate(
            options.program,
            options.chip,
            topology=options.topology,
            overrides=overrides(options),
            default_trip_count=options.default_trip_count,
            warm=options.warm,
            timeout_us=options.timeout,
            beside=getattr(options, "with"),
            infeed=_pace(options.infeed_pace, options.queue_depth),
            outfeed=_pace(options.outfeed_pace, options.queue_depth),
            progress=None if options.quiet else line,
        )
    finally:
        # After an error as well: its message would else begin behind half a line of progress.
        line.close()


def _pace(text: str | None, depth: int) -> Any:
    """Return the host's pace at a queue, None if it was not stated."""
    from tpusim.program.feed import parse_feed

    return parse_feed(text, depth) if text is not None else None


def _report(result: Result, options: argparse.Namespace) -> None:
    """Print a run's numbers as JSON or as tables."""
    from tpusim.report.terminal.pod import pod_json, render_pod
    from tpusim.report.terminal.run import groups_json, render_run, run_json

    groups = result.groups(options.by)
    if options.json:
        # Ops are in every object already; only another grouping adds something.
        grouped = {} if options.by == "op" else {"groups": groups_json(groups, options.by)}
        pod = {"pod": pod_json(result.communication)} if result.pod.device_count > 1 else {}
        _print(json.dumps(run_json(result.summary) | pod | grouped, indent=1))
        return
    console = _console()
    render_run(result.summary, groups, options.by, console)
    if result.pod.device_count > 1:
        render_pod(result.communication, console)


def _print_lowered(options: argparse.Namespace) -> None:
    """Print the lowered program in its text form."""
    from tpusim.pipeline.stages import lower
    from tpusim.program.stored import encode_program

    program = lower(
        options.program,
        options.chip,
        topology=options.topology,
        overrides=overrides(options),
        default_trip_count=options.default_trip_count,
    )
    _print(encode_program(program))


def _exec(options: argparse.Namespace) -> None:
    """Compute a program's results."""
    from tpusim.numerics.files import describe, name_outputs, numbered, read_arrays, write_arrays
    from tpusim.pipeline.stages import execute, load, random_arrays

    module = load(options.program)
    arrays = read_arrays(options.inputs) if options.inputs else {}
    inputs = arrays if options.random is None else random_arrays(module, options.random, arrays)
    infeed = numbered(read_arrays(options.infeed)) if options.infeed else None
    fed_out: list[Any] = []
    result = execute(
        module,
        inputs,
        replicas=options.replicas,
        precision=options.precision,
        seed=options.seed,
        max_iterations=options.max_iterations,
        infeed=infeed,
        outfeed=fed_out,
    )
    if options.outfeed:
        write_arrays(options.outfeed, name_outputs(tuple(fed_out)))
    outputs = name_outputs(tuple(result) if isinstance(result, list) else result)
    if options.outputs:
        write_arrays(options.outputs, outputs)
    else:
        _print(describe(outputs))


def _check(options: argparse.Namespace) -> None:
    """Verify a program; whatever is wrong is printed, and makes the command fail."""
    from tpusim.pipeline.stages import check

    problems = check(options.program)
    if options.json:
        _print(json.dumps(problems, indent=1))
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ProgramError("\n".join(problems) if not options.json else problems[0] + more)


def _fmt(options: argparse.Namespace) -> None:
    """Print canonical HLO text."""
    from tpusim.pipeline.stages import load
    from tpusim.text.printer import print_module

    sys.stdout.write(print_module(load(options.program)))


def _layout(options: argparse.Namespace) -> None:
    """Explain a layout."""
    from tpusim.shapes.layout_facts import layout_facts
    from tpusim.shapes.notation import parse_shape

    facts = layout_facts(parse_shape(options.shape), options.at)
    if options.json:
        _print(json.dumps(facts, indent=1))
        return
    # Rich takes longer to load than the answer takes to compute, and JSON does without it.
    from tpusim.report.terminal.layout import render_layout

    render_layout(facts, _console())


def _chips(options: argparse.Namespace) -> None:
    """List chips or show one."""
    from tpusim.hardware.load import chip_facts, chip_names, load_chip
    from tpusim.report.terminal.chips import chip_json, chip_list_json, render_chip, render_chip_list

    replaced = overrides(options)
    if options.name is None:
        if replaced:
            # Silence would look as if every chip of the list had been changed.
            raise ConfigError("-o replaces a figure of one chip: name it, as in `tpusim chips v5e -o clock_hz=1.6e9`")
        chips = [load_chip(name) for name in chip_names()]
        if options.json:
            _print(json.dumps(chip_list_json(chips), indent=1))
        else:
            render_chip_list(chips, _console())
        return
    chip, facts = load_chip(options.name, replaced), chip_facts(options.name, replaced)
    if options.json:
        _print(json.dumps(chip_json(chip, facts), indent=1))
    else:
        render_chip(chip, facts, _console())


def _ops(options: argparse.Namespace) -> None:
    """List the operations."""
    from tpusim.ir.ops import OPERATIONS
    from tpusim.pipeline.stages import opcode_rules
    from tpusim.report.terminal.ops import ops_json, render_ops

    if options.json:
        _print(json.dumps(ops_json(OPERATIONS.values(), opcode_rules()), indent=1))
    else:
        render_ops(OPERATIONS.values(), opcode_rules(), _console())


def _console() -> Any:
    """Return the console to print tables on; only the reports know what it is."""
    from tpusim.report.terminal.console import make_console

    return make_console()


def _print(text: str) -> None:
    """Write a text and an end of line."""
    sys.stdout.write(text.rstrip("\n") + "\n")
