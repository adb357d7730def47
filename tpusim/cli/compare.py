"""The command ``tpusim diff``: options in, calls of the pipeline out."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from tpusim.errors import ConfigError

_DESCRIPTION = """\
What changes from one run to another: time, memory and traffic, by op and category, the largest change first.
A and B may each be a program (HLO text or lowered) or a result that `tpusim run --save` wrote. With two --chip, the
first is A's and the second B's; B may then be left out, and A runs on both."""

_EXAMPLES = """\
examples:
  tpusim diff before.v5e.hlo.txt after.v5e.hlo.txt
  tpusim diff step.v5e.hlo.txt --chip v5e --chip v6e
  tpusim run step.v5e.hlo.txt --save monday.json && tpusim diff monday.json step.v5e.hlo.txt"""


def add_compare(commands: Any) -> None:
    """Add ``tpusim diff`` to the commands."""
    diff = commands.add_parser(
        "diff",
        help="compare two programs, two chips or two saved results, by op and category",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    diff.add_argument("before", metavar="A", help="a program, or a saved result")
    diff.add_argument("after", metavar="B", nargs="?", help="another (default: A on the second chip)")
    diff.add_argument(
        "--chip", metavar="C", action="append", default=[], help="a chip's name or TOML file; twice: of A, then of B"
    )
    diff.add_argument("--json", action="store_true", help="print one JSON object with every op")
    diff.set_defaults(run=_diff)


def _diff(options: argparse.Namespace) -> None:
    """Compare two runs."""
    from tpusim.analysis.compare import compare
    from tpusim.pipeline.stages import figures
    from tpusim.report.terminal.compare import comparison_json, render_comparison

    chips = options.chip
    if len(chips) > 2:
        raise ConfigError(f"--chip: expected at most two, A's and B's, found {len(chips)}")
    if options.after is None and len(chips) != 2:
        raise ConfigError("expected two programs or results, or one program and two --chip; found one and no second")
    first, second = (chips[0], chips[-1]) if chips else (None, None)
    found = compare(figures(options.before, first), figures(options.after or options.before, second))
    if options.json:
        sys.stdout.write(json.dumps(comparison_json(found), indent=1) + "\n")
        return
    from tpusim.report.terminal.console import make_console

    render_comparison(found, make_console())
