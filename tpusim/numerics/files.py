"""Inputs and outputs of a program as arrays and as ``.npz`` files.

Arrays are called ``in0, in1, ...`` in the order of the parameters' leaves and ``out0, out1, ...`` in that of the
result's. NumPy's files know no narrow floats: a bf16 array is stored as float32 under ``in0_bf16``, others likewise by
their name.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from lzma import LZMAError
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile, ZipFile, is_zipfile

import msgspec
import numpy as np

from tpusim.errors import ProgramError, UnsupportedError
from tpusim.files import is_file, whole_file
from tpusim.limits import COMPUTED_ELEMENTS, RANK
from tpusim.numerics.ops.convert import convert_values
from tpusim.numerics.registry import TOKEN
from tpusim.shapes.dtype import DTYPES, native, numpy_dtype
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape, leaves, shape_text

# What NumPy and zipfile raise of files that are damaged, or packed in ways that they lack.
_DAMAGED = (
    *(ArithmeticError, AttributeError, BadZipFile, EOFError, LookupError, MemoryError, OSError),
    *(LZMAError, RuntimeError, SyntaxError, TokenError, TypeError, ValueError, zlib.error),
)
# Of other types, such as those of ml_dtypes, np.load would give back nothing but bytes.
_STORED_AS_THEY_ARE = frozenset("?bBhHiIlLqQefdFD")
_REGISTERED = 2
_LOST = "save arrays of types that NumPy lacks as float32, under names such as in0_bf16"
# Of arrays of numbers, by the version of the format; the third is for names of columns.
_HEADER_BYTES = 1 << 17
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# Results may stand beside the inputs that they belong to.
_RESULT = re.compile(r"out\d+(_\w+)?")
# What Python's numbers become without loss: truth values integers, integers floats, floats complex numbers.
_KINDS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
_NAMES = {numpy_dtype(dtype): name for name, dtype in DTYPES.items() if dtype.is_array_type}


class Stored(msgspec.Struct, frozen=True):
    """An array in a file, read when NumPy asks for it: kilobytes of zeros may unpack to gigabytes that nobody wants."""

    path: str | Path
    member: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return the array, as NumPy's protocol has it. Raises ProgramError where the file is damaged."""
        try:
            with ZipFile(self.path) as archive, archive.open(self.member) as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
        except _DAMAGED as error:
            raise ProgramError(f"{self.path}: {self.member}: expected an array: {error}") from error
        return array if dtype is None else array.astype(dtype)


def read_arrays(path: str | Path) -> dict[str, Any]:
    """Return the arrays of an ``.npz`` file by name, each as a ``Stored``. Raises ProgramError for anything else."""
    try:
        if is_file(path) and not is_zipfile(path):
            raise ProgramError(f"{path}: expected an .npz file of arrays (numpy.savez), found another kind of file")
        with ZipFile(path) as archive:
            members = Counter(name.removesuffix(".npy") for name in archive.namelist())
            double, count = max(members.items(), key=lambda item: item[1], default=("", 0))
            if count > 1:
                raise ProgramError(f"{path}: expected each array once, found {double!r} twice")
            return {name.removesuffix(".npy"): _stored(archive, path, name) for name in archive.namelist()}
    except FileNotFoundError as error:
        raise ProgramError(f"{path}: cannot be read: {error.strerror}") from error
    except _DAMAGED as error:
        found = (isinstance(error, OSError) and error.strerror) or str(error).partition("\n")[0]
        # What NumPy writes for some types of ml_dtypes.
        found += f"; {_LOST}" if "dtype descriptor" in found else ""
        raise ProgramError(f"{path}: expected an .npz file of arrays: {found}") from error


def _stored(archive: ZipFile, path: str | Path, member: str) -> Stored:
    with archive.open(member) as file:
        # It states its length itself: a gigabyte of blanks takes a megabyte of the file.
        head = BytesIO(file.read(_HEADER_BYTES))
        version = np.lib.format.read_magic(head)
        if version not in _HEADERS:
            found = f"{member} in the format {version[0]}.{version[1]}"
            raise ProgramError(f"{path}: expected an .npz file of arrays of numbers, found {found}")
        try:
            shape, _, dtype = _HEADERS[version](head)
        except _DAMAGED as error:
            # Of types that it does not know NumPy says which; of all else where its own reader stood.
            if "dtype descriptor" in str(error):
                raise
            found = f"no sizes and no type at the head of {member}"
            raise ProgramError(f"{path}: expected an .npz file of arrays, found {found}") from error
    return Stored(path, member, shape, dtype)


def take_inputs(arrays: Mapping[str, Any], shapes: Sequence[Shape]) -> list[Any]:
    """Return the parameters' values from arrays called ``in0, in1, ...``, in the parameters' types.

    Results ``out0, ...`` beside them are left alone. Raises ProgramError that lists the parameters if one is missing,
    stands there twice or has another type or other sizes, or if there is an array of another name.
    """
    wanted = [leaf for shape in shapes for leaf in leaves(shape)]
    # A result is stored as out0_bf16; renamed to in0_bf16 it can be an input again.
    names = [(f"in{i}", f"in{i}_{leaf.dtype.name}") for i, leaf in enumerate(wanted)]
    _check_names(arrays, names, wanted)
    found = [next((arrays[name] for name in pair if name in arrays), TOKEN) for pair in names]
    # Sizes of all before types: of parameters that were mixed up, these are the better message.
    named = [(f"in{i}", value, leaf) for i, (value, leaf) in enumerate(zip(found, wanted, strict=True))]
    sized = [_as_array(*each) for each in named]
    return nest_inputs((_typed(*each, array) for each, array in zip(named, sized, strict=True)), shapes)


def _check_names(arrays: Mapping[str, Any], names: list[tuple[str, str]], wanted: list[ArrayShape]) -> None:
    known = {name for pair in names for name in pair}
    counts = [sum(name in arrays for name in pair) for pair in names]
    problems = {
        # A token is nothing that a file could hold.
        "missing": [f"in{i}" for i, n in enumerate(counts) if not n and wanted[i].dtype.is_array_type],
        "twice": [f"in{i}" for i, n in enumerate(counts) if n > 1],
        "no parameter's": [name for name in arrays if name not in known and not _RESULT.fullmatch(str(name))],
    }
    for problem, listed in problems.items():
        if listed:
            raise ProgramError(f"{problem}: {', '.join(map(str, listed))}; {_parameters(wanted)}")


def _parameters(wanted: Sequence[ArrayShape]) -> str:
    listed = ", ".join(f"in{i}: {shape_text(leaf, layout=False)}" for i, leaf in enumerate(wanted))
    return f"the parameters are {listed or 'none'}"


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
    wanted = [leaf for shape in shapes for leaf in leaves(shape)]
    if len(flat) > len(wanted):
        raise ProgramError(f"expected {len(wanted)} arrays, found {len(flat)}; {_parameters(wanted)}")
    return take_inputs({f"in{i}": value for i, value in enumerate(flat)}, shapes)


def in_types_of(value: Any, shape: Shape) -> Any:
    """Return a value with every array in the element type of ``shape``."""
    if isinstance(shape, TupleShape):
        return tuple(in_types_of(part, element) for part, element in zip(value, shape.elements, strict=True))
    if not isinstance(value, np.ndarray) or not isinstance(shape, ArrayShape):
        return value
    return value.astype(numpy_dtype(shape.dtype), copy=False)


def apart_from(value: Any, others: list[Any]) -> Any:
    """Return a value whose arrays may be written to: copied if they lie in the memory of ``others``, which then grow.

    So a caller that writes to one part changes neither another part nor what it gave.
    """
    if isinstance(value, tuple):
        return tuple(apart_from(part, others) for part in value)
    if not isinstance(value, np.ndarray):
        return value
    is_own = value.flags.writeable and not any(np.may_share_memory(value, other) for other in others)
    own = value if is_own else value.copy()
    others.append(own)
    return own


def nest_inputs(flat: Iterator[Any], shapes: Sequence[Shape]) -> list[Any]:
    """Return flat values as the parameters have them: a tuple for each tuple shape."""
    return [
        tuple(nest_inputs(flat, shape.elements)) if isinstance(shape, TupleShape) else next(flat) for shape in shapes
    ]


def with_random(arrays: Mapping[str, Any], shapes: Sequence[Shape], seed: int) -> dict[str, Any]:
    """Return arrays called ``in0, in1, ...`` with random ones for the parameters that are not among them."""
    made = flat_values(tuple(random_inputs(shapes, seed)))
    wanted = [leaf for shape in shapes for leaf in leaves(shape)]
    missing = {
        f"in{i}": value
        for i, (value, leaf) in enumerate(zip(made, wanted, strict=True))
        if value is not TOKEN and f"in{i}" not in arrays and f"in{i}_{leaf.dtype.name}" not in arrays
    }
    return {**missing, **arrays}


def random_inputs(shapes: Sequence[Shape], seed: int) -> list[Any]:
    """Return values for parameters: floats from a standard normal distribution, small integers, coin flips.

    Raises UnsupportedError if some are too large for any machine.
    """
    generator = np.random.default_rng(seed)
    for number, shape in enumerate(shapes):
        check_size(f"in{number}", shape)
    return nest_inputs((_random(generator, leaf) for shape in shapes for leaf in leaves(shape)), shapes)


def check_size(name: str, shape: Shape) -> None:
    """Raise UnsupportedError if a value of a shape is too large for any machine, or has too many dimensions."""
    for leaf in leaves(shape):
        # NumPy also bounds what an array without elements would have, were its sizes of 0 left out.
        count = prod([size or 1 for size in leaf.dimensions])
        if fault := COMPUTED_ELEMENTS.fault(count) or RANK.fault(leaf.rank):
            raise UnsupportedError(f"{name!r} {shape_text(leaf, layout=False)}: {fault}")


def name_outputs(value: Any) -> dict[str, Any]:
    """Return a result's arrays by name, as they are stored; tokens are left out."""
    named = {}
    for i, array in enumerate(np.asarray(leaf) for leaf in flat_values(value) if leaf is not TOKEN):
        if _is_stored_as_it_is(array.dtype):
            named[f"out{i}"] = array
        else:
            named[f"out{i}_{_NAMES[array.dtype]}"] = array.astype(np.float32)
    return named


def write_arrays(path: str | Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to a file of the form ``.npz``, whatever its name ends in."""
    with whole_file(path) as beside:
        if beside.is_file():
            with beside.open("wb") as file:
                np.savez(file, **arrays)
            return
        # Where NumPy cannot go back in what it has written.
        archive = BytesIO()
        np.savez(archive, **arrays)
        beside.write_bytes(archive.getvalue())


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


def input_of(name: str, value: Any, shape: ArrayShape) -> Any:
    """Return one value that was given, in the type and sizes of ``shape``, which must be its own; a token for a token.

    Raises ProgramError, which calls the value ``name``, for anything else.
    """
    return _typed(name, value, shape, _as_array(name, value, shape))


def _as_array(name: str, value: Any, shape: ArrayShape) -> Any:
    """Return a value as an array of numbers, whose sizes must be the parameter's; a token comes back as it is."""
    if not shape.dtype.is_array_type:
        return TOKEN
    stated = shape_text(shape, layout=False)
    if isinstance(value, Stored):
        _check_sizes(name, value.shape, shape)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise ProgramError(f"{name}: expected an array for {stated}, found {value!r:.60}: {error}") from error
    # The types of ml_dtypes, too, are void to NumPy, but registered ones.
    if array.dtype.kind in "OSUMm" or (array.dtype.kind == "V" and array.dtype.isbuiltin != _REGISTERED):
        found = f"an array of {array.dtype}" if hasattr(value, "dtype") else f"{value!r:.60}"
        is_lost = array.dtype.kind == "V" and array.dtype.names is None
        advice = f", bytes of no known type: {_advice(value, shape, array.dtype)}" if is_lost else ""
        raise ProgramError(f"{name}: expected numbers for {stated}, found {found}{advice}")
    _check_sizes(name, array.shape, shape)
    return native(array)


def _check_sizes(name: str, found: tuple[int, ...], wanted: ArrayShape) -> None:
    if found != wanted.dimensions:
        raise ProgramError(f"{name}: expected the sizes of {shape_text(wanted, layout=False)}, found {found}")


def _typed(name: str, value: Any, shape: ArrayShape, array: Any) -> Any:
    """Return an array in the type of its parameter, which its own must be, or float32 where files lack the type."""
    if array is TOKEN:
        return TOKEN
    wanted, stated = numpy_dtype(shape.dtype), shape_text(shape, layout=False)
    is_stored = array.dtype == np.float32 and not _is_stored_as_it_is(wanted)
    # A plain value, a number or a list, has no type of its own: NumPy has chosen the widest one, and it must fit.
    is_plain = not hasattr(value, "dtype") and _KINDS.get(array.dtype.kind, 9) <= _KINDS.get(wanted.kind, 2)
    if array.dtype != wanted and not is_stored and not is_plain:
        found = f"{array.dtype}: {_advice(value, shape, array.dtype)}"
        raise ProgramError(f"{name}: expected {stated}, an array of {wanted.name}, found {found}")
    typed = convert_values(array, wanted)
    if shape.dtype.is_integer and array.dtype != wanted and (typed.astype(array.dtype) != array).any():
        raise ProgramError(f"{name}: expected numbers that {shape.dtype} can hold for {stated}, found others")
    return typed


def _advice(value: Any, shape: ArrayShape, found: np.dtype[Any]) -> str:
    """Return how to make an array of a type; in a file it is float32 where NumPy's files lack the type."""
    wanted = numpy_dtype(shape.dtype)
    is_kept = _is_stored_as_it_is(wanted)
    if isinstance(value, Stored) and not is_kept:
        own = value.member.removesuffix(".npy").partition("_")[0]
        return f"save its numbers as float32, under {own}_{shape.dtype}"
    if found.kind == "V" and found.isbuiltin != _REGISTERED:
        return f"save it with .astype({wanted.name if is_kept else 'float32'!r})"
    return f"convert it, for instance with .astype({wanted.name!r})"


def _random(generator: np.random.Generator, shape: ArrayShape) -> Any:
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
    numbers = np.asarray(generator.standard_normal(shape.dimensions, dtype=np.float32))
    if shape.dtype.kind == "complex":
        numbers = numbers + 1j * generator.standard_normal(shape.dimensions, dtype=np.float32)
    # A type of exponents alone has no sign.
    return np.asarray(np.abs(numbers) if shape.dtype.name == "f8e8m0fnu" else numbers).astype(wanted)


def _is_stored_as_it_is(dtype: np.dtype[Any]) -> bool:
    return dtype.char in _STORED_AS_THEY_ARE and dtype.isbuiltin == 1
