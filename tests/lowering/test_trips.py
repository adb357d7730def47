"""Trip counts: from the counter of the loop, against counting."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given, strategies as st

from tests.lowering.hlo import lower_text
from tpusim.program.module import Program
from tpusim.program.steps import Loop

COMPARE = {"LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge, "NE": operator.ne}


def counting_loop(start: str, step: str, limit: str, direction: str, config: str = "", **options: int) -> Program:
    """Return a program with one loop whose counter is element 0 and whose limit is element 1."""
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
    return lower_text(entry, others, **options)


def loop_of(program: Program) -> Loop:
    """Return the loop of a program."""
    return next(step for step in program.steps if isinstance(step, Loop))


def naive_trips(start: int, step: int, limit: int, direction: str) -> int | None:
    """Count trips one by one; None if they do not end soon."""
    value = start
    for trips in range(200):
        if not COMPARE[direction](value, limit):
            return trips
        value += step
    return None


@given(st.integers(-20, 20), st.integers(-3, 3), st.integers(-20, 20), st.sampled_from(sorted(COMPARE)))
def test_count_agrees_with_counting(start, step, limit, direction):
    """Whatever start, step, limit and direction: the count is right, or the default is taken where it never ends."""
    loop = loop_of(counting_loop(f"constant({start})", f"constant({step})", f"constant({limit})", direction))
    expected = naive_trips(start, step, limit, direction)
    assert loop.trips == (1 if expected is None else expected)
    assert (loop.trips_from == "default") == (expected is None)


def test_stated_count_wins():
    """The compiler's known_trip_count is taken without looking further."""
    config = ', backend_config={"known_trip_count":{"n":"37"}}'
    loop = loop_of(counting_loop("constant(0)", "constant(1)", "constant(5)", "LT", config))
    assert (loop.trips, loop.trips_from) == (37, "known_trip_count")


def test_unknown_count_takes_the_default_with_a_warning():
    """A limit that comes from outside is not known; the warning names the loop."""
    program = counting_loop("constant(0)", "constant(1)", "parameter(0)", "LT", default_trips=9)
    assert (loop_of(program).trips, loop_of(program).trips_from) == (9, "default")
    assert "'w'" in program.warnings[0]


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
    assert loop_of(lower_text(entry, FUSED_CONDITION.replace("LIMIT", str(limit)))).trips == limit


def scalar_loop(type_name: str, start: str, step: str, condition: str) -> Loop:
    """Return the loop of a counter of any type; ``step`` makes %next from %i, ``condition`` the root from %j."""
    others = f"""\
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
    return loop_of(lower_text(entry, others))


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
    assert (loop.trips, loop.trips_from) == (20, "upper bound")


def test_an_endless_loop_is_not_played_for_ever():
    """A counter that never gets there is unknown after a few thousand trips."""
    step = "%one = s32[] constant(1)\n  %next = s32[] multiply(%i, %one)"
    limit = "%end = s32[] constant(5)\n  ROOT %c = pred[] compare(%j, %end), direction=LT"
    assert scalar_loop("s32[]", "1", step, limit).trips_from == "default"
