"""The commands that answer a question about a run."""

from __future__ import annotations

from argparse import Namespace

from tpusim.cli.options import (
    MACHINE,
    OVERFLOW,
    PROGRAM,
    RUN,
    TRIPS,
    WARM,
    command,
    json_option,
    machine,
    option,
    trips,
)
from tpusim.cli.output import answer

_PATH = """\
What the end of a run waits for, back to its start, through kernels, copies, collectives and other devices; how much
later each op may start without moving the end (one execution of it, all else lasting as long as it did); and what ran
behind what."""

_EXPLAIN = """\
Why an op takes as long as it does, whatever it is: a kernel (its tiles, units, memories, padding), a collective (its
groups on the torus, the links that they share, better orders of the mesh's devices), a loop, conditional or call (what
is inside), a copy or transfer (rates, what it shares, what waits for it), a wait (for what, and what would hide it).
Without --op: the three ops to which the end of the run owes most."""


@command(
    "explain",
    "say why an op takes as long as it does",
    PROGRAM,
    option(
        "--op", metavar="NAME", help="an instruction, as `tpusim run` names it (default: the three that matter most)"
    ),
    *MACHINE,
    TRIPS,
    OVERFLOW,
    json_option("print one JSON object instead of text"),
    description=_EXPLAIN,
)
def explain(options: Namespace) -> None:
    """Explain one op, or those that matter most."""
    from tpusim.pipeline.answers.explain import explain, explain_longest
    from tpusim.report.json.answers import explained_page, longest_page
    from tpusim.report.terminal.answers.explain import render_explained, render_longest

    rest = {**machine(options), **trips(options), "allow_overflow": options.allow_overflow}
    if options.op:
        found = explain(options.program, options.op, options.chip, **rest)
        answer(options, explained_page, render_explained, found)
        return
    answer(options, longest_page, render_longest, explain_longest(options.program, options.chip, **rest))


@command(
    "path",
    "what the end of a run waits for, what could come later, what hides behind what",
    *RUN,
    TRIPS,
    OVERFLOW,
    WARM,
    json_option("print one JSON object with every stretch"),
    description=_PATH,
)
def path(options: Namespace) -> None:
    """Report the critical path."""
    from tpusim.pipeline.stages import simulate
    from tpusim.report.json.answers import path_page
    from tpusim.report.terminal.answers.path import render_path

    result = simulate(
        options.program,
        options.chip,
        **machine(options),
        **trips(options),
        warm=options.warm,
        allow_overflow=options.allow_overflow,
    )
    answer(options, path_page, render_path, result.critical_path)


_ADVISE = """\
What would make a program faster, what saves most first: arrays to pad, transpose, cast or donate, kernels to batch,
loops to unroll, collectives to hide, axes of the mesh to swap, recomputation to leave. Each change is made, in the
program's steps or in its module, and run: a saving is the difference of two simulated runs."""


@command(
    "advise",
    "what would make a program faster, each change tried by simulation",
    PROGRAM,
    *MACHINE,
    TRIPS,
    OVERFLOW,
    json_option(),
    option("--quiet", action="store_true", help="no progress line"),
    description=_ADVISE,
)
def advise(options: Namespace) -> None:
    """Print what would make a program faster."""
    from tpusim.advice.advise import advise
    from tpusim.advice.trials import RULES
    from tpusim.report.json.answers import advice_page
    from tpusim.report.terminal.answers.advice import render_advice
    from tpusim.report.terminal.progress import CountLine

    line = CountLine("trying")
    names = list(RULES)
    progress = None if options.quiet else lambda name: line(names.index(name) + 1, len(names))
    try:
        found = advise(
            options.program,
            options.chip,
            **machine(options),
            **trips(options),
            allow_overflow=options.allow_overflow,
            progress=progress,
        )
    finally:
        line.close()
    answer(options, advice_page, render_advice, found)
