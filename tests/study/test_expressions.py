"""Expressions: arithmetic on keys and numbers, and nothing else that Python would run."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpusim.errors import ConfigError
from tpusim.study.expressions import Expression

VALUES = {"mxu.columns": 256, "mxu.count": 2, "area_mm2": 650.0, "hbm.model": "banked", "aliases": ("v5lite",)}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("776 / mxu.columns", 776 / 256),
        ("2 * (mxu.count + 1) - 3 // 2", 5),
        ("-mxu.count ** 2", -4.0),
        ("min(mxu.count, 16Mi / 8Mi, 3)", 2),
        ("1.5G", 1.5e9),
        ("sqrt(mxu.columns) % 10", 6.0),
        ("area_mm2 <= 700", True),
        ("1 < mxu.count < 2", False),
        ("hbm.model == hbm.model", True),
        ("max(mxu.count)", 2),
        ("round(2.567, mxu.count)", 2.57),
    ],
)
def test_arithmetic_has_its_value(text, value):
    """Keys are looked up, and numbers may have prefixes."""
    assert Expression(text, "here").value(VALUES.__getitem__) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "mxu.columns.bit_length()",
        "[1][0]",
        "'a' * 9",
        "lambda: 1",
        "mxu.count if 1 else 2",
        "(1 < 2) + 1",
        "min(*[1])",
        "min()",
        "sqrt(1, 2)",
        "round(1, 2, 3)",
        "print(1)",
        "max(1, key=2)",
        "1 and 2",
        "f'{1}'",
        "True",
        "1 +",
        "1or 2",
        "",
        "(" * 500 + ")" * 500,
        "1+" * 600 + "1",
        "-" * 990 + "1",
    ],
)
def test_anything_else_is_refused(text):
    """Before anything of it has a value."""
    with pytest.raises(ConfigError, match="here: expected"):
        Expression(text, "here")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "no division by 0"),
        ("0 ** -1", "no division by 0"),
        ("mxu.count % 0", "no division by 0"),
        ("9 ** 9 ** 9 ** 9", "numbers that a float holds"),
        ("ceil(1e400)", "numbers that a float holds"),
        ("sqrt(0 - 1)", "what comes to a real number"),
        ("(0 - 8) ** 0.5", "what comes to a real number"),
        ("round(7, -99999999)", "a whole number of digits, at most 400"),
        ("round(7, 1.5)", "a whole number of digits, at most 400"),
        ("hbm.model <= 3", "numbers, but hbm.model is 'banked'"),
        ("3 * hbm.model", "numbers, but hbm.model is 'banked'"),
        ("min(aliases, 3)", "numbers, but aliases is ('v5lite',)"),
    ],
)
def test_arithmetic_without_a_value_is_refused(text, said):
    """With the reason, in words that are not Python's."""
    with pytest.raises(ConfigError) as refused:
        Expression(text, "here").value(VALUES.__getitem__)
    assert re.fullmatch(rf"here: expected .*{re.escape(said)}, found {re.escape(repr(text))}", str(refused.value))


NUMBERS = st.integers(0, 10**6) | st.floats(0, 1e12, allow_nan=False)


@given(st.recursive(NUMBERS.map(repr), lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
    lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"), max_leaves=10))  # fmt: skip
def test_numbers_come_to_what_python_says(text):
    """Python is the oracle here, on texts that hold nothing but numbers."""
    assert Expression(text, "here").value({}.__getitem__) == eval(text)
