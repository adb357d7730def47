"""Pass 3: what counts in 64 bits, and of which only words are used, counts in two words."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.test_decompose import decomposed, values

COUNTED = """
    rows = TYPE[4] iota(), iota_dimension=0
    down = TYPE[4,3] broadcast(rows), dimensions={0}
    columns = TYPE[3] iota(), iota_dimension=0
    along = TYPE[4,3] broadcast(columns), dimensions={1}
    step = TYPE[] constant(STEP)
    steps = TYPE[4,3] broadcast(step), dimensions={}
    first = TYPE[4,3] multiply(down, steps)
    count = TYPE[4,3] add(first, along)
    bits = TYPE[] constant(SHIFT)
    by = TYPE[4,3] broadcast(bits), dimensions={}
    moved = TYPE[4,3] shift-right-logical(count, by)
    upper = u32[4,3] convert(moved)
    lower = u32[4,3] convert(count)
    both = u32[4,3] subtract(upper, lower)
"""
"""The counter of random bits, as JAX has it; how many elements a row has, and by how many bits it is moved, is open."""


def counted(dtype="u64", step=2**31, shift=32, more="ROOT out = u32[4,3] not(both)"):
    """Return a program that counts elements, and what is made of it."""
    entry = COUNTED.replace("TYPE", dtype).replace("STEP", str(step)).replace("SHIFT", str(shift))
    return decomposed(entry + more)


def wide(module):
    """Return the names of types of 64 bits that stand in an entry."""
    return {each.shape.dtype.name for each in module.entry.instructions} & {"s64", "u64"}


@pytest.mark.parametrize("dtype", ["u64", "s64"])
@pytest.mark.parametrize("step", [1024, 2**31, 2**32 - 1, 2**32 + 1, 2**62 + 2**31])
@pytest.mark.parametrize("shift", [32, 40, 63])
def test_a_counter_is_of_two_words(dtype, step, shift):
    """With what is carried from one to the other, as NumPy counts in 64 bits."""
    module, made = counted(dtype, step, shift)
    assert not wide(made)
    count = np.arange(4, dtype=np.uint64)[:, None] * np.uint64(step) + np.arange(3, dtype=np.uint64)
    expected = ~((count >> np.uint64(shift)).astype(np.uint32) - count.astype(np.uint32))
    np.testing.assert_array_equal(values(module), expected)
    np.testing.assert_array_equal(values(made), expected)


def test_what_a_row_counts_is_computed_once_a_row():
    """As the TPU compiler has it."""
    _, made = counted()
    found = {each.shape.dimensions for each in made.entry.instructions if each.opcode in ("multiply", "mulhi")}
    assert found == {(4,)}


@pytest.mark.parametrize("number", ["-1", str(2**63 - 1), str(2**33 + 7), "5"])
def test_products_and_sums_of_numbers_keep_both_words(number):
    """Of an upper word in both factors, and in both summands."""
    more = f"""
    number = s64[] constant({number})
    numbers = s64[4,3] broadcast(number), dimensions={{}}
    far = s64[4,3] multiply(numbers, count)
    next = s64[4,3] add(far, count)
    high = s64[4,3] shift-right-logical(next, by)
    word = u16[4,3] convert(next)
    low = u32[4,3] convert(word)
    other = u32[4,3] convert(high)
    ROOT out = u32[4,3] add(low, other)
    """
    module, made = counted("s64", step=2**33 + 3, more=more)
    assert not wide(made)
    np.testing.assert_array_equal(values(made), values(module))


@pytest.mark.parametrize(
    ("given", "made_of_it"),
    [
        ("u64[4,3]", "x"),
        ("s32[4,3]", "u64[4,3] convert(x)"),
        ("f32[4,3]", "u64[4,3] convert(x)"),
    ],
)
def test_numbers_whose_words_are_not_known_stay_whole(given, made_of_it):
    """A negative one has an upper word of ones, and a large float is a number of 64 bits."""
    line = "y = u64[4,3] negate(x)" if made_of_it == "x" else f"y = {made_of_it}"
    more = f"x = {given} parameter(0)\n{line}\nsum = u64[4,3] add(y, count)\nROOT out = u32[4,3] convert(sum)"
    module, made = counted(more=more)
    assert wide(made)
    x = np.arange(12).reshape(4, 3).astype({"u": np.uint64, "s": np.int32, "f": np.float32}[given[0]])
    np.testing.assert_array_equal(values(made, x), values(module, x))


@pytest.mark.parametrize(("given", "is_split"), [("u32", True), ("u8", True), ("s32", False)])
def test_an_unsigned_number_has_no_upper_word(given, is_split):
    """A signed one may be negative."""
    more = f"x = {given}[4,3] parameter(0)\ny = u64[4,3] convert(x)\nz = u64[4,3] add(y, count)\n"
    module, made = counted(more=more + "ROOT out = u32[4,3] convert(z)")
    assert is_split == (not wide(made))
    x = np.full((4, 3), -1).astype({"u32": np.uint32, "u8": np.uint8, "s32": np.int32}[given])
    np.testing.assert_array_equal(values(made, x), values(module, x))


@pytest.mark.parametrize("shift", [31, 64])
def test_a_counter_moved_by_other_bits_stays_whole(shift):
    """Some of the lower word is left, or nothing at all."""
    module, made = counted(shift=shift)
    assert wide(made)
    np.testing.assert_array_equal(values(made), values(module))


def test_a_long_chain_is_not_followed():
    """Each of many words of it would go through all of it."""
    lines = [f"v{n + 1} = u64[4,3] add(v{n}, along)\nw{n + 1} = u32[4,3] convert(v{n + 1})" for n in range(80)]
    module, made = counted(
        more="\n".join(["v0 = u64[4,3] add(along, down)", *lines, "ROOT out = u32[4,3] add(w80, w79)"])
    )
    assert wide(made)
    np.testing.assert_array_equal(values(made), values(module))
