"""The budgets of CONTRIBUTING.md, measured on the package and on the tests."""

from __future__ import annotations

from functools import cache

import pytest

from tests.house.exceptions import EXCEPTIONS
from tests.house.rules import RULES, TEST_RULES, Breach, find_breaches
from tests.house.source_tree import Definition, read_files

PACKAGE = read_files("tpusim")
TESTS = read_files("tests")


@pytest.mark.parametrize("rule_name", [*RULES, *TEST_RULES])
def test_the_rule_is_kept(rule_name: str) -> None:
    """No breach but those that the list of exceptions excuses with a reason."""
    breaches = [breach for breach in _breaches(rule_name) if not _excuses(rule_name, breach)]
    if breaches:
        pytest.fail("\n".join([f"{rule_name}; but:", *map(str, breaches)]), pytrace=False)


def test_every_exception_is_still_needed() -> None:
    """An exception names a rule, excuses at least one breach of it, and gives a reason."""
    assert not [entry for entry in EXCEPTIONS if not entry[2]]
    # Each rule is asked once, however many exceptions it has.
    broken = {rule: [_places(breach) for breach in _breaches(rule)] for rule in {name for name, _, _ in EXCEPTIONS}}
    idle = [(name, place) for name, place, _ in EXCEPTIONS if not any(place in places for places in broken[name])]
    assert not idle, f"these keep the rule: remove their entries from exceptions.py: {idle}"


def test_nine_in_ten_functions_have_at_most_25_code_lines() -> None:
    """The share of longer functions, docstrings left out; the failure names where a cut would help."""
    functions = _functions()
    long = [function for function in functions if function.code_lines > 25]
    share = len(long) / len(functions)
    assert share <= 0.1, f"{share:.1%} of {len(functions)} functions have more\n{_longest(long)}"


def _functions() -> list[Definition]:
    return [function for file in PACKAGE for function in file.functions]


def _longest(functions: list[Definition]) -> str:
    ordered = sorted(functions, key=lambda function: -function.code_lines)
    return "\n".join(f"{f.file.path}:{f.node.lineno}  {f.name}  {f.code_lines} code lines" for f in ordered[:40])


@cache
def _breaches(rule_name: str) -> list[Breach]:
    return find_breaches(rule_name, PACKAGE if rule_name in RULES else TESTS)


def _excuses(rule_name: str, breach: Breach) -> bool:
    return any(rule_name == name and place in _places(breach) for name, place, _ in EXCEPTIONS)


def _places(breach: Breach) -> tuple[str, str]:
    return breach.path, f"{breach.path}::{breach.name}"
