"""Builder methods that apply a scalar computation over an array: map, reduce, windows, scatter, sort.

Where a computation is a Python function, it gets scalars of the operands' element types.

Source: XLA, Operation Semantics.
"""

from __future__ import annotations

from collections.abc import Sequence

from tpusim.build.base import Callee, Op, Sizes, array_of, array_with, listed, scalars, some
from tpusim.build.data import DataMethods
from tpusim.build.windows import Padding, make_window
from tpusim.shapes.shape import ArrayShape, TupleShape, leaves


class ReductionMethods(DataMethods):
    """Operations with a scalar computation."""

    def map(self, operands: Op | Sequence[Op], computation: Callee, dimensions: Sizes | None = None) -> Op:
        """Return the computation of every element; ``dimensions`` can only be all, in order.

        Scalars among the operands are broadcast.
        """
        # HLO's map wants equal dimensions; XlaBuilder broadcasts what is not.
        ops = self._scalars_stretched(some("map", operands))
        numbers = range(array_of(ops[0]).rank) if dimensions is None else dimensions
        name = self.called(computation, scalars(ops))
        return self.emit("map", ops, {"dimensions": tuple(numbers), "to_apply": name})

    def reduce(
        self, operands: Op | Sequence[Op], init_values: Op | Sequence[Op], computation: Callee, dimensions: Sizes
    ) -> Op:
        """Return the operands with ``dimensions`` folded by ``computation`` (accumulators first, then elements).

        Several operands give a tuple.
        """
        ops, inits = listed(operands), listed(init_values)
        # Accumulators have the types of the initial values, which may be wider than the elements'.
        name = self.called(computation, scalars([*inits, *ops]))
        return self.emit("reduce", [*ops, *inits], {"dimensions": tuple(dimensions), "to_apply": name})

    def reduce_all(self, operand: Op, init_value: Op, computation: Callee) -> Op:
        """Return an array folded to a scalar."""
        return self.reduce(operand, init_value, computation, range(array_of(operand).rank))

    def reduce_window(
        self,
        operands: Op | Sequence[Op],
        init_values: Op | Sequence[Op],
        computation: Callee,
        window_dimensions: Sizes,
        window_strides: Sizes | None = None,
        padding: Padding = "VALID",
        base_dilations: Sizes | None = None,
        window_dilations: Sizes | None = None,
    ) -> Op:
        """Return the fold of every window; ``padding`` is SAME, VALID or (low, high) per dimension.

        Several operands give a tuple.
        """
        ops, inits = some("reduce_window", operands), listed(init_values)
        dilations = (base_dilations, window_dilations)
        window = make_window(array_of(ops[0]).dimensions, window_dimensions, window_strides, padding, dilations)
        name = self.called(computation, scalars([*inits, *ops]))
        return self.emit("reduce-window", [*ops, *inits], {"window": window, "to_apply": name})

    def select_and_scatter(
        self,
        operand: Op,
        select: Callee,
        window_dimensions: Sizes,
        window_strides: Sizes,
        padding: Padding,
        source: Op,
        init_value: Op,
        scatter: Callee,
    ) -> Op:
        """Return ``init_value`` everywhere, and each element of ``source`` scattered to where its window selected.

        ``select(a, b)`` says whether a stays chosen; ``scatter(current, source)`` joins what meets at one place.
        """
        window = make_window(array_of(operand).dimensions, window_dimensions, window_strides, padding)
        attributes = {
            "window": window,
            # The two computations see different values: two elements of the operand, or result and source.
            "select": self.called(select, scalars([operand, operand])),
            "scatter": self.called(scatter, scalars([init_value, source])),
        }
        return self.emit("select-and-scatter", [operand, source, init_value], attributes)

    def scatter(
        self,
        operands: Op | Sequence[Op],
        scatter_indices: Op,
        updates: Op | Sequence[Op],
        update_computation: Callee,
        *,
        update_window_dims: Sizes,
        inserted_window_dims: Sizes,
        scatter_dims_to_operand_dims: Sizes,
        index_vector_dim: int,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        input_batching_dims: Sizes = (),
        scatter_indices_batching_dims: Sizes = (),
    ) -> Op:
        """Return the operands with windows of ``updates`` joined in by ``update_computation(current, update)``.

        Several operands give a tuple.
        """
        ops, changes = listed(operands), listed(updates)
        attributes = {
            "update_window_dims": tuple(update_window_dims),
            "inserted_window_dims": tuple(inserted_window_dims),
            "scatter_dims_to_operand_dims": tuple(scatter_dims_to_operand_dims),
            "input_batching_dims": tuple(input_batching_dims) or None,
            "scatter_indices_batching_dims": tuple(scatter_indices_batching_dims) or None,
            "index_vector_dim": index_vector_dim,
            "indices_are_sorted": indices_are_sorted or None,
            "unique_indices": unique_indices or None,
            "to_apply": self.called(update_computation, scalars([*ops, *changes])),
        }
        return self.emit("scatter", [*ops, scatter_indices, *changes], attributes)

    def sort(self, operands: Op | Sequence[Op], comparator: Callee, dimension: int = -1, is_stable: bool = False) -> Op:
        """Return the operands sorted together along ``dimension`` (-1 is the last) by ``comparator``.

        It gets two elements of the first operand, then two of the second, and so on. Several operands give a tuple.
        """
        ops = some("sort", operands)
        # Two elements of one operand stand next to each other, unlike the accumulators of a reduction.
        pairs = [op for op in ops for _ in range(2)]
        attributes = {
            "dimensions": (dimension if dimension != -1 else array_of(ops[0]).rank - 1,),
            "is_stable": is_stable or None,
            "to_apply": self.called(comparator, scalars(pairs)),
        }
        return self.emit("sort", ops, attributes)

    def top_k(self, operand: Op, k: int, largest: bool = True) -> Op:
        """Return a tuple: the ``k`` largest (or smallest) elements of the last dimension, and their ``s32`` places."""
        return self.emit("topk", [operand], {"k": k, "largest": largest})

    def scan(
        self,
        inputs: Op | Sequence[Op],
        inits: Op | Sequence[Op],
        computation: Callee,
        scan_dimension: int,
        is_reverse: bool = False,
        is_associative: bool = False,
    ) -> Op:
        """Return a tuple: stacked outputs, then the last carries, of a computation run along ``scan_dimension``.

        The computation takes a slice of each input and the carries, and returns outputs and carries.
        """
        ops, carries = some("scan", inputs), listed(inits)
        at = scan_dimension
        whole = [array_with(op, at) for op in ops]
        slices = [ArrayShape(s.dtype, s.dimensions[:at] + s.dimensions[at + 1 :]) for s in whole]
        name = self.called(computation, [*slices, *(op.shape for op in carries)])
        attributes = {
            "dimensions": (scan_dimension,),
            "num_carries": len(carries),
            "is_reverse": is_reverse or None,
            "is_associative": is_associative,
            "to_apply": name,
        }
        # What comes before the carries in the computation's result is stacked, one slice per step.
        root = self._computations[name].root.shape
        results = root.elements if isinstance(root, TupleShape) else (root,)
        length = whole[0].dimensions[at]
        outputs = (
            ArrayShape(s.dtype, (*s.dimensions[:at], length, *s.dimensions[at:]))
            for s in leaves(TupleShape(results[: len(results) - len(carries)]))
        )
        shape = TupleShape((*outputs, *(op.shape for op in carries)))
        return self.emit("scan", [*ops, *carries], attributes, shape)
