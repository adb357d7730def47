"""Builder methods for products of matrices, convolutions, linear algebra, Fourier transforms and batch norms.

Source: XLA, Operation Semantics.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from tpusim.build.base import Op, Sizes, array_of, choice
from tpusim.build.data import DataMethods
from tpusim.build.windows import Padding, make_window
from tpusim.errors import ProgramError
from tpusim.ir.attributes import ConvolutionLabels, Symbol
from tpusim.shapes.dtype import DType

Precision: TypeAlias = str | tuple[str, str]
"""``default``, ``high`` or ``highest``, for both operands or for each."""

_LABELS = re.compile(r"([0-9bf?]{2,})_([0-9io?]{2,})->([0-9bf?]{2,})")


class DotDimensionNumbers(msgspec.Struct, frozen=True):
    """The dimensions of either operand that a product sums over in pairs, and those that it keeps in pairs."""

    lhs_contracting_dimensions: tuple[int, ...] = ()
    rhs_contracting_dimensions: tuple[int, ...] = ()
    lhs_batch_dimensions: tuple[int, ...] = ()
    rhs_batch_dimensions: tuple[int, ...] = ()


class ContractionMethods(DataMethods):
    """Operations that sum products."""

    def dot(self, lhs: Op, rhs: Op, precision_config: Precision | None = None) -> Op:
        """Return the product of vectors [n]·[n], of matrix and vector [m,k]·[k], or of matrices [m,k]·[k,n]."""
        # A vector times a matrix is not in the table of the document, but XlaBuilder takes it.
        ranks = array_of(lhs).rank, array_of(rhs).rank
        if ranks not in ((1, 1), (2, 1), (2, 2), (1, 2)):
            raise ProgramError(f"expected vectors or matrices, found {lhs.shape} and {rhs.shape}; use dot_general")
        return self.dot_general(lhs, rhs, DotDimensionNumbers((ranks[0] - 1,), (0,)), precision_config)

    def dot_general(
        self,
        lhs: Op,
        rhs: Op,
        dimension_numbers: DotDimensionNumbers | Mapping[str, Sizes],
        precision_config: Precision | None = None,
        preferred_element_type: DType | str | None = None,
    ) -> Op:
        """Return sums of products: the batch dimensions, then what is free on the left, then on the right.

        A mapping has the names of the fields of ``DotDimensionNumbers``; those it leaves out are empty.
        """
        known = DotDimensionNumbers.__struct_fields__
        if isinstance(dimension_numbers, Mapping) and not set(dimension_numbers) - set(known):
            named = {name: tuple(dimensions) for name, dimensions in dimension_numbers.items()}
            dimension_numbers = DotDimensionNumbers(**named)
        elif not isinstance(dimension_numbers, DotDimensionNumbers):
            found = repr(dimension_numbers)
            raise ProgramError(f"dimension_numbers: expected a mapping of {', '.join(known)}, found {found}")
        attributes = {
            # XLA prints no empty batch, but empty contracting dimensions.
            "lhs_batch_dims": dimension_numbers.lhs_batch_dimensions or None,
            "lhs_contracting_dims": dimension_numbers.lhs_contracting_dimensions,
            "rhs_batch_dims": dimension_numbers.rhs_batch_dimensions or None,
            "rhs_contracting_dims": dimension_numbers.rhs_contracting_dimensions,
            "operand_precision": _precisions(precision_config),
        }
        return self.emit("dot", [lhs, rhs], attributes, element_type=preferred_element_type)

    def conv(
        self,
        lhs: Op,
        rhs: Op,
        window_strides: Sizes,
        padding: str,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
    ) -> Op:
        """Return the convolution with ``padding`` SAME or VALID; dimensions are batch, feature, spatial ones.

        SAME gives ceil(input / stride) elements, as XLA and TensorFlow have it. The document says "as if the stride
        were 1"; for strides where that differs give ``conv_with_general_padding`` the edges that it means.
        """
        groups = (feature_group_count, batch_group_count)
        return self.conv_with_general_padding(lhs, rhs, window_strides, padding, None, None, *groups)

    def conv_with_general_padding(
        self,
        lhs: Op,
        rhs: Op,
        window_strides: Sizes,
        padding: Padding,
        lhs_dilation: Sizes | None = None,
        rhs_dilation: Sizes | None = None,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        *,
        dimension_numbers: ConvolutionLabels | str | None = None,
        precision_config: Precision | None = None,
        preferred_element_type: DType | str | None = None,
        window_reversal: Sequence[bool] | None = None,
    ) -> Op:
        """Return the convolution of ``lhs`` with the kernel ``rhs``, over any number of spatial dimensions.

        ``padding`` is one (low, high) per spatial dimension, which may be negative, or SAME or VALID.
        ``dimension_numbers`` are labels such as ``"b01f_01io->b01f"``; not given they are batch, feature, spatial
        dimensions for ``lhs`` and result, and output feature, input feature, spatial dimensions for ``rhs``.
        """
        labels = _labels(dimension_numbers, array_of(lhs).rank - 2)
        sizes = _spatial_sizes(lhs, labels.lhs), _spatial_sizes(rhs, labels.rhs)
        # Sizes in the order of the labels' numbers, which need not be that of the dimensions.
        window = make_window(*sizes, window_strides, padding, (lhs_dilation, rhs_dilation), window_reversal)
        attributes = {
            # Without spatial dimensions the text has no window at all.
            "window": window if window.dimensions else None,
            "dim_labels": labels,
            "feature_group_count": feature_group_count if feature_group_count != 1 else None,
            "batch_group_count": batch_group_count if batch_group_count != 1 else None,
            "operand_precision": _precisions(precision_config),
        }
        return self.emit("convolution", [lhs, rhs], attributes, element_type=preferred_element_type)

    def fft(self, operand: Op, fft_type: str, fft_length: Sizes) -> Op:
        """Return the Fourier transform of the innermost axes; ``fft_type`` is FFT, IFFT, RFFT or IRFFT."""
        kind = choice(fft_type, "FFT IFFT RFFT IRFFT")
        return self.emit("fft", [operand], {"fft_type": kind, "fft_length": tuple(fft_length)})

    def cholesky(self, a: Op, lower: bool = True) -> Op:
        """Return the triangular factor of positive definite matrices, read from and put into one triangle."""
        # None leaves the attribute out, as XLA's text does with what is false anyway.
        return self.emit("cholesky", [a], {"lower": lower or None})

    def triangular_solve(
        self, a: Op, b: Op, left_side: bool, lower: bool, unit_diagonal: bool, transpose_a: str | bool = "NO_TRANSPOSE"
    ) -> Op:
        """Return x of op(a)·x = b, or of x·op(a) = b unless ``left_side``.

        ``transpose_a`` is NO_TRANSPOSE, TRANSPOSE or ADJOINT; or whether to transpose.
        """
        named = transpose_a if isinstance(transpose_a, str) else ("NO_TRANSPOSE", "TRANSPOSE")[transpose_a]
        attributes = {
            "left_side": left_side or None,
            "lower": lower or None,
            "unit_diagonal": unit_diagonal or None,
            "transpose_a": choice(named, "NO_TRANSPOSE TRANSPOSE ADJOINT"),
        }
        return self.emit("triangular-solve", [a, b], attributes)

    def batch_norm_training(self, operand: Op, scale: Op, offset: Op, epsilon: float, feature_index: int) -> Op:
        """Return a tuple: the operand normalised over all dimensions but one, batch means, batch variances."""
        attributes = {"epsilon": float(epsilon), "feature_index": feature_index}
        return self.emit("batch-norm-training", [operand, scale, offset], attributes)

    def batch_norm_inference(
        self, operand: Op, scale: Op, offset: Op, mean: Op, variance: Op, epsilon: float, feature_index: int
    ) -> Op:
        """Return the operand normalised by moments that are given."""
        attributes = {"epsilon": float(epsilon), "feature_index": feature_index}
        return self.emit("batch-norm-inference", [operand, scale, offset, mean, variance], attributes)

    def batch_norm_grad(
        self, operand: Op, scale: Op, mean: Op, variance: Op, grad_output: Op, epsilon: float, feature_index: int
    ) -> Op:
        """Return a tuple of gradients: those of operand, scale and offset."""
        attributes = {"epsilon": float(epsilon), "feature_index": feature_index}
        return self.emit("batch-norm-grad", [operand, scale, mean, variance, grad_output], attributes)


def _precisions(precision: Precision | None) -> tuple[Symbol, ...] | None:
    """Return the precision of either operand; None where both are the default."""
    words = (precision, precision) if isinstance(precision, str) else precision
    # XLA leaves the default out; so does this, so that a module equals what is read back.
    if words is None or set(words) == {"default"}:
        return None
    return tuple(choice(word, "default high highest") for word in words)


def _labels(labels: ConvolutionLabels | str | None, spatial_rank: int) -> ConvolutionLabels:
    """Return the roles of dimensions, those of the document if none are given."""
    if labels is None:
        digits = "".join(map(str, range(spatial_rank)))
        return ConvolutionLabels(f"bf{digits}", f"oi{digits}", f"bf{digits}")
    if isinstance(labels, ConvolutionLabels):
        return labels
    match = _LABELS.fullmatch(labels)
    if match is None:
        raise ProgramError(f"expected dimension labels such as b01f_01io->b01f, found {labels!r}")
    return ConvolutionLabels(*match.groups())


def _spatial_sizes(op: Op, labels: str) -> list[int]:
    """Return the sizes of the dimensions that are labelled with numbers, in the order of the numbers."""
    sizes = array_of(op).dimensions
    if len(labels) != len(sizes):
        raise ProgramError(f"expected {len(sizes)} labels for {op.shape}, found {labels!r}")
    return [size for label, size in sorted(zip(labels, sizes, strict=True)) if label.isdecimal()]
