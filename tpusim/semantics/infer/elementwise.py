"""Shapes of operations that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tpusim.semantics.infer.site import Site, broken, infers, require
from tpusim.semantics.infer.types import (
    alike,
    dimensions_agree,
    dynamic_flags,
    is_scalar,
    make_array,
    plain,
    retyped,
    types_agree,
    wider,
)
from tpusim.shapes.dtype import DTYPES, DType
from tpusim.shapes.shape import UNBOUNDED, ArrayShape

COMPLEX: Final = {"f32": "c64", "f64": "c128"}
"""The complex type that is made of a real one."""
COMPONENTS: Final = {whole: part for part, whole in COMPLEX.items()}
"""The real type that a complex one is made of."""
# XLA, Comparison::DefaultComparisonType; pred, which is missing here, compares as unsigned.
_KINDS_OF_COMPARISON = {"float": "FLOAT", "complex": "FLOAT", "signed": "SIGNED", "unsigned": "UNSIGNED"}


def _is_float_or_complex(dtype: DType) -> bool:
    return dtype.is_float or dtype.is_complex


def _has_bits(dtype: DType) -> bool:
    return dtype.is_integer or dtype.is_pred


_UNARY: dict[str, tuple[Callable[[DType], bool], str]] = {
    "unary_c1": (lambda dtype: dtype.is_float, "cbrt ceil erf floor is-finite round-nearest-afz round-nearest-even"),
    "unary_c2": (
        _is_float_or_complex,
        "acos acosh asin asinh atanh cosh cosine exponential exponential-minus-one imag log log-plus-one logistic"
        " real rsqrt sine sinh sqrt tan tanh",
    ),
    "unary_c3": (lambda dtype: dtype.is_signed or dtype.is_float or dtype.is_complex, "abs sign"),
    "unary_c4": (lambda dtype: dtype.is_integer, "count-leading-zeros popcnt"),
    "unary_c5": (lambda dtype: dtype.is_integer or dtype.is_float or dtype.is_complex, "negate"),
    "unary_c6": (_has_bits, "not"),
}
"""By label, the types that operations of one operand take, and these operations."""

_ALLOWED = {opcode: (label, allows) for label, (allows, opcodes) in _UNARY.items() for opcode in opcodes.split()}


@infers(*_ALLOWED)
def _unary(site: Site) -> ArrayShape:
    shape = site.array()
    label, allows = _ALLOWED[site.opcode]
    require(allows(shape.dtype), label, shape.dtype)
    return shape


# They take real numbers as well, whose real part is the number itself.
@infers("abs", "imag", "real")
def _component(site: Site) -> ArrayShape:
    """Give the real type that a complex one is made of; other types stay."""
    shape = _unary(site)
    return retyped(shape, DTYPES[COMPONENTS.get(shape.dtype.name, shape.dtype.name)])


@infers("add", "maximum", "minimum", "multiply", "mulhi")
def _binary(site: Site) -> ArrayShape:
    """Give the shape that both operands have; broadcasting is the builder's, HLO has none."""
    lhs, rhs = site.array(0), site.array(1)
    # binary_c1: up to precision, since a verifier may be told to let floats mix.
    require(types_agree(lhs.dtype, rhs.dtype), "binary_c1", lhs.dtype, "and", rhs.dtype)
    require(dimensions_agree(lhs, rhs), "binary_c2", lhs, "and", rhs)
    # The object itself: comparing it with the stated shape is then a comparison of identities.
    if lhs.dtype is rhs.dtype and not lhs.dynamic and not rhs.dynamic:
        return lhs
    return _merged(lhs, rhs)


def _merged(lhs: ArrayShape, rhs: ArrayShape) -> ArrayShape:
    """Return two shapes of one array as one: the wider type, known sizes, dynamic where either is."""
    sizes = [two if one == UNBOUNDED else one for one, two in zip(lhs.dimensions, rhs.dimensions, strict=True)]
    # A side without a bound does not say whether the other is dynamic.
    sides = [zip(shape.dimensions, dynamic_flags(shape), strict=True) for shape in (lhs, rhs)]
    dynamic = [b if n == UNBOUNDED else a if m == UNBOUNDED else a or b for (n, a), (m, b) in zip(*sides, strict=True)]
    return make_array(wider(lhs.dtype, rhs.dtype), sizes, dynamic)


@infers(
    "atan2", "divide", "power", "remainder", "shift-left", "shift-right-arithmetic", "shift-right-logical", "subtract"
)
def _arithmetic(site: Site) -> ArrayShape:
    lhs, rhs = site.array(0), site.array(1)
    require(not lhs.dtype.is_pred and not rhs.dtype.is_pred, "arithmetic_c1", "pred")
    require(not site.opcode.startswith("shift-") or lhs.dtype.is_integer, "shift_c1", lhs.dtype)
    require(site.opcode != "atan2" or _is_float_or_complex(lhs.dtype), "atan2_c1", lhs.dtype)
    return _binary(site)


@infers("and", "or", "xor")
def _logical(site: Site) -> ArrayShape:
    require(_has_bits(site.array(0).dtype), "logical_c1", site.array(0).dtype)
    return _binary(site)


@infers("complex")
def _complex(site: Site) -> ArrayShape:
    names = [site.array(position).dtype.name for position in (0, 1)]
    if names[0] not in COMPLEX or names[0] != names[1]:
        raise broken("complex_c1", " and ".join(names))
    return retyped(_binary(site), DTYPES[COMPLEX[names[0]]])


@infers("compare")
def _compare(site: Site) -> ArrayShape:
    shape = _binary(site)
    kind = site.array(1).dtype.kind
    stated = site.attributes.get("type")
    # Only floats have two orders: the total one tells -0 from 0 and places NaN.
    allowed = {_KINDS_OF_COMPARISON.get(kind, "UNSIGNED")} | ({"TOTALORDER"} if kind == "float" else set())
    require(stated is None or stated in allowed, "compare_c1", stated, "of", shape)
    return retyped(shape, DTYPES["pred"])


@infers("clamp")
def _clamp(site: Site) -> ArrayShape:
    low, shape, high = site.arrays()
    if not types_agree(low.dtype, shape.dtype) or not types_agree(high.dtype, shape.dtype):
        raise broken("clamp_c1", f"{low.dtype}, {shape.dtype} and {high.dtype}")
    for bound in (low, high):
        if not is_scalar(bound) and not dimensions_agree(bound, shape):
            raise broken("clamp_c2", f"{plain(bound)} for {plain(shape)}")
    return shape


@infers("select")
def _select(site: Site) -> ArrayShape:
    """Infer a selection by one truth value or by one per element.

    The document lets a scalar select between tuples; XLA dropped that, and so do we.
    """
    pred, on_true, on_false = site.arrays()
    if not types_agree(on_true.dtype, on_false.dtype) or not dimensions_agree(on_true, on_false):
        raise broken("select_c1", f"{plain(on_true)} and {plain(on_false)}")
    require(pred.dtype.is_pred, "select_c2", pred)
    # One of the few places where HLO broadcasts by itself, as for the bounds of clamp.
    require(not pred.dimensions or dimensions_agree(pred, on_true), "select_c3", pred, "for", on_true)
    if on_true.dtype is on_false.dtype and not (pred.dynamic or on_true.dynamic or on_false.dynamic):
        return on_true
    result = _merged(on_true, on_false)
    return _merged(result, retyped(pred, result.dtype)) if pred.dimensions else result


@infers("bitcast-convert")
def _bitcast_convert(site: Site) -> ArrayShape:
    """Give the operand's bits as another type: a narrower one adds a last dimension, a wider one takes it."""
    shape, dtype = site.array(), site.stated_array().dtype
    require(shape.dtype.is_complex == dtype.is_complex, "bitcast_convert_c1", shape.dtype, "and", dtype)
    # All widths are powers of two, so that the narrow one always divides the wide one.
    narrow, wide = sorted((shape.dtype.bits, dtype.bits))
    if shape.dtype.bits >= dtype.bits:
        added = (wide // narrow,) if wide > narrow else ()
        return make_array(dtype, (*shape.dimensions, *added), (*dynamic_flags(shape), *(False for _ in added)))
    require(shape.dimensions and shape.dimensions[-1] == wide // narrow, "bitcast_convert_c2", shape, "for", dtype)
    return make_array(dtype, shape.dimensions[:-1], dynamic_flags(shape)[:-1])


@infers("stochastic-convert")
def _stochastic_convert(site: Site) -> ArrayShape:
    shape, random = site.array(0), site.array(1)
    require(random.dtype.is_unsigned, "stochastic_convert_c1", random.dtype)
    require(shape.dtype.is_float, "stochastic_convert_c2", shape.dtype)
    require(shape.dtype.bits == random.dtype.bits, "stochastic_convert_c3", shape.dtype, "and", random.dtype)
    if shape.dimensions != random.dimensions or shape.dynamic != random.dynamic:
        raise broken("stochastic_convert_c4", f"{plain(shape)} and {plain(random)}")
    return retyped(shape, site.stated_array().dtype)


@infers("reduce-precision")
def _reduce_precision(site: Site) -> ArrayShape:
    shape = site.array()
    require(shape.dtype.is_float, "reduce_precision_c1", shape.dtype)
    # Without an exponent bit there would be no infinity to overflow to.
    require(site.attributes["exponent_bits"] >= 1, "reduce_precision_c2", site.attributes["exponent_bits"])
    require(site.attributes["mantissa_bits"] >= 0, "reduce_precision_c3", site.attributes["mantissa_bits"])
    return shape


@infers("map")
def _map(site: Site) -> ArrayShape:
    require(site.operands, "map_c1", "none")
    shapes = site.arrays()
    # The scalars among the operands would otherwise decide, if they came first.
    shape = max(shapes, key=lambda shape: shape.rank)
    for other in shapes:
        # A scalar may stand for an array of itself.
        if not dimensions_agree(other, shape) and not (is_scalar(other) and types_agree(other.dtype, shape.dtype)):
            raise broken("map_c2", f"{plain(other)} and {plain(shape)}")
    dimensions = site.attributes.get("dimensions", ())
    # XLA's verifier takes a stated shape as proof that all dimensions are meant, whatever they say.
    if site.declared is None and tuple(dimensions) != tuple(range(shape.rank)):
        raise broken("map_c3", f"{dimensions} for {plain(shape)}")
    signature = site.signature("to_apply")
    require(len(signature.parameters) == len(shapes), "map_c4", len(signature.parameters), "for", len(shapes))
    if not is_scalar(signature.result):
        raise broken("map_c5", plain(signature.result))
    for parameter, other in zip(signature.parameters, shapes, strict=True):
        require(alike(parameter, ArrayShape(other.dtype)), "map_c6", parameter, "for", other)
    return retyped(shape, signature.result.dtype)


infers("is-finite")(lambda site: retyped(_unary(site), DTYPES["pred"]))
infers("convert")(lambda site: retyped(site.array(), site.stated_array().dtype))
# Tuples pass through these too, so that they must not ask for an array.
infers("copy", "domain", "opt-barrier")(lambda site: site.operands[0])
