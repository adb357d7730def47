"""Which fusions of a module are alike: networks repeat their layers, and kernels that are alike are lowered once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from tpusim.ir.attributes import ComputationName
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.program.steps import Kernel

if TYPE_CHECKING:
    from tpusim.lowering.kernels.values import ValueCost


class Likeness:
    """Numbers the contents of a module's computations: those of one number differ in names and metadata alone.

    ``kernels`` are those that have been made, each under the key of its fusion and with that; ``values`` what values
    inside them take, under what they have in common: all on the chip of one lowering.
    """

    def __init__(self, module: Module) -> None:
        self.kernels: dict[Hashable, tuple[Instruction, Kernel]] = {}
        self.values: dict[Hashable, ValueCost] = {}
        self._module = module
        self._numbers: dict[str, int] = {}
        self._contents: dict[Hashable, int] = {}
        self._said: dict[int, int] = {}
        # All that ``_said`` has by identity, so that nothing else can take its address.
        self._kept: list[Mapping[str, Any]] = []
        self._texts: dict[int, str] = {}

    def key(self, computation: Computation, fusion: Instruction) -> Hashable:
        """Return what two fusions have in common if they are alike: all but their names and metadata."""
        by_name = computation.by_name
        operands = [by_name[name].shape for name in fusion.operands]
        return fusion.shape, _places(fusion.operands), *operands, self._stated(fusion.attributes)

    def of_value(self, computation: Computation, instruction: Instruction) -> Hashable:
        """Return what two instructions have in common that compute alike: all but their names and metadata."""
        said, by_name = instruction.attributes, computation.by_name
        number = self._said.get(id(said)) or self._stated(said)
        return instruction.opcode, instruction.shape, number, *[by_name[name].shape for name in instruction.operands]

    def _number(self, name: str) -> int:
        """Return the number of what a computation has in it."""
        if name not in self._numbers:
            computation, known = self._module[name], self._said
            place = dict(zip(computation.by_name, count())).__getitem__
            content: list[Hashable] = [place(computation.root_name)]
            for each in computation.instructions:
                # Instructions that state the same share one dict, so that what it says is gone through once.
                said = known.get(id(each.attributes)) or self._stated(each.attributes)
                content += each.opcode, each.shape, each.immediate, said, *map(place, each.operands)
            self._numbers[name] = self._numbered(content)
        return self._numbers[name]

    def _stated(self, attributes: Mapping[str, Any]) -> int:
        """Return the number of some attributes, without metadata and with computations by what is in them."""
        content: list[Hashable] = []
        for name, value in attributes.items():
            if isinstance(value, ComputationName):
                content += name, self._number(value)
            elif name != "metadata":
                content += name, value if isinstance(value, (str, int)) else self._text(value)
        self._kept.append(attributes)
        found = self._said[id(attributes)] = self._numbered(content)
        return found

    def _numbered(self, content: list[Hashable]) -> int:
        return self._contents.setdefault(tuple(content), len(self._contents) + 1)

    def _text(self, value: object) -> str:
        """Return the value of an attribute as text, in full; the parser keeps one object for equal ones."""
        if id(value) not in self._texts:
            self._texts[id(value)] = repr(value)
        return self._texts[id(value)]


def _places(names: tuple[str, ...]) -> tuple[int, ...]:
    """Return which of some names are the same: for each the place of the first that is."""
    first: dict[str, int] = {}
    return tuple([first.setdefault(name, place) for place, name in enumerate(names)])
