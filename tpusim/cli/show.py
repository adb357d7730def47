"""The commands that look at a program, a shape, a chip or this package, and run nothing."""

from __future__ import annotations

from argparse import Namespace

from tpusim.cli.options import HLO, RUN, command, index, json_option, machine, option, overrides
from tpusim.cli.output import answer, console, write_hlo, write_json
from tpusim.errors import ConfigError, ProgramError

_MEMORY = """\
What a program needs of a chip's memories: its peaks, the buffers alive there with their sizes, what padding adds to
them, and what is left. If it does not fit, the compiler's message about it follows; that is no failure of this command.
Positions count instructions of the flat schedule: what a loop, call or conditional runs stands before it."""


@command(
    "check",
    "verify a program: shapes, schedules, channels, aliases, groups",
    HLO,
    json_option("print a list of messages as JSON"),
)
def check(options: Namespace) -> None:
    """Verify a program; whatever is wrong is printed, and makes the command fail."""
    from tpusim.pipeline.stages import check

    problems = check(options.program)
    if options.json:
        write_json(problems)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ProgramError("\n".join(problems) if not options.json else problems[0] + more)


@command("fmt", "print a program as canonical HLO text", HLO)
def fmt(options: Namespace) -> None:
    """Print canonical HLO text."""
    from tpusim.ir.module import Module
    from tpusim.pipeline.stages import load
    from tpusim.text.printer import print_module

    program = options.program
    write_hlo(print_module(program if isinstance(program, Module) else load(program)))


@command(
    "layout",
    "explain a shape's layout in words and numbers",
    option("shape", metavar="SHAPE", help='such as "bf16[10,300]{1,0:T(8,128)(2,1)}"'),
    option("--at", metavar="I,J,...", type=index, help="say where this element lies"),
    json_option("print one JSON object instead of text"),
)
def layout(options: Namespace) -> None:
    """Explain a layout."""
    from tpusim.shapes.layout_facts import layout_facts
    from tpusim.shapes.notation import parse_shape

    shape = parse_shape(options.shape)
    facts = layout_facts(shape, options.at)
    if options.json:
        from tpusim.report.json.facts import layout_page

        write_json(layout_page(facts))
        return
    # Rich takes longer to load than the answer takes to compute, and JSON does without it.
    from tpusim.pipeline.answers.layouts import tiled
    from tpusim.report.terminal.layout import render_layout

    page = console()
    render_layout(facts, page)
    on_chip = tiled(shape)
    if on_chip is not None:
        page.print("\nwithout tiles, as SHAPE was given; on a TPU (v5e) it is rather:\n")
        render_layout(layout_facts(on_chip, options.at), page)


@command(
    "chips",
    "list the chips, or show every figure of one with its source",
    option("name", metavar="NAME", nargs="?", help="a chip's name or TOML file"),
    option("-o", "--override", metavar="K=V", action="append", default=[], help="replace a figure"),
    json_option("print JSON instead of tables"),
)
def chips(options: Namespace) -> None:
    """List chips or show one."""
    from tpusim.hardware.load import chip_facts, chip_names, load_chip
    from tpusim.report.json.facts import chip_page, chip_rows
    from tpusim.report.terminal.chips import render_chip, render_chip_list

    replaced = overrides(options)
    if options.name is not None:
        chip, facts = load_chip(options.name, replaced), chip_facts(options.name, replaced)
        answer(options, chip_page, render_chip, chip, facts)
        return
    if replaced:
        # Silence would look as if every chip of the list had been changed.
        raise ConfigError("-o replaces a figure of one chip: name it, as in `tpusim chips v5e -o clock_hz=1.6e9`")
    answer(options, chip_rows, render_chip_list, [load_chip(name) for name in chip_names()])


@command("ops", "list the operations of HLO and what is known of each", json_option("print JSON instead of a table"))
def ops(options: Namespace) -> None:
    """List the operations."""
    from tpusim.ir.ops import OPERATIONS
    from tpusim.pipeline.stages import opcode_rules
    from tpusim.report.json.facts import opcode_rows
    from tpusim.report.terminal.ops import render_ops

    answer(options, opcode_rows, render_ops, OPERATIONS.values(), opcode_rules())


@command(
    "memory",
    "what a program needs of HBM and VMEM: buffers at the peak, padding, headroom",
    *RUN,
    json_option(),
    description=_MEMORY,
)
def memory(options: Namespace) -> None:
    """Report a program's memory."""
    from tpusim.pipeline.stages import memory
    from tpusim.report.json.memory import memory_page
    from tpusim.report.terminal.memory import render_memory

    answer(options, memory_page, render_memory, memory(options.program, options.chip, **machine(options)))


@command(
    "schema",
    "print the JSON Schema of what a command prints with --json",
    option("command", metavar="COMMAND", nargs="?", help="a command that takes --json (default: all, by command)"),
)
def schema(options: Namespace) -> None:
    """Print JSON Schemas."""
    from tpusim.report.json.schemas import schemas

    write_json(schemas(options.command))
