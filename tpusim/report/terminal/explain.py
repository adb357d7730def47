"""One kernel on one screen: its loops, what a tile costs each unit and memory, what bounds it, what would be next."""

from __future__ import annotations

from collections.abc import Iterator

from tpusim.analysis.bands import compiler_us
from tpusim.analysis.explanation import Explanation
from tpusim.analysis.tuning import Ranking
from tpusim.hardware.units import UNITS, VMEM
from tpusim.program.compilation import TriedTiles
from tpusim.report.tables import Printer, Table, count_text, escape, plain_table, size_text, time_text, times_text
from tpusim.report.terminal.answers.body import advice, block_table, floor_text, held_text, render_body, unit_name
from tpusim.timeline.records import DEPENDENT
from tpusim.units import ps_to_us

_SHOWN_OPERANDS = 8
_FULL = 0.95
_GAPS = {
    "streams twice": "the compiler charges streams through HBM about double; timed kernels of v6e took what we say",
    "bytes left out": "less than its bytes take at the rate of HBM, so that something was left out of the estimate",
    "not known": "why is not known",
}


def render_explanation(found: Explanation, console: Printer) -> None:
    """Print an explanation."""
    where = f", {found.source}" if found.source else ""
    line = f", line {found.line}" if found.line else ""
    console.print(
        f"[bold]{escape(found.name)}[/bold] ({found.opcode}{escape(where)}{line}) on {found.chip} (simulated)"
    )
    console.print()
    for label, text in _facts(found):
        console.print(f"  {label:<9} {escape(text)}")
    console.print()
    if found.body:
        render_body(found, found.body, console)
    else:
        console.print(_cycle_table(found))
        console.print()
    console.print(_operand_table(found))
    console.print()
    if len(found.blocks) > 1:
        console.print(block_table(found))
        console.print()
    if found.tried:
        console.print(_tried_table(found))
        console.print()
    for text in _advice(found):
        console.print(escape(text))


def _facts(found: Explanation) -> Iterator[tuple[str, str]]:
    """Yield the head lines: time, where it goes, and the loops."""
    parts = sorted(found.parts_ps.items(), key=lambda item: -item[1])
    total = max(1, found.alone_ps)
    times = f" {found.count:,} times, each" if found.count > 1 else ""
    us = compiler_us(found.compiler_cycles, found.compiler_clock_hz)
    alone, each, estimate = times_text(found.alone_ps, found.in_run_ps // max(1, found.count), round((us or 0.0) * 1e6))
    in_run = f", in the run{times} {each}" if found.count else ""
    yield "time", f"{alone} by itself{in_run}" + (f", the compiler's estimate {estimate}" if us else "")
    if found.compiler_gap and us:
        yield "estimate", f"{us / ps_to_us(found.alone_ps):.2g} times ours: {_GAPS[found.compiler_gap]}"
    bounds = ", ".join(f"{name} {ps / total:.0%}" for name, ps in parts if ps / total >= 0.01) or "nothing"
    yield "goes to", held_text(found, found.body) if found.body else bounds
    if found.body:
        yield "floor", floor_text(found, found.body)
    loops = " > ".join(f"{loop.trips} x {loop.over.replace('_', ' ')}" for loop in found.loops)
    cores = f" on {found.cores} cores" if found.cores > 1 else ""
    if found.basis:
        has_floor = found.floor_ps and not found.body
        floor = f"; what it states takes {time_text(found.floor_ps)} at least" if has_floor else ""
        yield "written", f"by hand, timed by its {found.basis}{floor}"
    yield "tiles", f"{found.tiles:,}{cores}{f': {loops}' if loops else ''}"
    if len(found.stages) > 1:
        each = ", then ".join(f"{unit_name(unit)} {cycles:,.0f}" for unit, cycles in found.stages)
        yield "stages", f"{len(found.stages)} in each tile, one after another: {each} cycles"
    if skipped := sum(kind.tiles for kind in found.kinds if kind.is_skipped):
        counted = f", which the {count_text(found.stated_flops)}FLOP that it states count as well"
        is_counted = found.stated_flops > found.flops
        yield "skips", f"{skipped:,} of its tiles ({skipped / found.tiles:.0%}){counted if is_counted else ''}"
    if found.basis:
        yield "memory", f"{size_text(found.vmem_bytes)} of {UNITS[VMEM].label} for its blocks and scratch"
    yield from _neighbours(found)
    if found.array_share:
        yield "array", f"{found.array_share:.1%} of the multipliers that rows pass have work"


def _neighbours(found: Explanation) -> Iterator[tuple[str, str]]:
    """Yield who compiled the program, and what is not one kernel with this one, by the rule that keeps it apart."""
    if found.compiled:
        yield "compiled", found.compiled
    for label, apart in (("reads", found.apart), ("read by", found.apart_users)):
        for rule in dict.fromkeys(apart.values()):
            names = ", ".join(name for name, why in apart.items() if why == rule)
            yield label, f"{names}, not made in one kernel with it: {rule}"


def _cycle_table(found: Explanation) -> Table:
    """Return the table of what one tile takes each unit and memory; in a stage they all work at the same time."""
    table = plain_table("per tile", ">cycles", "share of the longest")
    longest = found.ranked[0][1] if found.ranked else 1.0
    for unit, cycles in found.ranked:
        table.add_row(unit_name(unit), f"{cycles:,.0f}", f"{cycles / longest:.0%} {'#' * round(30 * cycles / longest)}")
    if found.tiles > 1:
        table.add_row("between tiles", f"{found.overhead_cycles:,.0f}", "")
    return table


def _operand_table(found: Explanation) -> Table:
    table = plain_table("moves", "memory", ">block", ">times", ">total", ">runs of", ">padding")
    for operand in found.operands[:_SHOWN_OPERANDS]:
        arrow = "out" if operand.is_output else "in"
        runs = size_text(operand.chunk_bytes) if operand.chunk_bytes else "-"
        moved = (size_text(operand.block_bytes), f"{operand.fetches:,}", size_text(operand.total_bytes))
        has_bytes = operand.physical_bytes > 0
        padding = f"{1 - operand.unpadded_bytes / operand.physical_bytes:.0%}" if has_bytes else "-"
        table.add_row(f"{escape(operand.name)} ({arrow})", UNITS[operand.space].label, *moved, runs, padding)
    rest = found.operands[_SHOWN_OPERANDS:]
    if rest:
        table.add_row(f"... and {len(rest)} more", "", "", "", size_text(sum(one.total_bytes for one in rest)))
    return table


def _tried_table(found: Explanation) -> Table:
    """Return the table of the best tiles that can be stated, and of those that the kernel has, which are marked."""
    table = plain_table("best of the tiles tried", ">time", ">tiles", "block of the result", "shared at")
    rows = list(found.tried)
    alike = [tried for tried in rows if (tried.tiles, tried.loops) == (found.tiles, found.loops)]
    # Blocks of several forms make as many tiles: the kernel's are those that take what it does.
    own = min(alike, key=lambda tried: abs(tried.alone_ps - found.alone_ps), default=None)
    if own is None:
        # Another compiler's, which are none of ours.
        own = TriedTiles(stated={}, alone_ps=found.alone_ps, loops=found.loops, tiles=found.tiles)
        rows.append(own)
    for tried in sorted(rows, key=lambda tried: tried.alone_ps):
        loops = (
            " > ".join(f"{loop.trips} x {loop.over.replace('_', ' ')}" for loop in tried.loops) or "one after another"
        )
        block = " x ".join(map(str, tried.stated.get("output_window_bounds", ())))
        shared = f"loop {tried.split}" if tried.split >= 0 else ""
        name = f"{loops if tried.tiles > 1 else 'a single tile'}{' (here)' if tried is own else ''}"
        table.add_row(name, time_text(tried.alone_ps), f"{tried.tiles:,}", block, shared)
    return table


def _advice(found: Explanation) -> Iterator[str]:
    """Yield what holds the kernel back, and what would have to change for the next bound."""
    if found.body:
        yield from advice(found, found.body)
        return
    if not found.ranked:
        return
    waited = found.parts_ps.get(DEPENDENT, 0) / max(1, found.alone_ps)
    if waited > 0.5:
        yield f"Most of it goes by while steps wait for each other ({waited:.0%}): more matrices at once would use it."
        return
    (first, most), *rest = found.ranked
    fixed = found.parts_ps.get("latency", 0) / max(1, found.alone_ps)
    if fixed > 0.5:
        yield f"Most of it is fixed cost ({fixed:.0%}): only fewer, larger kernels would help."
    yield f"The {unit_name(first)} is the longest of a tile: {UNITS[first].less or 'less work'} would shorten it,"
    if rest:
        name, cycles = rest[0]
        yield f"by a factor of {most / max(1e-9, cycles):.1f} at most; then the {unit_name(name)} is next."
    else:
        yield "with nothing else behind it."
    if 0 < found.array_share < _FULL:
        yield f"Padding and shapes leave {1 - found.array_share:.0%} of the arrays idle while rows stream."


def render_ranking(ranking: Ranking, console: Printer) -> None:
    """Print programs that do the same, the fastest first, and what is wrong with those that have no time."""
    table = plain_table("", ">time", ">of peak", ">HBM", "bound by")
    for each in ranking.candidates:
        cells: tuple[str, ...] = ("-", "-", "-")
        if each.time_us is not None:
            moved = size_text(each.hbm_bytes)
            cells = (time_text(round(each.time_us * 1e6)), f"{each.flops_utilisation:.1%}", moved, each.bound_by)
        table.add_row(escape(str(each.what)), *cells)
    on = f" on {escape(ranking.chip)}" if ranking.chip else ""
    count = len(ranking.candidates)
    console.print(f"{count} {'candidate' if count == 1 else 'candidates'}{on} (simulated)")
    console.print()
    console.print(table)
    failed = [each for each in ranking.candidates if each.time_us is None]
    if failed:
        console.print()
    # Below the table: a reason is longer than all else, and may have the room.
    for each in failed:
        console.print(f"{escape(str(each.what))} has no time: {escape(each.fault)}", soft_wrap=True)
