"""Cholesky factors, LU, QR and triangular solves, by blocks as wide as a register has lanes.

What is left whole are blocks on the diagonal, or panels of columns from there down, for which the compiler has calls of
its own; the rest are products.

Source: XLA, CholeskyExpander, TriangularSolveExpander and QrExpander (R. Schreiber and C. Van Loan, A Storage-Efficient
WY Representation for Products of Householder Transformations, SIAM 1989); programs compiled ahead of time.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.decompose.rules import decomposes
from tpusim.draft import Node
from tpusim.errors import UnsupportedError
from tpusim.ir.custom_calls import REGISTERED
from tpusim.limits import BLOCKS
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape, leaves

_EXACT = "highest"


@decomposes("cholesky", tolerance=1e-4)
def cholesky(build: Build, node: Node) -> Node | None:
    """Make one panel of columns after the other, each less what those before it say of it; NaN if one has no factor."""
    (matrix,) = node.operands
    if matrix.array.dtype.name != "f32" or not matrix.array.element_count:
        return None
    _require_few_blocks(build, matrix)
    last = matrix.array.rank - 1
    is_lower = node.attributes.get("lower", False)
    factor = _factor(build, matrix if is_lower else build.swapped(matrix, last - 1, last))
    return factor if is_lower else build.swapped(factor, last - 1, last)


def _factor(build: Build, matrix: Node) -> Node:
    *batch, size, _ = matrix.array.dimensions
    rows, columns = len(batch), len(batch) + 1
    whole, failed = matrix, []
    for start in range(0, size, _block(build)):
        stop = min(start + _block(build), size)
        panel = build.slice(build.slice(matrix, rows, start, size), columns, start, stop)
        if start:
            before = build.slice(build.slice(whole, rows, start, size), columns, 0, start)
            head = build.slice(before, rows, 0, stop - start)
            product = build.dot(before, head, (columns, columns), rows, _EXACT)
            panel = build.apply("subtract", panel, product)
        head = build.call("Cholesky", build.slice(panel, rows, 0, stop - start))
        failed.append(_has_nan(build, head))
        whole = build.update(whole, head, {rows: start, columns: start}) if start else _padded(build, head, size)
        if stop < size:
            inverse = _inverses(build, [_triangle(build, head, is_lower=True)], is_lower=True)[0]
            below = build.slice(panel, rows, stop - start, size - start)
            below = build.dot(below, inverse, (columns, columns), rows, _EXACT)
            whole = build.update(whole, below, {rows: stop, columns: start})
    is_bad = failed[0]
    for other in failed[1:]:
        is_bad = build.apply("or", is_bad, other)
    is_bad = build.broadcast(is_bad, matrix.array.dimensions, range(rows))
    return build.apply("select", is_bad, build.splat("nan", matrix), whole)


@decomposes("triangular-solve", tolerance=1e-4)
def triangular_solve(build: Build, node: Node) -> Node | None:
    """Multiply one block after the other by the inverse of its own, less what those before it say of it."""
    matrix, right = node.operands
    if matrix.array.dtype.name != "f32" or not right.array.element_count:
        return None
    _require_few_blocks(build, matrix)
    named = node.attributes
    is_left, is_lower = named.get("left_side", False), named.get("lower", False)
    size, along = matrix.array.dimensions[-1], right.array.rank - (2 if is_left else 1)
    block = min(size, _block(build))
    more = -size % block
    matrix = _triangle(build, matrix, is_lower=is_lower, more=more, is_unit=named.get("unit_diagonal", False))
    if more:
        right = build.pad(right, build.constant(0, right.array.dtype), {along: (0, more)})
    turned = named.get("transpose_a", "NO_TRANSPOSE") != "NO_TRANSPOSE"
    solved = _Solve(build, matrix, right, block, is_left, is_lower, turned).run()
    return build.slice(solved, along, 0, size)


@decomposes("custom-call", tolerance=1e-4)
def factors(build: Build, node: Node) -> Node | None:
    """Take the calls apart in which JAX asks for LU, for QR and for Q."""
    target = node.attributes.get("custom_call_target", "")
    # What a user has registered means what the user says.
    if target not in _CALLS or target in REGISTERED:
        return None
    matrix = node.operands[0]
    if matrix.array.dtype.name != "f32" or not matrix.array.element_count:
        return None
    _require_few_blocks(build, matrix)
    return _CALLS[target](build, node)


def _lu(build: Build, node: Node) -> Node:
    """Factor one panel of columns after the other; its order of rows holds for all columns beside it."""
    whole, columns_of = node.operands[0], _panels(build, node.operands[0])
    *batch, size, columns = whole.array.dimensions
    rows, numbers, exchanges = len(batch), DTYPES["s32"], []
    order = build.iota("s32", (*batch, size), rows)
    for start, stop in columns_of:
        panel = build.slice(build.slice(whole, rows, start, size), rows + 1, start, stop)
        shapes = [ArrayShape(numbers, (*batch, count)) for count in (stop - start, size - start)]
        panel, swapped, moved = build.call_for("LuRealDecompositionBlock", panel, _plain(panel), *shapes)
        exchanges.append(build.apply("add", swapped, build.splat(start, swapped)))
        order = build.update(order, build.rows(build.slice(order, rows, start, size), moved), {rows: start})
        if start or stop < columns:
            beside = build.rows(build.slice(whole, rows, start, size), moved)
            whole = build.update(whole, beside, {rows: start})
        whole = _put(build, whole, panel, start)
        if stop < columns:
            whole = _eliminated(build, whole, panel, (start, stop))
    all_exchanges = build.concatenate(exchanges, rows) if len(exchanges) > 1 else exchanges[0]
    return _results(build, node, whole, all_exchanges, order)


def _eliminated(build: Build, whole: Node, panel: Node, at: tuple[int, int]) -> Node:
    """Return a matrix whose columns behind a factored panel have become rows of U, and what these leave of the rest."""
    (start, stop), (*batch, size, columns) = at, whole.array.dimensions
    rows = len(batch)
    head = _unit_lower(build, build.slice(panel, rows, 0, stop - start))
    inverse = _inverses(build, [head], is_lower=True)[0]
    right = build.slice(build.slice(whole, rows, start, stop), rows + 1, stop, columns)
    upper = build.dot(inverse, right, (rows + 1, rows), rows, _EXACT)
    whole = build.update(whole, upper, {rows: start, rows + 1: stop})
    if stop == size:
        return whole
    below = build.slice(panel, rows, stop - start, size - start)
    rest = build.slice(build.slice(whole, rows, stop, size), rows + 1, stop, columns)
    rest = build.apply("subtract", rest, build.dot(below, upper, (rows + 1, rows), rows, _EXACT))
    return build.update(whole, rest, {rows: stop, rows + 1: stop})


def _qr(build: Build, node: Node) -> Node:
    """Factor one panel of columns after the other, and reflect the columns behind it."""
    whole, taus = node.operands[0], []
    *batch, size, columns = whole.array.dimensions
    rows = len(batch)
    for start, stop in _panels(build, whole):
        panel = build.slice(build.slice(whole, rows, start, size), rows + 1, start, stop)
        factors_of = ArrayShape(panel.array.dtype, (*batch, stop - start))
        panel, tau = build.call_for("QrDecompositionBlock", panel, _plain(panel), factors_of)
        taus.append(tau)
        whole = _put(build, whole, panel, start)
        if stop < columns:
            rest = build.slice(build.slice(whole, rows, start, size), rows + 1, stop, columns)
            rest = _reflected(build, panel, tau, rest, is_turned=True)
            whole = build.update(whole, rest, {rows: start, rows + 1: stop})
    return _results(build, node, whole, build.concatenate(taus, rows) if len(taus) > 1 else taus[0])


def _q(build: Build, node: Node) -> Node:
    """Reflect the unit matrix by one panel of vectors after the other, from the last one on."""
    packed, taus = node.operands
    *batch, size, columns = packed.array.dimensions
    rows, count = len(batch), taus.array.dimensions[-1]
    row, column = (build.iota("s32", (size, columns), along) for along in (0, 1))
    is_one = build.compare("EQ", row, column)
    whole = _where(build, is_one, build.splat(1, packed), build.splat(0, packed))
    for start in reversed(range(0, count, _block(build))):
        stop = min(start + _block(build), count)
        panel = build.slice(build.slice(packed, rows, start, size), rows + 1, start, stop)
        rest = build.slice(build.slice(whole, rows, start, size), rows + 1, start, columns)
        tau = build.slice(taus, rows, start, stop)
        rest = _reflected(build, panel, tau, rest, is_turned=False)
        whole = _put(build, whole, rest, start)
    return whole


def _reflected(build: Build, panel: Node, tau: Node, rest: Node, *, is_turned: bool) -> Node:
    """Return what a panel's reflections, the last or if ``is_turned`` the first of them first, make of some columns.

    Together they are ``I + Y T Y*``: the vectors are the columns of Y, and a call makes T of products of these.
    """
    batch = panel.array.rank - 2
    vectors, scale = _unit_lower(build, panel), build.apply("negate", tau)
    products = build.dot(vectors, vectors, (batch, batch), batch, _EXACT)
    scales = build.broadcast(scale, products.array.dimensions, (*range(batch), batch + 1))
    row, column = (build.iota("s32", products.array.dimensions[-2:], along) for along in (0, 1))
    scaled = build.apply("multiply", products, scales)
    upper = _where(build, build.compare("LT", row, column), scaled, build.splat(0, products))
    upper = _where(build, build.compare("EQ", row, column), scales, upper)
    made = build.call("CompactWyHelper", upper)
    inner = build.dot(vectors, rest, (batch, batch), batch, _EXACT)
    inner = build.dot(made, inner, (batch if is_turned else batch + 1, batch), batch, _EXACT)
    return build.apply("add", rest, build.dot(vectors, inner, (batch + 1, batch), batch, _EXACT))


_CALLS = {"LuDecomposition": _lu, "Qr": _qr, "ProductOfElementaryHouseholderReflectors": _q}


def _panels(build: Build, matrix: Node) -> list[tuple[int, int]]:
    """Return where blocks of columns begin and end that reach down from the diagonal."""
    count, block = min(matrix.array.dimensions[-2:]), _block(build)
    return [(start, min(start + block, count)) for start in range(0, count, block)]


def _unit_lower(build: Build, panel: Node) -> Node:
    """Return what stands below the diagonal of columns, ones on it and zeros above."""
    row, column = (build.iota("s32", panel.array.dimensions[-2:], along) for along in (0, 1))
    made = _where(build, build.compare("GT", row, column), panel, build.splat(0, panel))
    return _where(build, build.compare("EQ", row, column), build.splat(1, panel), made)


def _put(build: Build, whole: Node, part: Node, start: int) -> Node:
    """Return a matrix with a part put in that begins on the diagonal, which may be all of it."""
    rows = whole.array.rank - 2
    return build.update(whole, part, {rows: start, rows + 1: start}) if start or _plain(part) != _plain(whole) else part


def _results(build: Build, node: Node, *values: Node) -> Node:
    """Return values as the results of a call, which need not have all of them."""
    return build.graph.add("tuple", node.shape, values[: len(list(leaves(node.shape)))])


def _plain(node: Node) -> ArrayShape:
    return ArrayShape(node.array.dtype, node.array.dimensions)


@dataclass(frozen=True)
class _Solve:
    """A solve: its triangle, with zeros beside it, its right side, and on which side the turned triangle stands."""

    build: Build
    matrix: Node
    right: Node
    block: int
    is_left: bool
    is_lower: bool
    is_turned: bool

    def run(self) -> Node:
        """Return what is solved for."""
        build, batch = self.build, self.matrix.array.rank - 2
        along = batch + (0 if self.is_left else 1)
        starts = range(0, self.matrix.array.dimensions[-1], self.block)
        inverses = _inverses(build, [self._part(at, at) for at in starts], is_lower=self.is_lower)
        done: dict[int, Node] = {}
        is_forward = self.is_left == (self.is_lower != self.is_turned)
        for start in starts if is_forward else reversed(starts):
            rest = build.slice(self.right, along, start, start + self.block)
            if done:
                known = build.concatenate([done[at] for at in sorted(done)], along)
                rest = build.apply("subtract", rest, self._times(self._between(start, sorted(done)), known))
            done[start] = self._times(inverses[start // self.block], rest)
        return build.concatenate([done[at] for at in starts], along)

    def _part(self, row: int, column: int, rows: int = 1, columns: int = 1) -> Node:
        """Return so many blocks of the triangle."""
        build, batch = self.build, self.matrix.array.rank - 2
        band = build.slice(self.matrix, batch, row, row + rows * self.block)
        return build.slice(band, batch + 1, column, column + columns * self.block)

    def _between(self, start: int, done: list[int]) -> Node:
        """Return the blocks by which those that are solved act on the one that begins at ``start``."""
        acts_down = self.is_left != self.is_turned
        return (
            self._part(start, done[0], columns=len(done)) if acts_down else self._part(done[0], start, rows=len(done))
        )

    def _times(self, matrix: Node, other: Node) -> Node:
        """Return the product of a part of the triangle with a part of the right side, each on its side."""
        batch = matrix.array.rank - 2
        summed = batch + (1 if self.is_left != self.is_turned else 0)
        if self.is_left:
            return self.build.dot(matrix, other, (summed, batch), batch, _EXACT)
        return self.build.dot(other, matrix, (batch + 1, summed), batch, _EXACT)


def _block(build: Build) -> int:
    return build.target.chip.vpu.lanes


def _require_few_blocks(build: Build, matrix: Node) -> None:
    """Raise UnsupportedError for a matrix of too many blocks: there are instructions for each."""
    if fault := BLOCKS.fault(-(-min(matrix.array.dimensions[-2:]) // _block(build))):
        raise UnsupportedError(f"{build.like.name}: {matrix.shape} is too large to take apart: {fault}")


def _inverses(build: Build, blocks: list[Node], *, is_lower: bool) -> list[Node]:
    """Return the inverses of triangles, which one call makes."""
    *batch, rows, columns = blocks[0].array.dimensions
    at = len(batch)
    stacked = [build.reshape(block, *batch, 1, rows, columns) for block in blocks]
    all_blocks = build.concatenate(stacked, at) if len(stacked) > 1 else stacked[0]
    inverted = build.call(f"InvertDiagBlocks{'Lower' if is_lower else 'Upper'}Triangular", all_blocks)
    slices = (build.slice(inverted, at, number, number + 1) for number in range(len(blocks)))
    return [build.reshape(part, *batch, rows, columns) for part in slices]


def _triangle(build: Build, matrix: Node, *, is_lower: bool, more: int = 0, is_unit: bool = False) -> Node:
    """Return a triangle with zeros beside it, and ``more`` rows and columns of the unit matrix behind."""
    size = matrix.array.dimensions[-1]
    matrix = _padded(build, matrix, size + more)
    row, column = (build.iota("s32", (size + more, size + more), along) for along in (0, 1))
    made = _where(build, build.compare("GE" if is_lower else "LE", row, column), matrix, build.splat(0, matrix))
    if not (more or is_unit):
        return made
    is_one = build.compare("EQ", row, column)
    if not is_unit:
        is_one = build.apply("and", is_one, build.compare("GE", row, build.splat(size, row)))
    return _where(build, is_one, build.splat(1, matrix), made)


def _padded(build: Build, matrix: Node, size: int) -> Node:
    """Return a square matrix with rows and columns of zeros behind it, up to a size."""
    *batch, known, _ = matrix.array.dimensions
    if known == size:
        return matrix
    around = dict.fromkeys((len(batch), len(batch) + 1), (0, size - known))
    return build.pad(matrix, build.constant(0, matrix.array.dtype), around)


def _where(build: Build, mask: Node, one: Node, other: Node) -> Node:
    """Return one or the other matrix by element, all of a batch by the same mask."""
    rank = one.array.rank
    return build.apply("select", build.broadcast(mask, one.array.dimensions, (rank - 2, rank - 1)), one, other)


def _has_nan(build: Build, factor: Node) -> Node:
    """Return for every matrix of a batch whether its diagonal holds a NaN."""
    *batch, size, _ = factor.array.dimensions
    row, column = (build.iota("s32", (size, size), along) for along in (0, 1))
    diagonal = _where(build, build.compare("EQ", row, column), factor, build.splat(0, factor))
    sums = build.reduce(diagonal, build.constant(0, factor.array.dtype), [len(batch)], "add")
    is_nan = build.compare("NE", sums, sums)
    return build.reduce(is_nan, build.constant("false", DTYPES["pred"]), [len(batch)], "or")
