"""Shapes of linear algebra, Fourier transforms, random numbers and batch normalisation."""

from __future__ import annotations

from tpusim.semantics.infer.elementwise import COMPLEX, COMPONENTS
from tpusim.semantics.infer.site import Site, broken, infers, require
from tpusim.semantics.infer.types import dynamic_flags, is_scalar, make_array, plain, retyped, sizes_agree, types_agree
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import UNBOUNDED, ArrayShape, Shape, TupleShape, compatible, leaves


@infers("cholesky")
def _cholesky(site: Site) -> ArrayShape:
    shape = site.array()
    require(shape.dtype.is_float or shape.dtype.is_complex, "cholesky_c1", shape.dtype)
    require(shape.rank >= 2, "cholesky_c2", shape)
    require(sizes_agree(*shape.dimensions[-2:]), "cholesky_c3", shape)
    return shape


@infers("triangular-solve")
def _triangular_solve(site: Site) -> ArrayShape:
    """Give the shape of ``b``, which ``a`` divides from the left or the right."""
    a, b = site.array(0), site.array(1)
    if not (a.dtype.is_float or a.dtype.is_complex) or a.dtype != b.dtype:
        raise broken("triangular_solve_c1", f"{a.dtype} and {b.dtype}")
    require(a.rank >= 2, "triangular_solve_c2", a)
    require(a.rank == b.rank, "triangular_solve_c3", a, "and", b)
    require(sizes_agree(*a.dimensions[-2:]), "triangular_solve_c4", a)
    # left_side: a multiplies x from the left, so its columns are b's rows.
    if not sizes_agree(a.dimensions[-1], b.dimensions[-2 if site.flag("left_side") else -1]):
        raise broken("triangular_solve_c5", f"{plain(a)} and {plain(b)}")
    # Batches are compared strictly: nothing is broadcast between matrices (XLA, TriangularSolve).
    require(a.dimensions[:-2] == b.dimensions[:-2], "triangular_solve_c6", a, "and", b)
    require("transpose_a" in site.attributes, "triangular_solve_c7", "none")
    return b


@infers("fft")
def _fft(site: Site) -> ArrayShape:
    """Give the transform's shape: a real one keeps half of the last dimension, its inverse brings it back."""
    shape, lengths, kind = site.array(), site.attributes["fft_length"], str(site.attributes["fft_type"])
    # XLA transforms up to three dimensions at once.
    require(1 <= len(lengths) <= 3, "fft_c1", lengths)
    require(shape.rank >= len(lengths), "fft_c2", lengths, "for", shape)
    sizes, last, length = shape.dimensions[-len(lengths) :], shape.dimensions[-1], lengths[-1]
    if kind == "RFFT":
        require(shape.dtype.name in COMPLEX, "fft_c4", shape.dtype)
        agree = all(size in (UNBOUNDED, n) for size, n in zip(sizes, lengths, strict=True))
        require(agree, "fft_c5", lengths, "for", shape)
        # Real numbers have a symmetric spectrum, of which half and the middle say everything.
        return _last_resized(shape, length // 2 + 1 if length else last, COMPLEX[shape.dtype.name])
    require(shape.dtype.is_complex, "fft_c3", shape.dtype, "for", kind)
    if kind != "IRFFT":
        # Of any lengths, as XLA has it: transformed is what the operand has (``transform_lengths``).
        return shape
    require(sizes[:-1] == lengths[:-1], "fft_c5", lengths, "for", shape)
    require(last == UNBOUNDED or (not last and not length) or last == length // 2 + 1, "fft_c6", lengths, "for", shape)
    # n/2+1 frequencies come from an even n or the odd one after it: only fft_length tells which.
    return _last_resized(shape, length, COMPONENTS[shape.dtype.name])


def _last_resized(shape: ArrayShape, size: int, dtype: str) -> ArrayShape:
    flags = dynamic_flags(shape)
    last = flags[-1] and shape.dimensions[-1] != UNBOUNDED
    return make_array(DTYPES[dtype], (*shape.dimensions[:-1], size), (*flags[:-1], last))


@infers("rng")
def _rng(site: Site) -> ArrayShape:
    if len(site.operands) != 2 or not all(map(is_scalar, site.operands)):
        raise broken("rng_c1", ", ".join(map(plain, site.operands)))
    low, high, result = site.array(0), site.array(1), site.stated_array()
    if low.dtype != high.dtype or not types_agree(low.dtype, result.dtype):
        raise broken("rng_c2", f"{low.dtype}, {high.dtype} and {result.dtype}")
    require(not low.dtype.is_complex, "rng_c3", low.dtype)
    require(site.attributes["distribution"] != "rng_normal" or low.dtype.is_float, "rng_c4", low.dtype)
    return retyped(result, low.dtype)


@infers("rng-bit-generator")
def _rng_bit_generator(site: Site) -> Shape:
    """Give the stated shape: the new state, like the old one, and the bits; or the bits alone."""
    result = site.stated()
    # TPU compilers emit this form, whose state is not read again.
    if not isinstance(result, TupleShape):
        return result
    require(len(result.elements) == 2, "rng_bit_generator_c1", result)
    if not compatible(result.elements[0], site.operands[0]):
        raise broken("rng_bit_generator_c2", f"{plain(result.elements[0])} for {plain(site.operands[0])}")
    require(not any(leaf.dtype.is_complex for leaf in leaves(result)), "rng_bit_generator_c3", result)
    return result


@infers("batch-norm-training")
def _batch_norm_training(site: Site) -> TupleShape:
    """Give the normalised operand, and the batch's mean and variance per feature."""
    shape, features = _check_batch_norm(site, (1, 2))
    return TupleShape((shape, features, features))


@infers("batch-norm-grad")
def _batch_norm_grad(site: Site) -> TupleShape:
    """Give the gradients of operand, scale and offset."""
    shape, features = _check_batch_norm(site, (1, 2, 3))
    gradient = site.array(4)
    if gradient.rank != shape.rank or not all(map(sizes_agree, gradient.dimensions, shape.dimensions)):
        raise broken("batch_norm_c6", f"{plain(gradient)} for {plain(shape)}")
    require(types_agree(gradient.dtype, shape.dtype), "batch_norm_c4", gradient.dtype, "for", shape.dtype)
    return TupleShape((shape, features, features))


def _check_batch_norm(site: Site, vectors: tuple[int, ...]) -> tuple[ArrayShape, ArrayShape]:
    shape, feature = site.array(), site.attributes["feature_index"]
    require(0 <= feature < shape.rank, "batch_norm_c1", feature, "for", shape)
    require(shape.dtype.is_float, "batch_norm_c2", shape.dtype)
    for position in vectors:
        vector = site.array(position)
        require(vector.rank == 1, "batch_norm_c3", "operand", position, "of shape", vector)
        require(types_agree(vector.dtype, shape.dtype), "batch_norm_c4", vector.dtype, "for", shape.dtype)
        if not sizes_agree(vector.dimensions[0], shape.dimensions[feature]):
            raise broken("batch_norm_c5", f"operand {position} of shape {plain(vector)} for {plain(shape)}")
    # In the operand's type, even where scale and offset are narrower.
    features = make_array(shape.dtype, (shape.dimensions[feature],), (dynamic_flags(shape)[feature],))
    return shape, features


infers("batch-norm-inference")(lambda site: _check_batch_norm(site, (1, 2, 3, 4))[0])
infers("rng-get-and-update-state")(lambda site: ArrayShape(DTYPES["u64"], (2,)))
