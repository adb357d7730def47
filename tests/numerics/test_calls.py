"""Calls of element-wise computations: opened for chains, with values, names and places as they were."""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np
import pytest

from tests.numerics.oracle import run_ours, run_xla
from tests.semantics.hlo import parse
from tpusim.errors import TpusimError

# Importing the last fills the table of what can be chained.
from tpusim.numerics import calls, chains, execute  # noqa: F401
from tpusim.numerics.values.f32_pairs import widen_module

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


CLASH = """HloModule m
g {
  x = f32[3] parameter(0)
  ROOT n = f32[3] negate(x)
  d = f32[3] multiply(x, n)
}
ENTRY e {
  p = f32[3] parameter(0)
  ROOT d = f32[3] call(p), to_apply=g
}
"""


USED = CLASH.replace(
    "  ROOT n = f32[3] negate(x)\n  d = f32[3] multiply(x, n)", "  d = f32[3] negate(x)\n  ROOT n = f32[3] add(x, d)"
)


@pytest.mark.parametrize("text", [CLASH, USED], ids=["nobody uses it", "the root uses it"])
def test_what_is_called_may_have_a_value_of_the_calls_name(text):
    """Only its root takes that name."""
    values = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(run_ours(text, [values])[0], run_xla(text, [values])[0])


def test_what_is_long_stays_a_call():
    """It is a chain of its own; a computation in which nothing is opened is the one that it was."""
    lines = "".join(f"  n{i} = f32[3] negate({f'n{i - 1}' if i else 'x'})\n" for i in range(calls._MOST_OPENED))
    text = CLASH.replace("  ROOT n = f32[3] negate(x)\n  d = f32[3] multiply(x, n)\n", lines)
    module = parse(text)
    assert calls.with_calls_opened(module, module.entry) is module.entry
    shorter = parse(text.replace(f"  n{calls._MOST_OPENED - 1} = f32[3] negate(n{calls._MOST_OPENED - 2})\n", ""))
    assert "call" not in calls.with_calls_opened(shorter, shorter.entry).opcodes


def test_what_has_been_opened_goes_with_its_module():
    """A process may compute thousands of them."""
    module = parse(TWICE)
    calls.with_calls_opened(module, module.entry)
    before = len(calls._OPENED)
    del module
    gc.collect()
    assert len(calls._OPENED) < before


def test_wide_constants_and_calls_go_together():
    """In IEEE arithmetic constants of bf16 are two instructions in a scheduled module, of one place."""
    text = """HloModule m, is_scheduled=true
g { x = s32[4] parameter(0) ROOT r = s32[4] add(x, x) }
ENTRY e { n = s32[4] constant({1, 2, 3, 4}) k = bf16[] constant(1.5) c = s32[4] call(n), to_apply=g
  ROOT t = (s32[4], bf16[]) tuple(c, k) }
"""
    found = run_ours(text, [], "exact")
    assert [part.tolist() for part in found] == [[2, 4, 6, 8], 1.5]
    wide = widen_module(parse(text)).entry
    assert [text[place : place + 1] for place in wide.offsets] == ["n", "k", "k", "c", "t"]


def test_an_error_inside_of_what_is_opened_has_its_place():
    """And not that of the call."""
    body = "  k = f32[3] constant({...})\n  ROOT n = f32[3] add(x, k)\n"
    text = CLASH.replace("  ROOT n = f32[3] negate(x)\n  d = f32[3] multiply(x, n)\n", body)
    with pytest.raises(TpusimError) as caught:
        run_ours(text, [np.zeros(3, np.float32)])
    assert caught.value.span.line == 4


def test_an_error_beside_an_opened_call_has_its_place():
    """Instructions and places in the text are still one to one."""
    text = TWICE.replace("multiply(second, sum)", 'custom-call(second), custom_call_target="nobody"')
    with pytest.raises(TpusimError) as caught:
        run_ours(text, [np.zeros((4, 300), BFLOAT16)])
    assert "last" in str(caught.value)
    assert (
        caught.value.span.line == text.splitlines().index(next(one for one in text.splitlines() if "nobody" in one)) + 1
    )
