"""Fourier transforms.

Source: programs compiled ahead of time. There a transform is a product with the matrix of its roots of unity, or
several of them with a multiplication between (Cooley and Tukey), and every product of complex numbers is three of real
ones (Gauss). One whose matrix would be large stays whole.
"""

from __future__ import annotations

from math import pi, prod
from typing import NamedTuple

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.decompose.complex_numbers import Pair, parts_of
from tpusim.compiler.decompose.rules import decomposes
from tpusim.draft import Node
from tpusim.semantics.products import MOST_ROOTS, transform_lengths, transform_parts


@decomposes("fft", tolerance=1e-5)
def fourier(build: Build, node: Node) -> Node | None:
    """Transform one dimension after the other; a half of a spectrum is made whole before, or cut off after."""
    (operand,) = node.operands
    kind, lengths = node.attributes["fft_type"], transform_lengths(node.attributes, operand.array)
    if {operand.array.dtype.name, node.array.dtype.name} - {"c64", "f32"} or not node.array.element_count:
        return None
    if any(part > MOST_ROOTS for length in lengths for part in transform_parts(length)):
        return None
    sign = 1 if kind in ("IFFT", "IRFFT") else -1
    pair = parts_of(build, operand)
    last = node.array.rank - 1
    first = node.array.rank - len(lengths)
    if kind == "RFFT":
        pair = _transformed(build, pair, last, sign)
        pair = Pair(*(build.slice(part, last, 0, node.array.dimensions[last]) for part in pair))
    inner = range(first, node.array.rank) if kind in ("FFT", "IFFT") else range(first, last)
    for along in reversed(inner):
        pair = _transformed(build, pair, along, sign)
    if kind == "IRFFT":
        pair = _transformed(build, _whole_spectrum(build, pair, lengths[-1]), last, sign)
    if sign > 0:
        pair = Pair(*(build.apply("multiply", part, build.splat(1 / prod(lengths), part)) for part in pair))
    return pair.real if kind == "IRFFT" else build.complex(*pair)


def _whole_spectrum(build: Build, half: Pair, length: int) -> Pair:
    """Return all of a spectrum of real numbers: behind the first half its conjugate, turned round."""
    last = half.real.array.rank - 1
    kept = length // 2 + 1
    parts = []
    for part in half:
        given = build.slice(part, last, 0, kept)
        turned = build.reverse(build.slice(given, last, 1, (length + 1) // 2), last)
        parts.append((given, build.apply("negate", turned) if part is half.imaginary else turned))
    return Pair(*(build.concatenate(two, last) if length > kept else two[0] for two in parts))


def _transformed(build: Build, pair: Pair, along: int, sign: int) -> Pair:
    """Return the transform of one dimension."""
    last = pair.real.array.rank - 1
    pair = Pair(*(build.swapped(part, along, last) for part in pair))
    pair = _by_parts(build, pair, transform_parts(pair.real.array.dimensions[last]), sign)
    return Pair(*(build.swapped(part, along, last) for part in pair))


def _by_parts(build: Build, pair: Pair, parts: tuple[int, ...], sign: int) -> Pair:
    """Return the transform of the last dimension, made of transforms of these lengths."""
    *outer, length = pair.real.array.dimensions
    last = len(outer)
    size, *others = parts
    if not others:
        return _product(build, pair, last, sign)
    # Element i of the first, and j of the rest, is element i * rest + j: the first goes down the columns.
    pair = Pair(*(build.reshape(part, *outer, size, length // size) for part in pair))
    pair = _twiddled(build, _product(build, pair, last, sign), sign)
    if len(others) > 1:
        # A product takes whichever dimension; what is split again has to be the last.
        pair = Pair(*(build.swapped(part, last, last + 1) for part in pair))
        pair = _by_parts(build, pair, tuple(others), sign)
    else:
        pair = _product(build, pair, last, sign)
    return Pair(*(build.reshape(build.swapped(part, last, last + 1), *outer, length) for part in pair))


class _Roots(NamedTuple):
    """Roots of unity by row and column."""

    cosine: Node
    sine: Node


def _roots(build: Build, rows: int, columns: int, period: int, sign: int) -> _Roots:
    """Return the roots of unity of this period to the power of row times column."""
    row, column = (build.iota("u32", (rows, columns), along) for along in (0, 1))
    power = build.apply("multiply", row, column)
    if rows * columns > period:
        power = build.apply("remainder", power, build.splat(period, power))
    turns = build.convert(power, "f32")
    angle = build.apply("multiply", turns, build.splat(sign * 2 * pi / period, turns))
    return _Roots(build.apply("cosine", angle), build.apply("sine", angle))


def _product(build: Build, pair: Pair, along: int, sign: int) -> Pair:
    """Return the transform of a dimension by one matrix; what it makes becomes the last dimension."""
    length = pair.real.array.dimensions[along]
    cosine, sine = _roots(build, length, length, length, sign)

    def by(part: Node, matrix: Node) -> Node:
        return build.dot(part, matrix, (along, 0), precision="highest")

    both = by(build.apply("add", *pair), cosine)
    real = build.apply("subtract", both, by(pair.imaginary, build.apply("add", cosine, sine)))
    return Pair(real, build.apply("add", both, by(pair.real, build.apply("subtract", sine, cosine))))


def _twiddled(build: Build, pair: Pair, sign: int) -> Pair:
    """Return what the first of two transforms makes, each turned by its row times its column."""
    rows, columns = pair.real.array.dimensions[-2:]
    rank = pair.real.array.rank
    roots = _roots(build, rows, columns, rows * columns, sign)
    cosine, sine = (build.broadcast(part, pair.real.array.dimensions, (rank - 2, rank - 1)) for part in roots)
    return pair.times(build, Pair(cosine, sine))
