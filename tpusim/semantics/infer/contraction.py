"""Shapes of matrix products: ``dot`` and its ragged and scaled forms."""

from __future__ import annotations

from collections.abc import Collection

from tpusim.semantics.infer.site import Site, broken, infers, require
from tpusim.semantics.infer.types import dynamic_flags, is_array, is_scalar, make_array, plain, sizes_agree, wider
from tpusim.semantics.products import PRODUCT_ROLES
from tpusim.shapes.dtype import DType
from tpusim.shapes.shape import ArrayShape


def result_type(site: Site, lhs: ArrayShape, rhs: ArrayShape) -> DType:
    """Return the type that a product is stated to have, or the wider one of its operands."""
    # preferred_element_type is no attribute in the text: only the stated shape tells of it.
    declared = site.declared
    return declared.dtype if declared is not None and is_array(declared) else wider(lhs.dtype, rhs.dtype)


def _check_dot(site: Site, lhs: ArrayShape, rhs: ArrayShape) -> None:
    """Require dimension numbers that exist, once, and pairs of dimensions of one size."""
    lhs_used, rhs_used = _used(site, "lhs"), _used(site, "rhs")
    for shape, used in ((lhs, lhs_used), (rhs, rhs_used)):
        require(all(0 <= dimension < shape.rank for dimension in used), "dot_c1", used, "for", shape)
        require(len(set(used)) == len(used), "dot_c2", used)
    for label, name in (("dot_c3", "contracting_dims"), ("dot_c5", "batch_dims")):
        left, right = site.attributes.get(f"lhs_{name}", ()), site.attributes.get(f"rhs_{name}", ())
        require(len(left) == len(right), label, left, "and", right)
        sizes = zip([lhs.dimensions[i] for i in left], [rhs.dimensions[j] for j in right], strict=True)
        if not all(sizes_agree(*pair) for pair in sizes):
            # dot_c4 of contracting dimensions, dot_c6 of batch dimensions.
            raise broken("dot_c4" if label == "dot_c3" else "dot_c6", f"{plain(lhs)} and {plain(rhs)}")


def _used(site: Site, side: str) -> tuple[int, ...]:
    attributes = site.attributes
    return (*attributes.get(f"{side}_contracting_dims", ()), *attributes.get(f"{side}_batch_dims", ()))


def _product(site: Site, lhs: ArrayShape, rhs: ArrayShape, gone: Collection[int] = (), first: int = -1) -> ArrayShape:
    """Return the shape of a product, without dimensions ``gone`` of the right, after one of size ``first`` if any."""
    batch = site.attributes.get("lhs_batch_dims", ())
    lhs_used, rhs_used = _used(site, "lhs"), (*_used(site, "rhs"), *gone)
    left = [*batch, *(i for i in range(lhs.rank) if i not in lhs_used)]
    right = [i for i in range(rhs.rank) if i not in rhs_used]
    sizes = [*(lhs.dimensions[i] for i in left), *(rhs.dimensions[i] for i in right)]
    lhs_flags, rhs_flags = dynamic_flags(lhs), dynamic_flags(rhs)
    flags = [*(lhs_flags[i] for i in left), *(rhs_flags[i] for i in right)]
    # A ragged contracting dimension gives a product per group, stacked in front (XLA, RaggedDot).
    if first >= 0:
        sizes, flags = [first, *sizes], [False, *flags]
    return make_array(result_type(site, lhs, rhs), sizes, flags)


@infers("ragged-dot")
def _ragged_dot(site: Site) -> ArrayShape:
    """Give a product whose left side has groups of rows, each with a right side (or a result) of its own."""
    roles = PRODUCT_ROLES["ragged-dot"]
    lhs, rhs, groups = site.array(roles.lhs), site.array(roles.rhs), site.array(roles.group_sizes)
    _check_dot(site, lhs, rhs)
    ragged = site.attributes.get("lhs_ragged_dims", ())
    require(len(ragged) == 1 and 0 <= ragged[0] < lhs.rank, "ragged_dot_c1", ragged, "for", lhs)
    _check_group_sizes(site, lhs, groups)
    group_dimensions = site.attributes.get("rhs_group_dims", ())
    if not all(0 <= i < rhs.rank and i not in _used(site, "rhs") for i in group_dimensions):
        raise broken("ragged_dot_c3", f"{group_dimensions} for {plain(rhs)}")
    count = groups.dimensions[-1]
    # Only where the ragged dimension is free does each group have a right side of its own.
    if ragged[0] in _used(site, "lhs"):
        require(not group_dimensions, "ragged_dot_c4", group_dimensions)
        contracts = ragged[0] in site.attributes.get("lhs_contracting_dims", ())
        return _product(site, lhs, rhs, first=count if contracts else -1)
    if len(group_dimensions) != 1 or not sizes_agree(rhs.dimensions[group_dimensions[0]], count):
        raise broken("ragged_dot_c5", f"{group_dimensions} of {plain(rhs)} for {count} groups")
    return _product(site, lhs, rhs, gone=group_dimensions)


def _check_group_sizes(site: Site, lhs: ArrayShape, groups: ArrayShape) -> None:
    """Require the sizes of the groups to be a vector, or one vector per index of what comes before the ragged one."""
    ragged, batch = site.attributes["lhs_ragged_dims"][0], list(site.attributes.get("lhs_batch_dims", ()))
    contracting = list(site.attributes.get("lhs_contracting_dims", ()))
    free = [i for i in range(lhs.rank) if i not in (*batch, *contracting)]
    kind = next(dimensions for dimensions in (batch, contracting, free) if ragged in dimensions)
    before = ([] if kind is batch else batch) + kind[: kind.index(ragged)]
    prefix = tuple(lhs.dimensions[i] for i in before)
    if groups.rank != 1 and (not groups.dimensions or groups.dimensions[:-1] != prefix):
        raise broken("ragged_dot_c2", f"{plain(groups)} for {prefix}")


@infers("scaled-dot")
def _scaled_dot(site: Site) -> ArrayShape:
    roles = PRODUCT_ROLES["scaled-dot"]
    lhs, rhs = site.array(roles.lhs), site.array(roles.rhs)
    lhs_scale, rhs_scale = site.array(roles.lhs_scale), site.array(roles.rhs_scale)
    for shape, scale, side in ((lhs, lhs_scale, "lhs"), (rhs, rhs_scale, "rhs")):
        # A bf16 operand beside a scaled one needs no scale, but the operand must be there, of size 1.
        is_bf16 = scale.dtype == shape.dtype and shape.dtype.name == "bf16"
        if is_bf16 and set(scale.dimensions) <= {1} != set(shape.dimensions):
            continue
        contracting = site.attributes.get(f"{side}_contracting_dims", ())
        require(scale.rank == shape.rank, "scaled_dot_c1", scale, "for", shape)
        require(len(contracting) == 1, "scaled_dot_c2", contracting)
        blocks = zip(shape.dimensions, scale.dimensions, strict=True)
        # Scales hold for blocks of their operand, all alike.
        require(all(n and size % n == 0 for size, n in blocks), "scaled_dot_c3", scale, "for", shape)
    require(not is_scalar(lhs_scale) or not is_scalar(rhs_scale), "scaled_dot_c4", lhs_scale, "and", rhs_scale)
    return _dot(site)


@infers("dot")
def _dot(site: Site) -> ArrayShape:
    """Give batch dimensions, then what is free on the left, then on the right."""
    lhs, rhs = site.array(0), site.array(1)
    _check_dot(site, lhs, rhs)
    return _product(site, lhs, rhs)
