"""The table of rules, and what fills it.

A rule looks at one node and returns what to use instead, or None. All of them keep values bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable

from tpusim.draft import Graph, Node

Rule = Callable[[Graph, Node], Node | None]

RULES: dict[str, list[Rule]] = {}
"""By opcode."""


def simplifies(*opcodes: str) -> Callable[[Rule], Rule]:
    """Enter a rule for instructions of these opcodes."""

    def enter(rule: Rule) -> Rule:
        for opcode in opcodes:
            RULES.setdefault(opcode, []).append(rule)
        return rule

    return enter
