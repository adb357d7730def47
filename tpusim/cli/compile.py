"""The command ``tpusim compile``: from what a front end makes to what a chip runs."""

from __future__ import annotations

from argparse import Namespace

from tpusim.cli.options import CHIP, HLO, LONG_OVERRIDE, command, json_option, option, overrides, written
from tpusim.cli.output import answer, write_hlo
from tpusim.errors import ConfigError

_COMPILE = """\
Compile a program with tpusim's own compiler: what a front end makes goes in, scheduled HLO text comes out, in the form
that the TPU compiler leaves it. Of a program that is scheduled already the compiler's work is undone first. Without -o
it prints what the passes took, made of the program and did with its arrays, and what they did not and why.

Passes, in their order: manual, inline, flatten, host-memory, simplify, invariant, reassociate, loop-sums, selections,
reshapes, decompose, space-to-batch, softmax, row-window, narrow, clean-up, scatter, host-moves, layouts, buffers, fuse,
tuples, combine, copies, widen, emitters, algorithms, order, narrow-sums, gathers, host-copies, place, counters, sums,
scoped, collectives, tiles."""

_NOT_TEXT = (".json", ".mlir", ".mlirbc", ".pb")

_EXAMPLES = """\
examples:
  tpusim compile step.hlo.txt --chip v5e
  tpusim compile step.hlo.txt --chip v5e -o step.v5e.hlo.txt.gz --report
  tpusim compile step.hlo.txt --chip v5e --stop-after fuse -o -"""


_OUTPUT = "write HLO text, compressed if FILE ends in .gz (- for output)"


@command(
    "compile",
    "compile what a front end makes for a chip, without the TPU compiler",
    HLO,
    CHIP,
    LONG_OVERRIDE,
    option("--stop-after", metavar="PASS", default="", help="give what this pass made (see above)"),
    written("-o", "--output", or_output=True, metavar="FILE", help=_OUTPUT),
    option("--report", action="store_true", help="say what the passes did as well"),
    json_option("print the report as one JSON object"),
    description=_COMPILE,
    epilog=_EXAMPLES,
)
def compile_(options: Namespace) -> None:
    """Compile a program; write it, report on it, or both."""
    from tpusim.pipeline.compile import compile_program, compiled_run
    from tpusim.report.json.compile import compilation_page
    from tpusim.report.terminal.compiler import render_compilation

    if options.output == "-" and (options.report or options.json):
        raise ConfigError("--output -: expected the report or the text on standard output, found both: name a file")
    if options.output and options.output.endswith(_NOT_TEXT):
        # By these endings programs are told from HLO text.
        raise ConfigError(f"--output: expected a name for HLO text, as out.hlo.txt.gz, found {options.output!r}")
    found = compile_program(options.program, options.chip, stop_after=options.stop_after, overrides=overrides(options))
    if options.output == "-":
        write_hlo(found.module.text)
    elif options.output:
        found.module.save(options.output)
    if options.report or options.json or not options.output:
        answer(options, compilation_page, render_compilation, found.compilation, compiled_run(found))
