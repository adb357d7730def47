"""Branches and trips that depend on the device or on the counter around them, against counting by hand."""

from __future__ import annotations

import pytest

from tests.lowering.hlo import lower_module_text
from tpusim.program.module import every_step
from tpusim.program.steps import Branch, Choice, Loop
from tpusim.semantics import contexts, scalars
from tpusim.source import SourceText
from tpusim.text import parse_module

SHAPE = "f32[8,128]{1,0:T(8,128)}"
BRANCHES = f"""\
%light (p: {SHAPE}) -> {SHAPE} {{
  ROOT %p = {SHAPE} parameter(0)
}}

%heavy (q: {SHAPE}) -> {SHAPE} {{
  %q = {SHAPE} parameter(0)
  ROOT %e = {SHAPE} exponential(%q)
}}
"""


def module_of(entry: str, others: str = "", devices: int = 4) -> str:
    """Return a module of so many partitions; ``x`` is an array, ``id`` the number of the partition."""
    lines = [f"%x = {SHAPE} parameter(0)", "%id = u32[] partition-id()", *entry.strip().splitlines()]
    body = "\n".join(f"  {line.strip()}" for line in lines)
    head = f"HloModule m, is_scheduled=true, num_partitions={devices}"
    return f"{head}\n\n{BRANCHES}\n{others}\nENTRY %main {{\n{body}\n}}\n"


def step_of(kind: type, text: str):
    """Return the only step of a kind in a lowered module, and the module's warnings."""
    program = lower_module_text(text)
    return next(step for step in every_step(program.steps) if isinstance(step, kind)), program.warnings


def taken(choices: tuple[Choice, ...], devices: int) -> list[tuple[int, ...]]:
    """Return what each device chooses."""
    return [next(c.values for c in choices if not c.devices or n in c.devices) for n in range(devices)]


CONDITIONAL = f"ROOT %y = {SHAPE} conditional(%i, %x, %x), branch_computations={{%light, %heavy}}"
PREDICATED = f"ROOT %y = {SHAPE} conditional(%i, %x, %x), true_computation=%heavy, false_computation=%light"
# What makes the index, and the branch that each of four devices takes.
INDICES = {
    "the place on an axis": ("%c = u32[] constant(2)\n%r = u32[] remainder(%id, %c)\n"
                             "%i = s32[] convert(%r)", [0, 1, 0, 1]),
    "a table": ("%t = s32[4]{0} constant({0, 1, 1, 0})\n"
                "%s = s32[1]{0} dynamic-slice(%t, %id), dynamic_slice_sizes={1}\n%i = s32[] reshape(%s)", [0, 1, 1, 0]),
    "the last for what is none's": ("%i = s32[] convert(%id)", [0, 1, 1, 1]),
    "a comparison as a number": ("%c = u32[] constant(3)\n%p = pred[] compare(%id, %c), direction=EQ\n"
                                 "%i = s32[] convert(%p)", [0, 0, 0, 1]),
}  # fmt: skip


@pytest.mark.parametrize("name", INDICES)
def test_each_device_takes_its_branch(name):
    """Computed from the number of the partition."""
    lines, expected = INDICES[name]
    branch, warnings = step_of(Branch, module_of(f"{lines}\n{CONDITIONAL}"))
    assert taken(branch.choices, 4) == [(number,) for number in expected]
    assert (branch.taken, warnings) == (1, ())


def test_true_takes_the_first():
    """And false the second."""
    lines = f"%c = u32[] constant(0)\n%i = pred[] compare(%id, %c), direction=EQ\n{PREDICATED}"
    branch, _ = step_of(Branch, module_of(lines))
    assert taken(branch.choices, 4) == [(0,), (1,), (1,), (1,)]


def test_all_may_take_the_same():
    """Then there is nothing to choose, and the branch that is taken need not be the longest."""
    branch, warnings = step_of(Branch, module_of(f"%i = s32[] constant(0)\n{CONDITIONAL}"))
    assert (branch.taken, branch.choices, warnings) == (0, (), ())


def test_what_depends_on_values_takes_the_longest_with_a_warning():
    """A parameter may be anything."""
    branch, warnings = step_of(Branch, module_of(f"%i = s32[] parameter(1)\n{CONDITIONAL}"))
    assert (branch.taken, branch.choices) == (1, ())
    assert any("depends on values: the longest, 'heavy', taken" in warning for warning in warnings)


LOOP = f"""\
%body (s: (s32[], s32[], {SHAPE})) -> (s32[], s32[], {SHAPE}) {{
  %s = (s32[], s32[], {SHAPE}) parameter(0)
  %k = s32[] get-tuple-element(%s), index=0
  %n = s32[] get-tuple-element(%s), index=1
  %v = {SHAPE} get-tuple-element(%s), index=2
  %one = s32[] constant(1)
  %i = s32[] INDEX
  %w = {SHAPE} conditional(%i, %v, %v), branch_computations={{%light, %heavy}}
  %next = s32[] add(%k, %one)
  ROOT %t = (s32[], s32[], {SHAPE}) tuple(%next, %n, %w)
}}

%condition (state2: (s32[], s32[], {SHAPE})) -> pred[] {{
  %state2 = (s32[], s32[], {SHAPE}) parameter(0)
  %k2 = s32[] get-tuple-element(%state2), index=0
  %n2 = s32[] get-tuple-element(%state2), index=1
  %four = s32[] constant(4)
  ROOT %lt = pred[] compare(%k2, LIMIT), direction=LT
}}
"""
ENTRY = f"""\
%zero = s32[] constant(0)
%own = s32[] convert(%id)
%start = (s32[], s32[], {SHAPE}) tuple(%zero, %own, %x)
%l = (s32[], s32[], {SHAPE}) while(%start), condition=%condition, body=%body
ROOT %y = {SHAPE} get-tuple-element(%l), index=2
"""


def loop_text(index: str, limit: str, devices: int = 4) -> str:
    """Return a loop whose branch and limit are made as stated."""
    return module_of(ENTRY, LOOP.replace("INDEX", index).replace("LIMIT", limit), devices)


def test_a_device_may_have_trips_of_its_own():
    """As many as its number; device 0 none."""
    loop, warnings = step_of(Loop, loop_text("constant(0)", "%n2"))
    assert taken(loop.choices, 4) == [(0,), (1,), (2,), (3,)]
    assert (loop.trips, warnings) == (3, ())


def test_a_branch_may_change_from_trip_to_trip():
    """A stage of a pipeline works from the trip of its number on."""
    trips = range(4)
    branch, _ = step_of(Branch, loop_text("subtract(%k, %n)", "%four"))
    # Below 0 is none's, and so the last.
    expected = [tuple(min(1, k - n) if k >= n else 1 for k in trips) for n in range(4)]
    assert [v * (4 if len(v) == 1 else 1) for v in taken(branch.choices, 4)] == expected


def test_of_long_loops_only_what_no_trip_changes_is_known():
    """A million trips: a branch by the device is, one by the counter is not."""
    by_device, _ = step_of(
        Branch, loop_text("add(%n, %n)", "%big").replace("%four = s32[] constant(4)", "%big = s32[] constant(1000000)")
    )
    by_counter, warnings = step_of(
        Branch, loop_text("add(%k, %n)", "%big").replace("%four = s32[] constant(4)", "%big = s32[] constant(1000000)")
    )
    assert taken(by_device.choices, 4) == [(0,), (1,), (1,), (1,)]
    assert (by_counter.choices, len(warnings)) == ((), 1)


CALLED = f"""\
%called (n: s32[], v: {SHAPE}) -> {SHAPE} {{
  %n = s32[] parameter(0)
  %v = {SHAPE} parameter(1)
  ROOT %y = {SHAPE} conditional(%n, %v, %v), branch_computations={{%light, %heavy}}
}}
"""


def test_a_called_computation_knows_its_arguments():
    """The branch inside follows from the number that each device calls it with."""
    entry = f"%own = s32[] convert(%id)\nROOT %c = {SHAPE} call(%own, %x), to_apply=%called"
    branch, warnings = step_of(Branch, module_of(entry, CALLED))
    assert (taken(branch.choices, 4), warnings) == ([(0,), (1,), (1,), (1,)], ())


DEEP = (
    LOOP.replace("INDEX", "constant(1)").replace("LIMIT", "%four")
    + f"""
%deep (d: (s32[], s32[], {SHAPE})) -> {SHAPE} {{
  %d = (s32[], s32[], {SHAPE}) parameter(0)
  %l = (s32[], s32[], {SHAPE}) while(%d), condition=%condition, body=%body
  ROOT %r = {SHAPE} get-tuple-element(%l), index=2
}}

%shallow (e: {SHAPE}) -> {SHAPE} {{
  ROOT %e = {SHAPE} parameter(0)
}}
"""
)


def test_inside_a_branch_that_values_choose_constants_are_known():
    """Which devices come there cannot be told; what they find there can, and so the trips of the loop."""
    entry = f"""%zero = s32[] constant(0)
        %p = pred[] parameter(1)
        %start = (s32[], s32[], {SHAPE}) tuple(%zero, %zero, %x)
        ROOT %y = {SHAPE} conditional(%p, %start, %x), true_computation=%deep, false_computation=%shallow"""
    loop, warnings = step_of(Loop, module_of(entry, DEEP))
    assert (loop.trips, loop.trips_from) == (4, "induction variable")
    assert any("'y'" in warning for warning in warnings)


@pytest.mark.parametrize(("module", "limit"), [(contexts, "_MOST_STATES"), (scalars, "_MOST_COMPUTED")])
def test_too_many_visits_are_not_looked_at(monkeypatch, module, limit):
    """Then a branch is taken as if values chose it, with a warning."""
    monkeypatch.setattr(module, limit, 3)
    branch, warnings = step_of(Branch, module_of(f"%i = s32[] convert(%id)\n{CONDITIONAL}"))
    assert (branch.choices, len(warnings)) == ((), 1)


@pytest.mark.parametrize(("most", "known"), [(120, [True, False]), (999, [True, True])])
def test_what_is_found_of_all_visits_has_an_end(monkeypatch, most, known):
    """Two calls that four devices make with numbers of their own, and their branches: what comes first is known."""
    monkeypatch.setattr(scalars, "_MOST_COMPUTED", most)
    calls = "\n".join(f"%c{n} = {SHAPE} call(%own, %x), to_apply=%called{n}" for n in (1, 2))
    entry = f"%own = s32[] convert(%id)\n{calls}\nROOT %r = {SHAPE} add(%c1, %c2)"
    others = CALLED.replace("%called", "%called1") + "\n" + CALLED.replace("%called", "%called2")
    program = lower_module_text(module_of(entry, others))
    branches = [step for step in every_step(program.steps) if isinstance(step, Branch)]
    assert ([bool(branch.choices) for branch in branches], len(program.warnings)) == (known, known.count(False))


INNER = f"""\
%inner (z: (s32[], s32[], {SHAPE})) -> (s32[], s32[], {SHAPE}) {{
  %z = (s32[], s32[], {SHAPE}) parameter(0)
  %j = s32[] get-tuple-element(%z), index=0
  %m = s32[] get-tuple-element(%z), index=1
  %u = {SHAPE} get-tuple-element(%z), index=2
  %step = s32[] constant(1)
  %none = s32[] constant(0)
  %again = (s32[], s32[], {SHAPE}) tuple(%none, %m, %u)
  %g = (s32[], s32[], {SHAPE}) while(%again), condition=%condition, body=%body
  %h = {SHAPE} get-tuple-element(%g), index=2
  %more = s32[] add(%j, %step)
  ROOT %o = (s32[], s32[], {SHAPE}) tuple(%more, %m, %h)
}}
"""


def test_visits_with_the_same_known_are_looked_at_once(monkeypatch):
    """A loop with trips by the device, in four trips of another that it knows nothing of: once for each device."""
    starts = []
    counted = contexts.trips_from
    monkeypatch.setattr(contexts, "trips_from", lambda *given: starts.append(given) or counted(*given))
    entry = ENTRY.replace("condition=%condition, body=%body", "condition=%outer, body=%inner")
    outer = LOOP.partition("%condition")[2].replace("LIMIT", "%four")
    # Names are a computation's own but for those of computations.
    loops = LOOP.replace("INDEX", "constant(0)").replace("LIMIT", "%n2") + "\n" + INNER + "\n%outer" + outer
    program = lower_module_text(module_of(entry, loops))
    inner = [step for step in every_step(program.steps) if isinstance(step, Loop) and step.choices]
    assert [taken(loop.choices, 4) for loop in inner] == [[(0,), (1,), (2,), (3,)]]
    assert len(starts) == 4 + 2 * 4


def test_a_program_that_asks_for_no_device_number_is_visited_once():
    """All devices do the same, however many there are."""
    text = module_of(f"ROOT %r = {SHAPE} negate(%x)").replace("%id = u32[] partition-id()", "")
    assert list(contexts.EntryContext(parse_module(SourceText("m", text))).visits) == [0]
