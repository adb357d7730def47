"""The commands for everyday questions: ``scale`` over sizes, chips and slices, ``layouts`` of an array."""

from __future__ import annotations

from argparse import Namespace

from tpusim.cli.options import (
    CHIPS,
    SCHEDULE,
    TOPOLOGIES,
    TRIPS,
    amount,
    command,
    json_option,
    option,
    trips,
    written,
)
from tpusim.cli.output import answer, console, write_json
from tpusim.cli.plot import check_picture

_SCALE = """\
A family of programs in one table: time, throughput, MFU, memory that is left, energy and price of each, on every chip
and slice that is named, and the largest that fits. Over slices of several sizes also the parallel efficiency, and which
collective takes what is lost. A part of a pattern in braces is a variable: its values become columns, and --items says
which of them, or which product, a run makes."""

_EXAMPLES = """\
examples:
  tpusim scale 'mlp_b{batch}.v5e.hlo.txt.gz'
  tpusim scale 'gpt2_b{batch}t{seq}.v5p.hlo.txt.gz' --items 'batch*seq' -o scale.png
  tpusim scale 'mlp_{n}.{slice}.hlo.txt' --items n
  tpusim scale llama8b_decode_tp.v5e_2x4.hlo.txt.gz --topology v5e:2x4,v5e:4x4"""


@command(
    "scale",
    "a family of programs over batch sizes, chips and slices, and the largest that fits",
    option("programs", metavar="PROGRAM", nargs="+", help="files, or patterns with variables in braces"),
    option("--items", metavar="NAME*NAME", default="", help="what a run makes, by variables (default: batch)"),
    CHIPS,
    TOPOLOGIES,
    SCHEDULE,
    TRIPS,
    option("--price", metavar="USD", type=amount, help="of an hour of a chip (default: as listed, where it is)"),
    written("-o", "--output", metavar="FILE", help="draw it as well (.png, .svg, .pdf)"),
    json_option(),
    option("--quiet", action="store_true", help="no progress line"),
    description=_SCALE,
    epilog=_EXAMPLES,
)
def scale(options: Namespace) -> None:
    """Run a family of programs."""
    from tpusim.report.json.answers import scaling_page
    from tpusim.report.terminal.answers.scaling import render_scaling
    from tpusim.report.terminal.progress import CountLine
    from tpusim.study.scale import scale

    if options.output:
        check_picture(options.output)
    line = CountLine("running")
    try:
        found = scale(
            options.programs,
            items=options.items,
            chips=options.chip,
            topologies=options.topology,
            schedule=options.schedule,
            price=options.price,
            **trips(options),
            progress=None if options.quiet else line,
        )
    finally:
        line.close()
    if options.output:
        from tpusim import plot

        plot.save(plot.scaling(found.rows), options.output)
    answer(options, scaling_page, render_scaling, found.rows, found.largest)


_LAYOUTS = """\
The layouts that an array can have, ranked by what its users take with each or, where nobody says how it is used, by
padding. Users are said in words, NAME:DIMENSIONS:COUNT, or found in a program: tpusim compiles them for each layout of
the array, lets all else lie as it likes, and runs them.

  elementwise      all of it is read         dot:1:512      products with a matrix of 512 columns, over dimension 1
  reduce:0,1       sums over dimensions      gather:0:64    64 rows along dimension 0
  transpose:1,0    it is written anew        slice:0:8      8 neighbours at a place that is known at run time"""

_LAYOUTS_EXAMPLES = """\
examples:
  tpusim layouts "bf16[10,300]"
  tpusim layouts "f32[64,1000,3]" --used-by reduce:2 --used-by elementwise
  tpusim layouts step.v5e.hlo.txt.gz --op param.2"""


@command(
    "layouts",
    "the layouts that an array can have, ranked by what its users take and by padding",
    option(
        "shape", metavar="SHAPE", help='such as "bf16[10,300]", or the sizes alone, as in 10,300; with --op a program'
    ),
    option("--dtype", metavar="T", default="bf16", help="element type where SHAPE has none (default: bf16)"),
    option("--used-by", metavar="USE", action="append", default=[], help="what uses it, as above; may be repeated"),
    option("--op", metavar="NAME", help="an array of the program SHAPE, with what uses it there; NAME#0 of a tuple"),
    option("--chip", metavar="C", help="whose tiles (default: that of the program, else v5e)"),
    json_option(),
    description=_LAYOUTS,
    epilog=_LAYOUTS_EXAMPLES,
)
def layouts(options: Namespace) -> None:
    """Rank the layouts of an array."""
    from tpusim.pipeline.answers.layouts import layouts, layouts_in
    from tpusim.report.json.answers import layouts_page
    from tpusim.report.terminal.answers.layouts import render_layouts
    from tpusim.shapes.layout_choices import UsedLayouts

    if options.op:
        found = layouts_in(options.shape, options.op, options.chip)
    else:
        shape = options.shape if "[" in options.shape else f"{options.dtype}[{options.shape}]"
        found = UsedLayouts(layouts(shape, options.chip or "v5e", used_by=options.used_by), tuple(options.used_by))
    if options.json:
        write_json(layouts_page(found.choices))
    else:
        render_layouts(found, console())
