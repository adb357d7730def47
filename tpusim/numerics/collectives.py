"""Values of collectives: devices meet at an instruction, see what each of them brought, and compute their own part.

Device numbers are places in the list of a run: replica times partitions plus partition. How many there are is what the
module's first line says in ``replica_count`` and ``num_partitions``.

Source: XLA, Operation Semantics.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tpusim.errors import ProgramError
from tpusim.ir.module import Instruction
from tpusim.numerics.ops.movement import window_at
from tpusim.numerics.ops.reduction import UFUNCS, kernel_of
from tpusim.numerics.registry import Array, compute_type, computes, zeros
from tpusim.numerics.scalar_computation import apply_lifted, binary_opcode
from tpusim.numerics.site import Meet, Site
from tpusim.semantics.device_groups import Pairs, device_groups, device_pairs
from tpusim.semantics.infer.types import parts
from tpusim.shapes.dtype import numpy_dtype
from tpusim.shapes.shape import Shape, TupleShape, leaves

Meeting = Generator[Meet, dict[int, Any], Any]

computes("replica-id")(lambda site, instruction, operands: np.array(site.device.replica, np.uint32))
computes("partition-id")(lambda site, instruction, operands: np.array(site.device.partition, np.uint32))
# The start has computed the result: that of all-reduce returns it alone, the others behind their operands.
computes("all-reduce-done")(lambda site, instruction, operands: operands[0])
computes("all-gather-done", "collective-permute-done")(lambda site, instruction, operands: operands[0][1])


def group_of(site: Site, instruction: Instruction) -> tuple[int, ...]:
    """Return the numbers of the devices that this one works with, in the order of the group; none if it is in none."""
    groups = device_groups(site.module, instruction)
    group = next((group for group in groups if site.device_number in group), ())
    return site.existing(instruction, group)


@computes("all-reduce", "all-reduce-start")
def all_reduce(site: Site, instruction: Instruction, operands: list[Any]) -> Meeting:
    """Return the operands of the group folded in its order, each on its own."""
    brought = yield from _gathered(site, instruction, operands)
    return _one_or_tuple(instruction, _folded(site, instruction, brought))


@computes("all-gather", "all-gather-start")
def all_gather(site: Site, instruction: Instruction, operands: list[Any]) -> Meeting:
    """Return the operands of the group one after the other; a start has its operands beside that."""
    axis = instruction.attributes["dimensions"][0]
    brought = yield from _gathered(site, instruction, operands)
    value = _one_or_tuple(instruction, [np.concatenate(pieces, axis) for pieces in zip(*brought, strict=True)])
    is_start = instruction.opcode == "all-gather-start"
    return (operands[0] if len(operands) == 1 else tuple(operands), value) if is_start else value


@computes("reduce-scatter")
def reduce_scatter(site: Site, instruction: Instruction, operands: list[Any]) -> Meeting:
    """Return the device's own block of the fold of the group's operands."""
    axis, group = instruction.attributes["dimensions"][0], group_of(site, instruction)
    brought = yield from _gathered(site, instruction, operands)
    place, count = group.index(site.device_number), len(group)
    blocks = [[_block(array, axis, place, count) for array in operands] for operands in brought]
    return _one_or_tuple(instruction, [array.copy() for array in _folded(site, instruction, blocks)])


@computes("all-to-all")
def all_to_all(site: Site, instruction: Instruction, operands: list[Any]) -> Meeting:
    """Return what every member has for this device: a block of its array, or one of its operands."""
    group = group_of(site, instruction)
    brought = yield from _gathered(site, instruction, operands)
    place = group.index(site.device_number)
    if "dimensions" not in instruction.attributes:
        return _one_or_tuple(instruction, [arrays[place] for arrays in brought])
    axis = instruction.attributes["dimensions"][0]
    return np.concatenate([_block(arrays[0], axis, place, len(group)) for arrays in brought], axis)


def _block(array: Array, axis: int, place: int, count: int) -> Array:
    """Return one of as many blocks as a group has devices, into which an array is cut along an axis."""
    size = array.shape[axis] // count
    return array[(slice(None),) * axis + (slice(place * size, place * size + size),)]


@computes("ragged-all-to-all")
def ragged_all_to_all(site: Site, instruction: Instruction, operands: list[Any]) -> Meeting:
    """Return the second operand with the rows written into it that the members sent here.

    Operands are input, output, where rows begin in the sender's input, how many they are, where they begin in the
    receiver's output, and how many are received: vectors with as many entries for each member of the group.
    """
    place = group_of(site, instruction).index(site.device_number)
    brought = yield from _gathered(site, instruction, operands)
    # The buffer is given as an operand, but its other users must not see it change.
    result = operands[1].copy()
    for source, _, *counts in brought:
        mine = [vector.reshape(len(brought), -1)[place].tolist() for vector in counts[:3]]
        for begin, size, target in zip(*mine, strict=True):
            if not (0 <= begin <= len(source) - size and 0 <= target <= len(result) - size and size >= 0):
                rows = f"{len(source)} rows of the input to {len(result)} of the output"
                raise ProgramError(
                    f"{instruction.name}: expected pieces that fit {rows}, found {size} from {begin} to {target}"
                )
            result[target : target + size] = source[begin : begin + size]
    return result


@computes("collective-broadcast")
def collective_broadcast(site: Site, instruction: Instruction, operands: list[Any]) -> Meeting:
    """Return what the first member of the group has, or the one that the last operand says; zeros if in no group."""
    group = group_of(site, instruction)
    if not group:
        return zeros(_result_shape(instruction))
    brought = yield from _gathered(site, instruction, operands)
    if not instruction.attributes.get("has_dynamic_root"):
        return _one_or_tuple(instruction, brought[0])
    roots = operands[-1].tolist()
    return _one_or_tuple(instruction, [brought[root][number] for number, root in enumerate(roots)])


@computes("collective-permute", "collective-permute-start")
def collective_permute(site: Site, instruction: Instruction, operands: list[Any]) -> Meeting:
    """Return what the source of this device's pair has; zeros if the device is no pair's target.

    With ``slice_sizes`` slices of it are written into the device's second operand.
    """
    own = site.device_number
    pairs = device_pairs(site.module, instruction)
    site.existing(instruction, [number for pair in pairs for number in pair])
    company = _companies(pairs).get(own, (own,))
    # A device without a partner goes on at once, as it would on the machine.
    brought: dict[int, Any] = {own: operands}
    if len(company) > 1:
        brought = yield Meet(site.place(instruction), company, operands)
    if "slice_sizes" in instruction.attributes:
        operands, value = operands[:1], _with_slices(instruction, pairs, own, brought)
    else:
        source = next((source for source, target in pairs if target == own), None)
        value = zeros(_result_shape(instruction)) if source is None else _one_or_tuple(instruction, brought[source])
    if instruction.opcode == "collective-permute":
        return value
    sent = operands[0] if len(operands) == 1 else tuple(operands)
    return (sent, value, *map(zeros, parts(instruction.shape)[2:]))


def _gathered(site: Site, instruction: Instruction, operands: list[Any]) -> Generator[Meet, dict[int, Any], list[Any]]:
    """Wait for the group and return its operands in its order."""
    group = group_of(site, instruction)
    if not group:
        raise ProgramError(
            f"expected replica_groups of {instruction.name!r} to have every device, found none with replica"
            f" {site.device.replica}, partition {site.device.partition}"
        )
    met = yield Meet(site.place(instruction), group, operands)
    return [met[number] for number in group]


def _folded(site: Site, instruction: Instruction, brought: Sequence[list[Any]]) -> list[Any]:
    """Return operands of several devices folded by the computation of the instruction."""
    name = instruction.attributes["to_apply"]
    opcode = binary_opcode(site.module, name)
    if opcode in UFUNCS:
        # A result may be of another type of float than what is brought: a TPU sums bf16 up in f32 on its way.
        types = [numpy_dtype(leaf.dtype) for leaf in leaves(_result_shape(instruction))]
        arrays = zip(*brought, strict=True)
        return [
            _folded_by(UFUNCS[opcode], each).astype(dtype, copy=False)
            for each, dtype in zip(arrays, types, strict=True)
        ]
    # In the order of the group: nothing says that an unknown computation may be reordered.
    folded = list(brought[0])
    for operands in brought[1:]:
        folded = [apply_lifted(site, name, list(pair)) for pair in zip(folded, operands, strict=True)]
    return folded


def _folded_by(ufunc: np.ufunc, arrays: Sequence[Any]) -> Any:
    """Return arrays folded by one of NumPy's functions, not rounded yet where they are narrow floats."""
    wide = compute_type(arrays[0].dtype)
    kernel = kernel_of(ufunc, wide)
    total = np.atleast_1d(arrays[0].astype(wide))
    for array in arrays[1:]:
        total = np.asarray(kernel(total, np.atleast_1d(array.astype(wide, copy=False))), wide)
    return total.reshape(arrays[0].shape)


def _one_or_tuple(instruction: Instruction, arrays: Sequence[Any]) -> Any:
    """Return one array or several as the shape of the result says."""
    return tuple(arrays) if isinstance(_result_shape(instruction), TupleShape) else arrays[0]


def _result_shape(instruction: Instruction) -> Shape:
    """Return the shape of what the operation gives: a start, except that of all-reduce, has it behind its operands."""
    is_alone = not instruction.opcode.endswith("-start") or instruction.opcode == "all-reduce-start"
    return instruction.shape if is_alone else parts(instruction.shape)[1]


@lru_cache(maxsize=64)
def _companies(pairs: Pairs) -> dict[int, tuple[int, ...]]:
    """Return, by device, those that pairs join with it, directly or through others: only they need to wait."""
    # Pairs 0 to 1 and 1 to 2 join three devices: 1 must have come before either of the others can go on.
    company: dict[int, set[int]] = {}
    for pair in pairs:
        fewer, more = sorted((company.setdefault(device, {device}) for device in pair), key=len)
        if fewer is not more:
            more |= fewer
            company |= dict.fromkeys(fewer, more)
    return {device: tuple(sorted(joined)) for device, joined in company.items()}


def _with_slices(instruction: Instruction, pairs: Sequence[tuple[int, ...]], own: int, brought: dict[int, Any]) -> Any:
    """Return the device's second operand with the slices that others sent written where they say."""
    results, all_sizes = brought[own][1], instruction.attributes["slice_sizes"]
    is_tuple = isinstance(brought[own][0], tuple)
    buffers = [array.copy() for array in (results if is_tuple else (results,))]
    for number, (source, target) in enumerate(pairs):
        if target != own:
            continue
        # A device that is the source of several pairs sends its slices in their order.
        turn = sum(1 for pair in pairs[:number] if pair[0] == source)
        sizes = all_sizes[min(turn, len(all_sizes) - 1)]
        sent, _, begins, targets = brought[source] if is_tuple else ([part] for part in brought[source])
        for buffer, array, begin, end in zip(buffers, sent, begins, targets, strict=True):
            buffer[_box(end, turn, sizes, buffer.shape)] = array[_box(begin, turn, sizes, array.shape)]
    return tuple(buffers) if is_tuple else buffers[0]


def _box(starts: Any, turn: int, sizes: Sequence[int], bounds: Sequence[int]) -> tuple[slice, ...]:
    """Return the slices that begin at ``starts``, one scalar per dimension or a tuple of them per slice."""
    return window_at(bounds, sizes, starts[turn] if isinstance(starts[0], tuple) else starts)
