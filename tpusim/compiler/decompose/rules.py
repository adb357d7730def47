"""The table of rules, and what fills it.

A rule looks at one node and returns what to use instead, or None.
"""

from __future__ import annotations

from collections.abc import Callable

from tpusim.compiler.decompose.build import Build
from tpusim.draft import Node
from tpusim.semantics.infer.types import FLOAT_REACH
from tpusim.shapes.dtype import DType

Rule = Callable[[Build, Node], Node | None]

RULES: dict[str, list[Rule]] = {}
"""By opcode."""

FIRST_RULES: dict[str, list[Rule]] = {}
"""Those that see the program before anything of it is taken apart; what they make may be."""

TOLERANCES: dict[str, float] = {}
"""By opcode of what is taken apart: how far values may be from those of the whole, as a share of the largest of them.

That is in the arithmetic of IEEE, in f32 and wider types; what is not here keeps its values bit for bit.
"""


def tolerance(opcode: str, dtype: DType) -> float:
    """Return how far values of a type may be from those of the whole: in narrow types by some roundings of theirs."""
    roundings = 2.0 ** (2 - FLOAT_REACH[dtype.name][1]) if dtype.is_float else 0.0
    return max(TOLERANCES[opcode], roundings) if opcode in TOLERANCES else 0.0


ROUNDED_WHOLE: set[str] = set()
"""Opcodes whose whole the MXU rounds to bf16, and whose parts it does not, or others of them."""


def decomposes(
    opcode: str, tolerance: float = 0.0, *, is_rounded: bool = False, is_first: bool = False
) -> Callable[[Rule], Rule]:
    """Enter a rule for instructions of this opcode, whose values may then differ by so much.

    ``is_rounded`` ones differ by what the MXU rounds as well, where values are computed as it does.
    """

    def enter(rule: Rule) -> Rule:
        (FIRST_RULES if is_first else RULES).setdefault(opcode, []).append(rule)
        if tolerance:
            TOLERANCES[opcode] = max(tolerance, TOLERANCES.get(opcode, 0.0))
        if is_rounded:
            ROUNDED_WHOLE.add(opcode)
        return rule

    return enter
