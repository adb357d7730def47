"""Inputs and outputs of a program as arrays and as ``.npz`` files.

Arrays are called ``in0, in1, ...`` in the order of the parameters' leaves and ``out0, out1, ...`` in that of the
result's. NumPy's files know no narrow floats: a bf16 array is stored as float32 under ``in0_bf16``, others likewise by
their name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from tpusim.errors import ProgramError
from tpusim.numerics.registry import TOKEN
from tpusim.numerics.relayout import numpy_dtype
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape, leaves

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

# Of other types, such as those of ml_dtypes, np.load would give back nothing but bytes.
_STORED_AS_THEY_ARE = frozenset("?bBhHiIlLqQefdFD")
_NAMES = {numpy_dtype(dtype): name for name, dtype in DTYPES.items() if dtype.is_array_type}


def read_arrays(path: str | Path) -> dict[str, Any]:
    """Return the arrays of an ``.npz`` file by name. Raises ProgramError if it is something else."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, EOFError, AttributeError, TypeError, BadZipFile) as error:
        raise ProgramError(f"{path}: expected an .npz file of arrays: {error}") from error


def take_inputs(arrays: Mapping[str, Any], shapes: Sequence[Shape]) -> list[Any]:
    """Return the parameters' values from arrays called ``in0, in1, ...``, in the parameters' types.

    Raises ProgramError that lists the parameters if one is missing or has other sizes.
    """
    wanted = [leaf for shape in shapes for leaf in leaves(shape)]
    # A result is stored as out0_bf16; renamed to in0_bf16 it can be an input again.
    found = [arrays.get(f"in{i}", arrays.get(f"in{i}_{leaf.dtype.name}")) for i, leaf in enumerate(wanted)]
    missing = [f"in{i}" for i, array in enumerate(found) if array is None]
    if missing:
        listed = ", ".join(f"in{i}: {leaf}" for i, leaf in enumerate(wanted))
        raise ProgramError(f"missing {', '.join(missing)}; the parameters are {listed}")
    return nest_inputs(
        [_typed(f"in{i}", a, leaf) for i, (a, leaf) in enumerate(zip(found, wanted, strict=True))], shapes
    )


def numbered(arrays: Mapping[str, Any]) -> list[Any]:
    """Return the arrays ``in0, in1, ...`` in the order of their numbers, wherever they stand in their file."""
    names = [name for i in range(len(arrays)) for name in arrays if name.partition("_")[0] == f"in{i}"]
    if len(names) != len(arrays):
        raise ProgramError(f"expected arrays in0, in1, ..., found {', '.join(sorted(arrays))}")
    return [arrays[name] for name in names]


def check_inputs(values: Sequence[Any], shapes: Sequence[Shape]) -> list[Any]:
    """Return parameters' values given one by one (arrays, or nested tuples) in the parameters' types and sizes."""
    if not isinstance(values, list | tuple):
        raise ProgramError(f"expected a list of the parameters' values, found {type(values).__name__}")
    flat = list(flat_values(tuple(values)))
    wanted = sum(1 for shape in shapes for _ in leaves(shape))
    if len(flat) > wanted:
        raise ProgramError(f"expected {wanted} arrays, one per parameter, found {len(flat)}")
    return take_inputs({f"in{i}": np.asarray(value) for i, value in enumerate(flat)}, shapes)


def in_types_of(value: Any, shape: Shape) -> Any:
    """Return a value with every array in the element type of ``shape``."""
    if isinstance(shape, TupleShape):
        return tuple(in_types_of(part, element) for part, element in zip(value, shape.elements, strict=True))
    if not isinstance(value, np.ndarray) or not isinstance(shape, ArrayShape):
        return value
    return value.astype(numpy_dtype(shape.dtype), copy=False)


def nest_inputs(flat: list[Any], shapes: Sequence[Shape]) -> list[Any]:
    """Return flat values as the parameters have them: a tuple for each tuple shape."""
    rest = iter(flat)
    return [_nested(rest, shape) for shape in shapes]


def random_inputs(shapes: Sequence[Shape], seed: int) -> list[Any]:
    """Return values for parameters: floats from a standard normal distribution, small integers, coin flips."""
    generator = np.random.default_rng(seed)
    return nest_inputs([_random(generator, leaf) for shape in shapes for leaf in leaves(shape)], shapes)


def name_outputs(value: Any) -> dict[str, Any]:
    """Return a result's arrays by name, as they are stored; tokens are left out."""
    arrays = [leaf for leaf in flat_values(value) if leaf is not TOKEN]
    return dict(_stored(f"out{i}", np.asarray(array)) for i, array in enumerate(arrays))


def write_arrays(path: str | Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to an ``.npz`` file."""
    np.savez(path, **arrays)


def describe(arrays: Mapping[str, Any]) -> str:
    """Return a line per array: its name, type, sizes and first elements."""
    lines = []
    for name, array in arrays.items():
        first = np.array2string(array.reshape(-1)[:6], precision=6, separator=", ", threshold=6)
        sizes = ",".join(str(size) for size in array.shape)
        lines.append(f"{name}  {array.dtype}[{sizes}]  {first}{' ...' if array.size > 6 else ''}")
    return "\n".join(lines)


def flat_values(value: Any) -> Iterator[Any]:
    """Yield the arrays of a value in order."""
    if isinstance(value, tuple):
        for element in value:
            yield from flat_values(element)
    else:
        yield value


def _nested(rest: Iterator[Any], shape: Shape) -> Any:
    """Take the values of one shape."""
    if isinstance(shape, TupleShape):
        return tuple(_nested(rest, element) for element in shape.elements)
    return next(rest)


def _typed(name: str, array: Any, shape: ArrayShape) -> Any:
    """Return an array in the type of its parameter; the sizes must be the parameter's."""
    if not shape.dtype.is_array_type:
        return TOKEN
    if array.shape != shape.dimensions:
        raise ProgramError(f"{name}: expected the sizes of {shape}, found {array.shape}")
    if array.dtype.kind in "OSUV" and array.dtype.isbuiltin == 1:
        raise ProgramError(f"{name}: expected numbers for {shape}, found an array of {array.dtype}")
    if array.dtype.kind == "c" and not shape.dtype.is_complex:
        raise ProgramError(f"{name}: expected real numbers for {shape}, found complex ones")
    return array.astype(numpy_dtype(shape.dtype), copy=False)


def _random(generator: np.random.Generator, shape: ArrayShape) -> Any:
    """Return random values of one array."""
    if not shape.dtype.is_array_type:
        return TOKEN
    wanted = numpy_dtype(shape.dtype)
    if shape.dtype.is_integer:
        # Small, so that sums and indices stay in range; half the range, so that signed types stay positive.
        # One-bit types hold 0 and 1, or 0 and -1, which NumPy makes of 1.
        most = max(2, min(8, 1 << shape.dtype.bits - 1))
        return generator.integers(0, most, shape.dimensions).astype(wanted)
    if shape.dtype.kind == "pred":
        return generator.integers(0, 2, shape.dimensions).astype(wanted)
    # Drawn in f32: bf16 and f8 then differ by rounding alone from what a wider program gets.
    real = generator.standard_normal(shape.dimensions, dtype=np.float32)
    # A type of exponents alone has no sign.
    real = np.abs(real) if shape.dtype.name == "f8e8m0fnu" else real
    imaginary = generator.standard_normal(shape.dimensions, dtype=np.float32) if shape.dtype.kind == "complex" else 0
    return (real + 1j * imaginary).astype(wanted) if shape.dtype.kind == "complex" else np.asarray(real).astype(wanted)


def _stored(name: str, array: Any) -> tuple[str, Any]:
    """Return an array and its name in a file."""
    if array.dtype.char in _STORED_AS_THEY_ARE and array.dtype.isbuiltin == 1:
        return name, array
    return f"{name}_{_NAMES[array.dtype]}", array.astype(np.float32)
