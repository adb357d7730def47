"""What a product is: every dot and convolution brought to batch, rows, columns and depth (B, M, N, K), once for all.

Which arrays carry a dimension decides its kind: all three a batch, left side and result rows, right side and result
columns, the two sides alone depth. The TPU compiler writes dots as convolutions, whose spatial dimensions can be of any
of these kinds; what is left are windows, in which several kernel positions meet one output position and the other way
round. Operand roles stand here too, by opcode.

A Fourier transform is products as well: which ones follows from its length.

Source: XLA, Operation Semantics, DotGeneral, RaggedDot and ConvWithGeneralPadding; for transforms programs compiled
ahead of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final, NamedTuple

import msgspec

from tpusim.ir.attributes import ConvolutionLabels, Window, WindowDimension
from tpusim.ir.module import Instruction
from tpusim.semantics.marks import ASKED_FLOPS, mark_of
from tpusim.semantics.precision import pass_count
from tpusim.semantics.windows import how_paired, meeting_pairs
from tpusim.shapes.shape import ArrayShape

BATCH, ROWS, COLUMNS, DEPTH, WINDOW = "batch", "rows", "columns", "depth", "window"
"""The kinds of dimensions of a product."""


MOST_ROOTS: Final = 1024
"""A transform by a larger matrix of roots of unity stays one instruction, which costs what its products would.

The compiler for TPUs makes no array of the matrix: each tile of it comes about beside the product. To compute values
would take the array, and the square of the length where n log n will do: three of this size and what they are made of
are some 40 MB.
"""

_MOST_IN_ONE: Final = 256
"""A transform of so many elements is one product; longer ones are split if they can be, 65,536 into two of these."""

_LEAST_PART: Final = 32
_MOST_PART: Final = 128
"""The first of the parts is as long as the largest power of two in the length, up to the second of these, if it is at
least the first: 480 is 32 times 15, but 1,000, which is 8 times 125, is one product. What is left is split again:
40,960 is 128 times 64 times 5.
"""


INNER = "inner depth"
"""Of a dot's dimensions that both sides sum over, all but the last: for an array they are depth like that."""


class Roles(NamedTuple):
    """At which position an opcode has its two sides, and what belongs to them; -1 for what it has not."""

    lhs: int = 0
    rhs: int = 1
    lhs_scale: int = -1
    rhs_scale: int = -1
    group_sizes: int = -1


PRODUCT_ROLES: Final = {
    "convolution": Roles(),
    "dot": Roles(),
    "ragged-dot": Roles(group_sizes=2),
    "scaled-dot": Roles(lhs_scale=2, rhs_scale=3),
}
"""The opcodes that multiply two sides, with the roles of their operands."""


class Product(msgspec.Struct, frozen=True, gc=False):
    """The canonical form: ``batch * groups`` products of ``rows`` by ``depth`` with ``depth`` by ``columns``.

    With windows each row is the sum over ``reach`` kernel positions, each with ``depth`` features of its own, and
    belongs to one of ``phases`` kernels: those of the holes of a dilated input, or of the groups of a ragged dot.
    ``kinds`` are those of a convolution's spatial dimensions. ``operand_type`` is the one of more bits, at
    whose rate the unit works. ``flops`` are two per multiply-add that the program asks for, padding and holes left out;
    ``padded_flops`` are done beyond these, where the compiler has stored padding with the images that it cut.
    """

    batch: int
    rows: int
    columns: int
    depth: int
    flops: float
    operand_type: str
    passes: int
    reach: float = 1.0
    phases: float = 1.0
    groups: int = 1
    kinds: tuple[str, ...] = ()
    padded_flops: float = 0.0

    @property
    def done_flops(self) -> float:
        """All operations that take time."""
        return self.flops + self.padded_flops


def flops_by_operands(products: Iterable[Product]) -> dict[str, float]:
    """Return the floating-point operations that products are asked for by the type of their operands."""
    return _by_operands((product.operand_type, product.flops) for product in products)


def done_flops_by_operands(products: Iterable[Product]) -> dict[str, float]:
    """Return the floating-point operations that products do by the type of their operands."""
    return _by_operands((product.operand_type, product.done_flops) for product in products)


def _by_operands(flops: Iterable[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, count in flops:
        found[name] = found.get(name, 0.0) + count
    return found


def transform_lengths(attributes: Mapping[str, Any], operand: ArrayShape) -> tuple[int, ...]:
    """Return over how many elements an ``fft`` goes along each dimension of its own, the innermost last.

    A transform of complex numbers is one of all that its operand has: ``fft_length`` says along how many dimensions,
    and XLA's shape inference lets any numbers pass. That of StableHLO is of the operand as well (StableHLO, fft), and
    the TPU compiler makes of other numbers what it makes of the operand's (v5e, libtpu 0.0.52). Where one side is real,
    ``fft_length`` has its sizes.
    """
    lengths: tuple[int, ...] = attributes["fft_length"]
    return operand.dimensions[-len(lengths) :] if attributes["fft_type"] in ("FFT", "IFFT") else lengths


def transform_parts(length: int) -> tuple[int, ...]:
    """Return the lengths of the transforms, each by one matrix, that one of this length is made of; the first first."""
    size = length & -length
    most = _MOST_IN_ONE if length == _MOST_IN_ONE**2 else _MOST_PART
    if length <= _MOST_IN_ONE or size < _LEAST_PART:
        return (length,)
    first = min(size, most)
    return (first, *transform_parts(length // first))


def canonical_product(instruction: Instruction, shapes: Sequence[ArrayShape]) -> Product:
    """Return the canonical form of a product whose operands have these shapes."""
    roles = PRODUCT_ROLES[instruction.opcode]
    lhs, rhs = shapes[roles.lhs], shapes[roles.rhs]
    if instruction.opcode == "convolution":
        return _of_convolution(instruction, lhs, rhs)
    return _of_dot(instruction, lhs, rhs, shapes[roles.group_sizes].dimensions[-1] if roles.group_sizes > 0 else 1)


def product_sides(instruction: Instruction) -> tuple[str, str]:
    """Return the names of a product's left and right side."""
    roles = PRODUCT_ROLES[instruction.opcode]
    return instruction.operands[roles.lhs], instruction.operands[roles.rhs]


def lettered(
    instruction: Instruction, lhs: ArrayShape, rhs: ArrayShape, kinds: tuple[str, ...]
) -> tuple[ConvolutionLabels, tuple[str, ...]] | None:
    """Return the letters of a product's dimensions, and the kinds of those that are digits.

    A convolution states them, and ``kinds`` are its own; a dot's are those of the convolution that it could be written
    as. None for products of other opcodes, and dots of more dimensions than there are digits.
    """
    if instruction.opcode == "convolution":
        return instruction.attributes["dim_labels"], kinds
    if instruction.opcode != "dot" or lhs.rank + rhs.rank > len(_DIGITS):
        return None
    named = instruction.attributes
    shared = list(zip(named.get("lhs_batch_dims", ()), named.get("rhs_batch_dims", ()), strict=True))
    summed = list(zip(named.get("lhs_contracting_dims", ()), named.get("rhs_contracting_dims", ()), strict=True))
    rows = [d for d in range(lhs.rank) if d not in [one for one, _ in shared + summed]]
    columns = [d for d in range(rhs.rank) if d not in [other for _, other in shared + summed]]
    # What is summed last, rows first and columns last have letters of their own.
    left = dict.fromkeys(rows[:1], "b") | {one: "f" for one, _ in summed[-1:]}
    right = dict.fromkeys(columns[-1:], "o") | {other: "i" for _, other in summed[-1:]}
    found: list[str] = []
    for one, other in shared + summed[:-1]:
        left[one] = right[other] = str(len(found))
        found.append(BATCH if (one, other) in shared else INNER)
    for kind, side, dimensions in ((ROWS, left, rows[1:]), (COLUMNS, right, columns[:-1])):
        for d in dimensions:
            side[d] = str(len(found))
            found.append(kind)
    output = [left[one] for one, _ in shared] + [left[d] for d in rows] + [right[d].replace("o", "f") for d in columns]
    lhs_letters, rhs_letters = ("".join(side[d] for d in range(len(side))) for side in (left, right))
    return ConvolutionLabels(lhs_letters, rhs_letters, "".join(output)), tuple(found)


_DIGITS = "0123456789"


@lru_cache(maxsize=4096)
def dimension_kind(window: WindowDimension, input_size: int, size: int) -> str:
    """Return of what kind a spatial dimension of a convolution is, by which of its arrays carries it.

    ``input_size`` and ``size`` are those of the left side and of the result.
    """
    paired = how_paired(window, input_size, size)
    if paired is not None:
        return COLUMNS if paired.is_outer else BATCH if paired.is_batch else WINDOW
    if window.size == 1:
        return ROWS
    return DEPTH if size == 1 else WINDOW


def result_kinds(instruction: Instruction, lhs: ArrayShape) -> tuple[str, ...]:
    """Return of what kind each dimension of a product's result is."""
    result: ArrayShape = instruction.shape  # type: ignore[assignment]
    if instruction.opcode != "convolution":
        batch = len(instruction.attributes.get("lhs_batch_dims", ()))
        rows = len(lhs.dimensions) - batch - len(instruction.attributes.get("lhs_contracting_dims", ()))
        return ((BATCH,) * batch + (ROWS,) * rows + (COLUMNS,) * result.rank)[: result.rank]
    labels: ConvolutionLabels = instruction.attributes["dim_labels"]
    windows: tuple[WindowDimension, ...] = instruction.attributes.get("window", Window()).dimensions
    kinds = {"b": ROWS, "f": COLUMNS}
    for number, window in enumerate(windows):
        sizes = lhs.dimensions[labels.lhs.index(str(number))], result.dimensions[labels.output.index(str(number))]
        kinds[str(number)] = dimension_kind(window, *sizes)
    return tuple(kinds[letter] for letter in labels.output)


class _Spatial(NamedTuple):
    """One spatial dimension: its window, and its sizes in the left side and the result."""

    window: WindowDimension
    input_size: int
    size: int

    @property
    def reach(self) -> float:
        """Kernel positions that add up in one output position: all of them, but for those that only padding meets."""
        # Edges meet padding, so the mean is a little below all positions; in a dilated input most meet holes.
        met, taps = meeting_pairs(*self) / max(1, self.size), self.window.size
        return taps if 2 * met > taps else max(1.0, met)


def convolution_flops(attributes: Mapping[str, Any], lhs: ArrayShape, rhs: ArrayShape, output: ArrayShape) -> float:
    """Return two operations for each multiply-add of a convolution, those with padding and holes left out."""
    labels: ConvolutionLabels = attributes["dim_labels"]
    batch, depth = output.dimensions[labels.output.index("b")], rhs.dimensions[labels.rhs.index("i")]
    features, dimensions = rhs.dimensions[labels.rhs.index("o")], _spatial(attributes, lhs, output)
    return 2.0 * batch * depth * features * prod(meeting_pairs(*d) for d in dimensions)


def _spatial(attributes: Mapping[str, Any], lhs: ArrayShape, output: ArrayShape) -> list[_Spatial]:
    """Return the spatial dimensions of a convolution."""
    labels: ConvolutionLabels = attributes["dim_labels"]
    windows: tuple[WindowDimension, ...] = attributes.get("window", Window()).dimensions
    places = [(labels.lhs.index(str(number)), labels.output.index(str(number))) for number in range(len(windows))]
    sizes_of = [(lhs.dimensions[i], output.dimensions[j]) for i, j in places]
    return [_Spatial(window, *sizes) for window, sizes in zip(windows, sizes_of, strict=True)]


def _of_convolution(instruction: Instruction, lhs: ArrayShape, rhs: ArrayShape) -> Product:
    labels: ConvolutionLabels = instruction.attributes["dim_labels"]
    output: ArrayShape = instruction.shape  # type: ignore[assignment]
    dimensions = _spatial(instruction.attributes, lhs, output)
    kinds = tuple([dimension_kind(*dimension) for dimension in dimensions])
    sizes = dict.fromkeys((BATCH, ROWS, COLUMNS, WINDOW, DEPTH), 1)
    for dimension, kind in zip(dimensions, kinds, strict=True):
        sizes[kind] *= dimension.size
    summed = [dimension for dimension, kind in zip(dimensions, kinds, strict=True) if kind in (DEPTH, WINDOW)]
    # Feature groups split the input features, batch groups the batch: either way products of equal size.
    groups = instruction.attributes.get("feature_group_count", 1) * instruction.attributes.get("batch_group_count", 1)
    # The kernel's input features, not the input's: with groups it has those of one (XLA, Conv).
    batch, depth = output.dimensions[labels.output.index("b")], rhs.dimensions[labels.rhs.index("i")]
    features = rhs.dimensions[labels.rhs.index("o")]
    reach = prod(d.reach for d in summed)
    done = convolution_flops(instruction.attributes, lhs, rhs, output)
    asked = _asked_flops(instruction, done)
    return Product(
        batch=sizes[BATCH],
        rows=batch * sizes[ROWS] * sizes[WINDOW],
        columns=features // groups * sizes[COLUMNS],
        depth=depth,
        flops=asked,
        operand_type=max(rhs.dtype, lhs.dtype, key=lambda dtype: dtype.bits).name,
        passes=pass_count(instruction, lhs.dtype, rhs.dtype),
        reach=reach,
        phases=prod(d.window.size for d in summed) / reach,
        groups=groups,
        kinds=kinds,
        padded_flops=done - asked,
    )


def _asked_flops(product: Instruction, done: float) -> float:
    """Return the operations that the program asks for, of all that a product does."""
    stated = mark_of(product, ASKED_FLOPS)
    # Anyone may have written it.
    return min(float(stated), done) if stated.isdecimal() else done


def _of_dot(instruction: Instruction, lhs: ArrayShape, rhs: ArrayShape, groups: int) -> Product:
    """Return the canonical form of a dot; ``groups`` are those of a ragged one."""
    named = instruction.attributes
    batch_dims, depth_dims = named.get("lhs_batch_dims", ()), named.get("lhs_contracting_dims", ())
    ragged, group_dims = named.get("lhs_ragged_dims", ()), named.get("rhs_group_dims", ())
    batch, depth = prod(lhs.dimensions[d] for d in batch_dims), prod(lhs.dimensions[d] for d in depth_dims)
    # An empty dimension makes an empty product here, not a division by zero.
    rows = lhs.element_count // max(1, batch * depth)
    columns = rhs.element_count // max(1, batch * depth * prod(rhs.dimensions[d] for d in group_dims))
    # Groups of the contracted dimension give a result each, over their own stretch of it.
    splits = groups if set(ragged) & set(depth_dims) else 1
    return Product(
        batch=batch * splits,
        rows=rows,
        columns=columns,
        depth=-(-depth // max(1, splits)),
        # Rows of no group meet nothing.
        flops=2.0 * batch * rows * columns * depth * min(1, groups),
        operand_type=max(rhs.dtype, lhs.dtype, key=lambda dtype: dtype.bits).name,
        passes=pass_count(instruction, lhs.dtype, rhs.dtype),
        # Of a ragged dot's right-hand matrices each row meets only the one of its group.
        phases=float(max(1, groups)) if group_dims else 1.0,
    )
