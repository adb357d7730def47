"""Products and reductions: what the matrix unit and the vector unit add up.

Source: JAX, dialect ``tpu`` of Mosaic (``matmul``); MLIR, dialect ``vector`` (``contract``, ``multi_reduction``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tpusim.numerics.ops.contraction import DotDimensions, general_dot
from tpusim.numerics.ops.convert import convert_values, widened
from tpusim.numerics.ops.reduction import UFUNCS, kernel_of, neutral_of, reduced
from tpusim.numerics.pallas.table import Function, Where, dtype_of, element_of, operation, unsigned
from tpusim.numerics.registry import Array, compute_type
from tpusim.numerics.values.blocks import compute
from tpusim.numerics.values.precision import arithmetic_of, in_passes
from tpusim.semantics.mosaic import contract_maps, dot_lists
from tpusim.semantics.precision import passes_between
from tpusim.shapes.dtype import DTYPES


@operation("tpu.matmul")
def _matmul(where: Where) -> Function:
    """Return the product of two vectors added to a third: in one pass of bf16, or as many as ``fp32`` asks for."""
    stated = where.attributes.get("dimension_numbers")
    if stated is None:
        turned = [bool(where.attributes.get(f"transpose_{side}")) for side in ("lhs", "rhs")]
        return _product(where, DotDimensions((), (), (0 if turned[0] else 1,), (1 if turned[1] else 0,)))
    lhs, rhs, *_, order, lhs_batch, rhs_batch = dot_lists(stated)
    pairs = list(zip(order[::2], order[1::2], strict=True))
    dimensions = DotDimensions(lhs_batch, rhs_batch, lhs, rhs)
    return _product(where, dimensions, _order(where, dimensions, pairs))


def _order(where: Where, dimensions: DotDimensions, pairs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return how a dot's own order of dimensions becomes that of pairs of a side and its dimension."""
    batch, rhs_batch, lhs_contracting, rhs_contracting = dimensions
    own = [(0, d) for d in batch]
    for side, taken in enumerate((batch + lhs_contracting, rhs_batch + rhs_contracting)):
        own += [(side, d) for d in range(len(where.operand(side).dimensions)) if d not in taken]
    places = {pair: at for at, pair in enumerate(own)}
    # A batch dimension may be named by either side.
    places |= {(1, d): places[0, pair] for d, pair in zip(rhs_batch, batch, strict=True)}
    return tuple(places[pair] for pair in pairs)


def _product(where: Where, dimensions: DotDimensions, order: Sequence[int] = ()) -> Function:
    """Return the function of two sides and what their product is added to, rounded once."""
    lhs, rhs = (element_of(where.operand(side).element) for side in (0, 1))
    word = "highest" if "fp32" in str(where.attributes.get("precision", "")) else "default"
    is_float = lhs.is_float
    sums = DTYPES["f32"] if is_float else element_of(where.operand(2).element)
    passes = passes_between(word, lhs, rhs) if is_float else ()
    arithmetic = arithmetic_of(where.settings, passes, lhs, rhs, sums)
    contract = partial(general_dot, dimensions=dimensions)
    result = dtype_of(where.result())

    def product(left: Array, right: Array, added: Array) -> Array:
        total = in_passes(arithmetic, left, right, contract)
        if order:
            total = total.transpose(order)
        return convert_values(total + convert_values(added, total.dtype), result)

    return product


@operation("vector.contract")
def _contract(where: Where) -> Function:
    """Return the sum of products over the dimensions that the maps of the operands share and the result's lacks."""
    kind = str(where.attributes.get("kind", "add"))
    if "add" not in kind:
        raise where.unsupported(f"products combined by {kind}")
    lhs, rhs, result = contract_maps(where.attributes["indexing_maps"])
    batch = [d for d in result if d in lhs and d in rhs]
    summed = [d for d in lhs if d in rhs and d not in result]
    places = [tuple(side.index(d) for d in names) for names in (batch, summed) for side in (lhs, rhs)]
    own = [*batch, *(d for side in (lhs, rhs) for d in side if d not in batch and d not in summed)]
    return _product(where, DotDimensions(*places), tuple(own.index(d) for d in result))


_KINDS: dict[str, str] = {
    **dict.fromkeys(("add", "sum"), "add"),
    "mul": "multiply",
    **dict.fromkeys(("maximumf", "maxsi", "maxui", "max"), "maximum"),
    **dict.fromkeys(("minimumf", "minsi", "minui", "min"), "minimum"),
}
_NUMBERS_WIN = {"maxnumf": np.fmax, "minnumf": np.fmin}


@operation("vector.multi_reduction")
def _multi_reduction(where: Where) -> Function:
    """Return a vector reduced over some dimensions, beginning with the second operand."""
    kind, axes = _word(where.attributes["kind"]), tuple(where.attributes["reduction_dims"])
    dtype = unsigned(dtype_of(where.operand())) if kind.endswith("ui") else dtype_of(where.operand())
    result = dtype_of(where.result())
    if kind in _NUMBERS_WIN:
        wins = _NUMBERS_WIN[kind]
        return lambda value, start: wins(wins.reduce(value, axis=axes), start)
    ufunc, settings = _ufunc(where, kind), where.settings
    init = np.asarray(neutral_of(ufunc, compute_type(dtype))).astype(dtype)
    combine = kernel_of(ufunc, compute_type(dtype))

    def total(value: Array, start: Any) -> Any:
        found = reduced(ufunc, value.view(dtype), init, axes, settings)
        return compute(combine, [found, np.asarray(start).view(dtype)], dtype).view(result)

    return total


def _word(kind: Any) -> str:
    """Return what stands between the angle brackets of an attribute."""
    return str(kind).partition("<")[2].rpartition(">")[0] or str(kind)


def _ufunc(where: Where, kind: str) -> np.ufunc:
    found = UFUNCS.get(_KINDS.get(kind, kind))
    if found is None:
        raise where.unsupported(f"a reduction by {kind}")
    return found


@operation("vector.reduction")
def _reduction(where: Where) -> Function:
    """Return a number: a vector reduced whole, beginning with the second operand if there is one."""
    ufunc = _ufunc(where, _word(where.attributes["kind"]))
    return lambda value, *start: ufunc(ufunc.reduce(value), *start) if start else ufunc.reduce(value)


@operation("tpu.all_reduce")
def _all_reduce(where: Where) -> Function:
    """Return in every place what a dimension is reduced to; the place of the first set bit may be asked for."""
    axis, kind, result = where.attributes["dim"], _word(where.attributes["kind"]), where.result()
    if kind == "find_first_set":
        found = partial(np.argmax, axis=axis, keepdims=True)
    else:
        found = partial(_ufunc(where, kind).reduce, axis=axis, keepdims=True)

    def all_reduced(value: Array) -> Array:
        # NumPy adds in the order in which elements lie, on which values should not depend.
        reduced = found(np.asarray(value, order="C"))
        return np.broadcast_to(reduced, result.dimensions).astype(dtype_of(result))

    return all_reduced


@operation("tpu.reduce_index")
def _reduce_index(where: Where) -> Function:
    """Return where along a dimension the largest or smallest element stands, the first of equal ones."""
    axis, kind = where.attributes["axis"], _word(where.attributes["kind"])
    find = {"arg_max": np.argmax, "arg_min": np.argmin}[kind]
    return lambda value: find(widened(value), axis=axis).astype(np.int32)


@operation("tpu.scan")
def _scan(where: Where) -> Function:
    """Return what the elements up to each one are reduced to."""
    ufunc, result = _ufunc(where, _word(where.attributes["kind"])), dtype_of(where.result())
    if len(where.operation.operands) > 1:
        raise where.unsupported("a masked scan")
    return lambda value: ufunc.accumulate(value.astype(result), axis=-1)
