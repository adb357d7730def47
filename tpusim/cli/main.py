"""The command line: options in, calls of the pipeline out. No logic of its own, and nothing heavy imported early."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from warnings import catch_warnings

from tpusim.cli.answers import advise, explain, path
from tpusim.cli.compile import compile_
from tpusim.cli.completion import completion
from tpusim.cli.model import calibrate, lower, validate
from tpusim.cli.options import AsWritten, Command, check_written
from tpusim.cli.plot import plot
from tpusim.cli.run import diff, execute, run
from tpusim.cli.scale import layouts, scale
from tpusim.cli.show import check, chips, fmt, layout, memory, ops, schema
from tpusim.cli.sweep import sweep
from tpusim.cli.systolic import systolic
from tpusim.cli.version import ShowVersion
from tpusim.errors import REPORT_IT, FaultError, TpusimError, fault_text, printable

EXIT_REFUSED = 1
# 128 and the numbers of SIGINT and SIGPIPE, as shells report commands that these ended.
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
# EX_SOFTWARE of sysexits.h.
EXIT_FAULT = 70

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

_ALL = (*COMMANDS, plot, schema, completion)

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 is done, 1 refused with a message, 2 wrong usage, 70 a fault of tpusim itself; 130 and 141 are an interrupt and a
    reader that has gone, as shells report them.
    """
    given = _joined(sys.argv[1:] if arguments is None else arguments)
    try:
        options = parser_of(given).parse_args(given)
        _allow(getattr(options, "plugin", ()))
        check_written(options)
        _place(options)
        with catch_warnings():
            warnings.showwarning = _warn
            options.run(options)
        # Here and not at exit, so that a full disk or a closed pipe meets the clauses below.
        sys.stdout.flush()
    # Before OSError, of which it is one: a reader that has seen enough (``tpusim run ... | head``) is no failure.
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except TpusimError as error:
        return _refuse(str(error), EXIT_REFUSED)
    except OSError as error:
        return _refuse(f"{error.filename or 'output'}: {error.strerror or error}", EXIT_REFUSED)
    except MemoryError as error:
        return _refuse(f"the memory of this machine does not suffice: {error}", EXIT_REFUSED)
    except FaultError as error:
        return _refuse(f"{error}\n{REPORT_IT}", EXIT_FAULT)
    # The last net, for what is a fault here and not in what was given.
    except Exception as error:
        return _refuse(f"{fault_text(error)}\n{REPORT_IT}", EXIT_FAULT)
    return 0


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """Say a warning as messages are said, without the place in the code that Python shows."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"tpusim: {printable(str(message))}\n")


def _place(options: argparse.Namespace) -> None:
    """Put the program on the devices that the command line names, if it names any."""
    if getattr(options, "device_order", None):
        from tpusim.pipeline.device_order import with_device_order

        slice_, chip = options.topology or "", options.chip or ""
        options.program = with_device_order(options.program, options.device_order, slice_, chip)


def _refuse(message: str, code: int) -> int:
    """Say why there is no answer; nothing in it drives the terminal."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"tpusim: {printable(message)}\n")
        sys.stderr.flush()
    return code


def _allow(packages: Sequence[str]) -> None:
    """Let chip files load code from the packages that ``--plugin`` names, which are there."""
    if packages:
        from tpusim.cost.models.registry import allow_plugin, plugin_places

        allow_plugin(*packages)
        for package in packages:
            plugin_places(package)


def _joined(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with ``--at -1,2`` as one, since argparse takes what begins with a dash for an option."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] == "--at":
            joined[-1] = f"--at={argument}"
        else:
            joined.append(argument)
    return joined


def parser_of(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser of the command that the arguments begin with; where they begin with none, of all."""
    # Those of all commands take as long to make as a small program to run.
    named = [command for command in _ALL if command.name in arguments[:1]]
    return _parser(named or _ALL, with_options=bool(named))


def parser_of_all() -> argparse.ArgumentParser:
    """Return a parser that knows the options of every command."""
    return _parser(_ALL, with_options=True)


class _Parser(argparse.ArgumentParser):
    """One whose help is output like any other: argparse itself says nothing where it cannot be written."""

    def print_help(self, file: Any = None) -> None:
        stream = file or sys.stdout
        stream.write(self.format_help())
        stream.flush()


def _parser(known: Sequence[Command], *, with_options: bool) -> argparse.ArgumentParser:
    parser = _Parser("tpusim", description=_DESCRIPTION, epilog=_EXAMPLES, formatter_class=AsWritten)
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="print the version and the commit")
    # A command that asks for it cannot import this module, which imports all commands.
    parser.set_defaults(parser_of_all=parser_of_all)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in known:
        command.add_to(commands, with_options=with_options)
    return parser
