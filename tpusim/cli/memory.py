"""The command ``tpusim memory``: options in, one call of the pipeline out."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from tpusim.cli.options import CHIP_HELP, overrides

_DESCRIPTION = """\
What a program needs of a chip's memories: its peaks, the buffers alive there with their sizes, what padding adds to
them, and what is left. If it does not fit, the compiler's message about it follows; that is no failure of this command.
Positions count instructions of the flat schedule: what a loop, call or conditional runs stands before it."""


def add_memory(commands: Any) -> None:
    """Add ``tpusim memory`` to the commands."""
    memory = commands.add_parser(
        "memory",
        help="what a program needs of HBM and VMEM: buffers at the peak, padding, headroom",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    memory.add_argument("program", metavar="PROGRAM", help="HLO text, or a lowered program (*.json)")
    memory.add_argument("--chip", metavar="C", help=CHIP_HELP)
    memory.add_argument("--topology", metavar="T", help="the slice that the program runs on, as in v5e:2x4")
    memory.add_argument(
        "-o", "--override", metavar="K=V", action="append", default=[], help="replace a figure of the chip"
    )
    memory.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    memory.set_defaults(run=_memory)


def _memory(options: argparse.Namespace) -> None:
    """Report a program's memory."""
    from tpusim.pipeline.stages import memory
    from tpusim.report.terminal.memory import memory_json, render_memory

    report = memory(options.program, options.chip, topology=options.topology, overrides=overrides(options))
    if options.json:
        sys.stdout.write(json.dumps(memory_json(report), indent=1) + "\n")
        return
    from tpusim.report.terminal.console import make_console

    render_memory(report, make_console())


def validate_memory(options: argparse.Namespace) -> None:
    """Compare HBM temporaries with the compiler's: ``tpusim validate --memory``."""
    from tpusim.report.terminal.memory_accuracy import memory_accuracy_json, render_memory_accuracy
    from tpusim.report.terminal.progress import CountLine
    from tpusim.validation.memory import compare_memory, memory_cases

    cases = memory_cases(options.index)
    line = CountLine("comparing", len(cases))
    try:
        outcomes = compare_memory(cases, options.chip, line)
    finally:
        line.close()
    if options.json:
        sys.stdout.write(json.dumps(memory_accuracy_json(outcomes), indent=1) + "\n")
        return
    from tpusim.report.terminal.console import make_console

    render_memory_accuracy(outcomes, make_console())
