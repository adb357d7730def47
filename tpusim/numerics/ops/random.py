"""Random numbers: the counter-based generators bit by bit, and distributions that have only their shape to keep.

A counter-based generator turns (key, counter) into a block of words. ThreeFry2x32 makes two words of 32 bits per block
in 20 rounds, Philox4x32 four in 10.

Source: XLA, Operation Semantics, RngBitGenerator; Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (2011).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpusim.compiled import njit
from tpusim.errors import ProgramError
from tpusim.ir.module import Instruction
from tpusim.numerics.ops.convert import convert_values
from tpusim.numerics.registry import Array, array_shape, compute_type, computes, element_type
from tpusim.numerics.site import Site
from tpusim.shapes.dtype import numpy_dtype
from tpusim.shapes.shape import TupleShape

Words = NDArray[np.uint32]
Produced = tuple[Array, Array]

_INITIAL_STATE = 0x7012395
"""What ``rng-get-and-update-state`` finds at first, as in XLA's CPU and GPU backends."""


@computes("rng-bit-generator")
def rng_bit_generator(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the state after, and the bits; ``rng_default`` is Philox, as on XLA's CPU.

    The state is u64: a key and a counter of one word, for Philox of one or two. TPU-compiled text has a form with a
    state of u32 words that returns the bits alone. Raises ProgramError for a state of another size.
    """
    shape = instruction.shape
    bits = array_shape(shape.elements[1] if isinstance(shape, TupleShape) else shape)
    algorithm = instruction.attributes["algorithm"]
    width = max(8, bits.dtype.bits)
    words = np.ascontiguousarray(operands[0]).reshape(-1)
    if words.dtype.itemsize not in _WORD_BYTES or words.nbytes not in _STATE_BYTES[algorithm]:
        sizes, found = " or ".join(map(str, _STATE_BYTES[algorithm])), f"{words.dtype}[{words.size}]"
        raise ProgramError(f"{instruction.name}: expected a state of {sizes} bytes in u64 or u32, found {found}")
    state, values = _GENERATORS[algorithm](words.view(np.uint64), bits.dimensions, width)
    dtype = numpy_dtype(bits.dtype)
    # A type narrower than a byte takes the low bits of one.
    typed = values.view(dtype) if dtype.itemsize > 1 or compute_type(dtype) == dtype else values.astype(dtype)
    return (state, typed) if isinstance(shape, TupleShape) else typed


@computes("rng")
def rng(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return random numbers of a distribution: uniform from ``a`` up to but not ``b``, or normal by mean and deviation.

    They depend on the seed of the settings, on the device, and on how often this device has asked before.
    """
    draw = _DISTRIBUTIONS[instruction.attributes["distribution"]]
    dtype, shape = element_type(instruction), array_shape(instruction.shape).dimensions
    low, high = (convert_values(operand, compute_type(dtype)) for operand in operands)
    device, memory = site.device, site.device.random
    if "generator" not in memory:
        memory["generator"] = np.random.default_rng([site.settings.seed, device.replica, device.partition])
    return convert_values(np.asarray(draw(memory["generator"], low, high, shape)), dtype)


@computes("rng-get-and-update-state")
def rng_get_and_update_state(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return this device's state, 128 bits as u64 with the lower half first, and advance it by ``delta``."""
    memory = site.device.random
    state = memory.setdefault("state", _INITIAL_STATE + site.settings.seed)
    memory["state"] = state + instruction.attributes["delta"]
    return _words(state, 2)


def _uniform(generator: np.random.Generator, low: Array, high: Array, shape: tuple[int, ...]) -> Array:
    """Draw from ``low`` up to but not ``high``."""
    if low.dtype.kind != "f":
        return np.asarray(generator.integers(low, high, shape, low.dtype))
    values = low + (high - low) * generator.random(shape, low.dtype)
    # The sum may round up to the end that does not belong to the range.
    return np.minimum(values, np.maximum(low, np.nextafter(high, low)))


_DISTRIBUTIONS: dict[str, Callable[..., Array]] = {
    "rng_uniform": _uniform,
    # By mean and standard deviation.
    "rng_normal": lambda stream, mean, deviation, shape: mean + deviation * stream.standard_normal(shape, mean.dtype),
}


def three_fry(state: Array, dimensions: tuple[int, ...], width: int) -> Produced:
    """Return the state after, and unsigned numbers of ``width`` (8 to 64) bits: ThreeFry2x32 on u64 (key, counter).

    Numbers of 64 bits take a block each. For narrower ones a dimension is halved, and a block's two words are
    neighbours along it.
    """
    key, counter = (int(word) for word in state)
    halved, axis = _halved(dimensions) if width < 64 else (dimensions, 0)
    pairs = np.empty(prod(halved), np.uint64)
    _three_fry(_words(key, 1).view(np.uint32), np.uint64(counter), pairs)
    after = np.array([key, (counter + pairs.size) % (1 << 64)], np.uint64)
    if width == 64:
        return after, pairs.reshape(dimensions)
    words = pairs.view(np.uint32).reshape(*halved, 2)
    if not dimensions:
        return after, words[:1].reshape(()).astype(f"u{width // 8}")
    paired = np.moveaxis(words, -1, axis + 1)
    whole = paired.reshape(*halved[:axis], 2 * halved[axis], *halved[axis + 1 :])
    return after, whole[tuple(map(slice, dimensions))].astype(f"u{width // 8}", copy=False)


def _halved(dimensions: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Return the dimensions with the first even one, else the longest one, halved and rounded up; and which it is."""
    if not dimensions:
        return (), 0
    even = (axis for axis, size in enumerate(dimensions) if size % 2 == 0)
    axis = next(even, dimensions.index(max(dimensions)))
    return (*dimensions[:axis], (dimensions[axis] + 1) // 2, *dimensions[axis + 1 :]), axis


def philox(state: Array, dimensions: tuple[int, ...], width: int) -> Produced:
    """Return the state after, and unsigned numbers of ``width`` (8 to 64) bits: Philox4x32.

    The state is u64 (key, counter) or (key, lower half of the counter, upper half); in the first form the key is the
    upper half as well. Words follow one another in row-major order.
    """
    key, low, *rest = (int(word) for word in state)
    counter = low | (rest[0] if rest else key) << 64
    count = prod(dimensions)
    # A block is four words of 32 bits or two of 64; narrower numbers take a word each.
    per_block = 2 if width == 64 else 4
    words = np.empty((-(-count // per_block), 2), np.uint64)
    lower, upper = _words(counter, 2)
    _philox(_words(key, 1).view(np.uint32), lower, upper, words)
    after = np.concatenate([_words(key, 1), _words(counter + len(words), len(state) - 1)])
    flat = words.reshape(-1).view(np.uint64 if width == 64 else np.uint32)
    return after, flat[:count].reshape(dimensions).astype(f"u{width // 8}", copy=False)


_GENERATORS: dict[str, Callable[[Array, tuple[int, ...], int], Produced]] = {
    "rng_default": philox,
    "rng_philox": philox,
    "rng_three_fry": three_fry,
}
_WORD_BYTES = 4, 8
_STATE_BYTES = {"rng_default": (16, 24), "rng_philox": (16, 24), "rng_three_fry": (16,)}
"""By algorithm how many bytes its state has."""


def _words(number: int, count: int) -> NDArray[np.uint64]:
    """Return the lowest ``count`` words of 64 bits of a number, low first."""
    return np.array([number >> 64 * place & (1 << 64) - 1 for place in range(count)], np.uint64)


@njit(cache=True)
def _round(one: np.uint32, two: np.uint32, turn: int) -> tuple[np.uint32, np.uint32]:
    """Return two words after one round: add, rotate to the left, exclusive or."""
    one = np.uint32(one + two)
    two = np.uint32(np.uint32(two << np.uint32(turn)) | np.uint32(two >> np.uint32(32 - turn)))
    return one, np.uint32(two ^ one)


@njit(cache=True)
def _four_rounds(one: np.uint32, two: np.uint32, is_odd: bool) -> tuple[np.uint32, np.uint32]:
    """Return two words after four rounds; even and odd groups of four turn by different amounts."""
    # Constants rather than a table: the compiler keeps blocks side by side in vector registers only for these.
    if is_odd:
        one, two = _round(one, two, 17)
        one, two = _round(one, two, 29)
        one, two = _round(one, two, 16)
        return _round(one, two, 24)
    one, two = _round(one, two, 13)
    one, two = _round(one, two, 15)
    one, two = _round(one, two, 26)
    return _round(one, two, 6)


@njit(cache=True)
def _add(one: np.uint32, two: np.uint32, number: int) -> np.uint32:
    return np.uint32(np.uint32(one + two) + np.uint32(number))


@njit(cache=True)
def _three_fry(key: Words, counter: np.uint64, pairs: NDArray[np.uint64]) -> None:
    """Fill in the block of ``counter`` and its number: two words in one of 64 bits, the first one low."""
    first, second = key[0], key[1]
    # The parity constant of Threefry: it keeps a key of zeros from giving a schedule of zeros.
    third = np.uint32(np.uint32(first ^ second) ^ np.uint32(0x1BD11BDA))
    # Rotations and key words repeat with periods 8 and 3: written out, as a table would cost the vector registers.
    for block in range(pairs.size):
        number = counter + np.uint64(block)
        one = _add(np.uint32(number & np.uint64(0xFFFFFFFF)), first, 0)
        two = _add(np.uint32(number >> np.uint64(32)), second, 0)
        one, two = _four_rounds(one, two, False)
        one, two = _four_rounds(_add(one, second, 0), _add(two, third, 1), True)
        one, two = _four_rounds(_add(one, third, 0), _add(two, first, 2), False)
        one, two = _four_rounds(_add(one, first, 0), _add(two, second, 3), True)
        one, two = _four_rounds(_add(one, second, 0), _add(two, third, 4), False)
        one, two = _add(one, third, 0), _add(two, first, 5)
        pairs[block] = np.uint64(one) | (np.uint64(two) << np.uint64(32))


@njit(cache=True)
def _philox(key: Words, low: np.uint64, high: np.uint64, words: NDArray[np.uint64]) -> None:
    """Fill each row with the block of a counter of 128 bits and its number: four words in two of 64 bits."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    for block in range(words.shape[0]):
        lower = low + np.uint64(block)
        upper = high + np.uint64(lower < low)
        one, two, three, four = lower & mask, lower >> half, upper & mask, upper >> half
        first, second = np.uint64(key[0]), np.uint64(key[1])
        for _ in range(10):
            left, right = np.uint64(0xD2511F53) * one, np.uint64(0xCD9E8D57) * three
            one, two = (right >> half) ^ two ^ first, right & mask
            three, four = (left >> half) ^ four ^ second, left & mask
            first, second = (first + np.uint64(0x9E3779B9)) & mask, (second + np.uint64(0xBB67AE85)) & mask
        words[block, 0], words[block, 1] = one | (two << half), three | (four << half)
