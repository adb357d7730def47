"""Which computations of a module are alike: networks repeat their layers, which are then looked at once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from tpusim.ir.attributes import ComputationName

if TYPE_CHECKING:
    from tpusim.ir.module import Computation, Instruction

_ORDER = "control-predecessors"

_LONG = 2**10


class Likeness:
    """Numbers the contents of computations: those of one number differ in names and metadata alone.

    ``numbers`` has them by the computations' names, of those that are given, callers after what they call. Any other is
    alike only itself. The computations need not hold together: those that do not are never alike those that do.
    """

    def __init__(self, computations: Iterable[Computation] = ()) -> None:
        self.numbers: dict[str, int] = {}
        self._contents: dict[Hashable, int] = {}
        # Never the same twice, also of threads that share a module.
        self._next_number = count(1).__next__
        self._said: dict[int, int] = {}
        # All that ``_said`` has by identity, so that nothing else can take its address.
        self._kept: list[Mapping[str, Any]] = []
        self._texts: dict[int, str | bytes] = {}
        for computation in computations:
            self.numbers[computation.name] = self._numbered(self._content(computation))

    def form(self, computation: Computation, instruction: Instruction) -> tuple[Hashable, ...]:
        """Return a key that is equal for instructions that mean the same: all but names, metadata and immediates."""
        attributes = instruction.attributes
        said = self._said.get(id(attributes)) or self._new(attributes)
        shapes = map(computation.shapes.__getitem__, instruction.operands)
        return instruction.opcode, instruction.shape, said, *shapes

    def _content(self, computation: Computation) -> list[Hashable]:
        """Return all of a computation but names and metadata, one column after the other."""
        instructions, said = computation.instructions, self._said
        place = dict(zip(computation.by_name, count())).get
        # Instructions that state the same share one dict, so that what it says is gone through once.
        stated = [said.get(id(i.attributes)) or self._new(i.attributes) for i in instructions]
        # The same name may stand elsewhere.
        after = [tuple(map(place, i.attributes[_ORDER])) for i in instructions if _ORDER in i.attributes]
        operands = [i.operands for i in instructions]
        return [
            computation.execution_thread,
            len(instructions),
            len(computation.by_name),
            place(computation.root_name),
            *[i.opcode for i in instructions],
            *[i.shape for i in instructions],
            *[i.immediate for i in instructions],
            *stated,
            *map(len, operands),
            *map(place, chain.from_iterable(operands)),
            *after,
        ]

    def _new(self, attributes: Mapping[str, Any]) -> int:
        """Return the number of some attributes, without metadata and with computations by what is in them."""
        content: list[Hashable] = []
        for name, value in attributes.items():
            if isinstance(value, ComputationName):
                content += name, self.numbers.get(value, value)
            elif name != "metadata":
                content += name, value if isinstance(value, (str, int)) else self._text(value)
        self._kept.append(attributes)
        found = self._said[id(attributes)] = self._numbered(content)
        return found

    def _numbered(self, content: list[Hashable]) -> int:
        return self._contents.setdefault(tuple(content), self._next_number())

    def _text(self, value: object) -> str | bytes:
        """Return the value of an attribute as text, in full; the parser keeps one object for equal ones.

        A digest stands for a long text: the groups of a large slice would be a hundred kilobytes for each collective.
        """
        if id(value) not in self._texts:
            text = repr(value)
            self._texts[id(value)] = text if len(text) < _LONG else _digest(text)
        return self._texts[id(value)]


def _digest(text: str) -> bytes:
    # Few programs say that much in one attribute, and OpenSSL takes longer to load than all of this room.
    from hashlib import sha256

    return sha256(text.encode()).digest()
