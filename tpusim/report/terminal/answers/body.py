"""A hand-written kernel from the inside: its steps by kind, what a step does, its lines, and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from tpusim.analysis.explained.body import BETWEEN, BLOCKS, Body, CodeTime, StepKind
from tpusim.analysis.explanation import Explanation
from tpusim.cost.classes import CHAIN
from tpusim.hardware.units import MATRIX, SCALAR, UNITS
from tpusim.report.tables import Printer, Table, escape, plain_table, size_text, some_text, time_text, times_text
from tpusim.timeline.records import DEPENDENT

_SHOWN_KINDS = 8
_SHOWN_LINES = 10
_SHOWN_LINKS = 12
_SHOWN_BLOCKS = 4
_LEAST_SHARE = 0.01
_NOTABLE = 0.1

_COPIES = "copies"
_EDGES = "edges"

_HOLDS = {
    _COPIES: "what the kernel copies itself",
    _EDGES: "the launch, the first and the last blocks",
    CHAIN: DEPENDENT,
    BLOCKS: "waiting for blocks",
    BETWEEN: "going to the next step",
}

_LARGER = "larger blocks make fewer steps"

_CURES = {
    CHAIN: "larger blocks, or two independent ones a step, give units more to do while an operation waits for another",
    BLOCKS: "blocks that stay for more steps (another order of the grid, one operand whole) move fewer bytes",
    BETWEEN: _LARGER,
    SCALAR: _LARGER,
    _COPIES: "ask for the next one while this one is worked on, or let a BlockSpec fetch it",
    _EDGES: "more and smaller blocks overlap with each other, and one kernel instead of several starts once",
}


def render_body(found: Explanation, body: Body, console: Printer) -> None:
    """Print what is inside of a kernel."""
    for table in (_kind_table(body, found), _unit_table(body.kinds[0]), _line_table(body)):
        if table.rows:
            console.print(table)
            console.print()
    if body.chain:
        console.print(escape(_chain_text(body)))
        console.print()


def block_table(found: Explanation) -> Table:
    """Return the table of the best blocks tried, with those that the kernel has marked."""
    table = plain_table("best of the blocks tried", ">time", ">grid", ">VMEM")
    own = [tried for tried in found.blocks if max(tried.counts) == 1]
    for tried in dict.fromkeys((*found.blocks[:_SHOWN_BLOCKS], *own)):
        bounds = "; ".join(f"{name} {_times(bounds)}" for name, bounds in tried.bounds)
        here = " (here)" if tried in own else ""
        table.add_row(escape(bounds) + here, time_text(tried.alone_ps), _times(tried.grid), size_text(tried.vmem_bytes))
    return table


def _times(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))


def held_text(found: Explanation, body: Body) -> str:
    """Return what holds a kernel up, with shares of its time."""
    shares = sorted(_held_shares(found, body).items(), key=lambda item: -item[1])
    return ", ".join(f"{_hold(name)} {share:.0%}" for name, share in shares if share >= _LEAST_SHARE)


def floor_text(found: Explanation, body: Body) -> str:
    """Return the least time for the same work, beside what it takes."""
    ranked = sorted(body.least_ps.items(), key=lambda item: -item[1])
    if not ranked:
        return "none: its steps compute nothing"
    (unit, least_ps), *others = ranked
    rest = "".join(f"; {_unit(name)} {time_text(ps)}" for name, ps in others[:3])
    times = found.alone_ps / max(1, least_ps)
    return f"{time_text(least_ps)} if the {_unit(unit)} never waited: now {times:.2f} times that{rest}"


def advice(found: Explanation, body: Body) -> Iterator[str]:
    """Yield what holds the kernel up most, and what would help."""
    hold, share = max(_held_shares(found, body).items(), key=lambda item: item[1])
    cure = _CURES.get(hold) or (UNITS[hold].less or "less work") + " would help"
    where = ""
    if hold == BLOCKS:
        latency = _latency_share(found)
        where = f", {latency:.0%} of that until memory answers"
        cure = f"larger ones wait less often, and {cure}" if latency > _NOTABLE else cure
    yield f"{share:.0%} of it goes to {_hold(hold)}{where}: {cure}."
    if body.lines and body.lines[0].source:
        line = body.lines[0]
        yield f"Begin at {_short(line.source)} ({', '.join(line.operations[:2])}): {line.share:.0%} of the kernel."
    own = next((tried for tried in found.blocks if max(tried.counts) == 1), None)
    if own and own.alone_ps > found.blocks[0].alone_ps:
        best_ps = found.blocks[0].alone_ps
        times = " instead of ".join(times_text(best_ps, own.alone_ps))
        yield f"The best blocks tried take {times}, {1 - best_ps / own.alone_ps:.0%} less."
    yield "tpusim.jax.tune compiles a function with other blocks, and ranks them by time."


def _latency_share(found: Explanation) -> float:
    """Return which part of the time that blocks take goes by before memory answers."""
    waiting = [kind for kind in found.kinds if kind.waited_cycles > kind.cycles]
    waits = sum(kind.tiles * kind.waited_cycles for kind in waiting)
    return sum(kind.tiles * kind.latency_cycles for kind in waiting) / max(1.0, waits)


def _held_shares(found: Explanation, body: Body) -> dict[str, float]:
    """Return what holds a kernel up, as shares of its time."""
    total_ps = max(1, found.alone_ps)
    shares: dict[str, float] = {_COPIES if body.copies_itself else _EDGES: body.rest_ps / total_ps}
    for kind in body.kinds:
        for name, cycles in kind.held_cycles.items():
            shares[name] = shares.get(name, 0.0) + kind.time_ps * cycles / max(1.0, kind.cycles) / total_ps
    return shares


def _kind_table(body: Body, found: Explanation) -> Table:
    """Return the table of kinds of steps: how many, where in the grid, and what holds them up."""
    table = plain_table(">steps", "kind", ">each", ">in all", ">share", "held up by", wraps=("kind", "held up by"))
    for kind in body.kinds[:_SHOWN_KINDS]:
        where = f" ({', '.join(kind.where)})" if kind.where else ""
        holds = sorted(kind.held_cycles.items(), key=lambda item: -item[1])[:3]
        held = ", ".join(f"{_hold(name)} {cycles / kind.cycles:.0%}" for name, cycles in holds)
        each = f"{kind.cycles:,.0f} cycles"
        share = f"{kind.time_ps / max(1, found.alone_ps):.1%}"
        table.add_row(f"{kind.steps:,}", f"{kind.name}{where}", each, time_text(kind.time_ps), share, held)
    if rest := body.kinds[_SHOWN_KINDS:]:
        steps, rest_ps = sum(kind.steps for kind in rest), sum(kind.time_ps for kind in rest)
        share = f"{rest_ps / max(1, found.alone_ps):.1%}"
        table.add_row(f"{steps:,}", f"... and {len(rest)} more kinds", "", time_text(rest_ps), share)
    return table


def _unit_table(kind: StepKind) -> Table:
    """Return the table of what each unit does in a step."""
    title = f"a {kind.name} step"
    table = plain_table(title, ">busy", ">of it", "does", wraps=(title, "does"))
    for name, cycles in kind.busy_cycles.items():
        table.add_row(_unit(name), f"{cycles:,.0f} cycles", f"{cycles / kind.cycles:.0%}", _does(kind, name))
    return table


def _does(kind: StepKind, unit: str) -> str:
    """Return the operations of a unit in a step."""
    counts = kind.operations
    if unit == BLOCKS:
        return f"{size_text(kind.in_bytes)} in, {size_text(kind.out_bytes)} out"
    if unit == MATRIX:
        rows, weights, results = (counts.get(f"{MATRIX}.{name}", 0.0) for name in ("rows", "weights", "results"))
        return f"{rows:,.0f} rows pushed past {weights:,.0f} rows of weights, {results:,.0f} registers popped"
    return f"{counts.get(unit, 0.0):,.0f} registers"


def _line_table(body: Body) -> Table:
    """Return the table of the lines that hold the kernel up most."""
    title = "line of the kernel"
    table = plain_table(title, ">share", "held up by", "operations", wraps=(title, "held up by"), cut=("operations",))
    shown = [line for line in body.lines[:_SHOWN_LINES] if line.share >= _LEAST_SHARE]
    for line in shown:
        place = _short(line.source) or "(the body does not say)"
        table.add_row(escape(place), f"{line.share:.1%}", _held_by(line), some_text(line.operations, 3))
    if rest := body.lines[len(shown) :]:
        table.add_row(f"... and {len(rest)} more", f"{sum(line.share for line in rest):.1%}")
    return table


def _held_by(line: CodeTime) -> str:
    total = sum(line.held_cycles.values())
    return ", ".join(f"{_hold(name)} {cycles / total:.0%}" for name, cycles in list(line.held_cycles.items())[:2])


def _chain_text(body: Body) -> str:
    """Return what waits for what in one step, with the cycles until each result is there."""
    cycles = sum(link.cycles for link in body.chain)
    longest = sorted(body.chain, key=lambda link: -link.cycles)[:_SHOWN_LINKS]
    links = [f"{link.operation} {PurePath(link.source).name.rpartition(':')[2]} ({link.cycles:,.0f})"
             for link in body.chain if link in longest]  # fmt: skip
    rest = f" and {len(body.chain) - len(links)} shorter ones" if len(body.chain) > len(links) else ""
    return f"one after another in it, {cycles:,.0f} cycles (operation, line, cycles): {' > '.join(links)}{rest}"


def _short(source: str) -> str:
    return PurePath(source).name


def _hold(name: str) -> str:
    return _HOLDS.get(name) or _unit(name)


def _unit(name: str) -> str:
    return "DMA of blocks" if name == BLOCKS else unit_name(name)


def unit_name(unit: str) -> str:
    """Return what a page about one kernel calls a unit or a memory."""
    return UNITS[unit].name or UNITS[unit].label
