"""Values of custom calls, by their target: those that the TPU compiler makes, and any that a user registers.

What decomposes matrices is in ``block_calls``.

Source: XLA, Custom calls.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from tpusim.errors import ProgramError, TpusimError, UnsupportedError, did_you_mean
from tpusim.ir.custom_calls import ASYNC_DONE, ASYNC_START, INWARD, OUTWARD, registered_for
from tpusim.ir.module import Instruction
from tpusim.numerics.ops.control import call
from tpusim.numerics.ops.linear_algebra import complex_of
from tpusim.numerics.ops.sorting import topk
from tpusim.numerics.registry import TOKEN, Rule, array_shape, computes, registrar, zeros
from tpusim.numerics.site import Site
from tpusim.numerics.values.relayout import pack, unpack
from tpusim.semantics.aliasing import JOIN, joined_in_order
from tpusim.semantics.infer.types import parts
from tpusim.shapes.dtype import numpy_dtype
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape, leaves, shape_text

_BUILT_IN: dict[str, Rule] = {}
target = registrar(_BUILT_IN)
"""Enters the decorated function as what custom calls with the targets that it is given compute."""

# Each promises something of its operand, or marks where it is.
_MARKS = (
    "AssumeGatherIndicesInBound GatherScatterIndicesBitpacked LayoutConstraint MoveToDevice MoveToHost Sharding"
    " SPMDFullToShardShape SPMDShardToFullShape annotate_device_placement xla.sdy.FuncResultSharding"
)


@computes("custom-call")
def custom_call(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return what the target computes.

    Raises UnsupportedError for a target of which nothing says what it computes, ProgramError for a registered function
    that returned something else than the instruction's shape.
    """
    name = instruction.attributes.get("custom_call_target", "")
    # A cost alone says nothing about values, so an entry may be there without them.
    registered = registered_for(instruction)
    if registered is not None and registered.numerics is not None:
        return _checked(_user_value(registered.numerics, instruction, operands), instruction.shape, name)
    if name in _BUILT_IN:
        value = _BUILT_IN[name](site, instruction, operands)
        # A kernel's is still to be computed: its types say what it gives.
        return value if isinstance(value, Generator) else _in_form(value, instruction)
    if not _is_wrapper(site, instruction):
        raise UnsupportedError(
            f"{instruction.name}: nothing says what the custom call {name!r} computes"
            f"{did_you_mean(name, _BUILT_IN)}; register it with"
            f" tpusim.register_custom_call({name!r}, numerics=lambda instruction, *operands: ...)"
        )
    # Such as one that hands its computation to the sparse cores.
    return call(site, instruction, operands)


def _user_value(function: Callable[..., Any], instruction: Instruction, operands: list[Any]) -> Any:
    """Return what a registered function returns; an error of its own becomes the cause of a ProgramError."""
    try:
        return function(instruction, *map(_read_only, operands))
    except TpusimError:
        raise
    except Exception as error:
        name, found = instruction.attributes["custom_call_target"], f"{type(error).__name__}: {error}"
        raise ProgramError(
            f"{instruction.name}: expected the function registered for {name!r} to return a value, found {found}"
        ) from error


def _read_only(value: Any) -> Any:
    """Return a value that cannot be written to: others may still read the same arrays."""
    if isinstance(value, tuple):
        return tuple(map(_read_only, value))
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def _is_wrapper(site: Site, instruction: Instruction) -> bool:
    """Return whether a custom call only hands on a computation, which takes and returns what the call does."""
    called = instruction.called_computations
    if len(called) != 1:
        return False
    computation = site.module[called[0]]
    operands = [operand.shape for operand in site.computation.operands_of(instruction)]
    taken = [parameter.shape for parameter in computation.parameters]
    plain = [shape_text(shape, layout=False) for shape in (*taken, computation.root.shape)]
    return plain == [shape_text(shape, layout=False) for shape in (*operands, instruction.shape)]


def _in_form(value: Any, instruction: Instruction) -> Any:
    """Return what a target computes if it is of the shape that the instruction says."""
    todo: list[tuple[Any, Shape]] = [(value, instruction.shape)]
    while todo:
        part, shape = todo.pop()
        is_in_parts = isinstance(part, (tuple, list))
        if isinstance(shape, TupleShape) and is_in_parts and len(part) == len(shape.elements):
            todo += zip(part, shape.elements, strict=True)
        elif isinstance(shape, TupleShape) or is_in_parts or not _is_of(part, shape):
            name = instruction.attributes["custom_call_target"]
            raise ProgramError(f"{instruction.name}: expected what {name!r} gives, found {instruction.shape}")
    return value


def _is_of(value: Any, shape: Shape) -> bool:
    """Return whether a value is an array of some sizes and type, or of no more where those are bounds."""
    if not isinstance(shape, ArrayShape) or not shape.dtype.is_array_type:
        return True
    if not isinstance(value, np.ndarray) or value.dtype != numpy_dtype(shape.dtype) or value.ndim != shape.rank:
        return False
    flags = shape.dynamic or (False,) * shape.rank
    return all(
        size == bound or (flag and size < bound)
        for size, bound, flag in zip(value.shape, shape.dimensions, flags, strict=True)
    )


def _checked(value: Any, shape: Shape, name: str) -> Any:
    """Return what a registered function returned, if it has the shape that the program says."""
    if isinstance(shape, TupleShape) and isinstance(value, (tuple, list)) and len(value) == len(shape.elements):
        return tuple(_checked(part, element, name) for part, element in zip(value, shape.elements, strict=True))
    # Whatever a function returns for a token, that it returned is all that counts.
    if isinstance(shape, ArrayShape) and not shape.dtype.is_array_type:
        return TOKEN
    found = f"a {type(value).__name__}"
    if not isinstance(value, (tuple, list)) and isinstance(shape, ArrayShape):
        array = np.asarray(value)
        if array.dtype == numpy_dtype(shape.dtype) and array.shape == shape.dimensions:
            return array
        found = f"{array.dtype}{list(array.shape)}"
    wanted = shape_text(shape, layout=False)
    raise ProgramError(f"expected the function registered for {name!r} to return {wanted}, found {found}")


@target(*_MARKS.split())
def _same(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    # Layout and memory space may differ: that is what some of these calls are for.
    wanted = [leaf.dimensions for leaf in leaves(instruction.shape)]
    if wanted != [leaf.dimensions for leaf in leaves(site.operand(instruction, 0).shape)]:
        name = instruction.attributes["custom_call_target"]
        raise UnsupportedError(
            f"{instruction.name}: {name!r} changes the shape to {instruction.shape}, which depends on the partitioning;"
            " partition the program first"
        )
    return operands[0]


@target(INWARD, OUTWARD)
def _crossing(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the operands of a way into what devices do by hand, or out of it, if each device has all of them."""
    wanted = [leaf.dimensions for leaf in leaves(instruction.shape)]
    found = [array_shape(site.operand(instruction, position).shape).dimensions for position in range(len(operands))]
    if wanted != found:
        raise UnsupportedError(
            f"{instruction.name}: expected what each device runs, found a region of jax.shard_map in a program that is"
            " not cut up for its devices: give StableHLO, which XLA cuts up, take tpusim.jax.lower_for, or compute what"
            " runs on the chip (--schedule compiled)"
        )
    return tuple(operands) if isinstance(instruction.shape, TupleShape) else operands[0]


# No buffer or handle is read before it is written; zeros, so that a run gives the same values every time.
target("AllocateBuffer", "PrepareAsyncCallStart")(lambda site, instruction, operands: zeros(instruction.shape))
target("PrepareAsyncCallDone")(lambda site, instruction, operands: TOKEN)
# What the collective gave stands second among what the start returned.
target(ASYNC_DONE)(lambda site, instruction, operands: operands[1])


@target(ASYNC_START)
def _async_collective(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return what the collective took, what it gave, and handles: beside the core it is done when it starts."""
    # The operand is the collective, which stands in the same computation and takes a parameter of it.
    taken = site.operand(site.operand(instruction, 0), 0)
    if taken.opcode != "parameter":
        raise UnsupportedError(
            f"{instruction.name}: expected a collective of a parameter, found one of {taken.opcode!r}"
        )
    source = site.arguments[taken.immediate]  # type: ignore[index]
    return (source, operands[0], *map(zeros, parts(instruction.shape)[2:]))


@target(JOIN)
def _concat_bitcast(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the array whose buffer is the operands' buffers, one after the other as they lie."""
    # Pieces may have another element type and rank than the whole; only their bytes are known to fit.
    order = joined_in_order(site.module, site.computation, instruction)
    buffers = [pack(operands[number], array_shape(site.operand(instruction, number).shape)) for number in order]
    return unpack(np.concatenate(buffers), array_shape(instruction.shape))


target("TopK")(topk)


@target("X64Combine")
def _combine(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return 64-bit numbers from their low and high halves; a double is the sum of two f32."""
    low, high = operands
    # TPUs have no 64-bit registers: the compiler splits every such value and works on the halves.
    if array_shape(instruction.shape).dtype.is_float:
        return high.astype(np.float64) + low.astype(np.float64)
    bits = low.view(np.uint32).astype(np.uint64) | high.view(np.uint32).astype(np.uint64) << np.uint64(32)
    return bits.view(numpy_dtype(array_shape(instruction.shape).dtype))


@target("X64SplitHigh")
def _split_high(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the high halves of 64-bit numbers; of a double, what its rounding to f32 left."""
    if operands[0].dtype.kind == "f":
        # With an infinity nothing is left, not even a NaN.
        rounded = _rounded(operands[0])
        return np.where(np.isfinite(rounded), operands[0] - np.where(np.isfinite(rounded), rounded, 0), 0).astype("f4")
    high = (operands[0].view(np.uint64) >> np.uint64(32)).astype(np.uint32)
    return high.view(numpy_dtype(array_shape(instruction.shape).dtype))


@target("X64SplitLow")
def _split_low(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the low halves of 64-bit numbers; of a double, its rounding to f32: the leading part comes first."""
    if operands[0].dtype.kind == "f":
        return _rounded(operands[0])
    return operands[0].view(np.uint64).astype(np.uint32).view(numpy_dtype(array_shape(instruction.shape).dtype))


def _rounded(doubles: Any) -> Any:
    """Return doubles as f32; too large ones become infinite."""
    return doubles.astype(np.float32)


# Of complex numbers of two doubles.
target("X128Combine")(lambda site, instruction, operands: complex_of(*operands))
target("X128SplitHigh")(lambda site, instruction, operands: operands[0].imag)
target("X128SplitLow")(lambda site, instruction, operands: operands[0].real)
