"""Random bits: the operations of each algorithm, counted while it runs as it is defined."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.lowering.test_vector_costs import OPS, assert_computes, at_cost, work_of

DONE: Counter[str] = Counter()
WORD = 2**32 - 1


def did(opcode, value):
    """Return a word and count the operation that made it."""
    DONE[opcode] += 1
    return value & WORD


def rotated(word, by):
    """Return a word turned left: a shift each way, and both joined."""
    left, right = did("shift-left", word << by), did("shift-right-logical", word >> (32 - by))
    return did("or", left | right)


def three_fry(key, counter):
    """ThreeFry-2x32 of 20 rounds (J. Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011)."""
    keys = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    x, y = (did("add", word + first) for word, first in zip(counter, keys, strict=False))
    for turn in range(20):
        x = did("add", x + y)
        y = did("xor", rotated(y, (13, 15, 26, 6, 17, 29, 16, 24)[turn % 8]) ^ x)
        if turn % 4 == 3:
            number = turn // 4 + 1
            x, y = did("add", x + keys[number % 3]), did("add", y + keys[(number + 1) % 3] + number)
    return x, y


def philox(key, counter):
    """Philox-4x32 of 10 rounds (as above)."""
    a, b, c, d = counter
    for turn in range(10):
        k, m = (one + turn * step for one, step in zip(key, (0x9E3779B9, 0xBB67AE85), strict=True))
        low, high = did("multiply", a * 0xD2511F53), did("mulhi", a * 0xD2511F53 >> 32)
        under, over = did("multiply", c * 0xCD9E8D57), did("mulhi", c * 0xCD9E8D57 >> 32)
        a, b = did("xor", did("xor", over ^ b) ^ (k & WORD)), under
        c, d = did("xor", did("xor", high ^ d) ^ (m & WORD)), low
    return a, b, c, d


ALGORITHMS = {
    # The known answers for zeros are those of the authors (Random123, kat_vectors).
    "rng_three_fry": (three_fry, 2, (0x6B200159, 0x99BA4EFE)),
    "rng_philox": (philox, 4, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_random_bits_take_the_operations_of_their_algorithm(name):
    """Of f32[64,512], 32 registers, each holds one of the words that come at once; each of these begins with a sum."""
    generate, words, known = ALGORITHMS[name]
    DONE.clear()
    assert generate((0, 0), (0,) * words) == known
    drawn = [(32 * count / words, OPS[opcode]) for opcode, count in DONE.items()]
    found = work_of(("u64[2]{0:T(256)}",), "(u64[2]{0:T(256)}, u32[64,512]{1,0:T(8,128)})", call_of(name))
    assert_computes(found, at_cost(*drawn, (32, OPS["add"])))


def test_bits_of_no_stated_algorithm_are_the_generators_own():
    """As what ``rng`` draws; a state is no register of bits."""
    result = "(u64[2]{0:T(256)}, u32[64,512]{1,0:T(8,128)})"
    found = work_of(("u64[2]{0:T(256)}",), result, call_of("rng_default"))
    assert OPS["rng-bit-generator"] == OPS["rng"]
    assert_computes(found, at_cost((32, OPS["rng"])))


def call_of(name):
    """Return a call of the algorithm."""
    return f"rng-bit-generator(%a), algorithm={name}"
