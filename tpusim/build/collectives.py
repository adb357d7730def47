"""Builder methods for what several devices do together.

``replica_groups`` lists the devices of each group, none being a group of all; a tuple operand stands for its elements.

Source: XLA, Operation Semantics, and ``XlaBuilder``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from tpusim.build.base import Callee, Op, Sizes, array_of, array_with, listed, scalars
from tpusim.build.data import DataMethods
from tpusim.errors import ProgramError
from tpusim.ir.attributes import ReplicaGroups
from tpusim.limits import DEVICES
from tpusim.semantics.infer.types import one_or_tuple
from tpusim.shapes.shape import ArrayShape, TupleShape, leaves

Groups: TypeAlias = ReplicaGroups | Sequence[Sequence[int]]
"""Groups of device numbers."""


class CollectiveMethods(DataMethods):
    """Operations of several devices."""

    def replica_id(self) -> Op:
        """Return which replica this is, as ``u32[]``."""
        return self.emit("replica-id")

    def partition_id(self) -> Op:
        """Return which partition of its replica this is, as ``u32[]``."""
        return self.emit("partition-id")

    def all_gather(
        self,
        operand: Op,
        all_gather_dim: int,
        shard_count: int,
        replica_groups: Groups = (),
        channel_id: int | None = None,
        use_global_device_ids: bool = False,
    ) -> Op:
        """Return the operands of a group one after the other along ``all_gather_dim``, in the order of the group.

        ``shard_count`` is how many there are.
        """
        # With no groups the text does not say how many there are; only the shape of the result does.
        ops = self._parts(operand)
        shapes = [_scaled(array_of(op), all_gather_dim, shard_count, 1) for op in ops]
        attributes = _devices(replica_groups, channel_id, use_global_device_ids)
        return self.emit("all-gather", ops, attributes | {"dimensions": (all_gather_dim,)}, one_or_tuple(shapes))

    def all_reduce(
        self,
        operand: Op,
        computation: Callee,
        replica_groups: Groups = (),
        channel_id: int | None = None,
        use_global_device_ids: bool = False,
    ) -> Op:
        """Return the operands of a group folded by ``computation``; every member gets the whole."""
        ops = self._parts(operand)
        attributes = _devices(replica_groups, channel_id, use_global_device_ids)
        attributes["to_apply"] = self.called(computation, scalars([ops[0], ops[0]]))
        result = self.emit("all-reduce", ops, attributes, one_or_tuple([op.shape for op in ops]))
        # A tuple of one comes back as a tuple, though the instruction returns an array.
        return self.tuple([result]) if ops[0] is not operand and len(ops) == 1 else result

    def cross_replica_sum(self, operand: Op, replica_groups: Groups = ()) -> Op:
        """Return the sum over a group; of truth values whether any holds."""
        # As in XlaBuilder: the sum of truth values is their disjunction.
        is_pred = any(leaf.dtype.is_pred for leaf in leaves(operand.shape)[:1])

        def sum(x: Op, y: Op) -> Op:
            return x.builder.logical_or(x, y) if is_pred else x.builder.add(x, y)

        return self.all_reduce(operand, sum, replica_groups)

    def reduce_scatter(
        self,
        operand: Op,
        computation: Callee,
        scatter_dimension: int,
        shard_count: int,
        replica_groups: Groups = (),
        channel_id: int | None = None,
        use_global_device_ids: bool = False,
    ) -> Op:
        """Return block i, for member i of a group, of the fold of its operands along ``scatter_dimension``."""
        ops = self._parts(operand)
        # Stated as for a gather: without groups only the shape says how many parts there are.
        shapes = [_scaled(array_of(op), scatter_dimension, 1, shard_count) for op in ops]
        attributes = _devices(replica_groups, channel_id, use_global_device_ids)
        attributes["dimensions"] = (scatter_dimension,)
        attributes["to_apply"] = self.called(computation, scalars([ops[0], ops[0]]))
        return self.emit("reduce-scatter", ops, attributes, one_or_tuple(shapes))

    def all_to_all(
        self,
        operand: Op,
        split_dimension: int,
        concat_dimension: int,
        split_count: int,
        replica_groups: Groups = (),
        channel_id: int | None = None,
    ) -> Op:
        """Return what member i of a group got: block i of everybody's operand, one after the other.

        Blocks are cut along ``split_dimension`` and joined along ``concat_dimension``. HLO knows one dimension for
        both: where they differ a reshape and a transpose follow.
        """
        for dimension in (concat_dimension, split_dimension):
            shape = array_with(operand, dimension)
        if fault := DEVICES.fault(split_count):
            raise ProgramError(f"split_count: {fault}")
        if shape.dimensions[split_dimension] % split_count:
            raise ProgramError(f"expected a dimension of {operand.shape} to split by {split_count}: {split_dimension}")
        # No groups would be all devices, of which there may be more than blocks.
        attributes = _devices(replica_groups or [range(split_count)], channel_id)
        sent = self.emit("all-to-all", [operand], attributes | {"dimensions": (split_dimension,)}, operand.shape)
        if split_dimension == concat_dimension:
            return sent
        return self._rejoined(sent, split_dimension, concat_dimension, split_count)

    def all_to_all_tuple(
        self, operands: Sequence[Op], replica_groups: Groups = (), channel_id: int | None = None
    ) -> Op:
        """Return a tuple of what each member of a group sent here: operand i goes to member i."""
        shapes = TupleShape(tuple(op.shape for op in operands))
        return self.emit("all-to-all", list(operands), _devices(replica_groups, channel_id), shapes)

    def ragged_all_to_all(
        self,
        input: Op,
        output: Op,
        offsets_and_sizes: Sequence[Op],
        replica_groups: Groups = (),
        channel_id: int | None = None,
    ) -> Op:
        """Return ``output`` with rows of everybody's ``input`` written into it.

        ``offsets_and_sizes`` are ``s32`` or ``s64`` vectors with one entry per member: input offsets, send sizes,
        output offsets (in the receiver's output) and receive sizes.
        """
        operands = [input, output, *offsets_and_sizes]
        attributes = _devices(replica_groups, channel_id)
        # output gives the shape: what arrives is written into it, what is not reached stays.
        return self.emit("ragged-all-to-all", operands, attributes, output.shape)

    def collective_broadcast(
        self, operands: Op | Sequence[Op], replica_groups: Groups, channel_id: int | None = None
    ) -> Op:
        """Return what the first member of each group has; zeros on devices of no group."""
        ops = listed(operands)
        shape = one_or_tuple([op.shape for op in ops])
        return self.emit("collective-broadcast", ops, _devices(replica_groups, channel_id), shape)

    def collective_permute(
        self, operand: Op | Sequence[Op], source_target_pairs: Sequence[Sizes], channel_id: int | None = None
    ) -> Op:
        """Return what the source of a pair has, on its target; zeros on devices that are nobody's target."""
        ops = listed(operand)
        pairs = tuple((source, target) for source, target in source_target_pairs)
        shape = one_or_tuple([op.shape for op in ops])
        attributes = {"channel_id": channel_id, "source_target_pairs": pairs}
        return self.emit("collective-permute", ops, attributes, shape)

    def _parts(self, operand: Op) -> list[Op]:
        if not isinstance(operand.shape, TupleShape):
            return [operand]
        if not operand.shape.elements:
            raise ProgramError(f"expected {operand.name!r} to have at least one array, found an empty tuple")
        return [self.get_tuple_element(operand, index) for index in range(len(operand.shape.elements))]

    def _rejoined(self, sent: Op, split_dimension: int, concat_dimension: int, split_count: int) -> Op:
        """Return the blocks that lie along one dimension joined along another."""
        # The blocks get a dimension of their own, which then moves in front of the one to join along.
        sizes = list(array_of(sent).dimensions)
        before, after = sizes[:split_dimension], sizes[split_dimension + 1 :]
        block = sizes[split_dimension] // split_count
        blocks = self.reshape(sent, [*before, split_count, block, *after])
        order = [number + (number >= split_dimension) for number in range(len(sizes))]
        order.insert(concat_dimension, split_dimension)
        sizes[split_dimension] = block
        sizes[concat_dimension] *= split_count
        return self.reshape(self.transpose(blocks, order), sizes)


def _devices(groups: Groups, channel_id: int | None, use_global_device_ids: bool = False) -> dict[str, Any]:
    """Return the attributes that say which devices work together."""
    if not isinstance(groups, ReplicaGroups):
        texts = ("{" + ",".join(map(str, group)) + "}" for group in groups)
        groups = ReplicaGroups(tuple(map(tuple, groups)), "{" + ",".join(texts) + "}")
    global_ids = use_global_device_ids or None
    return {"channel_id": channel_id, "replica_groups": groups, "use_global_device_ids": global_ids}


def _scaled(shape: ArrayShape, dimension: int, factor: int, divisor: int) -> ArrayShape:
    """Return a shape of which one dimension is multiplied and divided."""
    if min(factor, divisor) < 1:
        raise ProgramError(f"shard_count: expected at least 1, found {min(factor, divisor)}")
    sizes = list(shape.dimensions)
    if not 0 <= dimension < len(sizes) or sizes[dimension] % divisor:
        raise ProgramError(f"expected a dimension of {shape} that {divisor} divides, found {dimension}")
    sizes[dimension] = sizes[dimension] * factor // divisor
    return ArrayShape(shape.dtype, tuple(sizes))
