"""Arithmetic on keys and numbers: parsed, checked against a list of what it may hold, and never run as Python."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from numbers import Real
from typing import Any
from warnings import catch_warnings, simplefilter

from tpusim.errors import ConfigError
from tpusim.hardware.fields import parse_value

Lookup = Callable[[str], Any]
"""From a dotted key to its value."""

_LONGEST = 1000
_PREFIXED = re.compile(r"(?<![\w.])\d[\d_.]*(?:[eE][-+]?\d+)?(?:[KMGTP]i|[kMGTP])\b")

_MOST_DIGITS = 400


class _Refused(Exception):
    """Why there is no value."""


def _round(value: Any, digits: float = 0) -> Any:
    """Return a number rounded to so many digits, before the point if they are below 0."""
    # Of more than any float has, Python would make a whole number first.
    if not abs(digits) <= _MOST_DIGITS or digits != int(digits):
        raise _Refused(f"expected to round to a whole number of digits, at most {_MOST_DIGITS}")
    return round(value, int(digits)) if digits else round(value)


def _power(base: float, exponent: float) -> float:
    """Return a power as a float, which overflows where whole numbers would fill the memory."""
    found: float | complex = float(base) ** float(exponent)
    if isinstance(found, complex):
        raise ValueError(found)
    return found


_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_UNARY: dict[type, Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{"min": lambda *values: min(values), "max": lambda *values: max(values), "abs": abs, "round": _round},
    **{"ceil": math.ceil, "floor": math.floor, "sqrt": math.sqrt, "log2": math.log2},
}
_MOST_VALUES: dict[str, float] = {"min": math.inf, "max": math.inf, "round": 2}
"""Where a function takes more than one."""

_REASONS: dict[type[Exception], str] = {
    ZeroDivisionError: "expected no division by 0",
    OverflowError: "expected numbers that a float holds",
    ValueError: "expected what comes to a real number",
    RecursionError: "expected fewer brackets in each other",
}


class Expression:
    """An expression such as ``776 / mxu.columns``, or a comparison such as ``area_mm2 <= 700``.

    ``text`` is what is written, ``names`` are the keys in it. Raises ConfigError for anything that is no arithmetic.
    """

    def __init__(self, text: str, where: str) -> None:
        self.text, self._where = text, where
        if len(text) > _LONGEST:
            raise self._error(f"expected at most {_LONGEST} characters, found {len(text)}")
        # Numbers with prefixes are no Python.
        plain = _PREFIXED.sub(lambda found: repr(parse_value(found[0])), text.strip())
        try:
            # Python only warns of a number that ends in a word (``1or 2``), and would do so in words of its own.
            with catch_warnings():
                simplefilter("error", SyntaxWarning)
                self._tree = ast.parse(plain, mode="eval").body
            self.names = frozenset(self._names(self._tree))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self._error("expected arithmetic on keys and numbers") from None

    @property
    def is_comparison(self) -> bool:
        """Whether it is one of ``<``, ``<=``, ``>``, ``>=``, ``==``, ``!=``, or a chain of them."""
        return isinstance(self._tree, ast.Compare)

    def value(self, lookup: Lookup) -> Any:
        """Return its value, a number or for a comparison a truth."""
        try:
            return self._value(self._tree, lookup)
        except _Refused as error:
            raise self._error(str(error)) from error
        except tuple(_REASONS) as error:
            raise self._error(next(text for kind, text in _REASONS.items() if isinstance(error, kind))) from error

    def _error(self, what: str) -> ConfigError:
        return ConfigError(f"{self._where}: {what}, found {self.text!r}")

    def _names(self, node: ast.AST) -> list[str]:
        """Return the keys below a node; raise ConfigError for a node that is none of those that are known."""
        if isinstance(node, ast.Name | ast.Attribute):
            return [self._key(node)]
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return []
        return [name for part in self._parts(node) for name in self._names(part)]

    def _parts(self, node: ast.AST) -> list[ast.expr]:
        """Return the operands of a node."""
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return [node.left, node.right]
        if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
            return [node.operand]
        if isinstance(node, ast.Compare) and node is self._tree and all(type(op) in _COMPARISONS for op in node.ops):
            return [node.left, *node.comparators]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            self._check_function(node.func.id, len(node.args))
            return node.args
        raise self._no_arithmetic()

    def _no_arithmetic(self) -> ConfigError:
        return self._error(f"expected arithmetic on keys and numbers (functions: {', '.join(_FUNCTIONS)})")

    def _check_function(self, function: str, count: int) -> None:
        """Refuse what is no function, or one of so many values."""
        if function not in _FUNCTIONS:
            raise self._no_arithmetic()
        most = _MOST_VALUES.get(function, 1)
        if not 1 <= count <= most:
            wanted = "one value" if most == 1 else "one value or two" if most == 2 else "one value or more"
            raise self._error(f"expected {wanted} for {function}")

    def _check_numbers(self, node: ast.AST, parts: list[Any]) -> None:
        """Refuse texts and lists, which can be compared for being the same, and no more."""
        if isinstance(node, ast.Compare) and all(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
            return
        for operand, value in zip(self._parts(node), parts, strict=True):
            if not isinstance(value, Real):
                raise _Refused(f"expected numbers, but {ast.unparse(operand)} is {value!r:.80}")

    def _key(self, node: ast.AST) -> str:
        if isinstance(node, ast.Attribute):
            return f"{self._key(node.value)}.{node.attr}"
        if isinstance(node, ast.Name):
            return node.id
        raise self._error("expected a key such as mxu.columns before a dot")

    def _value(self, node: ast.AST, lookup: Lookup) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name | ast.Attribute):
            return lookup(self._key(node))
        parts = [self._value(part, lookup) for part in self._parts(node)]
        self._check_numbers(node, parts)
        if isinstance(node, ast.Compare):
            pairs = zip(node.ops, parts, parts[1:], strict=False)
            return all(_COMPARISONS[type(op)](left, right) for op, left, right in pairs)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return _FUNCTIONS[node.func.id](*parts)
        assert isinstance(node, ast.BinOp | ast.UnaryOp)
        return _BINARY[type(node.op)](*parts) if isinstance(node, ast.BinOp) else _UNARY[type(node.op)](*parts)
