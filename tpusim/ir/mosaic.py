"""A Pallas kernel from the inside: its grid, its blocks, and the operations of its body, as Mosaic is handed them.

In HLO such a kernel is a custom call whose ``backend_config`` carries the whole of it, encoded (``custom_call_config``,
``body``). This is what the encoding says, and no more: names and attributes are those of MLIR's dialects, without the
``stable_mosaic.`` before each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Literal, TypeVar

import msgspec

from tpusim.errors import UnsupportedError


class Type(msgspec.Struct, frozen=True, gc=False):
    """The type of a value: ``element`` as MLIR writes it (``bf16``, ``i32``, ``index``, ``!tpu.dma_semaphore``).

    ``space`` is where a memory reference points (``vmem``, ``smem``, ``any``, ``semaphore_mem``), empty for others.
    """

    kind: Literal["scalar", "vector", "memref"]
    element: str
    dimensions: tuple[int, ...] = ()
    space: str = ""

    @property
    def element_bits(self) -> int:
        """The bits of an element; 0 for what is no number, such as a semaphore."""
        digits = self.element.lstrip("bfiu").partition("E")[0] if self.element[:1] in "bfiu" else ""
        return 32 if self.element == "index" else int(digits) if digits.isdecimal() else 0


class Operation(msgspec.Struct, frozen=True):
    """One operation; ``operands`` and ``results`` are numbers of values, ``regions`` have one block each.

    Attributes are plain: numbers, texts, and tuples of them; ``None`` for constants that are not all one value but too
    large to keep. What has no plain form stays as MLIR writes it (``#tpu.contract_precision<fp32>``). ``source`` is
    the ``file:line`` of the user's code that it was made from, empty where the body does not say.
    """

    name: str
    operands: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    attributes: dict[str, Any] = {}
    regions: tuple[Block, ...] = ()
    source: str = ""


class Block(msgspec.Struct, frozen=True):
    """Operations in their order; ``arguments`` are numbers of values."""

    arguments: tuple[int, ...]
    operations: tuple[Operation, ...]

    def walk(self) -> Iterator[Operation]:
        """Return the operations of the block, those of regions after the one that they belong to."""
        for operation in self.operations:
            yield operation
            for region in operation.regions:
                yield from region.walk()


class Function(msgspec.Struct, frozen=True):
    """A function: ``types`` are those of its values, by number."""

    name: str
    block: Block
    types: tuple[Type, ...]

    def argument_type(self, position: int) -> Type:
        """Return the type of the argument at a position: indices of the grid first, scratch last."""
        return self.types[self.block.arguments[position]]


class Window(msgspec.Struct, frozen=True):
    """How an operand or result is cut into blocks of ``bounds`` elements.

    ``transform`` names the function that takes the indices of a grid step, and the scalar-prefetch operands, to the
    block's; empty where there is one block or the kernel moves it itself. ``kind`` and ``pipeline_mode`` are MLIR's
    words (``#tpu.element_window<...>``, ``#tpu.pipeline_mode<synchronous>``), empty for blocks and two buffers.
    """

    transform: str = ""
    bounds: tuple[int, ...] = ()
    kind: str = ""
    pipeline_mode: str = ""


DYNAMIC = -(1 << 63)
"""A bound of the grid, or an extent, that is known only when the program runs."""


class KernelBody(msgspec.Struct, frozen=True):
    """A whole kernel.

    The arguments of ``main`` are the indices of the ``grid``, ``prefetched`` scalar-prefetch operands, one reference
    per window (operands, then results), and ``scratch`` references of its own. ``semantics`` are those of the grid's
    dimensions (``parallel``, ``arbitrary``, ``core_parallel``), ``functions`` the windows' transforms by name.
    """

    version: int
    grid: tuple[int, ...]
    semantics: tuple[str, ...]
    prefetched: int
    windows: tuple[Window, ...]
    scratch: int
    main: Function
    functions: dict[str, Function] = {}

    @property
    def first_window(self) -> int:
        """The number of the argument that the first window belongs to."""
        return len(self.main.block.arguments) - self.scratch - len(self.windows)


class Unreadable(UnsupportedError):
    """A body that nothing here can read; the message says why in a few words."""


_Reader = TypeVar("_Reader", bound=Callable[[str], KernelBody])
_READERS: list[Callable[[str], KernelBody]] = []


def reads_bodies(reader: _Reader) -> _Reader:
    """Enter the function that decodes bodies: that is the room ``text``'s, which this one does not know."""
    _READERS[:] = [reader]
    return reader


# The same kernel stands in a program for every layer that is not in a loop.
@lru_cache(maxsize=256)
def read_body(encoded: str) -> KernelBody:
    """Return the kernel that the text of a ``body`` encodes; raise ``Unreadable`` if it cannot be read here."""
    if not _READERS:
        raise Unreadable("nothing here reads bodies: import tpusim.text")
    return _READERS[0](encoded)
