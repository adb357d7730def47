"""Builder methods for constants and for what only moves data: broadcasts, reshapes, slices, padding, gathers.

Source: XLA, Operation Semantics and Broadcasting semantics.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tpusim.build.base import BuilderBase, Op, Sizes, array_of, array_with, as_dtype, as_shape, listed
from tpusim.build.literals import literal_of
from tpusim.errors import ProgramError
from tpusim.ir.attributes import PaddingDimension, SliceDimension
from tpusim.ir.module import Instruction
from tpusim.semantics.infer.types import is_array
from tpusim.shapes.dtype import DType
from tpusim.shapes.shape import ArrayShape, Shape


class DataMethods(BuilderBase):
    """Constants, and operations that compute nothing."""

    def constant(self, value: Any, dtype: DType | str | None = None) -> Op:
        """Return a number, nested lists of numbers, or a NumPy array as a constant.

        Python's numbers become ``pred``, ``s32``, ``f32`` or ``c64`` unless ``dtype`` says otherwise. An array of equal
        elements becomes the broadcast of one, as XlaBuilder has it.
        """
        # A weight of zeros is a line of text this way, and not a million numbers.
        literal, shape, broadcast_sizes = literal_of(value, None if dtype is None else as_dtype(dtype))
        op = self._add(Instruction(self._numbered("constant"), shape, "constant", immediate=literal))
        return self.broadcast(op, broadcast_sizes) if broadcast_sizes else op

    def iota(self, shape: Shape | str, iota_dimension: int = 0) -> Op:
        """Return an array that counts from 0 along ``iota_dimension``."""
        return self.emit("iota", [], {"iota_dimension": iota_dimension}, shape)

    def broadcast(self, operand: Op, broadcast_sizes: Sizes) -> Op:
        """Return copies of the operand along new dimensions on its left."""
        shape, new = array_of(operand), len(broadcast_sizes)
        kept = range(new, new + shape.rank)
        return self._in_dim(operand, (*broadcast_sizes, *shape.dimensions), tuple(kept))

    def broadcast_in_dim(self, operand: Op, out_dim_size: Sizes, broadcast_dimensions: Sizes) -> Op:
        """Return the operand copied to ``out_dim_size``; its dimension i becomes ``broadcast_dimensions[i]``.

        A dimension of size 1 stretches to whatever size it meets.
        """
        # First into place with its own sizes, then the dimensions of size 1 stretch: XlaBuilder's two steps.
        in_place = self._raised(operand, out_dim_size, broadcast_dimensions)
        return self._stretched(in_place, tuple(out_dim_size))

    def reshape(self, operand: Op, new_sizes: Sizes, dimensions: Sizes | None = None) -> Op:
        """Return the elements in the same row-major order with other sizes.

        ``dimensions`` is the order, slowest first, in which the operand is read: not given is 0, 1, 2, ... Today's XLA
        has dropped that form; here it is a transpose before the reshape, as it was there.
        """
        if dimensions is not None and tuple(dimensions) != tuple(range(array_of(operand).rank)):
            operand = self.transpose(operand, dimensions)
        return self.emit("reshape", [operand], shape=ArrayShape(array_of(operand).dtype, tuple(new_sizes)))

    def collapse(self, operand: Op, dimensions: Sizes) -> Op:
        """Return the operand with consecutive ascending ``dimensions`` made one, in their place."""
        shape, numbers = array_of(operand), tuple(dimensions)
        # XlaBuilder takes fewer than two for nothing to do, even where they are no dimensions.
        if len(numbers) < 2:
            return operand
        first, end = numbers[0], numbers[0] + len(numbers)
        if numbers != tuple(range(first, end)) or first < 0 or end > shape.rank:
            raise ProgramError(f"expected consecutive ascending dimensions of {shape} to collapse, found {numbers}")
        sizes = shape.dimensions
        return self.reshape(operand, (*sizes[:first], prod(sizes[first:end]), *sizes[end:]))

    def transpose(self, operand: Op, permutation: Sizes) -> Op:
        """Return the operand with its dimension ``permutation[i]`` as dimension i."""
        return self.emit("transpose", [operand], {"dimensions": tuple(permutation)})

    def rev(self, operand: Op, dimensions: Sizes) -> Op:
        """Return the operand with the order of elements turned round in ``dimensions``."""
        return self.emit("reverse", [operand], {"dimensions": tuple(dimensions)})

    def slice(self, operand: Op, start_indices: Sizes, limit_indices: Sizes, strides: Sizes | None = None) -> Op:
        """Return every ``strides[i]``-th element from ``start_indices[i]`` on, before ``limit_indices[i]``."""
        steps = strides if strides is not None else [1] * len(start_indices)
        if not len(start_indices) == len(limit_indices) == len(steps):
            counts = f"{len(start_indices)}, {len(limit_indices)} and {len(steps)}"
            raise ProgramError(f"slice: expected as many starts as limits and strides, found {counts}")
        bounds = zip(start_indices, limit_indices, steps, strict=True)
        return self.emit("slice", [operand], {"slice": tuple(SliceDimension(*bound) for bound in bounds)})

    def slice_in_dim(self, operand: Op, start_index: int, limit_index: int, stride: int, dimno: int) -> Op:
        """Return a slice of one dimension and all of the others."""
        limits = list(array_with(operand, dimno).dimensions)
        starts, strides = [0] * len(limits), [1] * len(limits)
        starts[dimno], limits[dimno], strides[dimno] = start_index, limit_index, stride
        return self.slice(operand, starts, limits, strides)

    def dynamic_slice(self, operand: Op, start_indices: Op | Sequence[Op], size_indices: Sizes) -> Op:
        """Return a slice of ``size_indices`` whose start, one scalar per dimension, is only known at run time."""
        operands = [operand, *listed(start_indices)]
        return self.emit("dynamic-slice", operands, {"dynamic_slice_sizes": tuple(size_indices)})

    def dynamic_update_slice(self, operand: Op, update: Op, start_indices: Op | Sequence[Op]) -> Op:
        """Return the operand with ``update`` written over it from ``start_indices`` on."""
        return self.emit("dynamic-update-slice", [operand, update, *listed(start_indices)])

    def pad(self, operand: Op, padding_value: Op, padding_config: Sequence[Sequence[int]]) -> Op:
        """Return the operand padded per dimension by (low, high) or (low, high, interior) elements.

        Negative edges drop elements after the interior padding went in.
        """
        padding = tuple(PaddingDimension(*dimension) for dimension in padding_config)
        return self.emit("pad", [operand, padding_value], {"padding": padding})

    def concatenate(self, operands: Sequence[Op], dimension: int) -> Op:
        """Return arrays one after the other along ``dimension``."""
        return self.emit("concatenate", list(operands), {"dimensions": (dimension,)})

    concat_in_dim = concatenate

    def gather(
        self,
        operand: Op,
        start_indices: Op,
        *,
        offset_dims: Sizes,
        collapsed_slice_dims: Sizes,
        slice_sizes: Sizes,
        start_index_map: Sizes,
        index_vector_dim: int,
        indices_are_sorted: bool = False,
        operand_batching_dims: Sizes = (),
        start_indices_batching_dims: Sizes = (),
    ) -> Op:
        """Return slices of the operand that begin where ``start_indices`` says, put together into one array."""
        attributes = {
            "offset_dims": tuple(offset_dims),
            "collapsed_slice_dims": tuple(collapsed_slice_dims),
            "start_index_map": tuple(start_index_map),
            # Newer than the rest: text without them reads everywhere.
            "operand_batching_dims": tuple(operand_batching_dims) or None,
            "start_indices_batching_dims": tuple(start_indices_batching_dims) or None,
            "index_vector_dim": index_vector_dim,
            "slice_sizes": tuple(slice_sizes),
            "indices_are_sorted": indices_are_sorted or None,
        }
        return self.emit("gather", [operand, start_indices], attributes)

    def get_dimension_size(self, operand: Op, dimension: int) -> Op:
        """Return the size, at run time, of a dimension as ``s32[]``."""
        return self.emit("get-dimension-size", [operand], {"dimensions": (dimension,)})

    def set_dimension_size(self, operand: Op, size: Op, dimension: int) -> Op:
        """Return the operand, of whose ``dimension`` only the first ``size`` elements count at run time."""
        return self.emit("set-dimension-size", [operand, size], {"dimensions": (dimension,)})

    def remove_dynamic_dimension(self, operand: Op, dimension: int) -> Op:
        """Return the operand with its ``dimension`` at its full, static size again."""
        size = array_with(operand, dimension).dimensions[dimension]
        return self.set_dimension_size(operand, self.constant(size), dimension)

    def convert_element_type(self, operand: Op, new_element_type: DType | str) -> Op:
        """Return every element converted, as C++'s ``static_cast`` would; of complex numbers the real part."""
        dtype = as_dtype(new_element_type)
        # HLO converts complex numbers to complex numbers only.
        if array_of(operand).dtype.is_complex and not dtype.is_complex:
            operand = self.emit("real", [operand])
        shape = array_of(operand)
        return self.emit("convert", [operand], shape=ArrayShape(dtype, shape.dimensions, shape.dynamic))

    def bitcast_convert_type(self, operand: Op, new_element_type: DType | str) -> Op:
        """Return the same bits as elements of another type.

        Narrower ones add a minor dimension, wider ones use up the last.
        """
        shape, dtype = array_of(operand), as_dtype(new_element_type)
        sizes = shape.dimensions
        # The bits stay: what an element loses in width the array gains in elements.
        # What has no bits is refused as no array.
        if 0 < dtype.bits < shape.dtype.bits:
            sizes = (*sizes, shape.dtype.bits // dtype.bits)
        elif dtype.bits > shape.dtype.bits:
            sizes = sizes[:-1]
        return self.emit("bitcast-convert", [operand], shape=ArrayShape(dtype, sizes))

    def _in_dim(self, operand: Op, sizes: Sizes, dimensions: Sizes) -> Op:
        """Return one broadcast instruction: dimension i of the operand becomes ``dimensions[i]``."""
        shape = ArrayShape(array_of(operand).dtype, tuple(sizes))
        return self.emit("broadcast", [operand], {"dimensions": tuple(dimensions)}, shape)

    def _stretched(self, operand: Op, sizes: tuple[int, ...]) -> Op:
        """Return the operand, of the same rank or a scalar, copied along its dimensions of size 1 to ``sizes``."""
        own = array_of(operand).dimensions
        if own == sizes:
            return operand
        # HLO broadcasts only along new dimensions, so those of size 1 have to go first.
        kept = [number for number, size in enumerate(own) if size == sizes[number]]
        if len(kept) < len(own):
            operand = self.reshape(operand, [own[number] for number in kept])
        return self._in_dim(operand, sizes, kept)

    def _raised(self, operand: Op, larger: Sizes, dimensions: Sizes) -> Op:
        """Return the operand with the sizes ``larger``, except its own in ``dimensions``, ascending, one for each."""
        shape, sizes = array_of(operand), list(larger)
        numbers, rank = tuple(dimensions), len(sizes)
        if len(numbers) != shape.rank or sorted({*numbers}) != [*numbers] or not {*numbers} <= {*range(rank)}:
            raise ProgramError(
                f"expected broadcast_dimensions to be {shape.rank} ascending numbers below {rank}, one for each"
                f" dimension of {shape}, found {numbers}"
            )
        for size, number in zip(shape.dimensions, numbers, strict=True):
            sizes[number] = size
        return self._in_dim(operand, sizes, numbers)

    def tuple(self, elements: Sequence[Op]) -> Op:
        """Return several values as one."""
        return self.emit("tuple", list(elements))

    def get_tuple_element(self, tuple_data: Op, index: int) -> Op:
        """Return one element of a tuple."""
        return self.emit("get-tuple-element", [tuple_data], {"index": index})

    def after_all(self, operands: Sequence[Op] = ()) -> Op:
        """Return a token that comes after other tokens, or a first one."""
        return self.emit("after-all", list(operands))

    def _scalars_stretched(self, operands: list[Op]) -> list[Op]:
        """Return the operands, scalars among them copied to the dimensions of the arrays."""
        # Only scalars give way here: XLA stretches no dimensions of size 1 of three operands.
        sizes = next((array_of(op).dimensions for op in operands if array_of(op).rank), ())
        return [op if array_of(op).rank else self._stretched(op, sizes) for op in operands]


def full_shape(shape: Shape | str) -> ArrayShape:
    """Return an array's shape that may have been given in XLA's notation; raises ProgramError for any other."""
    found = as_shape(shape)
    if not is_array(found):
        raise ProgramError(f"expected the shape of an array, found {found}")
    return found
