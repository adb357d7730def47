"""Why an op takes as long as it does: a kernel on its own page, everything else here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import singledispatch

from tpusim.analysis.explained.facts import (
    Awaited,
    CollectiveFacts,
    DeviceOrder,
    Facts,
    InsideFacts,
    StepExplanation,
    TransferFacts,
    WaitFacts,
)
from tpusim.analysis.explanation import Explanation
from tpusim.hardware.units import UNITS
from tpusim.report.tables import (
    Printer,
    Table,
    escape,
    plain_table,
    print_caveats,
    shares_text,
    size_text,
    some_text,
    time_text,
    times_text,
)
from tpusim.report.terminal.explain import render_explanation

_SHOWN_MEMBERS = 8
_SHOWN_MESH = 32
_SHOWN_NAMES = 4
_SHOWN_OPS = 12
_NOTABLE = 1.05
"""Rates and times further apart than this are worth a sentence."""

_ASSUMED = {
    "default": " (taken for what the program does not tell: --default-trip-count)",
    "upper bound": " (an upper bound of what depends on values)",
}
"""What is to be said of trips, by where a lowered program has them from."""

Line = tuple[str, str]


def render_explained(found: Explanation | StepExplanation, console: Printer) -> None:
    """Print why an op takes as long as it does."""
    render_longest([found], console)


def render_longest(found: Sequence[Explanation | StepExplanation], console: Printer) -> None:
    """Print why some ops of a run take as long as they do."""
    if not found:
        console.print("nothing in the program takes time")
        return
    for number, one in enumerate(found):
        if number:
            console.print()
        _render(one, console)
    print_caveats(console, (found[0].estimates, found[0].warnings))


def _render(found: Explanation | StepExplanation, console: Printer) -> None:
    if isinstance(found, Explanation):
        render_explanation(found, console)
        return
    where = f", {found.source}" if found.source else ""
    line = f", line {found.line}" if found.line else ""
    head = f"({escape(found.what)}{escape(where)}{line}) on {found.chip} (simulated)"
    console.print(f"[bold]{escape(found.name)}[/bold] {head}\n")
    for label, text in (*_times(found), ("goes to", shares_text(found.bounds_ps)), *_lines(found.facts, found)):
        console.print(f"  {label:<9} {escape(text)}")
    for table in _tables(found.facts, found):
        console.print()
        console.print(table)


def _times(found: StepExplanation) -> Iterator[Line]:
    """Yield what it takes, and what the end of the run owes to it; to a wait it owes nothing, but to what it is for."""
    run_ps = max(1, found.run_ps)
    # Trips of a loop have a line of their own.
    times = f"{found.count:,} times, " if found.count > 1 and not getattr(found.facts, "trips", 0) else ""
    if found.time_ps:
        yield "time", f"{times}{time_text(found.time_ps)} of the core, {found.time_ps / run_ps:.1%} of the run"
    if found.beside_ps:
        yield "beside", f"{times}{time_text(found.beside_ps)} beside the core"
    if isinstance(found.facts, WaitFacts):
        return
    path = f"{time_text(found.path_ps)} of the critical path ({found.path_ps / run_ps:.1%})"
    later = f"; it could start {time_text(found.slack_ps)} later for nothing" if found.slack_ps else ""
    yield "matters", path + later


@singledispatch
def _lines(_facts: Facts, _found: StepExplanation) -> Iterator[Line]:
    """Yield what there is to say of a kind of op, as labels and texts."""
    yield from ()


@singledispatch
def _tables(_facts: Facts, _found: StepExplanation) -> Iterator[Table]:
    """Yield the tables of a kind of op."""
    yield from ()


@_lines.register
def _collective_lines(facts: CollectiveFacts, found: StepExplanation) -> Iterator[Line]:
    sizes = "x".join(map(str, facts.sizes)) + (f", {facts.slices} slices" if facts.slices > 1 else "")
    members = some_text(facts.group, _SHOWN_MEMBERS)
    what = "pairs of" if facts.is_pairs else f"of {len(facts.group):,}"
    yield "groups", f"{facts.groups:,} {what} devices on {sizes} chips; this one's: {members}"
    places = dict.fromkeys("(" + ",".join(map(str, place)) + ")" for place in facts.places)
    yield "on chips", some_text(list(places), _SHOWN_MEMBERS)
    if facts.algorithm:
        stated = f"; the compiler calls it {facts.stated}" if facts.stated else ""
        yield "algorithm", facts.algorithm + stated
    if facts.hops:
        latency = f"{time_text(facts.latency_ps)} before a byte moves"
        yield "hops", f"links one after another: {facts.hops}, steps: {facts.steps}; {latency}"
    if facts.sharers:
        each = "pairs" if facts.is_pairs else "groups"
        who = f"{facts.sharers} {each} share it" if facts.sharers > 1 else f"one of the {each} uses it"
        yield "links", f"the busiest is {facts.busiest_link}: {who}"
    alone, unshared = times_text(facts.alone_ps, facts.unshared_ps)
    yield "alone", f"{alone} by itself, {unshared} if no other group shared its links"
    rates = facts.reached_bytes_per_second, facts.reachable_bytes_per_second
    yield "bandwidth", f"{rates[0] / 1e9:,.1f} GB/s of its {size_text(facts.payload_bytes)}; {_reach(rates)}"
    if facts.mesh:
        yield "mesh", f"its devices in order: {some_text(facts.mesh, _SHOWN_MESH)}"
    if facts.orders:
        yield "order", "others are faster, see below: `tpusim run --device-order` takes one as it is printed"
    else:
        yield "order", "no other order of the mesh's devices that was tried is faster"


def _reach(rates: tuple[float, float]) -> str:
    """Return what a reached rate says beside the one that could be."""
    reached, reachable = rates
    if reachable <= reached * _NOTABLE:
        return "that is what can be reached"
    return f"{reachable / 1e9:,.1f} GB/s could be reached, {reachable / max(1.0, reached):.1f} times as much"


@_tables.register
def _collective_tables(facts: CollectiveFacts, found: StepExplanation) -> Iterator[Table]:
    if not facts.orders:
        return
    # An order is copied into a program, and in one piece.
    table = plain_table("a mesh over devices in another order", ">by itself", ">the run", ">saves", wraps=("none",))
    for order in facts.orders:
        saves_ps = found.run_ps - order.run_ps
        saves = f"{time_text(saves_ps)} ({saves_ps / max(1, found.run_ps):.1%})" if saves_ps > 0 else "nothing"
        table.add_row(order_text(order), time_text(order.op_ps), time_text(order.run_ps), saves)
    yield table


def order_text(order: DeviceOrder) -> str:
    """Return an order of devices as a program of JAX has it, which need not list them by their numbers."""
    shape, axes = (", ".join(map(str, numbers)) for numbers in (order.reshaped, order.transposed))
    listed = "sorted(jax.devices(), key=lambda d: d.id)"
    if order.devices == tuple(range(len(order.devices))):
        return f"np.array({listed})"
    if not order.reshaped:
        return f"np.array({listed})[{list(order.devices)}]"
    return f"np.array({listed}).reshape({shape}).transpose({axes}).ravel()"


@_lines.register
def _inside_lines(facts: InsideFacts, found: StepExplanation) -> Iterator[Line]:
    if facts.trips:
        each = found.time_ps // max(1, facts.times)
        yield "trips", f"{facts.trips:,} a visit{_assumed(facts)}, {facts.times:,} in all, {time_text(each)} each"
        share = facts.jumps_ps / max(1, found.time_ps)
        yield "overhead", f"{time_text(facts.jumps_ps)} for going on to the next trip ({share:.1%})"
    elif facts.branches:
        yield "taken", f"branch {facts.branch} of {facts.branches}, counted from 0"
    if facts.ops:
        first = facts.ops[0]
        share = first.time_ps / max(1, found.time_ps or found.beside_ps)
        yield "dominated", f"by {first.name} ({share:.0%}), which goes to {first.bound_by}"


@_tables.register
def _inside_tables(facts: InsideFacts, found: StepExplanation) -> Iterator[Table]:
    each = "a trip" if facts.trips else "each"
    table = plain_table("inside", f">{each}", ">in all", ">share", ">count", "bound by", "<source", cut=("bound by",))
    total_ps = max(1, found.time_ps or found.beside_ps)
    for op in facts.ops[:_SHOWN_OPS]:
        per = time_text(op.time_ps // max(1, facts.times))
        cells = (per, time_text(op.time_ps), f"{op.time_ps / total_ps:.1%}", f"{op.count:,}", escape(op.bound_by))
        table.add_row(escape(op.name), *cells, escape(op.source))
    rest_ps = sum(op.time_ps for op in facts.ops[_SHOWN_OPS:])
    if len(facts.ops) > _SHOWN_OPS:
        per = time_text(rest_ps // max(1, facts.times))
        table.add_row(
            f"... and {len(facts.ops) - _SHOWN_OPS} more", per, time_text(rest_ps), f"{rest_ps / total_ps:.1%}"
        )
    yield table


@_lines.register
def _transfer_lines(facts: TransferFacts, found: StepExplanation) -> Iterator[Line]:
    names = (UNITS[end].label if end in UNITS else end for end in (facts.origin, facts.target))
    runs = f", in runs of {size_text(facts.run_bytes)}" if facts.run_bytes else ""
    yield "moves", f"{size_text(facts.n_bytes)} from {' to '.join(names)}{runs}"
    rates = facts.reached_bytes_per_second, facts.reachable_bytes_per_second
    yield "rate", f"{rates[0] / 1e9:,.1f} GB/s, {time_text(facts.latency_ps)} of it latency; {_reach(rates)}"
    if facts.shared_with:
        yield "shares", f"its memory or link meanwhile with {some_text(facts.shared_with, _SHOWN_NAMES)}"
    hidden = max(0.0, 1 - facts.exposed_ps / found.beside_ps) if found.beside_ps else 0.0
    if facts.waited_by:
        waits = f"{time_text(facts.exposed_ps)} in {some_text(facts.waited_by, _SHOWN_NAMES)}"
        yield "exposed", f"the core waits for it {waits}: {hidden:.0%} is hidden"
    elif found.beside_ps:
        yield "exposed", "not at all: the core never waits for it"


@_lines.register
def _wait_lines(facts: WaitFacts, found: StepExplanation) -> Iterator[Line]:
    for one in facts.awaited:
        took = f"took {time_text(one.took_ps)} beside the core, of which {time_text(one.hidden_ps)} were hidden"
        yield "waits for", f"{one.name} ({one.opcode}), issued after {one.issued_after or 'the start'}: {took}"
        if facts.waited_ps:
            yield "to hide", _cure(one, facts.waited_ps)
    if not facts.waited_ps:
        yield "waits", "not at all: what it is for had ended"


def _assumed(facts: InsideFacts) -> str:
    """Return that the trips of a loop are assumed, if they are."""
    return _ASSUMED.get(facts.trips_from, "")


def _cure(one: Awaited, waited_ps: int) -> str:
    """Return what would hide a wait."""
    more = f"{time_text(waited_ps)} more of the core's work between them would hide the rest"
    if one.ready_ps is None:
        return more
    if one.ready_ps == 0:
        made = f"what it takes is made right before, by {one.ready_after}" if one.ready_after else "nothing runs before"
        return f"{more}; it cannot begin earlier: {made}"
    since = f"after {one.ready_after}" if one.ready_after else "from the start of the program"
    return f"{more}; what it takes is there {since}, so that it could begin {time_text(one.ready_ps)} earlier"
