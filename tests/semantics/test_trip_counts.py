"""Trip counts: from the counter of the loop, against counting."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lowering.hlo import lower_text
from tpusim.program.steps import Loop
from tpusim.semantics import trip_counts
from tpusim.semantics.contexts import EntryContext
from tpusim.semantics.trip_counts import TripCount, assumed_trips, count_trips
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

COMPARE = {"LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge, "NE": operator.ne}


def loop_of(entry: str, others: str, default: int = 1) -> TripCount:
    """Return the trips of the loop that is the last of the entry's lines."""
    module = parse_module(SourceText("m.hlo", f"HloModule m\n\n{others}\nENTRY %main {{\n{entry}\n}}\n"))
    loop = module.entry.root
    start = EntryContext(module).known_of(loop.operands)
    return count_trips(module, loop, start) or assumed_trips(module, loop, start, default)


def counting_loop(start: str, step: str, limit: str, direction: str, config: str = "", default: int = 1) -> TripCount:
    """Return the trips of a loop whose counter is element 0 and whose limit is element 1."""
    others = f"""\
%body (p: (s32[], s32[])) -> (s32[], s32[]) {{
  %p = (s32[], s32[]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %copy = s32[] copy(%i)
  %step = s32[] {step}
  %next = s32[] add(%copy, %step)
  %limit = s32[] get-tuple-element(%p), index=1
  ROOT %t = (s32[], s32[]) tuple(%next, %limit)
}}

%condition (q: (s32[], s32[])) -> pred[] {{
  %q = (s32[], s32[]) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %end = s32[] get-tuple-element(%q), index=1
  ROOT %less = pred[] compare(%j, %end), direction={direction}
}}
"""
    entry = f"""
        %start = s32[] {start}
        %stop = s32[] {limit}
        %init = (s32[], s32[]) tuple(%start, %stop)
        ROOT %w = (s32[], s32[]) while(%init), condition=%condition, body=%body{config}"""
    return loop_of(entry, others, default)


def naive_trips(start: int, step: int, limit: int, direction: str) -> int | None:
    """Count trips one by one; None if they do not end soon."""
    value = start
    for trips in range(200):
        if not COMPARE[direction](value, limit):
            return trips
        value += step
    return None


@given(st.integers(-20, 20), st.integers(-3, 3), st.integers(-20, 20), st.sampled_from(sorted(COMPARE)))
@settings(max_examples=60)
def test_count_agrees_with_counting(start, step, limit, direction):
    """Whatever start, step, limit and direction: the count is right, or the default is taken where it never ends."""
    loop = counting_loop(f"constant({start})", f"constant({step})", f"constant({limit})", direction)
    expected = naive_trips(start, step, limit, direction)
    assert loop.trips == (1 if expected is None else expected)
    assert (loop.source == "default") == (expected is None)


@pytest.mark.parametrize(
    ("limit", "warning"),
    [
        ("constant(5)", "'w' states 37 trips and its condition gives 5: 37 taken"),
        ("constant(37)", ""),
        ("parameter(0)", ""),
    ],
)
def test_stated_count_wins(limit, warning):
    """The compiler's known_trip_count is taken, and what contradicts it is said."""
    config = ', backend_config={"known_trip_count":{"n":"37"}}'
    loop = counting_loop("constant(0)", "constant(1)", limit, "LT", config)
    assert (loop.trips, loop.source, loop.warning) == (37, "known_trip_count", warning)


def test_unknown_count_takes_the_default_with_a_warning():
    """A limit that comes from outside is not known; the warning names the loop."""
    found = counting_loop("constant(0)", "constant(1)", "parameter(0)", "LT", default=9)
    assert (found.trips, found.source) == (9, "default")
    assert "'w'" in found.warning


FUSED_CONDITION = """\
%fused (a: s32[], b: s32[]) -> pred[] {
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  ROOT %c = pred[] compare(%a, %b), direction=LT
}

%body (p: (s32[])) -> (s32[]) {
  %p = (s32[]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  ROOT %t = (s32[]) tuple(%next)
}

%condition (q: (s32[])) -> pred[] {
  %q = (s32[]) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %end = s32[] constant(LIMIT)
  ROOT %less = pred[] fusion(%j, %end), kind=kLoop, calls=%fused
}
"""


@pytest.mark.parametrize("limit", [0, 1, 128])
def test_count_through_a_fused_condition(limit):
    """The comparison may stand in a fusion, its limit a constant in the condition."""
    entry = """
        %zero = s32[] constant(0)
        %init = (s32[]) tuple(%zero)
        ROOT %w = (s32[]) while(%init), condition=%condition, body=%body"""
    assert loop_of(entry, FUSED_CONDITION.replace("LIMIT", str(limit))).trips == limit


def scalar_loop(type_name: str, start: str, step: str, condition: str) -> TripCount:
    """Return the trips of a counter of any type; ``step`` makes %next from %i, ``condition`` the root from %j."""
    others = f"""\
%two_more (a: s32[]) -> s32[] {{
  %a = s32[] parameter(0)
  %two = s32[] constant(2)
  ROOT %sum = s32[] add(%a, %two)
}}

%body (p: ({type_name}, f32[8])) -> ({type_name}, f32[8]) {{
  %p = ({type_name}, f32[8]) parameter(0)
  %i = {type_name} get-tuple-element(%p), index=0
  %data = f32[8] get-tuple-element(%p), index=1
  {step}
  ROOT %t = ({type_name}, f32[8]) tuple(%next, %data)
}}

%condition (q: ({type_name}, f32[8])) -> pred[] {{
  %q = ({type_name}, f32[8]) parameter(0)
  %j = {type_name} get-tuple-element(%q), index=0
  %other = f32[8] get-tuple-element(%q), index=1
  {condition}
}}
"""
    entry = f"""
        %start = {type_name} constant({start})
        %x = f32[8] parameter(0)
        %init = ({type_name}, f32[8]) tuple(%start, %x)
        ROOT %w = ({type_name}, f32[8]) while(%init), condition=%condition, body=%body"""
    return loop_of(entry, others)


def test_a_counter_that_doubles():
    """From 1 while below a million: 2^20 is the first that is not."""
    step = "%two = s32[] constant(2)\n  %next = s32[] multiply(%i, %two)"
    limit = "%end = s32[] constant(1000000)\n  ROOT %c = pred[] compare(%j, %end), direction=LT"
    assert scalar_loop("s32[]", "1", step, limit).trips == 20


def test_a_counter_in_floats():
    """In f32 sixteen tenths stay below 1.65, and seventeen do not: the sums round as the chip's do."""
    step = "%tenth = f32[] constant(0.1)\n  %next = f32[] add(%i, %tenth)"
    limit = "%end = f32[] constant(1.65)\n  ROOT %c = pred[] compare(%j, %end), direction=LT"
    assert scalar_loop("f32[]", "0", step, limit).trips == 17


def test_a_limit_beside_an_unknown_condition_is_an_upper_bound():
    """``and(i < 20, data says so)`` runs at most 20 times; that is taken, and said."""
    step = "%one = s32[] constant(1)\n  %next = s32[] add(%i, %one)"
    limit = """%end = s32[] constant(20)
  %less = pred[] compare(%j, %end), direction=LT
  %first = f32[1] slice(%other), slice={[0:1]}
  %value = f32[] reshape(%first)
  %zero = f32[] constant(0)
  %goes = pred[] compare(%value, %zero), direction=GT
  ROOT %c = pred[] and(%less, %goes)"""
    loop = scalar_loop("s32[]", "0", step, limit)
    assert (loop.trips, loop.source) == (20, "upper bound")


@pytest.mark.parametrize(("step", "most"), [("multiply(%i, %one)", 2), ("negate(%i)", trip_counts.MOST_TRIPS)])
def test_an_endless_loop_is_not_played_for_ever(monkeypatch, step, most):
    """A counter that never gets there is unknown after a few thousand trips, one that stands still after two."""
    played = []
    states_of = trip_counts.states_of
    monkeypatch.setattr(trip_counts, "states_of", lambda *loop: (played.append(one) or one for one in states_of(*loop)))
    limit = "%end = s32[] constant(5)\n  ROOT %c = pred[] compare(%j, %end), direction=LT"
    loop = scalar_loop("s32[]", "1", f"%one = s32[] constant(1)\n  %next = s32[] {step}", limit)
    assert (loop.source, len(played)) == ("default", most)


@pytest.mark.parametrize(("limit", "trips"), [("200", 127), ("7.9", 7), ("-300", 0), ("nan", 0)])
def test_a_limit_is_converted_as_xla_does(limit, trips):
    """From float to s8 numbers saturate and are cut towards zero; the loop is executed as often."""
    step = "%one = s8[] constant(1)\n  %next = s8[] add(%i, %one)"
    condition = f"%f = f32[] constant({limit})\n  %end = s8[] convert(%f)"
    condition += "\n  ROOT %c = pred[] compare(%j, %end), direction=LT"
    assert scalar_loop("s8[]", "0", step, condition).trips == trips


def wrapped(value: int, name: str) -> int:
    """Return a number as an integer type of so many bits holds it."""
    bits = int(name[1:])
    low = -(1 << (bits - 1)) if name[0] == "s" else 0
    return (value - low) % (1 << bits) + low


@st.composite
def narrow_loops(draw):
    """Return a loop with a counter of few bits, which the condition sees in another type, and its trips counted."""
    counter, seen = draw(st.sampled_from(["s8", "u8", "s16"])), draw(st.sampled_from(["s8", "u8", "s32"]))
    within = {"s8": st.integers(-128, 127), "u8": st.integers(0, 255), "s16": st.integers(-300, 300)}
    within["s32"] = within["s16"]
    start, step, limit = draw(within[counter]), draw(st.integers(-9, 9)), draw(within[seen])
    step, offset, direction = wrapped(step, counter), draw(st.integers(0, 99)), draw(st.sampled_from(sorted(COMPARE)))
    value, trips = start, 0
    while COMPARE[direction](wrapped(wrapped(value, seen) + offset, seen), limit) and trips < 4096:
        value, trips = wrapped(value + step, counter), trips + 1
    body = f"%step = {counter}[] constant({step})\n  %next = {counter}[] add(%i, %step)"
    condition = f"%w = {seen}[] convert(%j)\n  %o = {seen}[] constant({offset})\n  %v = {seen}[] add(%w, %o)\n"
    condition += f"  %end = {seen}[] constant({limit})\n  ROOT %c = pred[] compare(%v, %end), direction={direction}"
    return (f"{counter}[]", str(start), body, condition), trips


@given(narrow_loops())
@settings(max_examples=60)
def test_counters_that_wrap_are_counted_as_they_run(case):
    """Whatever leaves its type on the way: the trips are those of counting with numbers that wrap."""
    arguments, expected = case
    loop = scalar_loop(*arguments)
    assert loop.trips == (1 if expected == 4096 else expected)


def test_a_long_count_takes_no_playing():
    """Two thousand million trips follow from start, step and limit; the limit is the type's own end."""
    step = "%one = s32[] constant(1)\n  %next = s32[] add(%i, %one)"
    limit = "%end = s32[] constant(2147483647)\n  ROOT %c = pred[] compare(%j, %end), direction=LT"
    assert scalar_loop("s32[]", "-5", step, limit).trips == 2147483652


CALLED_LOOP = """\
%body (p: (s32[], s32[])) -> (s32[], s32[]) {
  %p = (s32[], s32[]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %n = s32[] get-tuple-element(%p), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  ROOT %t = (s32[], s32[]) tuple(%next, %n)
}

%condition (q: (s32[], s32[])) -> pred[] {
  %q = (s32[], s32[]) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %m = s32[] get-tuple-element(%q), index=1
  ROOT %less = pred[] compare(%j, %m), direction=LT
}

%called (a: s32[]) -> (s32[], s32[]) {
  %a = s32[] parameter(0)
  %zero = s32[] constant(0)
  %init = (s32[], s32[]) tuple(%zero, %a)
  ROOT %w = (s32[], s32[]) while(%init), condition=%condition, body=%body
}
"""


def test_an_inner_loop_may_count_to_what_the_caller_says():
    """What goes into a call is known in it: its loop ends at the argument."""
    entry = """
        %five = s32[] constant(5)
        ROOT %c = (s32[], s32[]) call(%five), to_apply=%called"""
    (call,) = lower_text(entry, CALLED_LOOP).steps
    assert next(step for step in call.body if isinstance(step, Loop)).trips == 5


@pytest.mark.parametrize(
    "step",
    [
        "%next = s32[] fusion(%i), kind=kLoop, calls=%two_more",
        "%c = s32[] constant(-2)\n  %next = s32[] subtract(%i, %c)",
        "%c = s32[] constant(2)\n  %next = s32[] add(%c, %i)",
        "%w = s64[] convert(%i)\n  %c = s64[] constant(2)\n  %v = s64[] add(%w, %c)\n  %next = s32[] convert(%v)",
        "%c = s32[] constant(1)\n  %v = s32[] add(%i, %c)\n  %next = s32[] add(%v, %c)",
    ],
)
def test_a_step_of_two_is_seen_however_it_is_made(step):
    """Half a million trips to a million: too many to play out."""
    limit = "%end = s32[] constant(1000000)\n  ROOT %c = pred[] compare(%j, %end), direction=LT"
    assert scalar_loop("s32[]", "0", step, limit).trips == 500_000


@pytest.mark.parametrize(
    ("step", "trips"),
    [
        ("%c = s32[] constant(10)\n  %next = s32[] subtract(%c, %i)", 1),
        ("%next = s32[] reshape(%i)", None),
        ("%next = s32[] constant(2000000)", 1),
        (
            "%first = f32[1] slice(%data), slice={[0:1]}\n  %r = f32[] reshape(%first)\n  %next = s32[] convert(%r)",
            None,
        ),
    ],
)
def test_what_is_no_straight_counter_is_played_or_unknown(step, trips):
    """From 3 while it is not 7: turned round it is there at once; unchanged never; after values nobody knows."""
    limit = "%end = s32[] constant(7)\n  ROOT %c = pred[] compare(%j, %end), direction=LT"
    loop = scalar_loop("s32[]", "3", step, limit)
    assert (loop.trips, loop.source) == ((1, "default") if trips is None else (trips, "induction variable"))


PLAIN_LOOP = """\
%body (p: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %half = f32[] constant(0.5)
  ROOT %next = f32[] multiply(%p, %half)
}

%condition (q: f32[]) -> pred[] {
  %q = f32[] parameter(0)
  %one = f32[] constant(1)
  ROOT %more = pred[] compare(%q, %one), direction=GT
}
"""


def test_a_loop_may_carry_a_scalar_and_no_tuple():
    """From 100 down by halves it takes seven to come to one or below."""
    entry = "%start = f32[] constant(100)\n  ROOT %w = f32[] while(%start), condition=%condition, body=%body"
    assert loop_of(entry, PLAIN_LOOP).trips == 7


@pytest.mark.parametrize("step", [-4, -3, -1, 1, 2, 5])
@pytest.mark.parametrize("trips", [0, 1, 2, 7])
def test_a_counter_that_meets_its_limit_exactly_has_gone_there_in_steps(step, trips):
    """From 3 on until it is no longer unequal: the distance over the step."""
    found = counting_loop("constant(3)", f"constant({step})", f"constant({3 + trips * step})", "NE")
    assert found.trips == naive_trips(3, step, 3 + trips * step, "NE") == trips
