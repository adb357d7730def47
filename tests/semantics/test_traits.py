"""What opcodes have in common is asked of one table, so that rooms cannot differ about it."""

from __future__ import annotations

import pytest

from tests.semantics.hlo import parse
from tpusim.ir import ops
from tpusim.program.steps import COLLECTIVE_KINDS
from tpusim.semantics.aliasing import in_place_operands
from tpusim.semantics.scalars import table_of
from tpusim.semantics.verify.module import verify_module

VIEWS = [
    "bitcast(%s)",
    "opt-barrier(%s)",
    "add-dependency(%s, k)",
    'domain(%s), domain={kind="sharding", entry={}, exit={}}',
]


def test_traits_name_opcodes_that_exist():
    """A trait of a name that is no opcode would never be asked for."""
    traits = {name: value for name, value in vars(ops).items() if name.isupper() and isinstance(value, frozenset)}
    named = set().union(*(value for name, value in traits.items() if not name.endswith("_ATTRIBUTES")))
    assert named <= set(ops.OPERATIONS)


def test_kinds_of_collective_steps_are_the_opcodes():
    """The room of lowered programs does not know ir; its words for collectives are XLA's all the same."""
    assert COLLECTIVE_KINDS == ops.COLLECTIVES


@pytest.mark.parametrize("view", VIEWS[:1] + VIEWS[2:])
def test_an_update_behind_a_view_is_in_place(view):
    """What orders a value after another, or says of which domain it is, makes no copy of it."""
    text = """HloModule m
        fused { a = f32[8] parameter(0) u = f32[1] parameter(1) i = s32[] parameter(2) k = token[] after-all()
          d = f32[8] dynamic-update-slice(a, u, i) ROOT v = f32[8] VIEW }
        ENTRY e { a = f32[8] parameter(0) u = f32[1] parameter(1) i = s32[] parameter(2)
          ROOT f = f32[8] fusion(a, u, i), kind=kLoop, calls=fused }""".replace("VIEW", view % "d")
    module = parse(text)
    assert in_place_operands(module, module.entry.root) == {0: 0}


@pytest.mark.parametrize("view", VIEWS)
def test_a_table_is_found_behind_views(view):
    """The numbers of a constant are those of everything that hands it on."""
    module = parse(f"""HloModule m
        ENTRY e {{ k = token[] after-all() c = s32[3] constant({{1, 2, 3}}) ROOT v = s32[3] {view % "c"} }}""")
    assert table_of(module.entry, module.entry.root) == (1, 2, 3)


def test_a_collective_in_a_fusion_is_not_dead():
    """XLA keeps a collective that nobody uses for what it does on other devices, the ragged kind too."""
    text = """HloModule m
        fused { a = f32[8] parameter(0) o = f32[8] parameter(1) i = s32[1] parameter(2)
          r = f32[8] ragged-all-to-all(a, o, i, i, i, i), replica_groups={{0}} ROOT n = f32[8] negate(a) }
        ENTRY e { a = f32[8] parameter(0) o = f32[8] parameter(1) i = s32[1] parameter(2)
          ROOT f = f32[8] fusion(a, o, i), kind=kLoop, calls=fused }"""
    verify_module(parse(text))
