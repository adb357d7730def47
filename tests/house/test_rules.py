"""The house rules catch what they are for, and let the look-alike pass."""

from __future__ import annotations

import pytest

from tests.house.rules import RULES, TEST_RULES
from tests.house.source_tree import SourceFile

LENGTH, NESTING, ARGUMENTS, FILE, DOCSTRING, REPEATS, PRINT, LOCAL, CLOCK, OPCODES = RULES
(TESTS,) = TEST_RULES

DEEP = "def f(x):\n    if x:\n        for y in x:\n            while y:\n                with y:\n"

CAUGHT = [
    (LENGTH, "def f():\n" + "    x = 1\n" * 60, "61 code lines"),
    (NESTING, DEEP + " " * 20 + "if y: pass", "nests 5 deep"),
    (ARGUMENTS, "def f(self, a, b, c, d, e, f, g=0): pass", "7 positional arguments"),
    (FILE, "\n" * 601, "601 lines"),
    (DOCSTRING, "x = 1", "module without docstring"),
    (DOCSTRING, "'''M.'''\ndef f(): pass", "no docstring"),
    (DOCSTRING, "'''M.'''\nclass _C: pass", "no docstring"),
    (REPEATS, "def add_bytes():\n    '''Add the bytes.'''", "docstring only repeats the name: 'Add the bytes.'"),
    (PRINT, "print(1)", "print(...)"),
    (LOCAL, "def f():\n    from tpusim.text import parser", "from tpusim.text import parser"),
    (CLOCK, "def now_ps() -> float: pass", "float"),
    (CLOCK, "class C:\n    end_ps: int | float", "int | float"),
    (OPCODES, "A = frozenset({'while', 'fusion'})", "fusion while"),
    (OPCODES, "A = 'scatter gather'.split()", "gather scatter"),
    (OPCODES, "def f(x): return x == 'send' or x == 'recv'", "recv send"),
    (TESTS, "def test_a(): pass", "no docstring"),
    (TESTS, "def test_a():\n    '''A.'''\n" + "    x = 1\n" * 20, "21 code lines"),
]

PASSING = [
    (LENGTH, "def f():\n    '''" + "A.\n" * 80 + "'''"),
    (NESTING, "def f(x):\n    if x: pass\n" + "    elif x: pass\n" * 6),
    (ARGUMENTS, "def f(a, b, c, d, e, f, *, g, h): pass"),
    (ARGUMENTS, "@njit(cache=True)\ndef f(a, b, c, d, e, f, g, h, i, j): pass"),
    (DOCSTRING, "'''M.'''\ndef _f():\n    def g(): pass"),
    (REPEATS, "def add_bytes():\n    '''Add the padded bytes.'''"),
    (REPEATS, "def show_pair():\n    '''Return ``{(0, 1)}``.'''"),
    (LOCAL, "import tpusim\ndef f():\n    import numpy"),
    (OPCODES, "@rule('while', *'add fusion'.split())\ndef f(x): return x == 'while'"),
    (OPCODES, "A = {'while': 1, 'fusion': 2}; B = 'gather and scatter'; C = ('add', 'remove')"),
    (OPCODES, "TABLE = {**dict.fromkeys(('while', 'fusion'), len)}"),
    (CLOCK, "def seconds_to_ps(seconds: float) -> int: pass"),
]


@pytest.mark.parametrize(("rule_name", "text", "found"), CAUGHT, ids=[found for *_, found in CAUGHT])
def test_a_breach_is_caught(rule_name: str, text: str, found: str) -> None:
    """Each rule finds exactly one breach in a text that breaks it once, and says what it found."""
    breaches = list((RULES | TEST_RULES)[rule_name](SourceFile("a.py", text)))
    assert [breach.found for breach in breaches] == [found]


@pytest.mark.parametrize(("rule_name", "text"), PASSING, ids=[name for name, _ in PASSING])
def test_a_look_alike_passes(rule_name: str, text: str) -> None:
    """What only resembles a breach is none."""
    assert not list(RULES[rule_name](SourceFile("a.py", text)))


def test_a_breach_prints_its_place_first() -> None:
    """``file:line`` opens the line, so that a terminal or editor can jump there."""
    (breach,) = RULES[PRINT](SourceFile("tpusim/a.py", "\nprint(1)"))
    assert str(breach).startswith("tpusim/a.py:2 ")
