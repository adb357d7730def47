"""Rules take time as programs grow, and no square of it: however many groups, sizes or arguments these have."""

from __future__ import annotations

from random import Random
from time import process_time

import pytest

from tests.growth import MOST, grows_by
from tests.semantics.hlo import parse
from tpusim.advice import trials
from tpusim.advice.rules.alike import kernels_alike
from tpusim.advice.rules.donation import donation
from tpusim.advice.rules.padding import padding
from tpusim.advice.trials import Case, are_made_of
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import simulate

ARRAY = "f32[8,128]{1,0:T(8,128)}"


def module(lines: list[str], result: str, arguments: int = 1) -> str:
    """Return a scheduled program of some lines."""
    parameters = [f"p{n} = {ARRAY} parameter({n})" for n in range(arguments)]
    body = "".join(f"  {line}\n" for line in (*parameters, *lines, f"ROOT {result}"))
    return f"HloModule m, is_scheduled=true\n\nENTRY e {{\n{body}}}\n"


def alike(count: int) -> str:
    """Return a chain of kernels of which each does what another one half a chain before it does."""
    lines = [
        f"x{n} = {ARRAY} add({f'x{n - 1}' if n else 'p0'}, p0), "
        f'metadata={{op_name="a" source_file="a.py" source_line={n % (count // 2) + 1}}}'
        for n in range(count)
    ]
    return module(lines, f"r = {ARRAY} negate(x{count - 1})")


def padded(count: int) -> str:
    """Return kernels on arrays of as many widths, none a multiple of 128."""
    shapes = [f"f32[8,{129 + n + n // 127}]{{1,0:T(8,128)}}" for n in range(count)]
    lines = [f"y{n} = {shape} exponential(x{n})" for n, shape in enumerate(shapes)]
    made = [f"x{n} = {shape} broadcast(z), dimensions={{}}" for n, shape in enumerate(shapes)]
    return module(["z = f32[]{:T(128)} constant(0)", *made, *lines], f"r = {ARRAY} negate(p0)")


def updated(count: int) -> str:
    """Return as many arguments, each copied and updated into a result."""
    part = f"s = {ARRAY.replace('8,128]', '1,128]', 1)} slice(p0), slice={{[0:1], [0:128]}}"
    pairs = [
        (f"k{n} = {ARRAY} copy(p{n})", f"x{n} = {ARRAY} dynamic-update-slice(k{n}, s, z, z)") for n in range(count)
    ]
    lines = [line for pair in pairs for line in pair]
    results = ", ".join([ARRAY] * count)
    names = ", ".join(f"x{n}" for n in range(count))
    return module(["z = s32[]{:T(128)} constant(0)", part, *lines], f"r = ({results}) tuple({names})", count)


@pytest.mark.slow
@pytest.mark.usefixtures("no_garbage_of_others")
@pytest.mark.parametrize(("rule", "text"), [(kernels_alike, alike), (padding, padded), (donation, updated)])
def test_time_grows_with_the_program(rule, text):
    """Each rule by itself."""

    def seconds(size: int) -> float:
        case = Case(simulate(parse(text(size)), load_chip("v5e")), None)
        assert len(case.homes) > size
        begin = process_time()
        list(rule(case))
        return process_time() - begin

    assert grows_by(seconds, (500, 1000, 2000)) < MOST


@pytest.mark.parametrize("at_once", [1, 3, 1024])
def test_what_is_made_of_what_is_told_as_a_walk_for_each_tells_it(monkeypatch, at_once):
    """Random programs and questions; the naive twin goes through the program once for each."""
    monkeypatch.setattr(trials, "_AT_ONCE", at_once)
    draw = Random(0)
    lines = [f"x{n} = {ARRAY} add({draw.choice(['p0', *(f'x{m}' for m in range(n))])}, p0)" for n in range(40)]
    entry = parse(module(lines, f"r = {ARRAY} negate(x39)")).entry
    names = [one.name for one in entry]
    asked = [tuple(set(draw.choices(names, k=draw.randrange(1, 4))) for _ in range(2)) for _ in range(200)]

    def is_made(results: set[str], sources: set[str]) -> bool:
        found = set[str]()
        for one in entry:
            if any(operand in found | sources for operand in one.operands):
                found.add(one.name)
        return bool(found & results)

    assert are_made_of(entry, asked) == tuple(is_made(*each) for each in asked)
