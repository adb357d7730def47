"""The command ``tpusim diff``: options in, calls of the pipeline out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpusim.cli.options import command, json_option, option
from tpusim.cli.output import answer
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from argparse import Namespace

_DESCRIPTION = """\
What changes from one run to another: time, memory and traffic, by op and category, the largest change first.
A and B may each be a program (HLO text or lowered) or a result that `tpusim run --save` wrote. With two --chip, the
first is A's and the second B's; B may then be left out, and A runs on both."""

_EXAMPLES = """\
examples:
  tpusim diff before.v5e.hlo.txt after.v5e.hlo.txt
  tpusim diff step.v5e.hlo.txt --chip v5e --chip v6e
  tpusim run step.v5e.hlo.txt --save monday.json && tpusim diff monday.json step.v5e.hlo.txt"""


@command(
    "diff",
    "compare two programs, two chips or two saved results, by op and category",
    option("before", metavar="A", help="a program, or a saved result"),
    option("after", metavar="B", nargs="?", help="another (default: A on the second chip)"),
    option(
        "--chip", metavar="C", action="append", default=[], help="a chip's name or TOML file; twice: of A, then of B"
    ),
    json_option("print one JSON object with every op"),
    description=_DESCRIPTION,
    epilog=_EXAMPLES,
)
def diff(options: Namespace) -> None:
    """Compare two runs."""
    from tpusim.pipeline.stages import diff
    from tpusim.report.json.run import comparison_page
    from tpusim.report.terminal.compare import render_comparison

    chips = options.chip
    if len(chips) > 2:
        raise ConfigError(f"--chip: expected at most two, A's and B's, found {len(chips)}")
    if options.after is None and len(chips) != 2:
        raise ConfigError("expected two programs or results, or one program and two --chip; found one and no second")
    answer(options, comparison_page, render_comparison, diff(options.before, options.after or options.before, *chips))
