"""The order of XLA's passes: operands before users, computations before their callers."""

from __future__ import annotations

from tpusim.allocation.placement import module_order, post_order
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

TEXT = """\
HloModule m, is_scheduled=true

%f (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  ROOT %n = f32[8] negate(%p)
}

ENTRY %main {
  %b = f32[8] parameter(1)
  %a = f32[8] parameter(0)
  %unused = f32[8] copy(%a)
  %c = f32[8] call(%b), to_apply=%f
  ROOT %s = f32[8] add(%a, %c)
}
"""


def test_operands_stand_before_their_users_first_operand_first():
    """Depth first from every instruction without users: the copy with its operand, then the sum with the rest."""
    entry = parse_module(SourceText("m", TEXT)).entry
    assert [instruction.name for instruction in post_order(entry)] == ["a", "unused", "b", "c", "s"]


def test_callees_stand_before_their_callers():
    """Everything in the called computation has a lower number than everything in the entry."""
    module = parse_module(SourceText("m", TEXT))
    order = module_order(module)
    called, entry = ([order[id(i)] for i in module[name].instructions] for name in ("f", "main"))
    assert max(called) < min(entry)
