"""The command line: options in, calls of the pipeline out. No logic of its own, and nothing heavy imported early."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence

from tpusim import __version__
from tpusim.cli.answers import advise, explain, path
from tpusim.cli.compile import compile_
from tpusim.cli.model import calibrate, lower, validate
from tpusim.cli.plot import plot
from tpusim.cli.run import diff, execute, run
from tpusim.cli.scale import layouts, scale
from tpusim.cli.show import check, chips, fmt, layout, memory, ops, schema
from tpusim.cli.sweep import sweep
from tpusim.cli.systolic import systolic
from tpusim.errors import TpusimError

EXIT_REFUSED = 1
# 128 and the number of SIGINT, as shells report an interrupted command.
EXIT_INTERRUPTED = 130

# Some 100 MB of what could be garbage, at most, before anything looks for it.
_COLLECTED_OBJECTS = 1_000_000

COMMANDS = (
    run,
    compile_,
    execute,
    check,
    fmt,
    layout,
    layouts,
    chips,
    ops,
    memory,
    diff,
    lower,
    explain,
    path,
    advise,
    scale,
    validate,
    calibrate,
    systolic,
    sweep,
)
"""In the order of the help."""

_DESCRIPTION = """\
Simulate XLA programs for Google's TPU without one: how long a program runs on a chip, and why.
PROGRAM is HLO text as the TPU compiler leaves it (compiled.as_text() in JAX) or as a front end makes it, which tpusim
then compiles itself, or StableHLO or serialised HLO where jaxlib is installed, plain or gzip-compressed; - reads
standard input."""

_EXAMPLES = """\
examples:
  tpusim run traces/mlp_b1024.v5e.hlo.txt.gz
  tpusim run step.hlo.txt --chip v5p --by category
  tpusim run step.hlo.txt --chip v5e -o hbm.bandwidth_bytes_per_second=1.2e12 --json
  tpusim layout "bf16[10,300]{1,0:T(8,128)(2,1)}" --at 3,129
  tpusim chips v5e"""


def run_process() -> int:
    """Run the command line as all that this process does, and return its exit code."""
    # What a command makes lives as long as it does, and has hardly any cycles: to look for them again and again, and
    # once more when Python ends, would take a sixth of the time of a large program.
    gc.set_threshold(_COLLECTED_OBJECTS)
    try:
        return main()
    finally:
        gc.freeze()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 refused with a message, 2 wrong usage."""
    given = _joined(sys.argv[1:] if arguments is None else arguments)
    options = _parser(given).parse_args(given)
    try:
        _allow(getattr(options, "plugin", ()))
        options.run(options)
        # Here and not at exit, so that a full disk or a closed pipe meets the clauses below.
        sys.stdout.flush()
    # Before OSError, of which it is one: a reader that has seen enough is no failure.
    except BrokenPipeError:
        # The reader has gone (``tpusim run ... | head``): Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except TpusimError as error:
        sys.stderr.write(f"tpusim: {error}\n")
        return EXIT_REFUSED
    except OSError as error:
        sys.stderr.write(f"tpusim: {error.filename or 'output'}: {error.strerror}\n")
        return EXIT_REFUSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def _allow(packages: Sequence[str]) -> None:
    """Let chip files load code from the packages that ``--plugin`` names."""
    if packages:
        from tpusim.cost.models.registry import allow_plugin

        allow_plugin(*packages)


def _joined(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with ``--at -1,2`` as one, since argparse takes what begins with a dash for an option."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] == "--at":
            joined[-1] = f"--at={argument}"
        else:
            joined.append(argument)
    return joined


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("tpusim", description=_DESCRIPTION, epilog=_EXAMPLES, formatter_class=raw)
    parser.add_argument("--version", action="version", version=f"tpusim {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (*COMMANDS, plot, schema):
        # All options of all commands take as long to make as a small program to run.
        command.add_to(commands, is_named=command.name in arguments)
    return parser
