"""Which kernels of a module are alike: those are lowered once, and so is what they have inside."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from tpusim.ir.likeness import Likeness
from tpusim.ir.module import Computation, Instruction
from tpusim.program.steps import Kernel

if TYPE_CHECKING:
    from tpusim.lowering.kernels.values import ValueCost


class Known:
    """What has been lowered of a module for one chip.

    ``kernels`` are those that have been made, each under the key of its fusion and with that; ``values`` what values
    inside them take, under what they have in common; ``form`` is ``Likeness.form``.
    """

    def __init__(self, likeness: Likeness) -> None:
        self.kernels: dict[Hashable, tuple[Instruction, Kernel]] = {}
        self.values: dict[Hashable, ValueCost] = {}
        self.form = likeness.form

    def key(self, computation: Computation, fusion: Instruction) -> Hashable:
        """Return what two fusions have in common if they are alike: all but their names and metadata."""
        return _places(fusion.operands), self.form(computation, fusion)


def _places(names: tuple[str, ...]) -> tuple[int, ...]:
    """Return which of some names are the same: for each the place of the first that is."""
    first: dict[str, int] = {}
    return tuple([first.setdefault(name, place) for place, name in enumerate(names)])
