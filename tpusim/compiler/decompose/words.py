"""Integers of 64 bits as their two words, where they count elements and only words of them are used.

Random numbers do so: JAX counts in 64 bits, and mixes each half with a key.

Source: programs compiled ahead of time for v5e, of random bits in one to four dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.decompose.rules import decomposes
from tpusim.compiler.simplify.rules import splat_text
from tpusim.draft import Node
from tpusim.ir.module import Literal
from tpusim.semantics.scalars import literal_number
from tpusim.shapes.dtype import DTYPES

_BITS = 32
_MOST = 64
"""The most operations of 64 bits that are followed, so that no word of a long chain takes more."""


class Words(NamedTuple):
    """The words of an array, both ``u32``; None for an upper one that is 0 everywhere."""

    low: Node
    high: Node | None


class _Known:
    """What is known of the words of a graph's integers, and how many more of them may be looked at."""

    def __init__(self, build: Build) -> None:
        self.build = build
        self.words: dict[Node, Words | None] = {}
        self.left = _MOST

    def of(self, node: Node) -> Words | None:
        """Return the words of integers of 64 bits; None if they are not known."""
        if node not in self.words:
            self.words[node] = None
            self.left -= 1
            split = _SPLIT.get(node.opcode)
            if split and self.left >= 0 and node.array.dtype.is_integer:
                self.words[node] = split(self, node)
        return self.words[node]


@decomposes("convert")
def word(build: Build, node: Node) -> Node | None:
    """The lower word of what is counted in 64 bits, which may have been the upper one."""
    (operand,) = node.operands
    dtype = node.array.dtype
    if operand.array.dtype.bits <= _BITS or not dtype.is_integer or dtype.bits > _BITS or not operand.array.rank:
        return None
    found = _Known(build).of(operand)
    return build.convert(found.low, dtype.name) if found else None


def _iota(known: _Known, node: Node) -> Words | None:
    along = node.attributes["iota_dimension"]
    if node.array.dimensions[along] >= 1 << _BITS:
        return None
    return Words(known.build.iota("u32", node.array.dimensions, along), None)


def _broadcast(known: _Known, node: Node) -> Words | None:
    sizes, places = node.array.dimensions, node.attributes.get("dimensions", ())
    if (number := literal_number(Literal(splat_text(node)))) is not None:
        return _number(known.build, int(number), node)
    inner = known.of(node.operands[0])
    if inner is None:
        return None
    low, high = inner
    if low.opcode == "iota":
        made = known.build.iota("u32", sizes, places[low.attributes["iota_dimension"]])
        return Words(made, None)
    build = known.build
    return Words(build.broadcast(low, sizes, places), high and build.broadcast(high, sizes, places))


def _number(build: Build, number: int, like: Node) -> Words:
    """Return the words of an array that has one number everywhere."""
    low, high = (
        build.broadcast(build.constant(part, DTYPES["u32"]), like.array.dimensions, ())
        for part in (number % (1 << _BITS), number >> _BITS & ((1 << _BITS) - 1))
    )
    return Words(low, high if number >> _BITS else None)


def _add(known: _Known, node: Node) -> Words | None:
    one, other = (known.of(operand) for operand in node.operands)
    if one is None or other is None:
        return None
    build = known.build
    low = _each(build, "add", one.low, other.low)
    is_carried = build.compare("LT", low, one.low)
    high = _sum(build, [part for part in (one.high, other.high) if part])
    if high is None:
        return Words(low, build.apply("select", is_carried, build.splat(1, low), build.splat(0, low)))
    return Words(low, build.apply("select", is_carried, _each(build, "add", high, build.splat(1, low)), high))


def _multiply(known: _Known, node: Node) -> Words | None:
    one, other = (known.of(operand) for operand in node.operands)
    if one is None or other is None:
        return None
    build = known.build
    across = [(one.high, other.low), (other.high, one.low)]
    highs = [_each(build, "mulhi", one.low, other.low)]
    highs += [_each(build, "multiply", high, low) for high, low in across if high]
    return Words(_each(build, "multiply", one.low, other.low), _sum(build, highs))


def _sum(build: Build, parts: list[Node]) -> Node | None:
    """Return the sum of arrays; None of none."""
    total = parts[0] if parts else None
    for part in parts[1:]:
        total = _each(build, "add", total, part) if total else part
    return total


def _shifted(known: _Known, node: Node) -> Words | None:
    """By a word and more bits nothing of the lower one is left."""
    found, bits = known.of(node.operands[0]), literal_number(Literal(splat_text(node.operands[1])))
    if found is None or bits is None or not _BITS <= bits < 2 * _BITS:
        return None
    build = known.build
    if found.high is None:
        return Words(build.splat(0, found.low), None)
    by = build.splat(bits - _BITS, found.high)
    return Words(_each(build, "shift-right-logical", found.high, by) if bits > _BITS else found.high, None)


def _converted(known: _Known, node: Node) -> Words | None:
    """Of 64 bits nothing changes, and an unsigned number has no more than it had."""
    (operand,) = node.operands
    if operand.array.dtype.bits > _BITS:
        return known.of(operand)
    is_unsigned = operand.array.dtype.name.startswith("u")
    return Words(known.build.convert(operand, "u32"), None) if is_unsigned else None


_SPLIT: dict[str, Callable[[_Known, Node], Words | None]] = {
    "add": _add,
    "broadcast": _broadcast,
    "convert": _converted,
    "iota": _iota,
    "multiply": _multiply,
    "shift-right-logical": _shifted,
}
"""How words are had, by opcode."""


def _each(build: Build, opcode: str, one: Node, other: Node) -> Node:
    """Return an operation on elements, on fewer of them where those of both repeat the same way."""
    (first, places), (second, its) = _repeated(build, one), _repeated(build, other)
    kept = places or its
    is_smaller = first.array.rank + second.array.rank and places in (kept, ()) and its in (kept, ())
    if not is_smaller or len(kept) == one.array.rank:
        return build.apply(opcode, one, other)
    sizes = [one.array.dimensions[d] for d in kept]
    small = [each if each.array.rank else build.broadcast(each, sizes, ()) for each in (first, second)]
    return build.broadcast(build.apply(opcode, *small), one.array.dimensions, kept)


def _repeated(build: Build, node: Node) -> tuple[Node, tuple[int, ...]]:
    """Return the array whose elements a node repeats, and which of the node's dimensions that one has."""
    if node.opcode == "broadcast":
        return node.operands[0], tuple(node.attributes["dimensions"])
    if node.opcode == "iota":
        along = node.attributes["iota_dimension"]
        return build.iota("u32", [node.array.dimensions[along]], 0), (along,)
    return node, tuple(range(node.array.rank))
