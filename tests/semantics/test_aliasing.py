"""Which results are written over an operand: nested fusions, tuples, and what the text states by numbers."""

from __future__ import annotations

import pytest

from tests.semantics.hlo import parse
from tpusim.semantics.aliasing import in_place_operands, joins_operands, stated_operands

A = "f32[8]"
INNER = f"""inner {{ i = s32[] parameter(0) u = f32[1] parameter(1) a = {A} parameter(2)
  ROOT d = {A} dynamic-update-slice(a, u, i) }}"""
PLAIN = f"inner {{ i = s32[] parameter(0) u = f32[1] parameter(1) a = {A} parameter(2) ROOT n = {A} negate(a) }}"


def of_fusion(outer: str, inner: str = INNER, result: str = A) -> dict[int, int]:
    """Return what a fusion of an update, an array, and an index writes over its operands; ``outer`` are its lines."""
    module = parse(f"""HloModule m
        {inner}
        outer {{ u = f32[1] parameter(0) a = {A} parameter(1) i = s32[] parameter(2) {outer} }}
        ENTRY e {{ u = f32[1] parameter(0) a = {A} parameter(1) i = s32[] parameter(2)
          ROOT f = {result} fusion(u, a, i), kind=kLoop, calls=outer }}""")
    return in_place_operands(module, module.entry.root)


NESTED = f"ROOT g = {A} fusion(i, u, a), kind=kLoop, calls=inner"
CASES = {
    "the update stands in a fusion inside": (NESTED, INNER, {0: 1}),
    "behind a view of the inner fusion": (f"{NESTED[5:]} ROOT v = {A} bitcast(g)", INNER, {0: 1}),
    "of a view of the parameter": (f"b = {A} bitcast(a) {NESTED.replace('u, a', 'u, b')}", INNER, {0: 1}),
    "the inner fusion computes something new": (NESTED, PLAIN, {}),
    "of something made inside": (f"n = {A} negate(a) {NESTED.replace('u, a', 'u, n')}", INNER, {}),
    "an update here": (f"ROOT d = {A} dynamic-update-slice(a, u, i)", INNER, {0: 1}),
    "of a fusion that is stated to be a view": (
        f"g = {A} fusion(a), kind=kLoop, calls=copied, output_to_operand_aliasing={{{{}}: (0, {{}})}}"
        f" ROOT d = {A} dynamic-update-slice(g, u, i)",
        f"{INNER} copied {{ p = {A} parameter(0) ROOT c = {A} copy(p) }}",
        {0: 1},
    ),
}


@pytest.mark.parametrize(("outer", "inner", "found"), CASES.values(), ids=CASES)
def test_a_fusion_is_written_over_what_its_root_updates(outer, inner, found):
    """The number of the operand is the outer fusion's, however its computations number their parameters."""
    assert of_fusion(outer, inner) == found


def test_each_root_of_a_fusion_is_written_over_its_own_operand():
    """The second of two results is the update."""
    outer = f"n = f32[1] negate(u) d = {A} dynamic-update-slice(a, u, i) ROOT t = (f32[1], {A}) tuple(n, d)"
    assert of_fusion(outer, result=f"(f32[1], {A})") == {1: 1}


DEPTH = 3000
"""Several times as deep as Python's own stack."""


def test_an_update_may_stand_behind_any_number_of_views():
    """A chain of bitcasts is followed without a call for each."""
    lines = [f"v0 = {A} dynamic-update-slice(a, u, i)", *(f"v{n + 1} = {A} bitcast(v{n})" for n in range(DEPTH))]
    assert of_fusion("\n".join(lines) + f" ROOT r = {A} bitcast(v{DEPTH})") == {0: 1}


def test_fusions_may_nest_at_any_depth():
    """The update is found in the innermost one, from the outermost and from each in between."""
    # Parameters in the order of those of the innermost.
    header = f"i = s32[] parameter(0) u = f32[1] parameter(1) a = {A} parameter(2)"
    levels = [
        f"n{n} {{ {header} ROOT f = {A} fusion(i, u, a), kind=kLoop, calls={f'n{n - 1}' if n else 'inner'} }}"
        for n in range(DEPTH)
    ]
    module = parse("\n".join(["HloModule m", INNER, *levels, f"ENTRY e {levels[-1].partition(' ')[2]}"]))
    assert all(in_place_operands(module, one.root) == {0: 2} for one in module.computations if one.name != "inner")


ALIASES = {
    "{}: (1, {})": {0: 1},
    "{1}: (1, {})": {1: 1},
    "{0}: (1, {}), {1}: (0, {})": {0: 1, 1: 0},
    "{1}: (0, {0})": {},
}


@pytest.mark.parametrize("stated", ALIASES)
def test_a_stated_alias_is_of_whole_operands(stated):
    """By leaf of the result; an element of an operand is none."""
    module = parse(f"""HloModule m
        ENTRY e {{ p = ({A}, {A}) parameter(0) q = {A} parameter(1)
          ROOT c = ({A}, {A}) custom-call(p, q), custom_call_target="x",
            output_to_operand_aliasing={{{stated}}} }}""")
    assert in_place_operands(module, module.entry.root) == ALIASES[stated]


LISTS = {
    '["1", "4"]': {1: (1, 0)},
    '["0", "3"]': {0: (0, 0)},
    '["2", "3"], ["1", "4"]': {0: (1, 1), 1: (1, 0)},
    '["3"]': {},
}


@pytest.mark.parametrize("lists", LISTS)
def test_the_compiler_numbers_arrays_of_operands_and_then_of_results(lists):
    """Numbers 0 to 2 are one array and two of a tuple, 3 and 4 are the results'."""
    wrapped = lists.replace('["', '{"indices": ["').replace('"]', '"]}')
    config = '{"aliasing_operands": {"lists": [' + wrapped + "]}}"
    module = parse(f"""HloModule m
        ENTRY e {{ q = {A} parameter(0) p = ({A}, {A}) parameter(1)
          ROOT c = ({A}, {A}) custom-call(q, p), custom_call_target="x", backend_config={config} }}""")
    assert stated_operands(module.entry, module.entry.root) == LISTS[lists]


@pytest.mark.parametrize(("target", "joins"), [("ConcatBitcast", True), ("Mystery", False)])
def test_one_custom_call_joins_its_operands(target, joins):
    """Slices that were brought in side by side; of others nothing is known."""
    module = parse(f"""HloModule m
        ENTRY e {{ a = {A} parameter(0) b = {A} parameter(1)
          ROOT j = f32[16] custom-call(a, b), custom_call_target="{target}" }}""")
    assert joins_operands(module.entry.root) == joins
