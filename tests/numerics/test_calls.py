"""Calls of element-wise computations: opened for chains, with values, names and places as they were."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.numerics.oracle import run_ours, run_xla
from tests.semantics.hlo import parse
from tpusim.errors import TpusimError

# Importing the last fills the table of what can be chained.
from tpusim.numerics import calls, chains, execute  # noqa: F401

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

# Both calls go to one computation, the first parameter is used twice, and a name of the inside is one of the outside.
TWICE = """HloModule m
relu {
  zero = bf16[] constant(0)
  x = bf16[4,300] parameter(0)
  y = bf16[4,300] parameter(1)
  zeros = bf16[4,300] broadcast(zero), dimensions={}
  sum = bf16[4,300] add(x, y)
  ROOT max = bf16[4,300] maximum(sum, zeros)
}
ENTRY e {
  sum = bf16[4,300] parameter(0)
  twice = bf16[4,300] add(sum, sum)
  first = bf16[4,300] call(twice, sum), to_apply=relu
  less = bf16[4,300] subtract(first, sum)
  second = bf16[4,300] call(less, less), to_apply=relu
  ROOT last = bf16[4,300] multiply(second, sum)
}
"""

OTHERS = """HloModule m
same { ROOT x = f32[4] parameter(0) }
counted {
  x = f32[4] parameter(0)
  ROOT n = s32[4] convert(x)
}
inner {
  x = f32[4] parameter(0)
  ROOT n = f32[4] negate(x)
}
outer {
  x = f32[4] parameter(0)
  i = f32[4] call(x), to_apply=inner
  ROOT a = f32[4] abs(i)
}
ENTRY e {
  x = f32[4] parameter(0)
  one = f32[4] call(x), to_apply=same
  two = s32[4] call(one), to_apply=counted
  three = f32[4] call(one), to_apply=outer
  ROOT both = (s32[4], f32[4]) tuple(two, three)
}
"""


def _opened(text):
    """Return the entry of a module with its calls opened."""
    module = parse(text)
    return calls.with_calls_opened(module, module.entry)


def test_a_chain_goes_on_through_calls():
    """The constants stand outside, as of any chain."""
    units = [[member.name for member in unit.members] for unit in chains.units_of(_opened(TWICE))]
    assert units[-1] == ["twice", "sum.first", "first", "less", "sum.second", "second", "last"]
    assert sorted(units[:-1]) == [["sum"], ["zero"], ["zero.second"], ["zeros"], ["zeros.second"]]


def test_an_opened_call_gives_what_the_call_gives(monkeypatch):
    """To the bit, and what XLA gives."""
    values = np.random.default_rng(0).standard_normal((4, 300)).astype(BFLOAT16)
    opened = run_ours(TWICE, [values])[0]
    monkeypatch.setattr(calls, "_MOST_OPENED", 0)
    called = run_ours(TWICE, [values])[0]
    np.testing.assert_array_equal(opened.view(np.uint16), called.view(np.uint16))
    np.testing.assert_array_equal(opened, run_xla(TWICE, [values])[0])


def test_what_is_no_arithmetic_of_floats_stays_a_call():
    """A parameter alone, integers, and a call within: of calls of calls the lengths would multiply."""
    assert [one.opcode for one in _opened(OTHERS)] == ["parameter", "call", "call", "call", "tuple"]
    found = run_ours(OTHERS, [np.array([-1.5, 2, 3, -4], np.float32)])
    assert [part.tolist() for part in found] == [[-1, 2, 3, -4], [1.5, 2, 3, 4]]


def test_one_computation_is_opened_for_each_module_anew():
    """Two modules may share an entry and call different things."""
    first, second = parse(TWICE), parse(TWICE.replace("maximum", "minimum"))
    assert calls.with_calls_opened(first, first.entry)["first"].opcode == "maximum"
    assert calls.with_calls_opened(second, first.entry)["first"].opcode == "minimum"


def test_an_error_beside_an_opened_call_has_its_place():
    """Instructions and places in the text are still one to one."""
    text = TWICE.replace("multiply(second, sum)", 'custom-call(second), custom_call_target="nobody"')
    with pytest.raises(TpusimError) as caught:
        run_ours(text, [np.zeros((4, 300), BFLOAT16)])
    assert "last" in str(caught.value)
    assert (
        caught.value.span.line == text.splitlines().index(next(one for one in text.splitlines() if "nobody" in one)) + 1
    )
